"""Runs one stream of changes in a Spark driver: files in, ``apply_changes(frame.toArrow())`` out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import change_common
import change_log
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
        """The table, and the log whose batches name themselves."""
        self._log = change_log.draw(self.config["seed"], change_log.LogPlan(**self.config["log"]))
        self._mine = self._log.of_writer(self.config["place"], self.config["places"])
        self._table = common.open_by_safewrite(self.config)
        common.set_traps(self._table.world, self)

    def put(self, frame: Any, epoch: int) -> Any:
        """Apply the changes of a file under the name of their batch."""
        key = change_common.name_of(self.config, self._mine[epoch])
        return self._table.apply_changes(frame.toArrow(), key=key, **change_common.HOW)


if __name__ == "__main__":
    live(lambda config, session: spark_stream_driver.work(config, session, Stream))
