"""Writer: a Spark stream from files into a table by ``table.sink``, whose driver and JVM are killed again and again.

This process feeds the stream, a file for each append, and starts the driver (``spark_driver.py``) anew
with the same checkpoint each time it was killed.  Driver and JVM are one process group, so that a
SIGKILL hits both at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
import pyarrow.parquet as pq
from common import history

ANY_STEP = "stream.any_moment"
AHEAD = 2
"""How many files lie ready at most: a stream that is fed all at once has no rivals for long."""
LOOK_EVERY_S = 0.2
DRIVER = Path(__file__).with_name("spark_driver.py")


class Stream:
    """The stream of one writer, over all lives of its driver."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.writer = common.Writer(config)
        self.folder = common.stream_folder(config)
        self.fed = 0
        self.acked = 0
        self.lives = 0
        self._began = 0.0
        self._driver: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Feed and kill until the plan is done; the driver ends by itself then."""
        (self.folder / "source").mkdir(parents=True, exist_ok=True)
        self._start()
        start_file, stop_at = Path(self.config["start_file"]), float("inf")
        while True:
            self._look()
            if start_file.exists():
                stop_at = min(stop_at, time.time() + self.config["time_limit_s"])
                late = time.time() > stop_at
                if late:
                    self.writer.say("late", self.fed)
                if late or (self._fed_enough() and self.acked == self.fed):
                    break
                if not self._fed_enough() and self.fed - self.acked < AHEAD:
                    self._feed()
            self._kill_at_any_moment()
            self._revive()
            time.sleep(LOOK_EVERY_S)
        (self.folder / "stop").touch()
        assert self._driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(60)
        self._end()
        self.writer.ledger.record(history.Event.DONE, kind=self.writer.kind, writer=self.writer.number)

    def _fed_enough(self) -> bool:
        """All that was planned, and no kill is to come any more."""
        return self.fed >= self.config["appends"] and self.lives >= len(self.config["traps"])

    def _look(self) -> None:
        """What the driver has put down in the ledger."""
        events = list(history.read_events(self.config["history"]))
        self.acked = len({event["seq"] for event in events if event["event"] == history.Event.OK})
        self.lives = sum(event["event"] == history.Event.KILL for event in events)
        begun = [event["t"] for event in events if event["event"] == history.Event.START]
        self._began = begun[self.lives] if len(begun) > self.lives else 0.0

    def _feed(self) -> None:
        """One more file, which becomes one more batch: Spark takes the oldest first."""
        rows = history.make_rows(
            self.config["seed"], self.writer.number, self.fed, self.config["rows"], key=None
        )
        self.writer.ledger.invoke(rows, kind=self.writer.kind, attempt=0)
        source = self.folder / "source"
        made = source / f".{self.fed:06d}.parquet"  # hidden from Spark until it is whole
        pq.write_table(common.to_arrow(rows), made)
        os.utime(made, (self.fed + 1, self.fed + 1))
        made.rename(source / made.name[1:])
        self.fed += 1

    def _kill_at_any_moment(self) -> None:
        """Where this life is to end by a kill from outside, and it is time."""
        traps = self.config["traps"]
        end = traps[self.lives] if self.lives < len(traps) else None
        if end is None or not self._began or end["step"] != ANY_STEP:
            return
        if time.time() - self._began >= end["delay_s"] and self.fed:
            fields = {name: end[name] for name in ("step", "when")}
            self.writer.ledger.record(
                history.Event.KILL, kind=self.writer.kind, writer=self.writer.number, seq=self.acked, **fields
            )
            assert self._driver is not None
            self.writer.say(history.Event.KILL, self.acked, fields["step"], fields["when"], self._driver.pid)
            self._end()

    def _start(self) -> None:
        # In a group of its own, which is also that of its JVM.
        self._driver = subprocess.Popen(
            [sys.executable, str(DRIVER), sys.argv[1], str(os.getpid())], start_new_session=True
        )

    def _revive(self) -> None:
        """Start the driver again after a kill; any other end of it is one of the run."""
        assert self._driver is not None
        code = self._driver.poll()
        if code is None:
            return
        self._end()
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the driver ended with {code}")
        self.writer.say("restart")
        self._start()

    def _end(self) -> None:
        """Kill what is left of driver and JVM."""
        assert self._driver is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()


def main() -> None:
    """Run the stream; leave with what its driver said of an error."""
    code = 0
    stream = Stream(common.read_config())
    try:
        stream.run()
        stream.writer.say("done")
    except BaseException:  # noqa: BLE001 - whatever it is, the exit code and the log tell it
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


main()
