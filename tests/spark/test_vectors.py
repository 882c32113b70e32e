"""Deletion vectors that Spark writes and safewrite reads, and the other way round: one table, the rows of the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.testing.changes import Change, Oracle
from tests.changes.test_decide import OTHER, K, down, up
from tests.changes.test_tables import SCHEMA, apply
from tests.spark.changed import ChangedTable
from tests.spark.session import Spark

pytestmark = pytest.mark.long

FIRST = [up((1, 0), f"row {a}", (a, "x")) for a in range(100, 140)]


@pytest.fixture
def table(spark: Spark, tmp_path: Path) -> ChangedTable:
    """A table of 40 rows in one file, made by Spark, which deletes by vectors."""
    root = tmp_path / "t"
    columns = ", ".join(f"{f.name} {'BIGINT' if f.name in 'ast' else 'STRING'}" for f in SCHEMA)
    spark.run(
        f"CREATE TABLE delta.`{root}` ({columns}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    made = ChangedTable(spark, str(root))
    apply(made.open(), FIRST, key="first")
    return made


def vectors(table: ChangedTable) -> list[int]:
    """How many rows the vector of each live file takes away."""
    live: dict[tuple[str, str], int] = {}
    for path in sorted((Path(table.name) / "_delta_log").glob("*.json")):
        lines = list(map(json.loads, path.read_text().splitlines()))
        for kind in ("remove", "add"):
            for action in (line[kind] for line in lines if kind in line):
                vector = action.get("deletionVector") or {}
                key = (action["path"], json.dumps(vector, sort_keys=True))
                live.pop(key, None)
                if kind == "add":
                    live[key] = vector.get("cardinality", 0)
    return sorted(count for count in live.values() if count)


def as_spark_reads(table: ChangedTable) -> dict[tuple[int, str], str]:
    found = table.spark.read(table.name, order="a").to_pylist()
    assert len(found) == len({(one["a"], one["b"]) for one in found})
    return {(one["a"], one["b"]): one["value"] for one in found}


def test_files_whose_rows_spark_took_away_are_changed_by_both_engines(table: ChangedTable) -> None:
    """Spark's DELETE and MERGE mark rows; changes by key of Arrow and of Spark look at these files, and rewrite them."""
    oracle = Oracle()
    oracle.apply(FIRST)
    where = f"delta.`{table.name}`"
    table.spark.run(f"DELETE FROM {where} WHERE a IN (103, 111, 139)")
    for a in (103, 111, 139):
        del oracle.entries[a, "x"]  # a plain DELETE is not remembered
    assert vectors(table) == [3]
    steps: list[tuple[list[Change], bool]] = [
        ([up((2, 0), "new", (103, "x")), up((2, 0), "new", (104, "x")), down((2, 1), (105, "x"))], True),
        ([up((3, 0), "newer", (111, "x")), down((3, 1), (106, "x"))], False),
        ([up((0, 0), "late", (107, "x")), up((4, 0)), down((4, 1), OTHER)], True),
        ([up((9, 0), "stays", K), Change("truncate", (2, 5))], True),
    ]
    for number, (batch, by_spark) in enumerate(steps):
        table.spark.run(f"DELETE FROM {where} WHERE a = {120 + number}")
        oracle.entries.pop((120 + number, "x"), None)
        assert vectors(table)
        before = len(oracle.rows)
        oracle.apply(batch)
        key = f"batch-{number}"
        receipt = table.apply(batch, key=key) if by_spark else apply(table.open(), batch, key=key)
        assert as_spark_reads(table) == table.rows() == oracle.rows
        assert (
            receipt.changes["inserted"] - receipt.changes["deleted"] == len(oracle.rows) - before
            or number == 3
        )


def test_vectors_that_safewrite_writes_are_read_and_widened_by_spark(table: ChangedTable) -> None:
    """Spark's DELETE, MERGE and OPTIMIZE go on from them, and a checkpoint and VACUUM keep them."""
    where = f"delta.`{table.name}`"
    wanted = {one.key: one.row for one in FIRST} | {(a, "x"): f"row {a}" for a in range(1000, 3000)}
    apply(table.open(), [up((1, 0), f"row {a}", (a, "x")) for a in range(1000, 3000)])
    gone = [101, 120, *range(1000, 3000, 13)]
    apply(table.open(), [down((2, 0), (a, "x")) for a in gone])
    assert vectors(table) == [2, len(gone) - 2]
    for a in gone:
        del wanted[a, "x"]
    assert as_spark_reads(table) == table.rows() == wanted
    table.spark.run(f"DELETE FROM {where} WHERE a IN (102, 1001)")
    assert table.open().delete("a in (103, 1002)").removed_rows == 2
    for a in (102, 1001, 103, 1002):
        del wanted[a, "x"]
    assert vectors(table) == [4, len(gone)]
    assert table.open().checkpoint()
    assert as_spark_reads(table) == table.rows() == wanted
    with table.spark.setting("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        table.spark.run(f"VACUUM {where} RETAIN 0 HOURS")
    assert len(list(Path(table.name).glob("deletion_vector_*.bin"))) == 1, "VACUUM knows which are in use"
    assert as_spark_reads(table) == table.rows() == wanted
    table.spark.run(
        f"MERGE INTO {where} t USING (SELECT EXPLODE(ARRAY(104L, 1003L)) AS a) s ON t.a = s.a "
        "WHEN MATCHED THEN UPDATE SET value = 'merged'"
    )
    wanted |= {(104, "x"): "merged", (1003, "x"): "merged"}
    change = [up((5, 0), "changed", (104, "x")), down((5, 0), (1004, "x"))]
    table.apply(change)
    wanted |= {(104, "x"): "changed"}
    del wanted[1004, "x"]
    assert as_spark_reads(table) == table.rows() == wanted
    table.spark.run(f"OPTIMIZE {where}")
    assert vectors(table) == []
    assert as_spark_reads(table) == table.rows() == wanted


def test_changes_of_a_spark_frame_mark_rows_on_top_of_other_marks(table: ChangedTable) -> None:
    """By their numbers in the file, whatever is gone of it before; a file of which most rows are gone is rewritten."""
    wanted = {one.key: one.row for one in FIRST}
    table.spark.run(f"DELETE FROM delta.`{table.name}` WHERE a IN (100, 101)")
    table.open().delete("a = 102")
    for a in (100, 101, 102):
        del wanted[a, "x"]
    for turn, gone in enumerate(([103, 110, 139], [104, 138], [*range(111, 125)])):
        receipt = table.apply(
            [down((2 + turn, 0), (a, "x")) for a in gone] + [up((2 + turn, 0), "new", (turn, "x"))]
        )
        for a in gone:
            del wanted[a, "x"]
        wanted[turn, "x"] = "new"
        assert (receipt.changes["deleted"], receipt.removed_rows) == (len(gone), len(gone))
        assert vectors(table) == [[6], [8], []][turn]
        assert as_spark_reads(table) == table.rows() == wanted


def test_rows_of_a_file_that_spark_reads_in_parts_are_marked_where_they_are(table: ChangedTable) -> None:
    (path,) = Path(table.name).glob("part-*.parquet")
    parts = path.with_name("parts.parquet")
    pq.write_table(pq.read_table(path), parts, row_group_size=4, use_dictionary=False)
    log = Path(table.name) / "_delta_log"
    newest = max(int(one.stem) for one in log.glob("*.json"))
    (add,) = [
        one["add"]
        for one in map(json.loads, (log / f"{newest:020}.json").read_text().splitlines())
        if "add" in one
    ]
    actions = [
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "path": parts.name, "size": parts.stat().st_size}},
    ]
    (log / f"{newest + 1:020}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    wanted = {one.key: one.row for one in FIRST}
    with table.spark.setting("spark.sql.files.maxPartitionBytes", str(parts.stat().st_size // 6)):
        for turn in range(2, 4):
            gone = [98 + turn, 106 + turn, 115 + turn, 130 + turn]
            table.apply([down((turn, 0), (a, "x")) for a in gone])
            for a in gone:
                del wanted[a, "x"]
            assert vectors(table) == [4 * (turn - 1)]
            assert as_spark_reads(table) == table.rows() == wanted


def test_a_delete_where_goes_by_the_rows_that_are_left(table: ChangedTable) -> None:
    table.spark.run(f"DELETE FROM delta.`{table.name}` WHERE a < 110")
    assert table.open().delete("a < 120").removed_rows == 10
    assert sorted(a for a, _ in as_spark_reads(table)) == list(range(120, 140))
    assert sw.open(table.name).delete("a >= 100").removed_rows == 20
    assert as_spark_reads(table) == {}
