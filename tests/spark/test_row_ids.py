"""Ids and versions of rows as Spark reads them: safewrite's program leaves what Spark's own leaves (PROTOCOL.md, "Row Tracking"; A21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.testing.crosscheck.features import check_commits
from safewrite.testing.crosscheck.log_files import LogReader
from tests.spark import row_id_writer
from tests.spark.hooked import HookedTable
from tests.spark.session import Spark

TRACKED = {"enableRowTracking": "true", "enableInCommitTimestamps": "true"}
LAYOUTS: dict[str, tuple[str, dict[str, str]]] = {
    "unity": (
        "CLUSTER BY (id)",
        {"enableDeletionVectors": "true", "columnMapping.mode": "name", "checkpointPolicy": "v2"},
    ),
    "copied": ("", {}),
    "vectors": ("", {"enableDeletionVectors": "true"}),
    "parted": ("PARTITIONED BY (part)", {"enableDeletionVectors": "true"}),
    "mapped": ("PARTITIONED BY (part)", {"columnMapping.mode": "id"}),
    "fed": ("", {"enableChangeDataFeed": "true"}),
}
SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("part", pa.string())])
Seen: TypeAlias = dict[int, tuple[str, int, str]]
"""By key: what its id was called when it was first seen, its version, and its value."""


def rows(ids: Sequence[int], seq: int, value: str) -> pa.Table:
    data = {
        "id": [*ids],
        "seq": [seq] * len(ids),
        "v": [value] * len(ids),
        "part": [f"p{one % 2}" for one in ids],
    }
    return pa.table(data, schema=SCHEMA)


class Twins:
    """Two tables of one layout: Spark alone writes one, and safewrite (with Spark in between) the other."""

    def __init__(self, spark: Spark, folder: Path, layout: str, *, frames: bool) -> None:
        self.spark, self.frames = spark, frames
        self.root, self.sparks = str(folder / "ours"), str(folder / "sparks")
        tail, more = LAYOUTS[layout]
        given = ", ".join(f"'delta.{name}' = '{value}'" for name, value in {**TRACKED, **more}.items())
        for root in (self.root, self.sparks):
            spark.run(
                f"CREATE TABLE delta.`{root}` (id BIGINT, seq BIGINT, v STRING, part STRING) USING delta {tail} TBLPROPERTIES ({given})"
            )
        self.names: dict[str, dict[int, str]] = {self.root: {}, self.sparks: {}}
        self.table = sw.open(self.root)

    def given(self, table: pa.Table) -> Any:
        if not self.frames:
            return table
        columns = ", ".join(
            f"{field.name} {'BIGINT' if field.type == pa.int64() else 'STRING'}" for field in table.schema
        )
        return self.spark.session.createDataFrame([tuple(row.values()) for row in table.to_pylist()], columns)

    def step(self, statement: str, ours: Callable[[sw.Table], Any] | None = None) -> None:
        """One commit of each; where ``ours`` is None Spark makes both."""
        self.spark.run(statement.format(t=f"delta.`{self.sparks}`"))
        if ours is None:
            self.spark.run(statement.format(t=f"delta.`{self.root}`"))
            self.table.refresh()
        else:
            ours(self.table)
        found = self.spark.sql(" UNION ALL ".join(map(read_of, self.names))).to_pylist()
        ours, sparks = ([one for one in found if one["root"] == root] for root in self.names)
        assert self.seen(self.root, ours) == self.seen(self.sparks, sparks), statement

    def seen(self, root: str, found: list[dict[str, Any]]) -> Seen:
        assert len({one["row"] for one in found}) == len(found), "no two rows have one id"
        names = self.names[root]
        for one in found:
            names.setdefault(one["row"], f"{one['id']} of version {one['at']}")
        return {one["id"]: (names[one["row"]], one["at"], one["v"]) for one in found}


def read_of(root: str) -> str:
    ids = "_metadata.row_id AS row, _metadata.row_commit_version AS at"
    return f"SELECT '{root}' AS root, id, v, {ids} FROM delta.`{root}`"


def select(ids: Sequence[int], seq: int, value: str) -> str:
    values = ", ".join(f"({one}, {seq}, '{value}', 'p{one % 2}')" for one in ids)
    return f"SELECT * FROM VALUES {values} AS s (id, seq, v, part)"


def merge(ids: Sequence[int], seq: int, value: str) -> str:
    return (
        f"MERGE INTO {{t}} AS t USING ({select(ids, seq, value)}) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def program(twins: Twins, *, short: bool) -> None:
    """Every verb, with Spark's own commits in between; ``short``: what the gate asks."""

    def changes(ids: Sequence[int], seq: int, value: str) -> Callable[[sw.Table], Any]:
        given = twins.given(rows(ids, seq, value))
        return lambda table: table.apply_changes(given, keys=["id"], sequence_by=["seq"])

    def append(ids: Sequence[int]) -> Callable[[sw.Table], Any]:
        given = twins.given(rows(ids, 0, "a"))
        return lambda table: table.append(given)

    first, more = [*range(40)], [*range(100, 104)]
    twins.step(f"INSERT INTO {{t}} {select(first, 0, 'a')}", append(first))
    if not short:
        twins.step(f"INSERT INTO {{t}} {select(more, 0, 'a')}", append(more))
    twins.step("DELETE FROM {t} WHERE id IN (3, 101)", lambda table: table.delete("id IN (3, 101)"))
    changed = [4, 5, 102, 200]
    twins.step(merge(changed, 1, "b"), changes(changed, 1, "b"))
    twins.step("UPDATE {t} SET v = 'spark' WHERE id IN (5, 6)")
    again = [5, 6, 200, 3]
    twins.step(merge(again, 2, "c"), changes(again, 2, "c"))
    if short:
        return
    where = "id > 20 AND id < 23"
    twins.step(
        f"INSERT INTO {{t}} REPLACE WHERE {where} {select([21, 22], 3, 'd')}",
        lambda table: table.overwrite(twins.given(rows([21, 22], 3, "d")), where=where),
    )
    twins.step("OPTIMIZE {t}", lambda table: table.maintain())
    twins.step(merge([5, 7, 21], 4, "e"), changes([5, 7, 21], 4, "e"))
    twins.step("DELETE FROM {t} WHERE id < 30", lambda table: table.delete("id < 30"))
    twins.step(merge([31, 7], 5, "f"))
    twins.step(merge([31, 7, 33], 6, "g"), changes([31, 7, 33], 6, "g"))


CASES = [
    pytest.param("unity", False, True),
    *(
        pytest.param(layout, frames, False, marks=pytest.mark.long)
        for layout in LAYOUTS
        for frames in (False, True)
    ),
]


@pytest.mark.parametrize(("layout", "frames", "short"), CASES)
def test_rows_keep_their_ids_and_versions_as_they_do_where_spark_alone_writes(
    spark: Spark, tmp_path: Path, layout: str, frames: bool, short: bool
) -> None:
    program(Twins(spark, tmp_path, layout, frames=frames), short=short)


# --- many processes -----------------------------------------------------------------------------------
EVERYTHING = {
    **TRACKED, "enableDeletionVectors": "true", "columnMapping.mode": "name", "checkpointPolicy": "v2", "enableChangeDataFeed": "true",
}  # fmt: skip


@pytest.mark.long
def test_twenty_processes_and_spark_leave_each_row_of_a_table_with_all_features_once_with_an_id_of_its_own(
    spark: Spark, hooked: Callable[[str], HookedTable], tmp_path: Path
) -> None:
    """By every verb, with upkeep, while Spark updates and merges: rows, ids, versions, times, statistics and the feed are those of one after another."""
    there = hooked("dynamodb")
    given = ", ".join(f"'delta.{name}' = '{value}'" for name, value in EVERYTHING.items())
    there.run(
        f"CREATE TABLE {{t}} (id BIGINT, value STRING) USING delta CLUSTER BY (id) TBLPROPERTIES ({given})"
    )
    there.run("ALTER TABLE {t} ADD CONSTRAINT few CHECK (id < 100000 AND value <> '')")
    place = there.place
    opened: dict[str, Any] = {"lock_table": place.lock_table, "storage_options": dict(place.storage_options)}
    table = sw.open(place.uri, **opened)
    for keys in (range(1, row_id_writer.HOT + 1), row_id_writer.SPARKS):
        table.append([{"id": number, "value": "new"} for number in keys])
    with pytest.raises(sw.WouldAlterError, match="constraint 'few'"):
        table.append([{"id": 1, "value": ""}])

    config = {"table": place.uri, "settings": opened}
    merged, versions = row_id_writer.beside(spark, f"delta.`{there.uri}`", config, tmp_path)
    ids = "_metadata.row_id AS r, _metadata.row_commit_version AS s"
    found = spark.sql(f"SELECT id, value, {ids} FROM delta.`{there.uri}`").to_pylist()
    wanted = row_id_writer.check(found, merged, versions, lambda version: version)

    by_query = deltalake.QueryBuilder().register("t", place.delta())
    for rows_ in (table.refresh().rows(where="true"), pa.table(by_query.execute("SELECT * FROM t"))):
        assert {row["id"]: row["value"] for row in rows_.to_pylist()} == wanted
        assert rows_.num_rows == len(wanted)
    for path, body in place.objects().items():
        (tmp_path / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / path).write_bytes(body)
    check_commits(tmp_path / "t", ("row tracking", "commit times", "clustering"))
    by_log = LogReader(tmp_path / "t")
    types = {"id": pa.int64(), "value": pa.string()}
    truth = sorted((number, ("text", value)) for number, value in wanted.items())
    for reader in (by_log, by_log.fed):
        assert sorted((int(row["id"][1]), row["value"]) for row in reader(types, None)) == truth
