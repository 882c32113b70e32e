"""Rows keep their ids when they are written again, and their versions when nothing of them changed (PROTOCOL.md, "Row Tracking"; A21)."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.data.vectors import decoded, path_of
from safewrite.delta.log.stamps import ID_COLUMN, VERSION_COLUMN
from safewrite.testing.steps import At
from tests.changes.tasked import by_tasks
from tests.each import each

TRACKED = {"delta.enableRowTracking": "true"}
VECTORS, FED = {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}
SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("part", pa.string())])
KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "copied": ({}, ()),
    "vectors": (VECTORS, ()),
    "fed": (FED, ()),
    "parted": (VECTORS | FED, ("part",)),
}
Row: TypeAlias = tuple[int, int, str]
"""Id, version and value."""


def rows(ids: Sequence[int], seq: int, value: str = "a", *, op: str | None = None) -> pa.Table:
    data = {
        "id": [*ids],
        "seq": [seq] * len(ids),
        "v": [value] * len(ids),
        "part": [f"p{n % 2}" for n in ids],
    }
    table = pa.table(data, schema=SCHEMA)
    return table.append_column("op", pa.array([op] * len(ids), pa.string())) if op else table


def made(folder: Path, kind: str) -> sw.Table:
    properties, by = KINDS[kind]
    return sw.create(folder / "t", SCHEMA, partition_by=by, properties=TRACKED | properties)


def live(root: Path) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The live files with the table's properties, by a reader that is not the writer."""
    adds, properties = dict[str, dict[str, Any]](), dict[str, str]()
    for path in sorted((root / "_delta_log").glob("*[0-9].json")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for one in lines:
            properties = one["metaData"]["configuration"] if "metaData" in one else properties
            if "remove" in one:
                adds.pop(one["remove"]["path"])
        adds |= {one["add"]["path"]: one["add"] for one in lines if "add" in one}
    return iter([(add, properties) for add in adds.values()])


def seen(root: Path) -> dict[int, Row]:
    """The live rows by key, as PROTOCOL.md says that readers find ids and versions."""
    found = dict[int, Row]()
    for add, properties in live(root):
        vector, gone = add.get("deletionVector"), frozenset[int]()
        if vector:
            path = path_of(vector, str(root))
            gone = frozenset(decoded(vector, None if path is None else (root / path).read_bytes()))
        for place, row in enumerate(pq.read_table(root / add["path"], partitioning=None).to_pylist()):
            if place in gone:
                continue
            own, version = row.get(properties[ID_COLUMN]), row.get(properties[VERSION_COLUMN])
            assert row["id"] not in found
            found[row["id"]] = (
                add["baseRowId"] + place if own is None else own,
                add["defaultRowCommitVersion"] if version is None else version,
                row["v"],
            )
    ids = [one[0] for one in found.values()]
    assert len({*ids}) == len(ids), "no two rows have one id"
    return found


class Watched:
    """A table and what its rows must be; a row that comes has an id above all that were ever given."""

    def __init__(self, table: sw.Table, root: Path) -> None:
        self.table, self.root, self.known, self.top = table, root, dict[int, Row](), -1

    def step(self, act: Callable[[], Any], came: dict[int, str], went: Sequence[int] = ()) -> None:
        """One commit in which rows come, with their values, or get these, or go."""
        before = self.table.version
        act()
        version, found = self.table.version, seen(self.root)
        assert version == before + 1
        stays = {key: one for key, one in self.known.items() if key not in went and key not in came}
        assert {key: found[key] for key in stays} == stays
        assert found.keys() == stays.keys() | came.keys()
        for key, value in came.items():
            own, at, has = found[key]
            assert (at, has) == (version, value)
            if key in self.known and key not in went:
                assert own == self.known[key][0], "the row was changed, and keeps its id"
            else:
                assert own > self.top
        self.known, self.top = found, max([self.top, *(one[0] for one in found.values())])

    def apply(self, ids: Sequence[int], value: str, gone: Sequence[int] = ()) -> None:
        seq = self.table.version
        data = pa.concat_tables([rows(ids, seq, value, op="u"), rows(gone, seq, op="d")])
        self.step(
            lambda: self.table.apply_changes(data, keys=["id"], sequence_by=["seq"], delete_when="op = 'd'"),
            dict.fromkeys(ids, value),
            gone,
        )


@each(("kind", "tasks"), [("copied", True), ("parted", False)])
def test_every_verb_keeps_ids_and_versions(tmp_path: Path, kind: str, tasks: bool) -> None:
    with by_tasks() if tasks else nullcontext():
        drawn_program(tmp_path / str(tasks), kind, 3)


@pytest.mark.long
@each(("kind", "tasks"), product(KINDS, [False, True]))
def test_every_verb_keeps_ids_and_versions_for_long(tmp_path: Path, kind: str, tasks: bool) -> None:
    with by_tasks() if tasks else nullcontext():
        drawn_program(tmp_path / str(tasks), kind, 12)


def drawn_program(tmp_path: Path, kind: str, turns: int) -> None:
    drawn = random.Random(kind)
    one = Watched(made(tmp_path / kind, kind), tmp_path / kind / "t")
    table = one.table
    one.step(lambda: table.append(rows(range(30), 0)), dict.fromkeys(range(30), "a"))
    one.step(lambda: table.append(rows(range(30, 36), 0)), dict.fromkeys(range(30, 36), "a"))
    for number in range(turns):
        keys = sorted(one.known)
        some = drawn.sample(keys, 6)
        one.apply([*some[:3], 100 + number, 200 + number], f"v{number}", some[3:4])
        one.step(lambda: table.delete(f"id = {some[4]}"), {}, some[4:5])  # noqa: B023 - called at once
        if number % 2:
            one.step(
                lambda: table.overwrite(rows([some[5]], table.version, "w"), where=f"id = {some[5]}"),  # noqa: B023
                {some[5]: "w"},
                some[5:6],
            )
        if number % 3 == 2:
            one.step(table.maintain, {})
    (kept, *_) = one.known
    many = [(f"m{at}", rows([number], 90 + at, "m")) for at, number in enumerate((kept, 300, kept))]
    table.apply_changes_many(many, keys=["id"], sequence_by=["seq"])
    assert seen(one.root)[kept] == (one.known[kept][0], table.version, "m")


@each("kind", ["copied", "vectors"])
def test_a_rival_that_wrote_the_rows_again_before_our_try_leaves_them_their_ids(
    tmp_path: Path, kind: str
) -> None:
    """Ours is brought to the new base: it reads the ids where the rows are now."""
    table = made(tmp_path / kind, kind)
    table.append(rows(range(10), 0))
    table.append(rows(range(10, 14), 0))
    rival = sw.open(tmp_path / kind / "t")

    def acts() -> None:
        rival.maintain()
        rival.apply_changes(rows([5, 11], 3, "rival"), keys=["id"], sequence_by=["seq"])

    table.world = At(table.world, "commit.put_commit", "before", acts)
    table.apply_changes(rows([4, 5, 50], 5, "ours"), keys=["id"], sequence_by=["seq"])
    found = seen(tmp_path / kind / "t")
    assert {key: found[key][0] for key in (*range(14),)} == {key: key for key in range(14)}
    assert (found[4][1:], found[5][1:], found[11][1:]) == ((5, "ours"), (5, "ours"), (4, "rival"))
    assert found[50][0] > 13


def test_rows_that_a_compaction_moves_keep_their_ids_while_a_rival_marks_others(tmp_path: Path) -> None:
    table = made(tmp_path, "vectors")
    for number in range(3):
        table.append(rows(range(5 * number, 5 * number + 5), 0))
    before, rival = seen(tmp_path / "t"), sw.open(tmp_path / "t")
    table.world = At(table.world, "commit.put_commit", "before", lambda: rival.delete("id in (1, 11)"))
    assert table.maintain().dropped == {}
    (add, _), *others = live(tmp_path / "t")
    assert (bool(add["deletionVector"]), others) == (True, [])
    assert seen(tmp_path / "t") == {key: one for key, one in before.items() if key not in {1, 11}}


def test_a_key_that_a_rival_deleted_and_inserted_again_is_another_row(tmp_path: Path) -> None:
    """Our rows are the same, and were in files with the old id."""
    table = made(tmp_path, "copied")
    table.append(rows(range(4), 0))
    rival = sw.open(tmp_path / "t")

    def acts() -> None:
        rival.delete("id = 2")
        rival.append(rows([2], 1, "again"))

    table.world = At(table.world, "commit.put_commit", "before", acts)
    table.apply_changes(rows([2], 5, "ours"), keys=["id"], sequence_by=["seq"])
    assert seen(tmp_path / "t")[2][0] > 3


def test_a_table_that_only_lists_row_tracking_gives_ids_and_keeps_none(tmp_path: Path) -> None:
    made(tmp_path, "copied").append(rows(range(4), 0))
    first = tmp_path / "t" / "_delta_log" / ("0" * 20 + ".json")
    text = first.read_text()
    spelled = '"delta.enableRowTracking":"true"'
    assert spelled in text
    first.write_text(text.replace(spelled, spelled.replace("true", "false")))
    other = shutil.copytree(tmp_path / "t", tmp_path / "other")  # which this process does not know
    sw.open(other).delete("id = 1")
    ((add, properties),) = live(other)
    assert add["baseRowId"] == 4
    assert properties[ID_COLUMN] not in pq.read_schema(other / add["path"]).names


def test_ids_are_no_columns_of_the_table(tmp_path: Path) -> None:
    """Nor have they statistics, which engines would take for those of a column."""
    one = Watched(made(tmp_path, "copied"), tmp_path / "t")
    one.step(lambda: one.table.append(rows(range(4), 0)), dict.fromkeys(range(4), "a"))
    one.apply([1], "b")
    assert one.table.rows({"id": [1]}).column_names == SCHEMA.names
    for add, properties in live(tmp_path / "t"):
        assert properties[ID_COLUMN] in pq.read_schema(tmp_path / "t" / add["path"]).names
        assert "_row" not in add["stats"]


@pytest.mark.parametrize("lacks", ["baseRowId", "defaultRowCommitVersion"])
def test_a_file_of_which_the_log_tells_no_ids_is_not_written_again(tmp_path: Path, lacks: str) -> None:
    table = made(tmp_path, "copied")
    table.append(rows(range(4), 0))
    other = shutil.copytree(tmp_path / "t", tmp_path / "other")
    path = other / "_delta_log" / ("0" * 19 + "1.json")
    path.write_text(path.read_text().replace(lacks, "x"))
    with pytest.raises(sw.UnsupportedTableError, match="which ids the rows"):
        sw.open(other).delete("id = 1")
