"""A stream of numbers into an Iceberg table of a REST catalog, each batch exactly once.

    python examples/rate_to_iceberg.py jars/spark http://127.0.0.1:8181 checkpoint

Spark and PyIceberg must reach the same catalog: Spark writes the data files, safewrite commits them.
"""

from __future__ import annotations

import sys
from typing import Any

import safewrite as sw
import safewrite.spark


def stream_into(spark: Any, table: Any, checkpoint: str, spark_catalog: str) -> sw.Receipt:
    """Write what the source has now; the receipt of the last batch."""
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 100)
        .load()
        .selectExpr("value AS id", "timestamp AS at")
    )
    sink = table.sink("append", app_id="rate-example", spark_catalog=spark_catalog)
    query = numbers.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return sink.last_receipt


def main(jars: str, uri: str, checkpoint: str) -> None:
    """Start a session that knows the catalog as ``lake``, open the table, stream."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("rate-to-iceberg")
    catalogs = {"lake": {"type": "rest", "uri": uri}}
    spark = safewrite.spark.configure(builder, jars=jars, delta=False, iceberg=catalogs).getOrCreate()
    table = sw.open(
        "examples.numbers", catalog={"type": "rest", "uri": uri}, create=True, create_namespace=True
    )
    print(stream_into(spark, table, checkpoint, "lake"))


if __name__ == "__main__":
    main(*sys.argv[1:])
