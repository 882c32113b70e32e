"""A stream of numbers into a Delta table in a local folder, each batch exactly once.

    python examples/rate_to_delta.py jars/spark lake

Run it twice: the second run goes on where the first one stopped, whenever and however that was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import safewrite as sw
import safewrite.spark


def stream_into(spark: Any, table: Any, checkpoint: str, **sink_settings: str) -> sw.Receipt:
    """Write what the source has now; the receipt of the last batch."""
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 100)
        .load()
        .selectExpr("value AS id", "timestamp AS at")
    )
    # The app id names the stream for as long as its checkpoint lives: with a new checkpoint, take a new one.
    sink = table.sink("append", app_id="rate-example", **sink_settings)
    query = numbers.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return sink.last_receipt


def main(jars: str, folder: str) -> None:
    """Start a session, open the table, stream."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("rate-to-delta")
    builder = safewrite.spark.configure(builder, jars=jars, local_files=True)
    spark = safewrite.spark.attach(builder.getOrCreate())
    table = sw.open(Path(folder) / "numbers", create=True)
    print(stream_into(spark, table, f"{folder}/checkpoint"))


if __name__ == "__main__":
    main(*sys.argv[1:])
