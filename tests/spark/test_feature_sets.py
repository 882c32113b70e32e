"""Sets of features that makers turn on together: made by Spark, written by every verb and by many at once, changed by Spark in between.

A twin table that Spark alone writes by the same program says what must be there.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.changes.tasks import apply_job
from safewrite.testing.crosscheck.log_files import LogReader
from safewrite.testing.crosscheck.readers import meanings
from tests.changes.tasked import by_tasks
from tests.spark.session import Spark

pytestmark = pytest.mark.long
SETS: dict[str, tuple[str, str, dict[str, str]]] = {
    "unity of 2026": (
        "", "CLUSTER BY (id)",
        {"enableDeletionVectors": "true", "checkpointPolicy": "v2", "enableRowTracking": "true", "enableInCommitTimestamps": "true", "columnMapping.mode": "name"},
    ),
    "mapped by id with a feed": ("", "", {"columnMapping.mode": "id", "enableChangeDataFeed": "true"}),
    "vectors alone": ("", "", {"enableDeletionVectors": "true"}),
    "a feed with row tracking": ("", "", {"enableChangeDataFeed": "true", "enableRowTracking": "true"}),
    "vectors with a feed and times": ("", "PARTITIONED BY (part)", {"enableDeletionVectors": "true", "enableChangeDataFeed": "true", "enableInCommitTimestamps": "true"}),
    "rules": (
        ", twice BIGINT GENERATED ALWAYS AS (id * 2), state STRING DEFAULT 'new'", "",
        {"feature.allowColumnDefaults": "supported", "enableRowTracking": "true", "columnMapping.mode": "name"},
    ),
    "rules with vectors": (
        ", twice BIGINT GENERATED ALWAYS AS (id * 2), state STRING DEFAULT 'new'", "",
        {"feature.allowColumnDefaults": "supported", "enableDeletionVectors": "true", "enableInCommitTimestamps": "true"},
    ),
    "files for Iceberg": ("", "PARTITIONED BY (part)", {"enableIcebergCompatV2": "true", "columnMapping.mode": "name", "enableChangeDataFeed": "true"}),
    "unity with files for Iceberg": (
        "", "CLUSTER BY (id)",
        {"enableIcebergCompatV3": "true", "columnMapping.mode": "name", "enableRowTracking": "true", "enableDeletionVectors": "true", "checkpointPolicy": "v2"},
    ),
}  # fmt: skip
NAMES = ["id", "seq", "v", "part"]
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}


def rows(ids: Sequence[int], seq: int, value: str, *, computed: bool = False) -> pa.Table:
    found = pa.table({
        "id": pa.array(ids, pa.int64()), "seq": pa.array([seq] * len(ids), pa.int64()), "v": [value] * len(ids), "part": [f"p{one % 2}" for one in ids],
    })  # fmt: skip
    if not computed:
        return found
    more = found.append_column("twice", pa.array([2 * one for one in ids], pa.int64()))
    return more.append_column("state", pa.array(["new"] * len(ids)))


def select(ids: Sequence[int], seq: int, value: str) -> str:
    values = ", ".join(f"({one}L, {seq}L, '{value}', 'p{one % 2}')" for one in ids)
    return f"SELECT * FROM VALUES {values} AS s (id, seq, v, part)"


def merge(ids: Sequence[int], seq: int, value: str) -> str:
    assigned = ", ".join(f"{name} = s.{name}" for name in NAMES)
    return (
        f"MERGE INTO {{t}} AS t USING ({select(ids, seq, value)}) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {assigned} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(NAMES)}) VALUES ({', '.join(f's.{name}' for name in NAMES)})"
    )


def insert(ids: Sequence[int], seq: int, value: str) -> str:
    return f"INSERT INTO {{t}} ({', '.join(NAMES)}) {select(ids, seq, value)}"


def write_in_a_process(root: str, first: int) -> None:
    table = sw.open(root)
    for number in range(first, first + 4):
        table.append(rows([number], 0, "raced"), key=f"raced-{number}")


class Twins:
    """Two tables of one set."""

    def __init__(self, spark: Spark, folder: Path, name: str) -> None:
        self.spark, (more, tail, given) = spark, SETS[name]
        self.roots = str(folder / "ours"), str(folder / "sparks")
        told = ", ".join(f"'delta.{key}' = '{value}'" for key, value in given.items())
        for root in self.roots:
            spark.run(
                f"CREATE TABLE delta.`{root}` (id BIGINT, seq BIGINT, v STRING, part STRING{more}) USING delta {tail} TBLPROPERTIES ({told})"
            )
            if more:
                spark.run(f"ALTER TABLE delta.`{root}` ADD CONSTRAINT few CHECK (id < 100000 AND v <> '')")
        self.computed, self.given = bool(more), given
        self.table = sw.open(self.roots[0])

    def step(self, statement: str, ours: Callable[[sw.Table], Any] | None = None) -> None:
        """One commit of each; where ``ours`` is None Spark makes both."""
        self.spark.run(statement.format(t=f"delta.`{self.roots[1]}`"))
        if ours is None:
            self.spark.run(statement.format(t=f"delta.`{self.roots[0]}`"))
        else:
            ours(self.table)
        ours_, sparks = (self.read(root) for root in self.roots)
        assert ours_ == sparks, statement

    def read(self, root: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spark.sql(f"SELECT * FROM delta.`{root}` ORDER BY id").to_pylist()
        return found

    def changes(self, ids: Sequence[int], seq: int, value: str) -> pa.Table:
        return rows(ids, seq, value, computed=self.computed)

    def others_read_the_same(self) -> None:
        root, truth = self.roots[0], self.read(self.roots[0])
        by_query = (
            deltalake.QueryBuilder()
            .register("t", deltalake.DeltaTable(root))
            .execute("SELECT * FROM t ORDER BY id")
        )
        assert pa.table(by_query.read_all()).to_pylist() == truth
        ours = sw.open(root).rows(where="true")
        assert sorted(ours.to_pylist(), key=lambda one: one["id"]) == truth
        types = {one.name: one.type for one in ours.schema}
        by_log = LogReader(Path(root))  # DuckDB reads the files; ids and statistics are checked, too
        for reader in (by_log, by_log.fed):
            found = sorted(reader(types, None), key=lambda one: one["id"])
            assert found == sorted(meanings(ours, types), key=lambda one: one["id"])
        if not any(
            name in self.given for name in ("columnMapping.mode", "checkpointPolicy")
        ):  # polars knows neither
            assert pl.read_delta(root).sort("id").to_dicts() == truth


def race(twins: Twins) -> None:
    """Processes append, threads apply changes of keys of their own, and one deletes: all of it is there once."""
    root = twins.roots[0]
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=write_in_a_process, args=(root, 1000 + 10 * number)) for number in range(3)
    ]
    failed: list[BaseException] = []

    def changing(number: int) -> None:
        try:
            table = sw.open(root)
            for seq in range(10, 13):
                table.apply_changes(
                    twins.changes([number, 2000 + number], seq, f"of {number} at {seq}"), **HOW
                )
        except BaseException as error:  # noqa: BLE001 - the test tells it
            failed.append(error)

    threads = [threading.Thread(target=changing, args=(number,)) for number in (1, 2, 8, 9)]
    for one in (*processes, *threads):
        one.start()
    sw.open(root).delete("id = 30")
    for one in (*threads, *processes):
        one.join()
    assert failed == []
    assert [one.exitcode for one in processes] == [0, 0, 0]
    raced = [number for first in (1000, 1010, 1020) for number in range(first, first + 4)]
    sparks = f"delta.`{twins.roots[1]}`"
    twins.spark.run(insert(raced, 0, "raced").format(t=sparks))
    for number in (1, 2, 8, 9):
        twins.spark.run(merge([number, 2000 + number], 12, f"of {number} at 12").format(t=sparks))
    twins.step("DELETE FROM {t} WHERE id = 30", lambda table: table.refresh())


@pytest.mark.parametrize("name", SETS)
def test_every_verb_leaves_what_spark_alone_would_and_all_read_it(
    spark: Spark, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_job, "FEW_ROWS", 0)  # executors get few rows, too
    twins = Twins(spark, tmp_path, name)
    first = [*range(40)]
    twins.step(insert(first, 0, "a"), lambda table: table.append(rows(first, 0, "a")))
    twins.step(
        insert([50, 51, 52], 0, "b"),
        lambda table: table.append_many([("one", rows([50], 0, "b")), ("two", rows([51, 52], 0, "b"))]),
    )
    twins.step("DELETE FROM {t} WHERE id IN (3, 51)", lambda table: table.delete("id IN (3, 51)"))
    twins.step(
        merge([4, 5, 60], 1, "c"), lambda table: table.apply_changes(twins.changes([4, 5, 60], 1, "c"), **HOW)
    )
    twins.step("UPDATE {t} SET v = 'spark' WHERE id IN (5, 6)")

    def of_tasks(table: sw.Table) -> None:
        with by_tasks():
            table.apply_changes(twins.changes([5, 6, 61], 2, "d"), **HOW)

    twins.step(merge([5, 6, 61], 2, "d"), of_tasks)

    def of_executors(table: sw.Table) -> None:
        given = twins.changes([9, 63], 2, "x")
        kinds = ", ".join(
            f"{one.name} {'BIGINT' if one.type == pa.int64() else 'STRING'}" for one in given.schema
        )
        frame = spark.session.createDataFrame([tuple(row.values()) for row in given.to_pylist()], kinds)
        with spark.careless():
            table.apply_changes(frame, **HOW)

    twins.step(merge([9, 63], 2, "x"), of_executors)
    twins.step(
        merge([7, 62], 3, "e"),
        lambda table: table.apply_changes_many(
            [("x", twins.changes([7], 3, "e")), ("y", twins.changes([62], 3, "e"))], **HOW
        ),
    )
    where = "id > 20 AND id < 23"
    twins.step(
        f"DELETE FROM {{t}} WHERE {where}", lambda table: table.delete(where),
    )  # fmt: skip
    twins.step(insert([21, 22], 4, "f"), lambda table: table.overwrite(rows([21, 22], 4, "f"), where=where))
    twins.step("OPTIMIZE {t}", lambda table: table.maintain())
    twins.step(merge([21, 40], 5, "g"))
    race(twins)
    twins.step("OPTIMIZE {t}")
    twins.step(
        merge([1, 2, 60], 20, "h"),
        lambda table: table.apply_changes(twins.changes([1, 2, 60], 20, "h"), **HOW),
    )
    twins.others_read_the_same()
    if twins.computed:
        with pytest.raises(sw.WouldAlterError, match="constraint 'few'"):
            twins.table.append(rows([7], 0, ""))
