"""Runs one stream in a Spark driver: files in, ``table.sink`` out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
from common import history
from spark_life import Life, live

EPOCH_STEP = common.of_stress("plans.spark_writers").EPOCH_STEP

FAILURES_MAX = 12
"""Ends of the query, one after the other, after which the driver gives up."""
SCHEMA = (
    "id BIGINT, writer BIGINT, seq BIGINT, key STRING, amount DOUBLE, text STRING, day DATE, `check` BIGINT"
)


class Stream(Life):
    """One life of the stream's driver: it writes down what the sink returned."""

    schema = SCHEMA

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.failures = 0
        self.open()

    def open(self) -> None:
        """Make the sink."""
        config = self.config
        options = {"schema_mode": config["schema_mode"]} if "schema_mode" in config else {}
        table = common.open_by_safewrite(config)
        sink = table.sink("append", app_id=f"{config['arm']}-{self.number}", **options)
        self._sink = replace(sink, reopen=self._open)

    def _open(self) -> Any:
        """The table with this life's end placed between the effects of its commits."""
        table = common.open_by_safewrite(self.config)
        common.set_traps(table.world, self)
        return table

    def put(self, frame: Any, epoch: int) -> Any:
        """Hand a batch to the sink; its receipt."""
        self._sink(frame, epoch)
        return self._sink.last_receipt

    def write(self, frame: Any, epoch: int) -> None:
        """Put a batch into the table, with the ledger around it, for ``foreachBatch``.  Batch N is file N, append N."""
        self.current = (epoch, "")
        head = {"kind": self.kind, "writer": self.number, "seq": epoch}
        began = time.monotonic()
        try:
            receipt = self.put(frame, epoch)
        except Exception as error:
            self.ledger.record(history.EventKind.INFO, **head, error=common.describe(error))
            self.say("info", epoch)
            raise
        self.trap(epoch, "caller.record_ack", "before")
        answer = {"version": receipt.version, "tries": receipt.attempts, "outcome": str(receipt.outcome)}
        answer |= {"changes": dict(receipt.changes)} if receipt.changes else {}
        self.ledger.record(history.EventKind.OK, **head, elapsed_s=time.monotonic() - began, **answer)
        self.say("ok", epoch, receipt.rows)
        self.trap(epoch, EPOCH_STEP, "before")
        self.batches += 1
        self.failures = 0


def work(config: dict[str, Any], session: Any, make: Callable[[dict[str, Any]], Stream] = Stream) -> None:
    """Run the query, again where it ended with an error, until the stream is told to stop."""
    from pyspark.errors import StreamingQueryException

    driver = make(config)
    driver.wait_for_the_start()
    folder = common.spark_folder(config)
    source = (
        session.readStream.schema(driver.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "source"))
    )
    writer = source.writeStream.foreachBatch(driver.write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    while not (folder / "stop").exists():
        query = writer.start()
        try:
            while not (folder / "stop").exists() and not query.awaitTermination(1):
                pass
            query.stop()
        except StreamingQueryException as error:
            driver.failures += 1
            print(str(error)[:2000], file=sys.stderr, flush=True)
            if driver.failures > FAILURES_MAX:
                raise


if __name__ == "__main__":
    live(work)
