"""Changes of a Spark DataFrame on tables, values and sessions that nobody made for them; read by deltalake and PyIceberg."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from tests.spark.changed import ChangedTable, made
from tests.spark.lake import Lake
from tests.spark.session import Spark

pytestmark = pytest.mark.long

Lakes = Callable[[CatalogKind], Lake]
ODD = ["a b", "50%", "é=/?#", "  ", None, "x", "'q\"", "__HIVE_DEFAULT_PARTITION__x"]
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("seq", pa.int64()), ("v", pa.string())])
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"], "delete_when": "op = 'd'"}
MERGE_ON_READ = {"write.merge.mode": "merge-on-read"}


def batch(ids: Iterable[int], seq: int, value: str, op: str = "u") -> pa.Table:
    found = [{"id": n, "p": ODD[n % len(ODD)], "seq": seq, "v": value, "op": op} for n in ids]
    return pa.Table.from_pylist(found, schema=pa.schema([*SCHEMA, ("op", pa.string())]))


FIRST, SECOND, GONE = (
    batch(range(40), 1, "a"),
    batch(range(0, 40, 3), 2, "b"),
    batch(range(0, 40, 7), 3, "", "d"),
)
LEFT = {
    n: (ODD[n % len(ODD)], "a" if n % 3 else "b")
    for n in range(40)
    if n % 7
}  # fmt: skip


def rows(table: ChangedTable) -> dict[int, tuple[str | None, str]]:
    found = table.found()
    assert len(found) == len({one["id"] for one in found})
    return {one["id"]: (one["p"], one["v"]) for one in found}


@pytest.mark.parametrize(("kind", "properties"), [("delta", {}), ("iceberg", {}), ("iceberg", MERGE_ON_READ)])
def test_partitions_with_odd_names_are_found_again(
    kind: str, properties: dict[str, str], spark: Spark, lakes: Lakes, tmp_path: Path
) -> None:
    table = made(kind, spark, lakes("sql"), tmp_path, SCHEMA, ["p"], **properties)
    for changes in (FIRST, SECOND, GONE):
        table.apply_rows(changes, **HOW)
    assert rows(table) == LEFT


def test_changes_reach_a_delta_table_that_spark_made_through_a_pickled_object(
    spark: Spark, tmp_path: Path
) -> None:
    table = ChangedTable(spark, str(tmp_path / "t"), None, SCHEMA)
    with spark.careless():
        frame = spark.session.createDataFrame(FIRST.drop_columns(["op"]))
        frame.write.format("delta").partitionBy("p").save(table.name)
    table.apply_rows(SECOND, **HOW)
    table.apply_rows(GONE, table=pickle.loads(pickle.dumps(table.open())), **HOW)
    assert rows(table) == LEFT


def test_changes_reach_an_iceberg_table_that_spark_made_from_another_thread(
    spark: Spark, lakes: Lakes
) -> None:
    lake = lakes("sql")
    table = ChangedTable(spark, lake.new(), lake, SCHEMA)
    with spark.careless():
        frame = spark.session.createDataFrame(FIRST.drop_columns(["op"]))
        frame.writeTo(lake.sql(table.name)).using("iceberg").partitionedBy("p").create()
    held = table.open()
    table.apply_rows(SECOND, table=held, **HOW)
    thread = threading.Thread(target=lambda: table.apply_rows(GONE, table=held, **HOW))
    thread.start()
    thread.join()
    assert rows(table) == LEFT


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_keys_of_any_type_are_the_same_in_any_zone_and_for_other_frames(
    kind: str, spark: Spark, lakes: Lakes, tmp_path: Path
) -> None:
    names = ("d", "t", "n", "b")
    kinds = (
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.decimal128(20, 3),
        pa.binary(),
        pa.timestamp("us", "UTC"),
        pa.string(),
    )
    schema = pa.schema([*zip((*names, "seq", "v"), kinds, strict=True)])
    table = made(kind, spark, lakes("sql"), tmp_path, schema)
    how = {**HOW, "keys": list(names), "all_late": "count"}
    start = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)

    def changes(seq: int, op: str, ids: range) -> pa.Table:
        found = [
            {"d": dt.date(1960 + n, 2, 28), "t": start + dt.timedelta(days=n), "n": Decimal(n) / 8, "b": bytes([n, 0, 255]),
             "seq": start + dt.timedelta(seconds=seq), "v": str(seq), "op": op}
            for n in ids
        ]  # fmt: skip
        return pa.Table.from_pylist(found, schema=schema.append(pa.field("op", pa.string())))

    zone = spark.session.conf.get("spark.sql.session.timeZone")
    spark.session.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        table.apply_rows(changes(1, "u", range(20)), **how)
        assert table.apply_rows(changes(2, "u", range(0, 20, 2)), **how).changes["updated"] == 10
        assert table.apply_rows(changes(3, "d", range(0, 20, 5)), **how).changes["deleted"] == 4
        late = changes(2, "u", range(0, 20, 5))
        assert table.apply_rows(late, **how).changes["late"] == 4
        assert table.open().apply_changes(late, **how).changes["late"] == 4
    finally:
        spark.session.conf.set("spark.sql.session.timeZone", zone)
    assert len(table.found()) == 16


def test_a_batch_without_rows_changes_nothing(spark: Spark, tmp_path: Path) -> None:
    table = made("delta", spark, None, tmp_path, SCHEMA)  # type: ignore[arg-type]
    assert table.apply_rows(FIRST.slice(0, 0), **HOW).changes["applied"] == 0
    with pytest.raises(sw.InvalidInputError, match="'ID', which is no column"):
        table.apply_rows(FIRST, **HOW | {"keys": ["ID"]})
    assert table.found() == []
