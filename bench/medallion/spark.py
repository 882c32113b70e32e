"""Does what a medallion job does in plain Spark without its guarantees: files to bronze, and a MERGE of the newest change of each key into silver.

It remembers no file, checks no record, follows no position and counts nothing; a crash between its commits loses or doubles rows.
One session with Spark's own commits serves both formats, with two cores and settings that suit small tables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.stress.spark_reader import EXTENSIONS, JARS, all_jars, delta_settings, session_settings

COLUMNS = {"id": "BIGINT", "name": "STRING", "price": "DECIMAL(12,2)", "at": "TIMESTAMP_NTZ"}
SEQ = "DECIMAL(38,0)"
CATALOG = "plain"


@contextmanager
def session(folder: Path, cores: int, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A Spark session that knows Delta, and Iceberg tables in a catalog of files; the JVM ends with this process.

    It has cores of this machine, unless ``settings`` name another master.
    """
    from pyspark.sql import SparkSession

    if not all_jars():
        raise FileNotFoundError(
            f"No jars of Delta and Iceberg are in {JARS}. Nothing was run. Run: make jars"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("plain-medallion")
    for name, value in {**_settings(folder, cores), **(settings or {})}.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    try:
        yield found
    finally:
        found.stop()


def _settings(folder: Path, cores: int) -> dict[str, str]:
    return {
        **session_settings(folder, memory="2g", jvm=""),
        **delta_settings(),
        "spark.sql.extensions": f"io.delta.sql.DeltaSparkSessionExtension,{EXTENSIONS}",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(folder / "iceberg"),
        # The defaults, 200 and 50, are for large tables: they would slow Spark down here.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": "1",
    }


class PlainSpark:
    """By Spark SQL: ``INSERT INTO`` bronze and ``MERGE INTO`` silver, in one format."""

    def __init__(self, spark: Any, folder: Path, table_format: str) -> None:
        self.spark, self.folder, self.table_format = spark, folder, table_format
        self._made: set[str] = set()

    def address(self, layer: str, name: str) -> str:
        """How SQL names a table."""
        if self.table_format == "iceberg":
            return f"{CATALOG}.{layer}.{name}"
        return f"delta.`{self.folder / layer / name}`"

    def table(self, name: str, paths: Sequence[Path]) -> None:
        """Bronze and silver of one table."""
        bronze, silver, changes = self.address("bronze", name), self.address("silver", name), f"new_{name}"
        if name not in self._made:
            self._make(bronze, {"Op": "STRING", **COLUMNS, "seq": SEQ})
            self._make(silver, {**COLUMNS, "seq": SEQ})
            self._made.add(name)
        rows = self._read(paths).persist()  # the files are parsed once, as by the others
        rows.createOrReplaceTempView(changes)
        self.spark.sql(f"INSERT INTO {bronze} SELECT * FROM {changes}").collect()
        self.spark.sql(merge(silver, changes)).collect()
        rows.unpersist()

    def rows(self, name: str) -> pa.Table:
        """Silver, as Spark reads it."""
        return self.spark.sql(f"SELECT * FROM {self.address('silver', name)}").toArrow()

    def count(self, names: Sequence[str]) -> int:
        """Rows of the silver tables together."""
        texts = [f"SELECT count(*) AS n FROM {self.address('silver', name)}" for name in names]
        return int(sum(row["n"] for row in self.spark.sql(" UNION ALL ".join(texts)).collect()))

    def _make(self, address: str, columns: dict[str, str]) -> None:
        text = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {address} ({text}) USING {self.table_format}")

    def _read(self, paths: Sequence[Path]) -> Any:
        """Rows of full loads (older than every change) and of changes."""
        loads = [str(path) for path in paths if path.name.startswith("LOAD")]
        changes = [str(path) for path in paths if not path.name.startswith("LOAD")]
        found = []
        if loads:
            rows = self._csv(loads, COLUMNS)
            found.append(rows.selectExpr("'L' AS Op", *COLUMNS, f"CAST(0 AS {SEQ}) AS seq"))
        if changes:
            found.append(self._csv(changes, {"Op": "STRING", **COLUMNS, "seq": SEQ}))
        return found[0].unionAll(found[1]) if len(found) > 1 else found[0]

    def _csv(self, paths: list[str], columns: dict[str, str]) -> Any:
        schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        return self.spark.read.csv(paths, schema=schema, header=True, nullValue="NULL")


def merge(silver: str, changes: str) -> str:
    """The MERGE that people copy, with the newest change of each key.

    An update of a key that silver lacks is inserted: the recipe that inserts for I alone would end with other rows.
    """
    names = (*COLUMNS, "seq")
    return f"""
        MERGE INTO {silver} AS t USING (
            SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS n FROM {changes}) WHERE n = 1
        ) AS s ON t.id = s.id
        WHEN MATCHED AND s.Op = 'D' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = s.{name}" for name in names)}
        WHEN NOT MATCHED AND s.Op <> 'D' THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
    """
