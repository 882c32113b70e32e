"""Tables whose columns safewrite made wider, as Spark reads them, goes on with them and skips their old files."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.test_widen import NARROW, WIDE

pytestmark = pytest.mark.long
FAR = 2**40


def rows(*keys: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": key, "f": 0.5, "d": Decimal("1.25"), "s": {"a": 1}} | more for key in keys]


def widened(table: sw.Table) -> dict[int, float]:
    """Rows in files of narrow types, some of which a delete took; then wider ones, and changes of both by key."""
    table.append(pa.Table.from_pylist(rows(1, 2, 3), NARROW))
    table.delete("id = 3")
    wide = rows(FAR, FAR + 1, f=0.1, d=Decimal("12345678.25"), s={"a": FAR, "b": "x"}, new="y")
    table.append(pa.Table.from_pylist(wide, WIDE), schema_mode="widen")
    changes = pa.Table.from_pylist([{**rows(1)[0], "f": 0.7}, {**wide[0], "f": 0.3}], WIDE)
    table.apply_changes(changes, keys=["id"], sequence_by=["f"])
    return {1: 0.7, 2: 0.5, FAR: 0.3, FAR + 1: 0.1}


def found_by(spark: Spark, where: str, condition: str = "true") -> dict[int, float]:
    found = spark.sql(f"SELECT id, f, d, s.a, s.b, new FROM {where} WHERE {condition}").to_pylist()
    assert len({one["id"] for one in found}) == len(found)
    return {one["id"]: one["f"] for one in found}


def check(spark: Spark, where: str, table: sw.Table, wanted: dict[int, float]) -> None:
    assert found_by(spark, where) == wanted
    for condition, some in {
        "id >= 2": {2, FAR, FAR + 1},
        f"id > {FAR}": {FAR + 1},
        "f > 0.4": {1, 2},
        "f < 0.2": {FAR + 1},
        "d > 100": {FAR, FAR + 1},
        "s.a = 1": {1, 2},
        "s.b = 'x'": {FAR, FAR + 1},
    }.items():
        assert found_by(spark, where, condition).keys() == some, condition
    spark.run(f"UPDATE {where} SET f = 0.7 WHERE id = 2")
    spark.run(f"DELETE FROM {where} WHERE id = {FAR}")
    wanted = {1: 0.7, 2: 0.7, FAR + 1: 0.1}
    assert found_by(spark, where) == wanted
    ours = pa.concat_tables(part.read(["id", "f"]) for part in table.refresh().added_since(None)).to_pylist()
    assert {one["id"]: one["f"] for one in ours} == wanted


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_spark_goes_on_with_a_delta_table_of_wider_columns(
    spark: Spark, tmp_path: Path, vectors: str
) -> None:
    table = sw.create(tmp_path / "t", schema=NARROW, properties={"delta.enableDeletionVectors": vectors})
    wanted = widened(table)
    table.checkpoint()
    check(spark, f"delta.`{tmp_path}/t`", table, wanted)


def test_spark_goes_on_with_an_iceberg_table_of_wider_columns(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    lake = lakes("sql")
    table = lake.create(NARROW)
    check(spark, lake.sql(table), table, widened(table))
