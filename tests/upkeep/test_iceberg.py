"""Small files of an Iceberg table are put together beside its writers, and no row changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

import safewrite as sw
from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.protocol.effects import Unknown
from safewrite.table.verbs import Table
from safewrite.testing.steps import Answers, At, Recorder, side_of
from safewrite.upkeep.groups import groups_of

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.int64(), "day": pa.string()})
MARKS = {"write.merge.mode": "merge-on-read"}
HOW: dict[str, Any] = {"keys": ["n", "day"], "sequence_by": ["s"], "delete_when": "op = 'd'"}
READ, COMMIT = "apply.get_data", "swap.commit"


class Lake:
    """A catalog of its own with one table of three days, each of some files of five rows."""

    def __init__(
        self, folder: Path, files: int = 3, days: tuple[str | None, ...] = ("a", "b", None), **properties: str
    ) -> None:
        folder.mkdir(parents=True)
        given = {"uri": f"sqlite:///{folder}/c.db", "warehouse": folder.as_uri()}
        self.catalog = SqlCatalog("local", **given)
        self.given: Any = {"type": "sql", **given} if "format-version" in properties else self.catalog
        sw.create("db.t", SCHEMA, catalog=self.given, partition_by=["day"], properties=properties)
        table = self.open()
        for number in range(files):
            table.append([{"n": 100 * number + n, "s": 1, "day": day} for day in days for n in range(5)])

    def open(self) -> Table:
        return sw.open("db.t", catalog=self.given)

    @property
    def scan(self) -> Any:
        return self.catalog.load_table("db.t").scan()

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(one.values()) for one in self.scan.to_arrow().to_pylist()), key=str)

    def live(self) -> int:
        return len([*self.scan.plan_files()])


def delete(lake: Lake, *numbers: int) -> None:
    """Deletes by key: in position delete files where the table is merge-on-read, else by rewritten files."""
    lake.open().apply_changes([{"n": n, "s": 2, "day": "a", "op": "d"} for n in numbers], **HOW)


def test_each_partition_has_one_file_afterwards_and_every_reader_sees_the_same_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t", **MARKS)
    delete(lake, 0, 101)
    before, table = lake.rows(), lake.open()
    foreseen = table.maintain(dry_run=True)
    report = table.maintain()
    assert (report.files_before, report.files_in, report.files_out, report.files_after) == (9, 9, 3, 3)
    assert (foreseen.groups, foreseen.rows, report.rows, report.deleted_rows) == (3, 43, 43, 2)
    assert lake.rows() == before
    assert not any(task.delete_files for task in lake.scan.plan_files())
    there = lake.catalog.load_table("db.t")
    summary = there.current_snapshot().summary
    assert (summary.operation.value, summary["total-data-files"], summary["added-records"]) == (
        "replace",
        "3",
        "43",
    )
    found = (
        duckdb.sql(f"SELECT n, s, day FROM iceberg_scan('{there.metadata_location}')")
        if _has_iceberg()
        else None
    )
    assert found is None or sorted(found.fetchall(), key=str) == before
    assert (table.maintain().groups, table.row_count(), table.added_since(report.commits[0])) == (0, 43, [])
    assert (table.history(1)[0].rows_added, table.history(1)[0].rows_removed) == (0, 0)


def test_the_record_of_what_went_is_in_no_manifest_that_stays(tmp_path: Path) -> None:
    """A reader would pass over it at each scan, and every file that went would be asked for a manifest of its own."""
    lake = Lake(tmp_path / "t", files=12, days=("a",))
    table = lake.open()
    table.maintain()
    there = lake.catalog.load_table("db.t")
    counts = [
        (one.added_files_count, one.existing_files_count, one.deleted_files_count)
        for one in there.current_snapshot().manifests(there.io)
    ]
    assert sorted(counts) == [(0, 0, 12), (1, 0, 0)]
    table.append([{"n": 1, "s": 1, "day": "a"}])
    there = lake.catalog.load_table("db.t")
    assert not any(one.deleted_files_count for one in there.current_snapshot().manifests(there.io))


def test_a_table_of_many_files_is_planned_without_statistics_that_stay_in_its_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "t", **MARKS)
    delete(lake, 0)
    before = lake.rows()
    table = lake.open()
    monkeypatch.setattr(table._format.planner.known, "files_max", 2)  # type: ignore[attr-defined]
    found = table._inventory()
    assert isinstance(found.listing, KnownManifests)
    entries = [one.data_file for known in found.listing for one in known.entries]
    assert len(entries) == 10
    assert [one.lower_bounds for one in entries if one.content.name == "DATA"] == [None] * 9
    groups = groups_of(found)[:1]
    assert table._compact(groups, found, None).rows is not None
    assert lake.rows() == before
    assert all(task.file.lower_bounds for task in lake.scan.plan_files())
    assert lake.scan.filter("n >= 200 and day == 'b'").to_arrow().num_rows == 5


def _has_iceberg() -> bool:
    with suppress(duckdb.Error):
        duckdb.sql("LOAD iceberg")
        return True
    return False


def test_changes_by_key_and_repeats_find_their_rows_afterwards(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t", **MARKS)
    table = lake.open()
    first = table.append([{"n": 9, "s": 1, "day": "a"}], key="event-1")
    delete(lake, 0)
    table.maintain()
    assert table.append([{"n": 9, "s": 1, "day": "a"}], key="event-1").version == first.version
    late = [
        {"n": 0, "s": 1, "day": "a", "op": "u"},
        {"n": 9, "s": 2, "day": "a", "op": "u"},
        {"n": 1, "s": 3, "day": "a", "op": "d"},
    ]
    changes = table.apply_changes(late, **HOW).changes
    assert changes is not None
    assert (changes["late"], changes["updated"], changes["deleted"]) == (1, 1, 1)
    position = table.version
    table.maintain()
    assert table.refresh().added_since(position) == []


def appended(lake: Lake) -> None:
    lake.open().append([{"n": 1_000, "s": 1, "day": "a"}])


def overwritten(lake: Lake) -> None:
    lake.open().overwrite([{"n": 7, "s": 1, "day": "a"}], where="day = 'a'")


def compacted(lake: Lake) -> None:
    lake.open().maintain()


def widened(lake: Lake) -> None:
    lake.open().append([{"n": 1, "s": 1, "day": "a", "more": 1}], schema_mode="merge")


RIVALS: dict[str, tuple[Callable[[Lake], object], int]] = {
    "an append": (appended, 0),
    "a delete": (lambda lake: delete(lake, 1), 1),
    "an overwrite": (overwritten, 1),
    "another compaction": (compacted, 3),
    "a new column": (widened, 0),
}


CASES: list[tuple[str, dict[str, str], str]] = [
    *((one, {}, COMMIT) for one in reversed(RIVALS)),
    ("a delete", MARKS, READ),
    ("a delete", MARKS, COMMIT),
]


@pytest.mark.parametrize(
    ("rival", "marks", "step"),
    [pytest.param(*one, marks=() if number < 3 else pytest.mark.long) for number, one in enumerate(CASES)],
)
def test_a_group_of_which_a_rival_took_files_is_left_out_and_the_rest_goes_on(
    tmp_path: Path, rival: str, marks: dict[str, str], step: str
) -> None:
    """The rival commits before the files are read, or when the commit is about to be made; what it marks is no loss."""
    act, lost = RIVALS[rival]
    lost = 0 if marks else lost
    lake, oracle = (Lake(tmp_path / name, files=2, **marks) for name in ("t", "oracle"))
    act(oracle)
    table = lake.open()
    table.world = At(table.world, step, "before", lambda: act(lake))  # type: ignore[assignment]
    report = table.maintain()
    assert lake.rows() == oracle.rows()
    assert (report.groups, sum(report.dropped.values())) == (3 - lost, lost)
    assert lake.open().maintain().dropped == {}
    assert lake.rows() == oracle.rows()


def test_a_row_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    """(B4)"""
    lake = Lake(tmp_path / "t", files=2, days=("a", "b"), **MARKS)
    table = lake.open()
    table.world = At(table.world, COMMIT, "before", lambda: delete(lake, 0))  # type: ignore[assignment]
    report = table.maintain()
    assert (0, 1, "a") not in lake.rows()
    assert (report.groups, report.dropped, len(lake.rows())) == (2, {}, 19)


def rewritten(lake: Lake) -> None:
    """A rival that writes a file of day 'a' again."""
    lake.open().delete("day = 'a' and n = 100")


@pytest.mark.parametrize(
    ("acts", "left"),
    [
        ([(0, 101)], []),
        ([(0,), (102, 1)], []),
        ([(0,), None, (1,)], []),
        ([(0, 1, 3, 101)], []),
        ([(1,), ()], [1]),
    ],
    ids=["one", "two", "with-an-append", "most-rows-of-a-file", "marked-then-rewritten"],
)
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.sweep("2-one", "2-two", "2-with", "2-most", "3-one", "3-two", "3-with", "3-most", "3-marked")
def test_rows_that_rivals_delete_are_deleted_in_the_files_that_are_about_to_come(
    tmp_path: Path, version: str, acts: list[tuple[int, ...] | None], left: list[int]
) -> None:
    """Two of the deleted rows are of one file; what was deleted before is not counted."""
    how = MARKS if version == "2" else {**MARKS, "format-version": version}
    lake, oracle = (Lake(tmp_path / name, files=2, days=("a", "b"), **how) for name in ("t", "oracle"))
    for one in (lake, oracle):
        delete(one, 2)

    def act(on: Lake, gone: tuple[int, ...] | None) -> None:
        appended(on) if gone is None else delete(on, *gone) if gone else rewritten(on)

    table = lake.open()
    for number, gone in enumerate(acts):
        act(oracle, gone)
        step = COMMIT if not number else f"{COMMIT}#{number + 1}"
        table.world = At(table.world, step, "before", lambda gone=gone: act(lake, gone))  # type: ignore[assignment,misc]
    report = table.maintain()
    assert read(lake) == read(oracle)
    assert [*report.dropped.values()] == left
    names = {one.name for one in (tmp_path / "t").rglob("*-deletes.*")}
    gone = {one.name for one in (tmp_path / "oracle").rglob("*-deletes.*")}
    assert len(names) == len(gone) + (not left)  # none of an earlier attempt is left
    assert lake.open().maintain().dropped == {}
    assert read(lake) == read(oracle)


def test_a_second_rival_of_one_file_leaves_it_one_vector(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t", files=2, days=("a",), **MARKS, **{"format-version": "3"})
    table = lake.open()
    for step, gone in ((COMMIT, 0), (f"{COMMIT}#2", 101)):
        table.world = At(table.world, step, "before", lambda gone=gone: delete(lake, gone))  # type: ignore[assignment,misc]
    assert table.maintain().dropped == {}
    assert sorted(table.rows(where="true")["n"].to_pylist()) == [1, 2, 3, 4, 100, 102, 103, 104]


def read(lake: Lake) -> list[tuple[Any, ...]]:
    """All rows by safewrite, and by PyIceberg where it opens the table."""
    found = sorted((tuple(one.values()) for one in lake.open().rows(where="true").to_pylist()), key=str)
    if lake.given is lake.catalog:
        assert lake.rows() == found
    return found


@pytest.mark.parametrize("marks", [{}, MARKS], ids=["rewritten", "marked"])
@pytest.mark.sweep("rewritten")
def test_changes_whose_files_it_took_find_their_rows_where_they_are_now(
    tmp_path: Path, marks: dict[str, str]
) -> None:
    """The compaction wins the snapshot that the changes were about to try, and marks what a rival deleted before it."""
    lake = Lake(tmp_path / "t", files=2, days=("a", "b"), **marks)
    table, upkeep = lake.open(), lake.open()
    upkeep.world = At(upkeep.world, COMMIT, "before", lambda: delete(lake, 3))  # type: ignore[assignment]
    table.world = At(table.world, COMMIT, "before", upkeep.maintain)  # type: ignore[assignment]
    changes = [
        {"n": 0, "s": 0, "day": "a", "op": "u"},
        {"n": 101, "s": 5, "day": "a", "op": "u"},
        {"n": 102, "s": 5, "day": "b", "op": "d"},
    ]
    receipt = table.apply_changes(changes, **HOW)
    assert (receipt.attempts, receipt.rebased) == (2, 1)
    assert receipt.changes is not None
    assert [receipt.changes[name] for name in ("late", "updated", "deleted")] == [1, 1, 1]
    left = {(n, 1, day) for n in (*range(5), *range(100, 105)) for day in "ab"}
    assert {*lake.rows()} == left - {(3, 1, "a"), (101, 1, "a"), (102, 1, "b")} | {(101, 5, "a")}
    assert len(lake.rows()) == 18


def test_rows_are_found_again_in_each_of_the_files_of_a_group(tmp_path: Path) -> None:
    """Files of four rows, that end in the midst of those of old ones."""
    lake, oracle = (Lake(tmp_path / name, files=4, days=("a",), **MARKS) for name in ("t", "oracle"))
    for one in (lake, oracle):
        delete(one, 1, 103)
    table = lake.open()
    table.world = At(table.world, COMMIT, "before", lambda: delete(lake, 3, 100, 200, 204, 302))  # type: ignore[assignment]
    delete(oracle, 3, 100, 200, 204, 302)
    found = table._inventory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "safewrite.frames.parquet._parts",
            lambda rows, _: (rows.slice(at, 4) for at in range(0, rows.num_rows, 4)),
        )
        patch.setattr(table._format.planner, "target_bytes", lambda head: 1)  # type: ignore[attr-defined]
        report = table._compact(groups_of(found), found, None)
    assert (report.files, report.dropped) == (5, ())
    assert lake.rows() == oracle.rows()


def test_a_group_whose_rows_were_put_in_order_is_left_out(tmp_path: Path) -> None:
    lake, oracle = (Lake(tmp_path / name, days=("a", "b"), **MARKS) for name in ("t", "oracle"))
    for one in (lake, oracle):
        with one.catalog.load_table("db.t").update_sort_order() as order:
            order.desc("n", IdentityTransform())
    table = lake.open()
    table.world = At(table.world, COMMIT, "before", lambda: delete(lake, 0))  # type: ignore[assignment]
    delete(oracle, 0)
    report = table.maintain()
    assert (report.groups, [*report.dropped.values()]) == (1, [1])
    assert lake.rows() == oracle.rows()


def test_a_kill_between_the_delete_file_and_the_commit_loses_nothing(tmp_path: Path) -> None:
    lake, oracle = (Lake(tmp_path / name, files=2, days=("a",), **MARKS) for name in ("t", "oracle"))
    delete(oracle, 0, 101)
    for point in (f"{COMMIT}#2:before", f"{COMMIT}#2:after"):
        table = lake.open()
        table.world = At(table.world, COMMIT, "before", lambda: delete(lake, 0, 101))  # type: ignore[assignment]

        def fail() -> None:
            raise ConnectionError("the machine is gone")

        table.world = At(table.world, *side_of(point), fail)  # type: ignore[assignment]
        with suppress(sw.SafewriteError):
            table.maintain()
        assert lake.rows() == oracle.rows()
    lake.open().maintain()
    assert (lake.rows(), lake.live()) == (oracle.rows(), 1)


def test_files_of_an_older_partition_spec_stay_and_a_sort_order_holds(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t")
    there = lake.catalog.load_table("db.t")
    with there.update_spec() as update:
        update.add_field("n", IdentityTransform())
    before, table = lake.rows(), lake.open()
    assert table.maintain().groups == 0
    for _ in range(3):
        table.append([{"n": 1, "s": 5, "day": "a"}])
    assert (table.maintain().files_in, lake.live()) == (3, 10)
    assert len(lake.rows()) == len(before) + 3


def test_a_lost_answer_is_found(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t")
    before, table = lake.rows(), lake.open()
    table.world = Answers(table.world, COMMIT, Unknown("lost"), times=1)  # type: ignore[assignment]
    assert table.maintain().groups == 3
    assert lake.rows() == before


def test_a_table_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "t")
    with lake.catalog.load_table("db.t").transaction() as change:
        change.set_properties({"encryption.key-id": "key"})
    with pytest.raises(UnsupportedTableError, match="encryption"):
        lake.open().maintain()


@pytest.mark.long
def test_whatever_step_fails_the_rows_stay_and_the_next_run_ends_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    def lively(name: str) -> Lake:
        lake = Lake(tmp_path / name, files=2, days=("a",), **MARKS)
        delete(lake, 0)
        return lake

    known = lively("steps")
    whole, table = known.rows(), known.open()
    recorder = Recorder(table.world)
    table.world = recorder  # type: ignore[assignment]
    table.maintain()
    steps = [
        one for one in recorder.steps if "#" not in one and one.startswith(("apply.", "stage.", "swap."))
    ]
    found = [*(f"{one}:before" for one in steps), "swap.commit:after"]
    assert {"stage.put_data:before", "swap.commit:before"} <= {*found}
    for number, point in enumerate(found):
        with subtests.test(point):
            lake = lively(str(number))
            table = lake.open()

            def fail() -> None:
                raise ConnectionError("the machine is gone")

            table.world = At(table.world, *side_of(point), fail)  # type: ignore[assignment]
            with suppress(sw.SafewriteError):
                table.maintain()
            assert lake.rows() == whole
            lake.open().maintain()
            assert lake.rows() == whole
            assert lake.live() == 1
