"""A table under a change log that Spark and other writers apply, and its rows as a library reads them that writes none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import safewrite as sw
from safewrite.testing.changes import Change
from tests.changes.test_tables import HOW, SCHEMA, frame
from tests.spark.lake import Lake
from tests.spark.session import Spark


@dataclass
class ChangedTable:
    """``lake`` holds an Iceberg table, ``folder`` a Delta table."""

    spark: Spark
    name: str
    lake: Lake | None = None
    schema: pa.Schema = SCHEMA

    def open(self) -> Any:
        return sw.open(self.name) if self.lake is None else self.lake.open(self.name)

    def apply(self, batch: list[Change], *, table: Any = None, **how: Any) -> Any:
        """Apply a batch as a Spark DataFrame."""
        return self.apply_rows(frame(batch), table=table, **HOW | how)

    def apply_rows(self, rows: pa.Table, *, table: Any = None, **how: Any) -> Any:
        with self.spark.careless():
            return (table or self.open()).apply_changes(self.spark.session.createDataFrame(rows), **how)

    def found(self) -> list[dict[str, Any]]:
        """The rows, by deltalake or PyIceberg."""
        if self.lake is None:
            read = deltalake.QueryBuilder().register(
                "t", deltalake.DeltaTable(self.name)
            )  # it knows deletion vectors
            return list(pa.table(read.execute("SELECT * FROM t").read_all()).to_pylist())
        return list(self.lake.load().load_table(self.name).scan().to_arrow().to_pylist())

    def rows(self) -> dict[tuple[int, str], str]:
        pairs = [((one["a"], one["b"]), one["value"]) for one in self.found()]
        assert len(pairs) == len(dict(pairs)), f"a key is there twice: {pairs}"
        return dict(pairs)


def made(  # noqa: PLR0917 - a fixture's own arguments
    kind: str,
    spark: Spark,
    lake: Lake,
    folder: Path,
    schema: pa.Schema = SCHEMA,
    partition_by: Sequence[str] = (),
    **properties: str,
) -> ChangedTable:
    """A new table of a format."""
    settings: dict[str, Any] = {"partition_by": partition_by, "properties": properties or None}
    if kind == "iceberg":
        return ChangedTable(spark, lake.create(schema, **settings).uri, lake, schema)
    uri = str(folder / "t")
    sw.create(uri, schema, **settings)
    return ChangedTable(spark, uri, None, schema)
