"""Writes a Spark stream to a table by ``table.sink``, and has driver and JVM killed again and again.

This process feeds the stream, a file for each append; every life of the driver (``spark_stream_driver.py``)
has the same checkpoint.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
import pyarrow.parquet as pq
from common import history
from spark_lives import LOOK_EVERY_S, Lives, lead

AHEAD = 2
"""The most files that lie ready: a stream that gets all at once has no rivals for long."""


class Feeder:
    """Feeds the stream of one writer."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.fed = 0
        self._source = lives.folder / "source"
        self._source.mkdir(exist_ok=True)

    @property
    def is_done(self) -> bool:
        """Whether all that was planned is done, and no kill is to come any more."""
        return self.fed >= self.lives.config["appends"] and self.lives.is_last

    def intended(self, seq: int) -> Any:
        """The rows of an append, written down as called."""
        config, writer = self.lives.config, self.lives.writer
        rows = history.make_rows(config["seed"], writer.number, seq, config["rows"], key=None)
        writer.ledger.invoke(rows, kind=writer.kind, attempt=0)
        return common.to_arrow(rows)

    def feed(self) -> None:
        """Add one file, which becomes one batch: Spark takes the oldest first."""
        made = self._source / f".{self.fed:06d}.parquet"  # hidden from Spark until it is whole
        pq.write_table(self.intended(self.fed), made)
        os.utime(made, (self.fed + 1, self.fed + 1))
        made.rename(self._source / made.name[1:])
        self.fed += 1


def run(lives: Lives, make: Callable[[Lives], Feeder] = Feeder) -> None:
    """Feed and kill until the plan is done; the driver ends by itself then."""
    feeder = make(lives)
    lives.start()
    stop_at = float("inf")
    while True:
        lives.look()
        if lives.is_started:
            stop_at = min(stop_at, time.time() + lives.config["time_limit_s"])
            late = time.time() > stop_at
            if late:
                lives.writer.say("late", feeder.fed)
            if late or (feeder.is_done and lives.acked == feeder.fed):
                break
            if not feeder.is_done and feeder.fed - lives.acked < AHEAD:
                feeder.feed()
        if not lives.revive():
            raise RuntimeError("the driver ended before it was told to")
        time.sleep(LOOK_EVERY_S)
    (lives.folder / "stop").touch()
    lives.wait()
    lives.writer.ledger.record(history.EventKind.DONE, kind=lives.writer.kind, writer=lives.writer.number)
    lives.writer.say("done")


if __name__ == "__main__":
    lead(run, "spark_stream_driver.py")
