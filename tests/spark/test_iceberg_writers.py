"""Spark writes to Iceberg tables while safewrite appends: nothing is lost, nothing is there twice."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.iceberg.table import IcebergTable
from tests.servers import object_at
from tests.spark.lake import Lake
from tests.spark.session import Spark

pytestmark = pytest.mark.long

WRITERS = 4
APPENDS = 6
MODES = [("sql", "copy-on-write"), ("rest", "merge-on-read")]


def rows(*ids: int, value: str = "new") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([value] * len(ids), pa.string())})


def settings(mode: str) -> dict[str, str]:
    """How Spark changes rows; and that it tries again until it has, without minding rows that came meanwhile."""
    found = {"format-version": "2", "commit.retry.num-retries": "100", "commit.retry.min-wait-ms": "20"}
    for verb in ("delete", "update", "merge"):
        found |= {f"write.{verb}.mode": mode, f"write.{verb}.isolation-level": "snapshot"}
    return found


@contextmanager
def appending(lake: Lake, table: IcebergTable, **options: Any) -> Iterator[list[Future[None]]]:
    """Four writers append rows, each its own, while the body runs; all appends are acknowledged in the end."""
    tables = [lake.open(table.uri, **options) for _ in range(WRITERS)]

    def work(writer: int) -> None:
        for number in range(APPENDS):
            first = ours(writer, number)
            receipt = tables[writer].append(rows(first, first + 1), key=f"{writer}-{number}")
            assert receipt.outcome == "committed"

    with ThreadPoolExecutor(WRITERS) as pool:
        futures = [pool.submit(work, writer) for writer in range(WRITERS)]
        yield futures
        for future in futures:
            future.result()


def ours(writer: int, number: int) -> int:
    """The first of the two ids of an append."""
    return 1000 * (writer + 1) + 2 * number


OURS = Counter(
    ours(writer, number) + i for writer in range(WRITERS) for number in range(APPENDS) for i in (0, 1)
)


def values(table: pa.Table) -> list[tuple[int, str]]:
    """Rows of ``id`` and ``value``, sorted."""
    return sorted(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))


@pytest.mark.parametrize(("kind", "mode"), MODES)
def test_spark_changes_rows_while_four_writers_append(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], kind: CatalogKind, mode: str
) -> None:
    lake = lakes(kind)
    table = lake.create(rows().schema, properties=settings(mode))
    table.append(rows(*range(10), value="old"))
    name = lake.sql(table)
    with appending(lake, table):
        spark.run(f"INSERT INTO {name} VALUES (100, 'spark'), (101, 'spark')")
        spark.run(f"DELETE FROM {name} WHERE id IN (1, 2)")
        spark.run(f"UPDATE {name} SET value = 'updated' WHERE id IN (3, 100)")
        spark.run(
            f"MERGE INTO {name} t USING (SELECT EXPLODE(ARRAY(4L, 102L)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET value = 'merged' WHEN NOT MATCHED THEN INSERT (id, value) VALUES (id, 'merged')"
        )
    others = {0: "old", 3: "updated", 4: "merged", **dict.fromkeys(range(5, 10), "old"),
              100: "updated", 101: "spark", 102: "merged"}  # fmt: skip
    expected = sorted([*others.items(), *((id_, "new") for id_ in OURS)])
    assert values(spark.read(name)) == expected
    assert values(table.refresh().iceberg.scan().to_arrow()) == expected
    assert (spark.sql(f"SELECT * FROM {name}.delete_files").num_rows > 0) == (mode == "merge-on-read")
    changed_by_safewrite(spark, lake, table, expected)


def changed_by_safewrite(
    spark: Spark, lake: Lake, table: IcebergTable, before: list[tuple[int, str]]
) -> None:
    """Rows that Spark's position deletes removed do not come back when safewrite rewrites their files."""
    name = lake.sql(table)
    table.delete("id = 5")
    table.overwrite(rows(8, value="old"), where="value = 'old' AND id > 7")
    kept = [(id_, value) for id_, value in before if id_ != 5 and not (value == "old" and id_ > 7)]
    expected = sorted([*kept, (8, "old")])
    assert values(spark.read(name)) == expected
    assert values(table.refresh().iceberg.scan().to_arrow()) == expected
    table.overwrite(rows(1, value="all"))
    assert values(spark.read(name)) == [(1, "all")]


# --- what safewrite does not read -----------------------------------------------------------------
def test_equality_deletes_do_not_stop_appends_and_are_refused_by_deletes(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], ministack: Ministack
) -> None:
    lake = lakes("rest")
    table = lake.create(rows().schema)
    table.append(rows(1, 2, 3))
    delete_by_equality(spark, lake, table, ministack, pa.array([2], pa.int64()))
    table.append(rows(2, 4, value="later"))
    expected = [(1, "new"), (2, "later"), (3, "new"), (4, "later")]
    assert values(spark.read(lake.sql(table))) == expected
    before = table.refresh().version
    attempts: list[Callable[[], Any]] = [
        lambda: table.delete("id = 1"),
        lambda: table.overwrite(rows(1), where="id = 1"),
        lambda: table.overwrite(rows(5)),
    ]
    for attempt in attempts:
        with pytest.raises(sw.UnsupportedTableError, match="equality deletes"):
            attempt()
    assert table.refresh().version == before
    assert values(spark.read(lake.sql(table))) == expected


def delete_by_equality(
    spark: Spark, lake: Lake, table: IcebergTable, ministack: Ministack, ids: pa.Array
) -> None:
    """What Flink does: a file of ids whose rows are gone. Spark writes none, so the file is our own."""
    kind = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    body = io.BytesIO()
    pq.write_table(pa.table([ids], schema=kind), body)
    path = f"{table.iceberg.location()}/data/equality.parquet"
    ministack.boto3_client("s3").put_object(**object_at(path), Body=body.getvalue())
    jvm = spark.session.sparkContext._jvm
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark.session._jsparkSession, lake.sql(table)
    )
    columns = spark.session.sparkContext._gateway.new_array(jvm.int, 1)
    columns[0] = 1
    file = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(java.spec())
        .ofEqualityDeletes(columns)
        .withPath(path)
        .withFormat("parquet")
        .withFileSizeInBytes(len(body.getvalue()))
        .withRecordCount(len(ids))
        .build()
    )
    java.newRowDelta().addDeletes(file).commit()
