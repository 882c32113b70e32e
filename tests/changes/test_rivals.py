"""Writers that mark rows of one data file keep each other's marks, and none reads the file twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from safewrite.changes.lookup.key_index import KnownKeys
from safewrite.changes.meaning import row_vectors
from safewrite.changes.tasks import abc
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.write import batch_plan
from safewrite.iceberg.write import apply as iceberg_apply
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Backoff, Effect, Get, Ok, Outcome, Put, Sleep
from safewrite.stores.world import run
from safewrite.testing.steps import At, Stepwise
from tests.changes.test_decide import down, up
from tests.changes.test_marks import Rows, cardinalities, change, data, marked
from tests.changes.test_tables import Lake, apply
from tests.changes.test_vectors import commit, of
from tests.changes.test_where_beside_rivals import beside, data_files, named_files


class Killed(BaseException):
    """Ends a write where it is, as the end of its process would."""


class Reads(Stepwise):
    """Lists the files that are read, and spends no time on waiting for others."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.paths: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, Backoff | Sleep):
            return Ok(None)
        if isinstance(effect, Get):
            self.paths.append(effect.path)
        return self.world.perform(effect)


def before_commit(table: Any, act: Any) -> Reads:
    """Let ``act`` happen before a table's first try; what the table reads is noted."""
    table.world = At(table.world, "commit.put_commit", "before", act)
    table.world = reads = Reads(table.world)
    return reads


def contend(lake: Lake, wanted: Rows, writers: int, first: Path) -> None:
    """Each writer plans before all that come after it commit; the last one lands first."""
    mine = writers - 1
    table = lake.open()

    def others() -> None:
        if mine:
            contend(lake, wanted, mine, first)

    reads = before_commit(table, others)
    batch = [up((2, 0), f"new {mine}", (mine, "x")), down((2, 0), (100 + mine, "x"))]
    receipt = change(lake, wanted, batch, table=table)
    assert reads.paths.count(first.name) == 1, "the file that others marked was read again"
    assert (receipt.removed_rows, receipt.rebased) == (2, mine > 0)
    assert cardinalities(lake, receipt.version) == [None, 2 * writers]
    (gone,) = of(lake, receipt.version, "remove")
    assert (gone.get("deletionVector") or {}).get("cardinality", 0) == 2 * mine


@pytest.mark.parametrize("writers", [2, pytest.param(16, marks=pytest.mark.long)])
def test_writers_of_disjoint_keys_merge_their_marks_and_read_the_file_once(
    writers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        KnownKeys, "is_worth", lambda _known, _name, _rows: False
    )  # an index would spare the reads too
    lake, wanted = marked(tmp_path, rows=200)
    (first,) = data(lake)
    contend(lake, wanted, writers, first)
    assert lake.rows() == wanted


@pytest.mark.sweep("7-ours")
@pytest.mark.parametrize(("sequence", "value"), [(3, "theirs"), (7, "ours")])
def test_a_row_that_both_mark_is_decided_anew(sequence: int, value: str, tmp_path: Path) -> None:
    """The rival's row counts then, which is in a file of its own; the rest of the plan holds."""
    lake, wanted = marked(tmp_path)
    (first,) = data(lake)
    table, rival = lake.open(), lake.open()
    theirs = [up((5, 0), "theirs", (3, "x")), down((5, 0), (4, "x")), up((5, 0), "theirs", (30, "x"))]
    reads = before_commit(table, lambda: change(lake, wanted, theirs, table=rival))
    ours = [up((sequence, 0), "ours", (3, "x")), up((6, 0), "ours", (29, "x"))]
    receipt = apply(table, ours)
    assert lake.rows() == wanted | {(3, "x"): value, (29, "x"): "ours"}
    assert receipt.changes["late"] == (value == "theirs")
    assert receipt.removed_rows == 1 + (value == "ours")
    assert reads.paths.count(first.name) == 1
    (over,) = [add for add in of(lake, receipt.version, "add") if Path(add["path"]).name == first.name]
    assert over["deletionVector"]["cardinality"] == 4


def test_a_batch_all_of_whose_keys_a_rival_changed_is_planned_again_and_reads_no_file_twice(
    tmp_path: Path,
) -> None:
    """That is no re-base: nothing that was decided stands. It costs what a re-base costs, and counts as a try."""
    lake, wanted = marked(tmp_path)
    (first,) = data(lake)
    table, rival = lake.open(), lake.open()
    theirs, ours = ([up(at, who, (key, "x")) for key in (3, 4)] for at, who in (((5, 0), "t"), ((6, 0), "o")))
    reads = before_commit(table, lambda: change(lake, wanted, theirs, table=rival))
    receipt = apply(table, ours)
    assert (receipt.attempts, receipt.rebased) == (2, 0)
    assert reads.paths.count(first.name) == 1
    assert lake.rows() == wanted | {(3, "x"): "o", (4, "x"): "o"}


def test_a_row_that_both_mark_is_decided_anew_though_the_rival_has_none_in_its_place(tmp_path: Path) -> None:
    """What a rival deleted is there no more: our row comes, and no other row goes in its place."""
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    before_commit(table, lambda: change(lake, wanted, [down((5, 0), (3, "x"))], table=rival))
    receipt = apply(table, [up((7, 0), "ours", (3, "x")), up((6, 0), "ours", (29, "x"))])
    assert lake.rows() == wanted | {(3, "x"): "ours", (29, "x"): "ours"}
    assert receipt.removed_rows == 1


@pytest.mark.sweep("True")
@pytest.mark.parametrize("indexed", [False, True])
def test_a_file_whose_rows_came_back_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    """A RESTORE of another engine takes a vector away: what was found under it is not all that is there."""
    if not indexed:
        monkeypatch.setattr(KnownKeys, "is_worth", lambda _known, _name, _rows: False)
    lake, wanted = marked(tmp_path)
    (first,) = data(lake)
    change(lake, wanted, [down((2, 0), (1, "x"))])
    before, after = of(lake, 1, "add")[0], of(lake, 2, "add")[0]
    assert "deletionVector" in after
    gone = {"path": after["path"], "dataChange": True, "deletionVector": after["deletionVector"]}
    table = lake.open()
    reads = before_commit(table, lambda: commit(lake, {"remove": gone}, {"add": before}))
    receipt = apply(table, [up((3, 0), "new", (1, "x")), up((3, 0), "new", (2, "x"))])
    # The index of so small a file was made with the first change, of all rows: the marked ones, too.
    assert reads.paths.count(first.name) == (0 if indexed else 2)
    assert lake.rows() == wanted | {(1, "x"): "new", (2, "x"): "new"}
    assert receipt.removed_rows == 2


def test_a_file_that_a_rival_rewrote_is_looked_at_anew(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    before_commit(
        table, lambda: change(lake, wanted, [down((2, 0), (k, "x")) for k in range(30)], table=rival)
    )
    receipt = change(lake, wanted, [down((2, 0), (40, "x"))], table=table)
    assert cardinalities(lake, receipt.version) == [1]
    assert lake.rows() == wanted


@pytest.mark.long
def test_a_kill_after_the_merged_vector_was_stored_leaves_the_rivals_table(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    before_commit(table, lambda: change(lake, wanted, [down((2, 0), (1, "x"))], table=rival))

    def kill() -> None:
        raise Killed

    table.world = At(table.world, "commit.put_commit#2", "before", kill)
    batch = [down((2, 0), (2, "x")), up((2, 0), "new", (3, "x"))]
    with pytest.raises(Killed):
        apply(table, batch, key="a")
    assert lake.rows() == wanted
    receipt = change(lake, wanted, batch, key="a")
    assert cardinalities(lake, receipt.version) == [None, 3]
    assert lake.rows() == wanted


def test_delete_files_serve_on_where_a_rival_marks_other_rows_of_the_file(tmp_path: Path) -> None:
    """Iceberg, merge-on-read: the data file is read once, and of the rival's try only its delete file is."""
    lake = Lake("iceberg", tmp_path, vectors=True)
    apply(lake.open(), [up((1, 0), "old", (number, "x")) for number in range(20)])
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, "swap.commit", "before", lambda: apply(rival, [down((2, 0), (1, "x"))]))
    receipt = apply(table, [up((2, 0), "new", (2, "x")), down((2, 0), (3, "x"))])
    assert (receipt.removed_rows, receipt.rebased, receipt.attempts) == (2, 1, 2)
    assert lake.rows() == {(number, "x"): "old" for number in range(4, 20)} | {
        (0, "x"): "old",
        (2, "x"): "new",
    }
    ours = list(tmp_path.rglob("*-deletes.parquet"))
    assert len(ours) == 2, "the rows of a file were marked a second time"


# --- which rows are left ------------------------------------------------------------------------------------
def file(vector: str | None, rows: int | None = 4, **other: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": f'{{"numRecords":{rows}}}'}
    named = {"deletionVector": {"storageType": "u", "pathOrInlineDv": vector}} if vector else {}
    return {"path": "f", "size": 9, "partitionValues": {}} | stats | named | other


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (file(None), file("1"), [True, False, True, True]),
        (file("1"), file("13"), [True, True, False]),
        (file("1"), file("1"), [True, True, True]),
        (file("13"), file("1"), None),
        (file("1"), file("3"), None),
        (file("1"), file(None), None),
        (file(None), file("1", size=8), None),
        (file(None), file("1", partitionValues={"b": "x"}), None),
        (file(None, 5), file("1"), None),
        (file(None, None), file("1", None), None),
    ],
)
def test_what_was_found_holds_where_rows_only_went(
    before: dict[str, Any], after: dict[str, Any], left: list[bool] | None
) -> None:

    known = {
        ("f", f"u{rows}"): row_vectors.bitmap(np.array([int(one) for one in rows]))
        for rows in ("1", "13", "3")
    }
    stays = Vectors("", known).stays(before, after)
    assert (None if stays is None else stays.tolist()) == left


def databricks_compacts(lake: Lake, meddled: dict[str, Any] | None = None) -> str:
    """OPTIMIZE as Databricks writes it: tags of each removed file say where its live rows are now; the file that they are in."""
    table = deltalake.DeltaTable(lake.uri)
    adds = {one["path"]: one for version in range(table.version() + 1) for one in of(lake, version, "add")}
    files = [adds[path] for path in sorted(path.removeprefix(lake.uri + "/") for path in table.file_uris())]
    parts = [live_rows_of(lake, one) for one in files]
    name, removes, first = "part-compacted.parquet", [], 0
    for add, rows in zip(files, parts, strict=True):
        gone = (add.get("deletionVector") or {}).get("cardinality", 0)
        info = {
            "rowOffsetInTarget": first,
            "sourceNumPhysicalRecords": rows.num_rows + gone,
            "sourceDeletionVector": None,
        }
        tags = {"compactedInto": json.dumps([name]), "compactionInfo": json.dumps([info | (meddled or {})])}
        vector = {"deletionVector": add["deletionVector"]} if gone else {}
        removes.append({"remove": {"path": add["path"], "dataChange": False, "tags": tags, **vector}})
        first += rows.num_rows
    pq.write_table(pa.concat_tables(parts), Path(lake.uri) / name)
    size, stats = (Path(lake.uri) / name).stat().st_size, json.dumps({"numRecords": first})
    came = {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": 1,
        "dataChange": False,
        "stats": stats,
    }
    commit(lake, *removes, {"add": came})
    return name


def live_rows_of(lake: Lake, add: dict[str, Any]) -> pa.Table:
    rows = pq.read_table(Path(lake.uri) / add["path"])
    if not add.get("deletionVector"):
        return rows
    vectors = Vectors(lake.uri)
    run(vectors.fetch([add], Limits()), lake.open().world)
    gone = vectors.of(add)
    assert gone is not None
    return rows.filter(pa.array([number not in gone for number in range(rows.num_rows)]))


@pytest.mark.parametrize(
    ("meddled", "is_read"),
    [
        ({}, False),
        ({"rowOffsetInTarget": 1}, True),
        ({"rowOffsetInTarget": "0"}, True),
        ({"sourceNumPhysicalRecords": 7}, True),
    ],
    ids=["told", "a gap", "a text", "a wrong sum"],
)
def test_rows_that_databricks_compacted_are_found_by_its_tags_where_they_tell_of_all_rows(
    meddled: dict[str, Any], is_read: bool, tmp_path: Path
) -> None:
    lake, wanted = marked(tmp_path, files=2)
    change(lake, wanted, [down((2, 0), (1, "x")), down((2, 0), (60, "x"))])
    table, made = lake.open(), list[str]()
    reads = before_commit(table, lambda: made.append(databricks_compacts(lake, meddled)))
    receipt = apply(
        table, [up((3, 0), "new", (3, "x")), down((3, 0), (99, "x")), up((3, 0), "came", (200, "x"))]
    )
    assert (made[0] in reads.paths) == is_read
    del wanted[99, "x"]
    assert lake.rows() == wanted | {(3, "x"): "new", (200, "x"): "came"}
    assert (receipt.removed_rows, receipt.rebased) == (2, 1)
    assert cardinalities(lake, receipt.version) == [None, 2]


class Uploads(Stepwise):
    """Lists the files that go up."""

    def __init__(self, world: Any, paths: list[str]) -> None:
        super().__init__(world)
        self.paths = paths

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.paths += [effect.path] if isinstance(effect, Put) else []
        return self.world.perform(effect)


LOOK = {"delta": "commit.list", "iceberg": "swap.load"}
"""The step by which a write looks at what others did, before it tries."""


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_files_are_written_again_once_it_is_known_what_others_did_meanwhile(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival that rewrites the same file while a large batch is decided costs that batch no file."""
    for module in (batch_plan, iceberg_apply):
        monkeypatch.setattr(module, "MUCH_BYTES", 0)
    lake = Lake(form, tmp_path)
    apply(lake.open(), [up((1, 0), "old", (key, "x")) for key in range(8)])
    rival, table = lake.open(), lake.open()
    world = beside(lake, table, lambda: apply(rival, [up((2, 0), "theirs", (1, "x"))]))
    world.step, written = LOOK[form], list[str]()
    table.world = Uploads(world, written)
    receipt = apply(table, [up((2, 0), "ours", (2, "x"))])
    assert not world.acts, "no look came before the try"
    assert (receipt.attempts, receipt.rebased) == (1, 0), "what came before the first try made no try vain"
    assert lake.rows() == {(key, "x"): {1: "theirs", 2: "ours"}.get(key, "old") for key in range(8)}
    assert sum("-kept" in path for path in written) == 1, "a file was written in vain"
    assert data_files(lake) == named_files(lake)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_try_that_others_overtook_writes_no_more_files(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival rewrites all four files after a second try wrote the first of them again: the three others are not, and what was is removed."""
    monkeypatch.setattr(abc, "MUCH_BYTES", 0)
    lake = Lake(form, tmp_path)
    for first in range(0, 16, 4):
        apply(lake.open(), [up((1, 0), "old", (key, "x")) for key in range(first, first + 4)])
    rival, table = lake.open(), lake.open()

    def theirs(first: int) -> None:
        apply(rival, [up((2, 0), "theirs", (key, "x")) for key in range(first, 16, 4)])

    before_try = beside(lake, table, lambda: theirs(0))
    before_look = beside(lake, table, *[lambda: None] * (form == "iceberg"), lambda: theirs(2))
    before_look.step, written = {"delta": "commit.look_between"}.get(form, LOOK[form]), list[str]()
    table.world = Uploads(before_look, written)
    receipt = apply(table, [up((3, 0), "ours", (key, "x")) for key in range(1, 16, 4)])
    assert not before_try.acts
    assert not before_look.acts, "no look came between two files"
    assert (receipt.attempts, receipt.rebased) == (3, 2)
    assert lake.rows() == {(key, "x"): ("theirs", "ours", "theirs", "old")[key % 4] for key in range(16)}
    assert sum("-kept" in path for path in written) == 4 + 1 + 4
    assert data_files(lake) == named_files(lake)


def test_a_large_plan_tries_though_others_change_the_table_before_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a writer that has lost a try waits for its turn."""
    monkeypatch.setattr(iceberg_apply, "MUCH_BYTES", 0)
    lake = Lake("iceberg", tmp_path)
    apply(lake.open(), [up((1, 0), "old", (key, "x")) for key in range(8)])
    rival, table = lake.open(), lake.open()
    acts = [lambda turn=turn: apply(rival, [up((turn, 0), "theirs", (1, "x"))]) for turn in range(2, 7)]
    world = beside(lake, table, *acts)
    world.step = LOOK["iceberg"]
    apply(table, [up((9, 0), "ours", (2, "x"))])
    assert len(world.acts) >= 3, "it looked, and did not try"
    assert lake.rows()[2, "x"] == "ours"
