"""Spark and pandas append to one Delta table, each under a key, and repeat themselves without harm.

python examples/spark_and_pandas.py jars/spark lake
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

import safewrite as sw
import safewrite.spark


def write_both(spark: Any, table: Any) -> list[sw.Receipt]:
    """Two writes and their repeats; four receipts."""
    by_spark = spark.range(3).selectExpr("id", "CONCAT('spark ', id) AS name")
    by_pandas = pd.DataFrame({"id": [3, 4], "name": ["pandas 3", "pandas 4"]})
    receipts = []
    for _ in range(2):  # as a job does that is not sure whether its first attempt landed
        receipts.append(table.append(by_spark, key="nightly/2026-11-21/spark"))
        receipts.append(table.append(by_pandas, key="nightly/2026-11-21/pandas"))
    return receipts


def main(jars: str, folder: str) -> None:
    """Start a session, open the table, write."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("spark-and-pandas")
    builder = safewrite.spark.configure(builder, jars=jars, local_files=True)
    spark = safewrite.spark.attach(builder.getOrCreate())
    for receipt in write_both(spark, sw.open(Path(folder) / "people", create=True)):
        print(receipt.outcome, receipt.rows, "rows in version", receipt.version)


if __name__ == "__main__":
    main(*sys.argv[1:])
