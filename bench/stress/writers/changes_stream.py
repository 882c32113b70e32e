"""Applies a change log from a Spark stream by ``foreachBatch``, and has driver and JVM killed where planned.

This process feeds the stream, a file for each delivery; every life of the driver (``changes_stream_driver.py``)
has the same checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import change_common
import change_log
import spark_stream
from spark_lives import Lives, lead


class Feeder(spark_stream.Feeder):
    """Feeds the deliveries of one writer."""

    def __init__(self, lives: Lives) -> None:
        super().__init__(lives)
        self._writer = change_common.ChangeWriter(lives.config)

    def intended(self, seq: int) -> Any:
        """The changes of a delivery, written down as called."""
        changes, _ = self._writer.rows_of(seq)
        # A stream names its batches itself, so a batch that a writer of its key has applied is new to it.
        self._writer.intend(seq, changes, f"{change_common.stream_of(self.lives.config)}-{seq}", attempt=0)
        return change_log.to_arrow(changes)


if __name__ == "__main__":
    lead(lambda lives: spark_stream.run(lives, Feeder), "changes_stream_driver.py")
