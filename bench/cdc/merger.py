"""Lands batches by kafka2delta, in an environment that has it: ``python bench/cdc/merger.py FOLDER REGISTRY SETTINGS``.

``FOLDER`` has the batches, each a Parquet file of what kafka2delta's stream makes of Kafka's records; tables are made there.
It says when it begins and when it has ended, and waits for a line each time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TABLES = ("accounts", "lines", "events", "parcels")


def main(folder: Path, registry: str, settings: str) -> None:
    """Land all batches, the middle one twice, as after a driver that died before its checkpoint."""
    from kafka2delta.config import DeltaTableConfig  # type: ignore[import-not-found]
    from kafka2delta.stream.stream import merge_micro_batch  # type: ignore[import-not-found]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafka2delta")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE DATABASE lake")
    tables = {
        name: DeltaTableConfig(schema="lake", table_name=name, path=str(folder / "lake" / name))
        for name in TABLES
    }
    land = merge_micro_batch(registry, tables)
    files = sorted(folder.glob("batch-*.parquet"))
    _say("begins")
    for number, file in enumerate(files):
        for _ in range(2 if number == len(files) // 2 else 1):
            land(spark.read.parquet(str(file)), number)
    _say("ended")
    spark.stop()


def _say(what: str) -> None:
    print(what, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
