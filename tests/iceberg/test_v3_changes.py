"""Rows of format version 3 keep their ids through all that is done to the table (issue U 1).

Ids are computed from the files by the rules of the specification, and compared with what each step must leave: see ``Oracle``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyiceberg.manifest as avro
import pytest

import safewrite as sw
from safewrite.iceberg.catalog.rows import read_rows
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Get, GetRange, Outcome
from safewrite.stores.world import Performer
from safewrite.testing.steps import Stepwise
from tests.changes.tasked import by_tasks
from tests.iceberg import v3_tables as v3
from tests.iceberg.test_v3_appends import SCHEMA, Overtaken, made, opened, rows

VECTORS = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A catalog without a table."""
    return v3.lake(tmp_path)


class Oracle:
    """The id and the sequence number of each row, by what a step must leave of those before."""

    def __init__(self, table: IcebergTable) -> None:
        self.table = table
        self.known = self.found()

    def found(self) -> dict[int, tuple[int | None, int]]:
        """The rows of the branch that the table is open on."""
        return v3.lineage(self.table, self.table.refresh().version)

    def after(
        self, *, gone: Iterable[int] = (), new: Iterable[int] = (), changed: Iterable[int] = ()
    ) -> None:
        """Look at the table: rows went, came and changed; all others are what they were."""
        found = self.found()
        metadata: Any = self.table.iceberg.metadata
        sequence, before = metadata.last_sequence_number, {row for row, _ in self.known.values()}
        left = {number: of for number, of in self.known.items() if number not in {*gone}}
        left |= {number: (left[number][0], sequence) for number in changed}
        assert {number: found[number] for number in left} == left
        assert {*found} == {*left, *new}, (found, left)
        assert all(found[number][1] == sequence and found[number][0] not in before for number in new)
        ids: list[Any] = [row for row, _ in found.values()]
        assert len({*ids}) == len(ids)
        assert None not in ids
        assert max(ids) < metadata.next_row_id
        assert sorted(self.table.rows(where="true", columns=["id"])["id"].to_pylist()) == sorted(found)
        assert self.table.row_count() == len(found)
        self.known = found


def test_rows_that_a_delete_or_an_overwrite_leaves_keep_their_ids(lake: dict[str, str]) -> None:
    """Also in files that were rewritten before; with vectors of other engines, which go with their data files."""
    table = made(lake, partition_by=["v"])
    table.append([*rows(*range(10)), *rows(*range(10, 13), v="b")])
    table.append(rows(13, 14))
    oracle = Oracle(table)
    table.delete("id in (2, 10)")
    oracle.after(gone=[2, 10])
    table.overwrite([{"id": 4, "v": "a"}, {"id": 20, "v": "b"}], where="id = 4 or id = 20")
    oracle.after(gone=[4], new=[4, 20])
    table.delete("id = 4")  # its file has no ids of its own, and its rest none
    table.delete("id = 3")
    oracle.after(gone=[4, 3])
    for part in ("a", "b"):
        marked = next(
            one for one in v3.data_files(lake) if f"v={part}/" in one and re.search(r"-r\d+\.parquet", one)
        )
        v3.mark(lake, {marked: [0]}, partition=[part])
    table = opened(lake)
    oracle.after(gone=[0, 11])
    table.delete("id = 1 or id = 13")
    oracle.after(gone=[1, 13])
    kinds = [entry.data_file.file_format.name for _, entry in v3.entries(table)]
    assert kinds.count("PUFFIN") == 1
    table.overwrite(rows(1, 2))
    oracle.after(gone=[*oracle.known], new=[1, 2])
    assert [entry.data_file.file_format.name for _, entry in v3.entries(table)] == ["PARQUET"]


def test_rows_of_an_upgraded_table_get_ids_once(lake: dict[str, str]) -> None:
    """Of before its first commit nothing has an id; a rival that gives them ids in between is not passed over."""
    properties = {"write.delete.mode": "merge-on-read"}
    table = sw.create(v3.NAME, SCHEMA, catalog=lake, properties=properties)
    table.append(rows(*range(6)))
    table.append(rows(6, 7))
    table.delete("id = 5")  # by a position delete file
    v3.upgrade(lake)
    v3.edit(lake, lambda metadata: metadata["properties"].pop("write.delete.mode"))  # rows that stay move
    table = opened(lake)
    assert {*v3.lineage(table).values()} == {(None, 1), (None, 2)}
    table.world = Overtaken(table.world, lambda: opened(lake).append(rows(8)))
    assert table.delete("id = 1").attempts == 2
    rival = v3.lineage(table, table.history()[1].version)
    assert None not in {row for row, _ in rival.values()}
    found = v3.lineage(table)
    assert found == {number: of for number, of in rival.items() if number != 1}
    oracle = Oracle(table)
    table.delete("id = 6")
    oracle.after(gone=[6])


def test_a_name_that_row_ids_have_is_no_column(lake: dict[str, str]) -> None:
    sw.create(v3.NAME, SCHEMA, catalog=lake).append(rows(1))
    v3.add_column(lake, "long", column="_row_id")
    v3.upgrade(lake)
    with pytest.raises(sw.UnsupportedTableError, match=r"names: _row_id.*RENAME COLUMN"):
        opened(lake).delete("id = 1")


def test_a_plan_that_does_not_say_ids_moves_no_row(lake: dict[str, str]) -> None:
    """Where the catalog plans, nothing says the ids of the rows that a file has."""
    table = made(lake)
    table.append(rows(1, 2))
    (task,) = table.iceberg.scan().plan_files()
    outcome: Any = read_rows(table.iceberg.metadata, table.iceberg.io, task, with_ids=True)
    assert "nothing says which ids" in outcome.detail


def changes(*ids: int, gone: bool = False, n: str = "b") -> list[dict[str, Any]]:
    return [{"id": number, "v": n, "gone": gone} for number in ids]


APPLY: Any = {"keys": ["id"], "sequence_by": ["v"], "delete_when": "gone"}


@pytest.fixture(params=[nullcontext, by_tasks], ids=["here", "tasks"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Changes are applied by the plan itself, or by tasks."""
    with request.param():
        yield


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_rows_that_change_by_key_keep_their_row_ids(properties: dict[str, str], lake: dict[str, str]) -> None:
    """Others keep all; a change that is late does nothing; a key that comes back is a new row; members of a group; a truncate."""
    table = made(lake, properties=properties)
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 14)))
    oracle = Oracle(table)
    table.apply_changes([*changes(2, 11, 20, 21), *changes(3, gone=True), *changes(4, n="A")], **APPLY)
    oracle.after(gone=[3], new=[20, 21], changed=[2, 11])
    table.apply_changes(changes(2, 20, 5, 3, n="c"), **APPLY)  # of files with ids of their own, and without
    oracle.after(changed=[2, 20, 5], new=[3])
    table.apply_changes_many([("a", changes(2, 30, n="d")), ("b", changes(2, 6, n="e"))], **APPLY)
    oracle.after(changed=[2, 6], new=[30])
    table.apply_changes([{"id": 2, "v": "f"}], keys=["id"], sequence_by=["v"], full_refresh=True)
    oracle.after(gone=[*oracle.known], new=[2])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_rows_of_branches_keep_their_row_ids(properties: dict[str, str], lake: dict[str, str]) -> None:
    """What one branch takes away or changes stays in the other as it was, and ids that one gives the other never has."""
    made(lake, properties=properties).append(rows(*range(6)))
    table, audit = opened(lake), opened(lake, branch="audit")
    main, branch = Oracle(table), Oracle(audit)
    audit.append(rows(10, 11))
    branch.after(new=[10, 11])
    table.append(rows(12))
    main.after(new=[12])
    audit.delete("id = 1 or id = 10")
    branch.after(gone=[1, 10])
    table.apply_changes([*changes(1, 2, 20), *changes(3, gone=True)], **APPLY)
    main.after(changed=[1, 2], gone=[3], new=[20])
    audit.apply_changes([*changes(2, 11, 21), *changes(4, gone=True)], **APPLY)
    branch.after(changed=[2, 11], gone=[4], new=[21])
    audit.maintain()
    branch.after()
    table.overwrite(rows(5), where="id = 5")
    main.after(gone=[5], new=[5])
    main.after()
    branch.after()
    given = [{row for row, _ in one.known.values()} for one in (main, branch)]
    assert given[0] & given[1] == {0, 2}


@pytest.mark.usefixtures("way")
def test_changes_take_the_ids_that_a_rivals_rows_have(lake: dict[str, str]) -> None:
    """A rival brings a key that was new, takes one away, and moves rows: files that were made before serve no more."""
    table = made(lake)
    table.append(rows(*range(6)))
    rival = opened(lake)
    table.world = Overtaken(
        table.world,
        lambda: rival.apply_changes(changes(6, n="aa"), **APPLY),
        lambda: rival.delete("id = 1 or id = 2"),
        lambda: rival.overwrite(rows(2, 7), where="id in (2, 7)"),
    )
    done = table.apply_changes(changes(0, 1, 2, 6, 8), **APPLY)
    assert done.attempts == 4
    after, before = v3.lineage(table), v3.lineage(table, table.history()[1].version)
    metadata: Any = table.iceberg.metadata
    sequence = metadata.last_sequence_number
    assert {*after} == {0, 1, 2, 3, 4, 5, 6, 7, 8}
    for number in (0, 2, 6):
        assert after[number] == (before[number][0], sequence), number
    for number in (3, 4, 5, 7):
        assert after[number] == before[number], number
    assert not {after[number][0] for number in (1, 8)} & {row for row, _ in before.values()}


def kinds(table: IcebergTable) -> list[str]:
    """Live files by their format, deletes first."""
    return [entry.data_file.file_format.name for _, entry in v3.entries(table)]


def totals(table: IcebergTable) -> dict[str, str]:
    summary: Any = table.iceberg.metadata.current_snapshot().summary  # type: ignore[union-attr]
    named = (
        "total-records",
        "total-data-files",
        "total-delete-files",
        "total-position-deletes",
        "added-dvs",
        "removed-dvs",
    )
    return {name: summary[name] for name in named if summary[name] is not None}


def test_rows_go_by_one_vector_a_data_file(lake: dict[str, str]) -> None:
    """It has those that went before; it goes with its file; rows that are put in the place of others stand in new files."""
    table = made(lake, properties=VECTORS)
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 14)))
    oracle = Oracle(table)
    table.delete("id in (2, 3, 10)")
    oracle.after(gone=[2, 3, 10])
    assert kinds(table) == ["PUFFIN"] * 2 + ["PARQUET"] * 2
    assert totals(table) == {
        "total-records": "14", "total-data-files": "2", "total-delete-files": "2", "total-position-deletes": "3", "added-dvs": "2",
    }  # fmt: skip
    done: Any = table.apply_changes([*changes(4, 11, 20), *changes(5, gone=True)], **APPLY)
    assert [done.changes[name] for name in ("updated", "deleted", "inserted")] == [2, 1, 1]
    oracle.after(gone=[5], new=[20], changed=[4, 11])
    assert kinds(table) == ["PUFFIN"] * 2 + ["PARQUET"] * 3
    assert totals(table) == {
        "total-records": "17", "total-data-files": "3", "total-delete-files": "2", "total-position-deletes": "6",
        "added-dvs": "2", "removed-dvs": "2",
    }  # fmt: skip
    table.apply_changes(changes(4, 6, n="c"), **APPLY)  # a row that moved, and one that did not
    oracle.after(changed=[4, 6])
    table.delete("id >= 10 and id < 20")  # all that the second file has left
    oracle.after(gone=[11, 12, 13])
    assert table.delete("id = 2").removed_rows == 0
    assert kinds(table).count("PUFFIN") == 2
    table.overwrite(rows(30), where="id < 20 or id = 30")
    oracle.after(gone=[*range(20)], new=[30])
    assert opened(lake).rows({"id": [20, 30, 4]}).num_rows == 2


@pytest.mark.usefixtures("way")
def test_a_vector_has_what_a_rivals_vector_takes(lake: dict[str, str]) -> None:
    table = made(lake, properties=VECTORS)
    table.append(rows(*range(10)))
    oracle = Oracle(table)
    table.delete("id = 0")
    (file,) = v3.data_files(lake)
    rival = opened(lake)
    table.world = Overtaken(table.world, lambda: rival.delete("id = 5"))
    assert table.delete("id = 2").attempts == 2
    table.world = Overtaken(table.world, lambda: rival.delete("id = 6"))
    assert table.apply_changes(changes(3, 4, gone=True), **APPLY).attempts == 2
    oracle.after(gone=[0, 2, 3, 4, 5, 6])
    assert kinds(table) == ["PUFFIN", "PARQUET"]
    assert v3.data_files(lake) == [file]


def puffins(table: IcebergTable) -> dict[str, int]:
    """The files of vectors that live entries name, each with how many of them."""
    files = [entry.data_file for _, entry in v3.entries(table)]
    return dict(Counter(one.file_path for one in files if one.file_format == avro.FileFormat.PUFFIN))


@pytest.mark.usefixtures("way")
def test_all_vectors_of_a_commit_are_in_one_file(lake: dict[str, str], tmp_path: Path) -> None:
    """Of whatever partition; a rival's vector makes one of them anew, and the others stay where they are."""
    table = made(lake, properties=VECTORS, partition_by=["v"])
    for part in "abcde":
        table.append([{"id": ord(part) * 10 + number, "v": part} for number in range(5)])
    oracle = Oracle(table)
    table.delete("id in (970, 980, 990, 1000)")
    oracle.after(gone=[970, 980, 990, 1000])
    assert [*puffins(table).values()] == [4]
    table.apply_changes(changes(972, 982, gone=True, n="z"), **APPLY)
    oracle.after(gone=[972, 982])
    assert sorted(puffins(table).values()) == [2, 2]
    rival = opened(lake)
    table.world = Overtaken(table.world, lambda: rival.delete("id = 1002"))
    assert table.delete("id in (973, 983, 993, 1003, 1013)").attempts == 2
    oracle.after(gone=[973, 983, 993, 1003, 1002, 1013])
    assert sorted(puffins(table).values()) == [1, 4]
    assert {*puffins(table)} <= {one.as_uri() for one in tmp_path.rglob("*.puffin")}


@pytest.mark.parametrize("verb", ["delete", "apply_changes"])
def test_a_file_of_vectors_that_no_try_needs_goes(verb: str, lake: dict[str, str], tmp_path: Path) -> None:
    """A rival took rows of each data file, so that what the first try made serves nobody."""
    table = made(lake, properties=VECTORS)
    table.append(rows(*range(5)))
    table.append(rows(*range(5, 10)))
    rival = opened(lake)
    table.world = Overtaken(table.world, lambda: rival.delete("id = 1 or id = 6"))
    before = Counter(one.name for one in tmp_path.rglob("*-deletes.puffin"))
    if verb == "delete":
        assert table.delete("id = 2 or id = 7").attempts == 2
    else:
        assert table.apply_changes(changes(2, 7, gone=True), **APPLY).attempts == 2
    new = Counter(one.name for one in tmp_path.rglob("*-deletes.puffin")) - before
    assert len(new) == 2  # the rival's, which the snapshot before names, and ours
    assert [*puffins(table).values()] == [2]


def test_a_vector_is_read_without_the_others_of_its_file(lake: dict[str, str]) -> None:
    """One file may have the vectors of thousands of data files, and be asked for once for each."""
    table = made(lake, properties=VECTORS)
    for number in range(0, 10, 5):
        table.append(rows(*range(number, number + 5)))
    table.delete("id = 1 or id = 6")
    asked = Asked(table.world)
    table.world = asked
    table.delete("id = 2 or id = 7")
    reads = [one for one in asked.effects if getattr(one, "path", "").endswith(".puffin")]
    assert {type(one) for one in reads} >= {GetRange}
    assert not [one for one in reads if isinstance(one, Get)]


class Asked(Stepwise):
    """Keeps what was asked for."""

    def __init__(self, world: Performer) -> None:
        super().__init__(world)
        self.effects: list[Effect] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.effects.append(effect)
        return self.world.perform(effect)


@pytest.mark.usefixtures("way")
def test_a_vector_stands_instead_of_position_deletes_of_an_upgraded_table(lake: dict[str, str]) -> None:
    table = sw.create(v3.NAME, SCHEMA, catalog=lake, properties=VECTORS)
    table.append(rows(*range(6)))
    table.delete("id = 1")
    table.delete("id = 2")
    v3.upgrade(lake)
    table = opened(lake)
    table.append(rows(6))
    oracle = Oracle(table)
    table.apply_changes([*changes(0), *changes(3, gone=True)], **APPLY)
    oracle.after(gone=[3], changed=[0])
    assert kinds(table) == ["PUFFIN"] + ["PARQUET"] * 3


def test_upkeep_carries_ids_along_and_applies_vectors(lake: dict[str, str]) -> None:
    table = made(lake, properties=VECTORS)
    for number in range(0, 10, 2):
        table.append(rows(number, number + 1))
    table.delete("id = 3")
    table.apply_changes(changes(4), **APPLY)
    oracle = Oracle(table)
    table.maintain()
    oracle.after()
    assert kinds(table) == ["PARQUET"]
    table.delete("id = 5")
    oracle.after(gone=[5])


def test_rows_that_upkeep_moves_keep_their_ids_while_a_rival_marks_others(lake: dict[str, str]) -> None:
    table = made(lake, properties=VECTORS)
    for number in range(0, 10, 2):
        table.append(rows(number, number + 1))
    oracle = Oracle(table)
    table.world = Overtaken(table.world, lambda: opened(lake).delete("id = 3 or id = 8"))
    assert table.maintain().dropped == {}
    oracle.after(gone=[3, 8])
    assert sorted(kinds(table)) == ["PARQUET", "PUFFIN", "PUFFIN"][: len(kinds(table))]


def test_merged_manifests_say_the_ids_that_rows_have(lake: dict[str, str]) -> None:
    """Also where a rival gives ids to the rows of an upgraded table in between: what was merged before serves no more."""
    merging = {"commit.manifest.min-count-to-merge": "3"}
    table = sw.create(v3.NAME, SCHEMA, catalog=lake, properties={**VECTORS, **merging})
    table.append(rows(0, 1))
    table.append(rows(2))
    v3.upgrade(lake)
    table = opened(lake)
    table.world = Overtaken(table.world, lambda: opened(lake).append(SCHEMA.empty_table()))
    assert table.append(rows(3)).attempts == 2
    before = v3.lineage(table, table.history()[1].version)
    found = v3.lineage(table)
    assert {number: found[number] for number in before} == before
    table = opened(lake)
    oracle = Oracle(table)
    for number in range(4, 9):
        table.append(rows(number))
        oracle.after(new=[number])
        table.delete(f"id = {number - 4}")
        oracle.after(gone=[number - 4])
    assert len(v3.listed(table)) < 6


@pytest.mark.parametrize("writers", [3, pytest.param(20, marks=pytest.mark.long)])
def test_racing_writers_of_all_kinds_leave_each_row_its_id(writers: int, lake: dict[str, str]) -> None:
    """In each snapshot each key has the row id that it had in the one before; rows and vectors are what all writers did together."""
    made(lake, properties={**VECTORS, "commit.manifest.min-count-to-merge": "8"}).append(
        rows(*range(1000, 1010))
    )

    def work(writer: int) -> None:
        table, first = opened(lake), 10 * writer
        table.append(rows(first, first + 1, first + 2))
        table.apply_changes([*changes(first, first + 5), *changes(first + 1, gone=True)], **APPLY)
        table.delete(f"id = {first + 2} or id = {1000 + writer % 10}")
        if writer % 3 == 0:
            table.maintain()
        table.apply_changes(changes(first, first + 5, n="c"), **APPLY)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(work, range(writers)))
    table = opened(lake)
    before: dict[int, tuple[int | None, int]] = {}
    for entry in reversed(table.history()):
        found = v3.lineage(table, entry.version)
        for number in {*found} & {*before}:
            assert found[number][0] == before[number][0], (entry.operation, number)
        assert len({row for row, _ in found.values()}) == len(found)
        before = found
    left = {number for writer in range(writers) for number in (10 * writer, 10 * writer + 5)}
    assert {*before} == left | {number for number in range(1000, 1010) if number - 1000 >= writers}
    assert {row["id"]: row["v"] for row in table.rows(where="id < 1000").to_pylist()} == dict.fromkeys(
        left, "c"
    )


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_changes_to_an_upgraded_table_do_not_pass_over_ids_that_a_rival_gives(
    properties: dict[str, str], lake: dict[str, str]
) -> None:
    """Before the first commit no row has an id, and what was found then tells of none."""
    table = sw.create(v3.NAME, SCHEMA, catalog=lake, properties=properties)
    table.append(rows(*range(6)))
    v3.upgrade(lake)
    table = opened(lake)
    table.world = Overtaken(table.world, lambda: opened(lake).append(rows(8)))
    assert table.apply_changes([*changes(0, 7), *changes(1, gone=True)], **APPLY).attempts == 2
    before, after = v3.lineage(table, table.history()[1].version), v3.lineage(table)
    metadata: Any = table.iceberg.metadata
    assert after.pop(7)[0] not in {row for row, _ in before.values()}
    assert after.pop(0) == (before[0][0], metadata.last_sequence_number)
    assert after == {number: of for number, of in before.items() if number not in {0, 1}}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_a_column_of_unknown_type_is_null_and_in_no_file(
    properties: dict[str, str], lake: dict[str, str]
) -> None:
    """Every verb writes around it; a value for it is refused."""
    made(lake, properties=properties).append(rows(*range(6)))
    v3.add_column(lake, "unknown")
    table = opened(lake)
    oracle = Oracle(table)
    table.append([{"id": 6, "v": "a", "x": None}])
    oracle.after(new=[6])
    table.append(rows(7), schema_mode="merge")
    oracle.after(new=[7])
    table.delete("id = 1")
    oracle.after(gone=[1])
    table.apply_changes([{**change, "x": None} for change in changes(0, 8)], **APPLY)
    oracle.after(changed=[0], new=[8])
    table.maintain()
    oracle.after()
    assert {*table.rows(where="true")["x"].to_pylist()} == {None}
    assert all(
        pq.read_schema(path.removeprefix("file://")).names.count("x") == 0 for path in v3.data_files(lake)
    )
    with pytest.raises(sw.WouldAlterError, match="'x'"):
        table.append([{"id": 9, "v": "a", "x": 5}])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_a_default_stays_where_rows_are_written_again(
    properties: dict[str, str], lake: dict[str, str]
) -> None:
    """Rows of before have the initial default also in files that have the column now; new rows get the other one."""
    made(lake, properties=properties).append(rows(*range(5)))
    v3.add_column(lake, "int", column="n", **{"initial-default": 7, "write-default": 8})
    table, known = opened(lake), dict.fromkeys(range(5), 7)
    oracle = Oracle(table)

    def check(**of: Any) -> None:
        oracle.after(**of)
        found = table.rows(where="true", columns=["id", "n"]).to_pylist()
        assert {row["id"]: row["n"] for row in found} == known

    table.delete("id = 1")
    del known[1]
    check(gone=[1])
    table.overwrite(rows(9), where="id = 2 or id = 9")
    del known[2]
    known[9] = 8
    check(gone=[2], new=[9])
    table.apply_changes([{**change, "n": None} for change in changes(3)], **APPLY)
    known[3] = None
    check(changed=[3])
    table.maintain()
    check()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["timestamp_ns", pytest.param("timestamptz_ns", marks=pytest.mark.long)])
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "marked"])
def test_nanoseconds_stay_where_rows_are_written_again(
    properties: dict[str, str], kind: str, lake: dict[str, str]
) -> None:
    """By a condition, by key and by upkeep; the ends of the type, and times that have no whole microseconds."""
    made(lake, properties=properties)
    v3.add_column(lake, kind)
    v3.add_column(
        lake,
        {"type": "struct", "fields": [{"id": 99, "name": "a", "required": False, "type": kind}]},
        column="y",
    )  # type: ignore[arg-type]
    ends = [2**63 - 1, -(2**63) + 1, 1, -1, 1_700_000_000_123_456_789, None, 0, 999]
    moments = pa.array(ends, pa.timestamp("ns", tz="UTC" if kind.startswith("timestamptz") else None))

    def some(first: int) -> pa.Table:
        inner = pa.StructArray.from_arrays([moments], ["a"])
        return pa.table(
            {"id": range(first, first + len(ends)), "v": ["a"] * len(ends), "x": moments, "y": inner}
        )

    table = opened(lake)
    table.append(some(0))
    table.append(some(10))
    oracle = Oracle(table)
    table.delete("id = 5")
    oracle.after(gone=[5])
    taken = some(10).slice(3, 1).set_column(1, "v", [["b"]])
    table.apply_changes(taken, keys=["id"], sequence_by=["v"])
    oracle.after(changed=[13])
    table.maintain()
    oracle.after()
    table.overwrite(some(20).slice(0, 1), where="id = 0 or id = 20")
    oracle.after(gone=[0], new=[20])
    found = table.rows(where="true").sort_by("id")
    expected = {
        **dict(zip(range(8), ends, strict=True)),
        **dict(zip(range(10, 18), ends, strict=True)),
        20: ends[0],
    }
    left = [number for number in expected if number not in {0, 5}]
    assert found["id"].to_pylist() == left
    stored = [expected[number] for number in left]
    assert found["x"].type == moments.type
    assert found["x"].cast(pa.int64()).to_pylist() == stored
    assert pc.struct_field(found["y"], "a").cast(pa.int64()).to_pylist() == stored
