"""Spark writes to Iceberg tables while safewrite appends: nothing is lost, nothing is there twice."""

from __future__ import annotations

import datetime as dt
import io
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DateType, IntegerType

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.changes.tasks import apply_job
from safewrite.iceberg.catalog.loading import load
from safewrite.iceberg.table import IcebergTable
from tests.iceberg.test_v3_appends import Overtaken
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


# --- format version 3 -------------------------------------------------------------------------------
UPGRADE = "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')"
CHANGED = "UPDATE {t} SET value = 'changed' WHERE id IN (2, 5)"
APPENDED = "INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES "
DELETED = "DELETE FROM {t} WHERE id IN (2, 6)"
MERGED = (
    "MERGE INTO {t} USING (SELECT /*+ COALESCE(1) */ * FROM VALUES (1L, 'z', false), (5L, 'z', false), (7L, 'z', true), (11L, 'z', false) "
    "AS c(id, value, gone)) s ON {t}.id = s.id WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET value = s.value "
    "WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, value) VALUES (s.id, s.value)"
)
GIVEN = [{"id": number, "value": "z", "gone": number == 7} for number in (1, 5, 7, 11)]
COMPACTED = "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))"
BY_US: dict[str, Callable[[sw.Table, Callable[[Any], Any]], object]] = {
    COMPACTED: lambda table, frame: table.maintain(),
    DELETED: lambda table, frame: table.delete("id IN (2, 6)"),
    MERGED: lambda table, frame: table.apply_changes(
        frame(GIVEN), keys=["id"], sequence_by=["value"], delete_when="gone"
    ),
}
"""What safewrite does where Spark would run a statement."""
PROGRAMS: dict[str, tuple[CatalogKind, str, str, list[str | tuple[int, ...]]]] = {
    # the catalog, the format version that the table is made with, how Spark changes rows, and what it runs or either of them appends
    "made": ("rest", "3", "copy-on-write", [(1, 2), (3,), f"{APPENDED} (4L, 'spark'), (5L, 'spark')", (6, 7), CHANGED, (8,), DELETED, MERGED, (9, 10), COMPACTED]),
    "of a SQL catalog": ("sql", "3", "merge-on-read", [(1, 2), f"{APPENDED} (5L, 'spark')", CHANGED, (3, 4), MERGED, "DELETE FROM {t} WHERE id = 3", (6,), DELETED, (8,), COMPACTED]),
    "upgraded": ("rest", "2", "merge-on-read", [(1, 2), (3, 4), UPGRADE, (5,), CHANGED, (6, 7), DELETED, MERGED, "CALL {c}.system.rewrite_data_files('{n}')", (8,)]),
}  # fmt: skip


@pytest.mark.parametrize("by_executors", [False, True], ids=["here", "executors"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_of_version_3_have_the_ids_that_spark_alone_would_give_them(
    spark: Spark,
    lakes: Callable[[CatalogKind], Lake],
    program: str,
    by_executors: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Row ids and sequence numbers go with the rows through what Spark changes in between."""
    monkeypatch.setattr(apply_job, "FEW_ROWS", 0)  # executors get few rows, too
    frame = spark.session.createDataFrame if by_executors else lambda given: given
    kind, version, mode, steps = PROGRAMS[program]
    lake = lakes(kind)
    made = load(
        lake.name, **lake.properties
    )  # safewrite's own, for PyIceberg's SQL catalog writes no such metadata
    catalog, found = lake.closing.enter_context(closing(made)), []
    for by_us in (True, False):
        properties = settings(mode) | {"format-version": version}
        table = sw.create(lake.new(), rows().schema, catalog=catalog, properties=properties)
        name = lake.sql(table.uri)
        for step in steps:
            if step in BY_US and by_us:
                with spark.careless():
                    BY_US[step](sw.open(table.uri, catalog=catalog), frame)
            elif isinstance(step, str):
                spark.run(step.format(t=name, c=lake.name, n=table.uri))
            elif by_us:
                assert sw.open(table.uri, catalog=catalog).append(rows(*step)).outcome == "committed"
            else:
                spark.run(APPENDED.format(t=name) + ", ".join(f"({one}L, 'new')" for one in step))
        query = f"SELECT id, value, _row_id AS r, _last_updated_sequence_number AS s FROM {name} ORDER BY id"
        found.append(spark.sql(query).to_pylist())
        assert values(spark.read(name)) == values(sw.open(table.uri, catalog=catalog).rows(where="true"))
    assert found[0] == found[1]
    assert len({row["r"] for row in found[0]}) == len(found[0])
    assert None not in {row["s"] for row in found[0]}


def test_a_rest_catalog_takes_row_ids_of_version_3_once(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    """Frames of Spark too; and where another branch took the ids, so that no requirement of the commit fails."""
    lake = lakes("rest")
    table = lake.create(rows().schema, format_version=3)
    table.append(rows(1))
    audit, own = lake.open(table.uri, branch="audit"), lake.open(table.uri)
    own.world = Overtaken(own.world, lambda: table.append(rows(2, 3)), lambda: audit.append(rows(4, 5, 6)))
    assert own.append(rows(7, 8)).attempts == 3
    frame = spark.session.sql("SELECT 9L AS id, 'new' AS value")
    with spark.careless():
        assert lake.open(table.uri).append(frame).outcome == "committed"
    found = spark.sql(f"SELECT id, _row_id AS r FROM {lake.sql(table)} ORDER BY id").to_pylist()
    assert [(row["id"], row["r"]) for row in found] == [(1, 0), (2, 1), (3, 2), (7, 6), (8, 7), (9, 8)]
    with lake.load().load_table(table.uri).update_schema() as update:  # by PyIceberg's own
        update.add_column("n", IntegerType(), default_value=7)
        update.add_column("day", DateType(), default_value=dt.date(2026, 1, 2))
    with spark.careless():
        lake.open(table.uri).append(spark.session.sql("SELECT 10L AS id, 'new' AS value"))
        lake.open(table.uri).append(
            spark.session.sql("SELECT 11L AS id, 'new' AS value, CAST(NULL AS INT) AS n")
        )
    table.refresh().append([{"id": 12, "value": "new"}])
    filled = spark.sql(f"SELECT id, n, day FROM {lake.sql(table)} WHERE id > 9 ORDER BY id").to_pylist()
    day = dt.date(2026, 1, 2)
    assert [(*row.values(),) for row in filled] == [(10, 7, day), (11, None, day), (12, 7, day)]
