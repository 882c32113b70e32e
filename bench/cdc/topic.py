"""Copies all records of the workload's topics to Parquet: ``python -m bench.cdc.topic SERVERS FOLDER PATTERN``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.cdc.source_stack import JARS, PATTERN, ROOT, SMALL_SPARK
from safewrite.spark.jars import jars_from

COLUMNS = ("topic", "partition", "offset", "key", "value", "headers")


def main(servers: str, folder: str, pattern: str) -> None:
    """Read from the first offset to the last; aborted transactions and gaps are as Kafka has them."""
    from pyspark.sql import SparkSession

    jars = jars_from(JARS, delta=False, iceberg=False, s3=False, kafka=True)
    builder = SparkSession.builder.appName("topic").config("spark.jars", ",".join(map(str, jars)))
    for name, value in SMALL_SPARK.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribePattern", pattern).option("includeHeaders", "true").load()
    frame.select(*COLUMNS).coalesce(1).write.parquet(folder)
    spark.stop()


def copy(servers: str, folder: Path, pattern: str = PATTERN) -> pa.Table:
    """The records of the topics, read by a process of its own."""
    command = [sys.executable, "-m", "bench.cdc.topic", servers, str(folder), pattern]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode != 0:
        raise RuntimeError(f"the topics cannot be copied:\n{done.stderr[-3000:]}")
    return pq.read_table(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
