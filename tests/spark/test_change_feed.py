"""Spark reads from a table's change data feed what our commits did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from tests.changes.test_decide import down, up
from tests.changes.test_tables import SCHEMA, apply
from tests.spark.session import Spark


@pytest.mark.sweep("False")
@pytest.mark.parametrize("marks", [False, True])
def test_spark_reads_what_every_verb_did(spark: Spark, tmp_path: Path, marks: bool) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    if marks:
        properties["delta.enableDeletionVectors"] = "true"
    table = sw.create(tmp_path / "t", SCHEMA, partition_by=["b"], properties=properties)
    apply(table, [up((1, 0), "old", (a, b)) for a in range(5) for b in "xy"])
    apply(table, [up((2, 0), "new", (1, "x")), down((2, 0), (2, "x")), up((2, 0), "new", (9, "y"))])
    table.delete("a = 3 OR b = 'y' AND a < 2")
    rows = pa.Table.from_pylist([{"a": 4, "b": "z", "s": 9, "t": 0, "value": "over"}], SCHEMA)
    table.overwrite(rows, where="a = 4")
    assert changes(spark, table, 2) == {
        (1, "x", "old", "update_preimage"), (1, "x", "new", "update_postimage"),
        (2, "x", "old", "delete"), (9, "y", "new", "insert"),
    }  # fmt: skip
    assert changes(spark, table, 3) == {
        (a, b, "old", "delete") for a, b in [(3, "x"), (3, "y"), (0, "y"), (1, "y")]
    }
    assert changes(spark, table, 4) == {
        (4, "x", "old", "delete"), (4, "y", "old", "delete"), (4, "z", "over", "insert"),
    }  # fmt: skip


def changes(spark: Spark, table: Any, version: int) -> set[tuple[Any, ...]]:
    """The changes of a version as Spark reads them, none of which may come twice."""
    with spark.careless():
        read = spark.session.read.format("delta").option("readChangeFeed", "true")
        frame = read.option("startingVersion", version).option("endingVersion", version).load(table.uri)
        found = Counter(tuple(row) for row in frame.select("a", "b", "value", "_change_type").collect())
    assert set(found.values()) <= {1}
    return {*found}
