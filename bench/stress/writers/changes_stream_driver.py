"""Runs one stream of changes in a Spark driver: files in, ``table.sink("apply_changes")`` out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import change_common
import common
import spark_stream_driver
from spark_life import live

SCHEMA = (
    "region STRING, id BIGINT, lsn BIGINT, name STRING, amount DECIMAL(18, 4), score DOUBLE, day DATE, at TIMESTAMP,"
    " op STRING"
)


class Stream(spark_stream_driver.Stream):
    """One life of the stream's driver."""

    schema = SCHEMA

    def open(self) -> None:
        """Make the sink, which knows a batch by the stream's name and the number that Spark gives it."""
        table = common.open_by_safewrite(self.config)
        sink = table.sink(
            "apply_changes", app_id=change_common.stream_of(self.config), changes=change_common.HOW
        )
        self._sink = replace(sink, reopen=self._open)


if __name__ == "__main__":
    live(lambda config, session: spark_stream_driver.work(config, session, Stream))
