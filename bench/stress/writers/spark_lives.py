"""Runs all lives of a Spark driver: restarts it each time it was killed, kills it where planned.

Driver and JVM are one process group, so that a SIGKILL hits both at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
from common import history

ANY_MOMENT = "at any moment"
LOOK_EVERY_S = 0.2
_END_WAIT_S = 60.0


class Lives:
    """The driver of one writer: the program ``driver`` in this folder."""

    def __init__(self, config: dict[str, Any], driver: str) -> None:
        self.config = config
        self.writer = common.Writer(config)
        self.folder = common.spark_folder(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.acked = 0
        self.ended = 0
        self._program = Path(__file__).with_name(driver)
        self._began = 0.0
        self._seq = 0
        self._driver: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Whether the writers of the arm have been let loose."""
        return Path(self.config["start_file"]).exists()

    @property
    def is_last(self) -> bool:
        """Whether no kill is to come any more."""
        return self.ended >= len(self.config["traps"])

    def start(self) -> None:
        """Start the next life."""
        # In a group of its own, which is also that of its JVM.
        self._driver = subprocess.Popen(
            [sys.executable, str(self._program), sys.argv[1], str(os.getpid())], start_new_session=True
        )

    def look(self) -> None:
        """Read what the driver has put down in the ledger; kill it, if this is the moment."""
        events = list(history.read_events(self.config["history"]))
        self.acked = len({event["seq"] for event in events if event["event"] == history.EventKind.OK})
        self._seq = next((event["seq"] for event in reversed(events) if "seq" in event), 0)
        self.ended = sum(event["event"] == history.EventKind.KILL for event in events)
        begun = [event["t"] for event in events if event["event"] == history.EventKind.START]
        self._began = begun[self.ended] if len(begun) > self.ended else 0.0
        self._kill_at_any_moment()

    def _kill_at_any_moment(self) -> None:
        traps = self.config["traps"]
        end = traps[self.ended] if not self.is_last else None
        if end is None or not self._began or end["end"] != ANY_MOMENT or not self.is_started:
            return
        if time.time() - self._began < end["delay_s"]:
            return
        assert self._driver is not None
        if self._driver.poll() is not None:
            return
        place = {name: end[name] for name in ("step", "when", "end")}
        self.writer.ledger.record(
            history.EventKind.KILL, kind=self.writer.kind, writer=self.writer.number, seq=self._seq, **place
        )
        self.writer.say(history.EventKind.KILL, self._seq, end["step"], end["when"], self._driver.pid)
        self.end()

    def revive(self) -> bool:
        """Start the driver again if it was killed; False if it has ended by itself, and well.

        Raises:
            RuntimeError: it ended otherwise, which is an error of the run.
        """
        assert self._driver is not None
        code = self._driver.poll()
        if code is None:
            return True
        self.end()
        if code == 0:
            return False
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the driver ended with {code}")
        self.writer.say("restart")
        self.start()
        return True

    def wait(self) -> None:
        """Let the driver end by itself, then end what is left."""
        assert self._driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._driver.wait(_END_WAIT_S)
        self.end()

    def end(self) -> None:
        """Kill what is left of driver and JVM."""
        assert self._driver is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()


def lead(run: Callable[[Lives], None], driver: str) -> NoReturn:
    """Do ``run`` with the lives of a driver; leave with what it said of an error."""
    common.leave_after(lambda: run(Lives(common.read_config(), driver)))
