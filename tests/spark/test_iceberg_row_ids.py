"""Ids and versions of rows of Iceberg tables as Spark reads them: safewrite's program leaves what Spark's own leaves (Iceberg spec, "Row Lineage")."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DateType, IntegerType

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.changes.tasks import apply_job
from safewrite.iceberg.catalog.loading import load
from tests.iceberg.test_v3_appends import Overtaken
from tests.spark import row_id_writer
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.test_iceberg_writers import rows, settings, values

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
OF_EACH_FILE = "DELETE FROM {t} WHERE id IN (2, 4, 6, 12)"
OF_MORE = "DELETE FROM {t} WHERE id IN (1, 5, 9)"
BY_US: dict[str, Callable[[sw.Table, Callable[[Any], Any]], object]] = {
    COMPACTED: lambda table, frame: table.maintain(),
    DELETED: lambda table, frame: table.delete("id IN (2, 6)"),
    OF_EACH_FILE: lambda table, frame: table.delete("id IN (2, 4, 6, 12)"),
    OF_MORE: lambda table, frame: table.delete("id IN (1, 5, 9)"),
    MERGED: lambda table, frame: table.apply_changes(
        frame(GIVEN), keys=["id"], sequence_by=["value"], delete_when="gone"
    ),
}
"""What safewrite does where Spark would run a statement."""
PROGRAMS: dict[str, tuple[CatalogKind, str, str, list[str | tuple[int, ...]]]] = {
    # the catalog, the format version that the table is made with, how Spark changes rows, and what it runs or either of them appends
    "in short": ("sql", "3", "merge-on-read", [(1, 2), (5, 6), OF_EACH_FILE, CHANGED, MERGED, (8,)]),
    "made": ("rest", "3", "copy-on-write", [(1, 2), (3,), f"{APPENDED} (4L, 'spark'), (5L, 'spark')", (6, 7), CHANGED, (8,), DELETED, MERGED, (9, 10), COMPACTED]),
    "of a SQL catalog": ("sql", "3", "merge-on-read", [(1, 2), f"{APPENDED} (5L, 'spark')", CHANGED, (3, 4), MERGED, "DELETE FROM {t} WHERE id = 3", (6,), DELETED, (8,), COMPACTED]),
    "upgraded": ("rest", "2", "merge-on-read", [(1, 2), (3, 4), UPGRADE, (5,), CHANGED, (6, 7), DELETED, MERGED, "CALL {c}.system.rewrite_data_files('{n}')", (8,)]),
    # each file's vector is a blob of one Puffin, and more rows of it go by either engine; no file loses all of its rows before manifests
    # are rewritten: safewrite removes such a file, and Spark marks it, so that it reserves more ids
    "of many vectors": ("sql", "3", "merge-on-read", [(1, 2), (5, 6), (3, 7), (8, 12), OF_EACH_FILE, CHANGED, MERGED, "DELETE FROM {t} WHERE id = 3", (9, 10), OF_MORE, COMPACTED, (13, 14), DELETED, CHANGED, (15,)]),
    "of many vectors, read by Spark alone": ("rest", "3", "merge-on-read", [(1, 2, 21), (5, 6, 22), (3, 7, 23), OF_EACH_FILE, MERGED, "UPDATE {t} SET value = 'again' WHERE id < 20", "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('delete-file-threshold', '1'))", (9, 16), OF_MORE, "CALL {c}.system.rewrite_manifests('{n}')", (10,), DELETED]),
    "of version 1": ("sql", "1", "merge-on-read", [(1, 2), (3, 4), f"{APPENDED} (5L, 'spark'), (6L, 'spark')", UPGRADE, (7, 8), OF_EACH_FILE, CHANGED, MERGED, (9,), COMPACTED, (10,), DELETED]),
    "of version 1, copied": ("sql", "1", "copy-on-write", [(1, 2), (3, 5), UPGRADE, (7, 8), MERGED, (6, 9), OF_EACH_FILE, COMPACTED, (10,), CHANGED, (13,)]),
    "with position deletes of before": ("sql", "2", "merge-on-read", [(1, 2, 21), (5, 6, 22), (3, 7, 23), OF_EACH_FILE, "DELETE FROM {t} WHERE id = 1", UPGRADE, MERGED, (8,), OF_MORE, CHANGED, COMPACTED, (9,), DELETED]),
    "with position deletes of Spark": ("sql", "2", "merge-on-read", [(1, 2), (5, 6), (3, 7), "DELETE FROM {t} WHERE id IN (1, 6)", UPGRADE, "DELETE FROM {t} WHERE id = 3", OF_EACH_FILE, MERGED, (8,), COMPACTED, (9,)]),
}  # fmt: skip

GATE = "in short"
GONE = 99
"""A key that Spark deletes before anybody races."""


@pytest.mark.sweep("executors", *(name for name in PROGRAMS if name != GATE))
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
                brought = frame(rows(*step)).coalesce(1) if by_executors else rows(*step)
                with spark.careless():
                    assert sw.open(table.uri, catalog=catalog).append(brought).outcome == "committed"
            else:
                spark.run(APPENDED.format(t=name) + ", ".join(f"({one}L, 'new')" for one in step))
        query = f"SELECT id, value, _row_id AS r, _last_updated_sequence_number AS s FROM {name} ORDER BY id"
        found.append(spark.sql(query).to_pylist())
        assert values(spark.read(name)) == values(sw.open(table.uri, catalog=catalog).rows(where="true"))
    assert found[0] == found[1]
    assert len({row["r"] for row in found[0]}) == len(found[0])
    assert None not in {row["s"] for row in found[0]}


@pytest.mark.long
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


# --- branches and tags --------------------------------------------------------------------------------
BRANCHED: list[tuple[str, str | tuple[int, ...] | None]] = [
    # the branch that is written to, and what
    ("main", (1, 2)), ("main", (5, 6)), ("audit", None), ("audit", (3, 7)), ("audit", OF_EACH_FILE), ("audit", MERGED),
    ("main", "CALL {c}.system.fast_forward('{n}', 'main', 'audit')"), ("main", "ALTER TABLE {t} CREATE TAG told"),
    ("main", (8,)), ("later", None), ("later", (12, 13)), ("main", (9, 10)), ("later", OF_EACH_FILE), ("main", OF_MORE),
    ("later", CHANGED), ("main", COMPACTED), ("main", (14,)), ("later", (15,)),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("by_executors", [False, True], ids=["here", "executors"])
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_of_branches_and_tags_have_the_ids_that_spark_alone_would_give_them(
    spark: Spark,
    lakes: Callable[[CatalogKind], Lake],
    mode: str,
    by_executors: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ids are the table's, whichever branch takes them; what one branch removes stays in the other and in the tag."""
    monkeypatch.setattr(apply_job, "FEW_ROWS", 0)  # executors get few rows, too
    frame = spark.session.createDataFrame if by_executors else lambda given: given
    lake = lakes("sql")
    catalog = lake.closing.enter_context(closing(load(lake.name, **lake.properties)))
    found = []
    for by_us in (True, False):
        properties = settings(mode) | {"format-version": "3"}
        table = sw.create(lake.new(), rows().schema, catalog=catalog, properties=properties)
        name = lake.sql(table.uri)
        for branch, step in BRANCHED:
            at = name if branch == "main" else f"{name}.branch_{branch}"
            if step is None and not by_us:
                spark.run(f"ALTER TABLE {name} CREATE BRANCH {branch}")
            elif by_us and not (isinstance(step, str) and step not in BY_US):
                opened = sw.open(table.uri, catalog=catalog, branch=branch)
                with spark.careless():
                    if isinstance(step, tuple):
                        opened.append(frame(rows(*step)).coalesce(1) if by_executors else rows(*step))
                    elif step is not None:
                        BY_US[step](opened, frame)
            elif isinstance(step, str):
                spark.run(step.format(t=at, c=lake.name, n=table.uri))
            elif step is not None:
                spark.run(APPENDED.format(t=at) + ", ".join(f"({one}L, 'new')" for one in step))
        ids = "id, value, _row_id AS r, _last_updated_sequence_number AS s"
        refs = ("main", "audit", "later", "told")
        found.append(
            [
                spark.sql(f"SELECT {ids} FROM {name} VERSION AS OF '{ref}' ORDER BY id").to_pylist()
                for ref in refs
            ]
        )
    for ours, sparks in zip(*found, strict=True):
        assert [(one["id"], one["value"], one["r"]) for one in ours] == [
            (one["id"], one["value"], one["r"]) for one in sparks
        ]
    assert found[0] == found[1]


# --- many processes -----------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize("is_upgraded", [False, True], ids=["made", "upgraded"])
def test_twenty_processes_and_spark_leave_each_row_once_with_an_id_of_its_own(
    is_upgraded: bool, spark: Spark, lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> None:
    """By every verb, with upkeep, while Spark updates and merges: rows, ids, sequence numbers and ``next-row-id`` are those of one after another.

    The table that was upgraded has position deletes of before, rows without ids, and a column with a default that appends do not bring.
    """
    lake = lakes("rest")
    properties = settings("merge-on-read") | {"format-version": "2" if is_upgraded else "3"}
    table = lake.create(rows().schema, properties=properties)
    table.append(rows(*range(1, row_id_writer.HOT + 1), GONE))
    table.append(rows(*row_id_writer.SPARKS))
    spark.run(f"DELETE FROM {lake.sql(table)} WHERE id = {GONE}")
    if is_upgraded:
        spark.run(UPGRADE.format(t=lake.sql(table)))
        with lake.load().load_table(table.uri).update_schema() as update:
            update.add_column("n", IntegerType(), default_value=7)
    besides = {"n": 8} if is_upgraded else {}
    config = {
        "name": lake.name,
        "properties": lake.properties,
        "table": table.uri,
        "besides": besides,
    }
    merged, versions = row_id_writer.beside(spark, lake.sql(table), config, tmp_path)
    table.refresh()
    metadata: Any = table.iceberg.metadata
    _check_numbers(metadata)
    found = spark.sql(
        f"SELECT id, value, _row_id AS r, _last_updated_sequence_number AS s FROM {lake.sql(table)}"
    ).to_pylist()
    sequences = {one.snapshot_id: one.sequence_number for one in metadata.snapshots}
    wanted = row_id_writer.check(found, merged, versions, sequences.__getitem__)
    assert max(row["r"] for row in found) < metadata.next_row_id
    read = table.rows(where="true").select(["id", "value", *(["n"] if is_upgraded else [])])
    assert values(read.select(["id", "value"])) == sorted((number, value) for number, value in wanted.items())
    if is_upgraded:
        of_spark = range(900, 1000)  # it gives no default to rows that it brings
        brought = {row["id"] for row in read.to_pylist() if row["id"] not in of_spark and row["n"] == 8}
        assert brought == {number for number, value in wanted.items() if value == "b" or value[0] == "w"}
        assert {row["n"] for row in read.to_pylist() if row["id"] not in of_spark} == {7, 8}


def _check_numbers(metadata: Any) -> None:
    """Each snapshot took the row ids that follow those of the one before, and the table says which are next."""
    at = 0
    for one in sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number):
        if one.first_row_id is None and not at:
            continue  # of before an upgrade
        assert one.first_row_id == at
        at += one.added_rows
    assert metadata.next_row_id == at
    numbers = [one.sequence_number for one in metadata.snapshots]
    assert len({*numbers}) == len(numbers) == metadata.last_sequence_number
