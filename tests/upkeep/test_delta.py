"""Small files of a Delta table are put together beside its writers, and no row changes."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import safewrite as sw
from safewrite.delta import upkeep
from safewrite.delta.log import checkpoint_file
from safewrite.delta.write import compaction, matching_files
from safewrite.errors import InvalidInputError, UnsupportedTableError
from safewrite.frames.parquet import Roll
from safewrite.metrics.measures import measured
from safewrite.protocol.effects import Busy, Unknown
from safewrite.table.verbs import Table
from safewrite.testing.steps import Answers, At, Recorder, side_of
from tests.each import each

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
READ, COMMIT = "compact.get_data", "commit.put_commit"


def made(
    folder: Path, files: int = 4, days: tuple[str | None, ...] = ("a", "b", None), **properties: str
) -> Table:
    """A table of ``files`` files for each day, each of five rows."""
    schema = pa.schema({"n": pa.int64(), "day": pa.string()})
    table = sw.create(str(folder), schema, partition_by=["day"] if days else [], properties=properties)
    for number in range(files):
        rows = [{"n": 100 * number + n, "day": day} for day in days or ("",) for n in range(5)]
        table.append(rows)
    return table


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows in their order, as deltalake reads them, with deletion vectors."""
    found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t").read_all()
    return sorted((tuple(one.values()) for one in pa.table(found).to_pylist()), key=str)


def live(folder: Path) -> int:
    return len(DeltaTable(folder).file_uris())


def actions(folder: Path, version: int, name: str) -> list[dict[str, Any]]:
    lines = (folder / f"_delta_log/{version:020}.json").read_text().splitlines()
    return [one[name] for one in map(json.loads, lines) if name in one]


def parquet(folder: Path) -> int:
    return len([*folder.rglob("part-*.parquet")])


# --- what it does ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("copied", [0, 2**40])
def test_values_of_all_kinds_stay_whether_the_rows_of_files_are_copied_together_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    monkeypatch.setattr(compaction, "COPIED_BYTES", copied)
    kinds = {
        "n": pa.int64(), "text": pa.string(), "price": pa.decimal128(9, 2), "list": pa.list_(pa.int32()), "flag": pa.bool_(),
        "struct": pa.struct({"a": pa.string()}), "map": pa.map_(pa.string(), pa.int64()), "at": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    table = sw.create(str(tmp_path / "t"), pa.schema(kinds), properties=VECTORS)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for number in range(4):
        table.append(
            [
                {"n": 2 * number, "text": f"t{number}", "price": Decimal(number), "list": [number, None], "flag": True,
                 "struct": {"a": "x"}, "map": [("k", number)], "at": at},
                {"n": 2 * number + 1, **dict.fromkeys([*kinds][1:])},
            ]
        )  # fmt: skip
    table.delete("n = 3")
    before = table.rows(where="true")
    assert table.maintain().files_out == 1
    assert table.rows(where="true").sort_by("n").equals(before.sort_by("n"))
    assert table.row_count() == 7


def test_each_partition_has_one_file_afterwards_and_every_reader_sees_the_same_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    before = rows(path)
    foreseen = table.maintain(dry_run=True)
    assert (live(path), table.version) == (12, 4)
    report = table.maintain()
    assert (report.files_before, report.files_in, report.files_out, report.files_after) == (12, 12, 3, 3)
    assert (
        (foreseen.groups, foreseen.files_out, foreseen.rows) == (report.groups, 3, report.rows) == (3, 3, 60)
    )
    assert (report.commits, report.dropped, report.left, report.in_doubt) == ((5,), {}, {}, None)
    assert (report.checkpoint, len([*path.glob("_delta_log/*5.checkpoint.parquet")])) == (5, 1)
    assert rows(path) == before
    assert sorted(pl.read_delta(str(path)).select("n", "day").rows(), key=str) == before
    assert (
        sorted((tuple(one.values()) for one in sw.open(path).rows(where="true").to_pylist()), key=str)
        == before
    )
    assert (
        sorted((tuple(one.values()) for one in DeltaTable(path).to_pyarrow_table().to_pylist()), key=str)
        == before
    )
    assert table.maintain().groups == 0


def test_rows_keep_their_order_and_all_their_values(tmp_path: Path) -> None:
    path = tmp_path / "t"
    some = pa.table(
        {
            "n": pa.array([1, None, 3]),
            "x": [1.5, float("nan"), -0.0],
            "d": [Decimal("1.10"), None, Decimal("-2.00")],
            "at": pa.array(
                [dt.datetime(1969, 1, 1, tzinfo=dt.UTC), None, dt.datetime(2400, 1, 1, tzinfo=dt.UTC)],
                pa.timestamp("us", "UTC"),
            ),
            "nested": [{"a": [1, 2]}, None, {"a": None}],
            "b": [b"\x00", b"", None],
        }
    )
    table = sw.open(str(path), create=True)
    for _ in range(3):
        table.append(some)
    table.append(some.append_column("late", pa.array(["x", None, "y"])), schema_mode="merge")
    before = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=str)
    (version,) = table.maintain().commits
    after = DeltaTable(path)
    assert len(after.file_uris()) == 1
    assert str(sorted(after.to_pyarrow_table().to_pylist(), key=str)) == str(
        before
    )  # NaN is equal to nothing
    assert after.to_pyarrow_table().column("n").to_pylist() == [1, None, 3] * 4
    (add,) = actions(path, version, "add")
    stats = json.loads(add["stats"])
    assert (stats["numRecords"], stats["minValues"]["n"], stats["nullCount"]["late"]) == (12, 1, 10)
    assert add["dataChange"] is False
    assert not any(one["dataChange"] for one in actions(path, version, "remove"))


def test_deletion_vectors_are_applied_and_small_files_with_all_rows_gone_go(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path, **VECTORS)
    table.delete("n in (0, 1, 100, 101) or n >= 300")
    before = rows(path)
    report = table.maintain()
    assert report.deleted_rows == 12
    assert rows(path) == before
    assert live(path) == 3
    assert not any(one.get("deletionVector") for one in actions(path, table.version, "add"))


def test_a_change_data_feed_shows_nothing_and_a_reader_of_what_came_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path, **FEED)
    table.maintain()
    feed = pa.table(DeltaTable(path).load_cdf(starting_version=5, ending_version=5).read_all())
    assert feed.num_rows == 0
    assert table.added_since(4) == []
    assert (table.history(1)[0].rows_added, table.history(1)[0].operation) == (0, "OPTIMIZE")


def test_changes_by_key_find_their_rows_afterwards(tmp_path: Path) -> None:
    path, how = tmp_path / "t", {"keys": ["id"], "sequence_by": ["s"], "delete_when": "op = 'd'"}
    for properties in (VECTORS, {}):
        place = path / str(len(properties))
        table = sw.create(
            str(place),
            pa.schema({"id": pa.int64(), "s": pa.int64(), "v": pa.string()}),
            properties=properties,
        )
        for number in range(6):
            table.apply_changes(
                [{"id": number, "s": 1, "v": "old", "op": "u"}, {"id": 9, "s": number, "v": "x", "op": "d"}],
                **how,
            )
        table.maintain()
        batch = [
            {"id": 2, "s": 2, "v": "new", "op": "u"},
            {"id": 3, "s": 2, "v": None, "op": "d"},
            {"id": 4, "s": 0, "v": "late", "op": "u"},
            {"id": 9, "s": 3, "v": "back", "op": "u"},
        ]
        receipt = table.apply_changes(batch, **how)
        assert receipt.changes is not None
        assert (receipt.changes["updated"], receipt.changes["deleted"], receipt.changes["late"]) == (1, 1, 2)
        assert sorted(row[0] for row in rows(place)) == [0, 1, 2, 4, 5]


def test_a_key_is_known_after_the_files_of_its_rows_are_gone(tmp_path: Path) -> None:
    table = made(tmp_path / "t", files=2)
    first = table.append([{"n": 1, "day": "a"}], key="event-1")
    table.maintain()
    assert table.append([{"n": 1, "day": "a"}], key="event-1").version == first.version
    assert table.resolve("event-1") is not None


def test_a_listener_is_told_and_metrics_are_made_of_it(tmp_path: Path) -> None:
    path, seen = tmp_path / "t", list[sw.Event]()
    made(path)
    sw.open(path, on_event=seen.append).maintain()
    (event,) = [one for one in seen if one.kind == "upkeep"]
    counts = {metric.name: number for metric, number in measured(event).items()}
    assert (counts["FilesCompacted"], counts["LiveFiles"]) == (12, 3)
    assert "12 files" in event.text


# --- budgets ---------------------------------------------------------------------------------------------
def test_a_budget_ends_the_work_and_what_is_left_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    size = max(len(one.read_bytes()) for one in path.rglob("part-*.parquet"))
    report = table.maintain(budget_bytes=5 * size)
    assert (report.groups, report.left) == (1, {"they are beyond the budget of bytes": 2})
    late = table.maintain(budget_s=1e-9)
    assert (late.groups, late.left) == (0, {"the budget of seconds was used up": 2})
    assert table.maintain().groups == 2


def test_a_budget_that_is_none_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t", files=1)
    for wrong in ({"budget_s": 0}, {"budget_bytes": 0}, {"budget_bytes": 1.5}, {"dry_run": "yes"}):
        with pytest.raises(InvalidInputError, match="Nothing was written"):
            table.maintain(**wrong)  # type: ignore[arg-type]


# --- beside others ---------------------------------------------------------------------------------------
def appended(path: Path) -> None:
    sw.open(path).append([{"n": 1_000, "day": "a"}])


def deleted(path: Path) -> None:
    sw.open(path).delete("day = 'a' and n = 0")


def overwritten(path: Path) -> None:
    sw.open(path).overwrite([{"n": 7, "day": "a"}], where="day = 'a'")


def compacted(path: Path) -> None:
    DeltaTable(path).optimize.compact(partition_filters=[("day", "=", "a")])


def restored(path: Path) -> None:
    DeltaTable(path).restore(2)


def widened(path: Path) -> None:
    sw.open(path).append([{"n": 1, "day": "a", "more": 1}], schema_mode="merge")


RIVALS: dict[str, tuple[Callable[[Path], None], int]] = {
    "an append": (appended, 0),
    "a delete": (deleted, 1),
    "an overwrite": (overwritten, 1),
    "another compaction": (compacted, 1),
    "a restore": (restored, 3),
    "a new column": (widened, 0),
}


@each(
    ("rival", "vectors", "step"),
    [*product(RIVALS, (False,), (COMMIT,)), *product(("a delete",), (True,), (READ, COMMIT))],
)
def test_a_group_of_which_a_rival_took_files_is_left_out_and_the_rest_goes_on(
    tmp_path: Path, rival: str, vectors: bool, step: str
) -> None:
    """The rival commits before the files are read, or when the commit is about to be made; what it marks is no loss."""
    act, lost = RIVALS[rival]
    lost = 0 if vectors else lost
    path, oracle = (
        tmp_path / f"{rival}-{vectors}-{step}-{name}".replace(" ", "-") for name in ("t", "oracle")
    )
    for place in (path, oracle):
        table = made(place, **(VECTORS if vectors else {}))
    act(oracle)
    table = sw.open(path)
    table.world = At(table.world, step, "before", lambda: act(path))  # type: ignore[assignment]
    report = table.maintain()
    assert rows(path) == rows(oracle)
    assert (report.groups, sum(report.dropped.values())) == (3 - lost, lost)


def test_files_of_a_group_that_was_left_out_before_any_try_are_gone(tmp_path: Path) -> None:
    """What was deleted does not come back (B4)."""
    path = tmp_path / "t"
    table = made(path)
    before = parquet(path)
    table.world = At(table.world, READ, "after", lambda: deleted(path))  # type: ignore[assignment]
    report = table.maintain()
    assert report.dropped == {"other writers took its files first": 1}
    assert parquet(path) == before + 1 + 2  # that of the delete, and those of two groups


def test_two_at_once_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(path, files=6)
    before, reports = rows(path), list[Any]()
    start = threading.Barrier(3)

    def run() -> None:
        table = sw.open(path)
        start.wait()
        reports.append(table.maintain())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert rows(path) == before
    assert live(path) == 3
    assert sum(one.groups for one in reports) == 3


# --- rows that others mark meanwhile -------------------------------------------------------------------------
def marks(*numbers: int) -> Callable[[Path], object]:
    """A rival that marks these rows of day 'a'."""
    return lambda path: sw.open(path).delete(f"day = 'a' and n in ({', '.join(map(str, numbers))})")


def rewritten(path: Path) -> None:
    """A rival that writes a file of day 'a' again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching_files, "marks_rows", lambda state: False)
        sw.open(path).delete("day = 'a' and n = 100")


def meets(table: Table, path: Path, *acts: Callable[[Path], object]) -> None:
    """Rivals commit before each try of a table's next commit."""
    for number, act in enumerate(acts):
        step = COMMIT if number == 0 else f"{COMMIT}#{number + 1}"
        table.world = At(table.world, step, "before", lambda act=act: act(path))  # type: ignore[assignment,misc]


@pytest.mark.parametrize(
    ("acts", "left"),
    [
        ([marks(0, 301)], []),
        ([marks(0), marks(104, 301)], []),
        ([marks(0), appended, marks(100)], []),
        ([marks(0), rewritten], [1]),
        ([marks(*range(5), *range(100, 105), 200)], [1]),
    ],
    ids=["one", "two", "with-an-append", "marked-then-rewritten", "more-than-half"],
)
def test_rows_that_rivals_mark_are_marked_in_the_files_that_are_about_to_come(
    tmp_path: Path, acts: list[Callable[[Path], object]], left: list[int]
) -> None:
    path, oracle = tmp_path / "t", tmp_path / "oracle"
    table = made(path, **VECTORS)
    made(oracle, **VECTORS)
    table.delete("n = 2")  # what a vector takes before is not counted
    sw.open(oracle).delete("n = 2")
    for act in acts:
        act(oracle)
    meets(table, path, *acts)
    report = table.maintain()
    assert rows(path) == rows(oracle)
    assert [*report.dropped.values()] == left
    adds = actions(path, report.commits[0], "add")
    assert len([one for one in adds if one.get("deletionVector")]) == (not left)
    assert not any(one["dataChange"] for one in adds)
    assert sorted(pl.read_delta(str(path)).select("n", "day").rows(), key=str) == rows(oracle)
    vectors = len([*path.rglob("deletion_vector*.bin")]) - len([*oracle.rglob("deletion_vector*.bin")])
    assert vectors == (not left)  # none of an earlier try is left
    assert sw.open(path).maintain().dropped == {}
    assert rows(path) == rows(oracle)


def test_rows_are_found_again_in_each_of_the_files_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of four rows, that end in the midst of those of old ones."""
    monkeypatch.setattr(
        "safewrite.frames.parquet._parts",
        lambda rows, _: (rows.slice(at, 4) for at in range(0, rows.num_rows, 4)),
    )
    monkeypatch.setattr(compaction, "Roll", lambda _, begin: Roll(1, begin))
    path, oracle = tmp_path / "t", tmp_path / "oracle"
    for place in (path, oracle):
        made(place, days=("a",), **VECTORS).delete("n in (1, 103)")
    table = sw.open(path)
    meets(table, path, marks(3, 100, 200, 204, 302))
    marks(3, 100, 200, 204, 302)(oracle)
    report = table.maintain()
    assert (report.files_out, report.dropped) == (5, {})
    assert rows(path) == rows(oracle)


def test_a_group_is_left_out_where_the_table_wants_no_vectors_any_more(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path, days=("a", "b"), **VECTORS)
    table.world = At(table.world, COMMIT, "before", lambda: marks(0)(path))  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "marks_rows", lambda state: False)
        report = table.maintain()
    assert (report.groups, [*report.dropped.values()]) == (1, [1])
    assert (0, "a") not in rows(path)


def test_a_kill_between_the_vector_and_the_commit_loses_nothing(tmp_path: Path) -> None:
    path, oracle = tmp_path / "t", tmp_path / "oracle"
    for place in (path, oracle):
        made(place, days=("a",), **VECTORS)
    marks(0, 101)(oracle)
    for point in (f"{COMMIT}#2:before", f"{COMMIT}#2:after"):
        table = sw.open(path)
        meets(table, path, marks(0, 101))

        def fail() -> None:
            raise ConnectionError("the machine is gone")

        table.world = At(table.world, *side_of(point), fail)  # type: ignore[assignment]
        with suppress(sw.SafewriteError):
            table.maintain()
        assert rows(path) == rows(oracle)
    sw.open(path).maintain()
    assert (rows(path), live(path)) == (rows(oracle), 1)


WRITES: dict[str, Callable[[Table], object]] = {
    "delete": lambda table: table.delete("n in (0, 101)"),
    "overwrite": lambda table: table.overwrite([{"n": 0, "day": "a"}], where="n = 0 and day = 'a'"),
    "apply_changes": lambda table: table.apply_changes(
        [{"n": 1, "day": "b", "s": 2, "op": "d"}, {"n": 5_000, "day": "b", "s": 2, "op": "u"}],
        keys=["n", "day"],
        sequence_by=["s"],
        delete_when="op = 'd'",
    ),
}


@each(("verb", "vectors"), product(WRITES, (False, True)))
def test_a_write_whose_files_it_took_does_what_it_was_to_do(tmp_path: Path, verb: str, vectors: bool) -> None:
    """The compaction wins the version that the write was about to try."""
    path, oracle = (tmp_path / f"{verb}-{vectors}-{name}" for name in ("t", "oracle"))
    for place in (path, oracle):
        table = made(place, files=2, **(VECTORS if vectors else {}))
        if verb == "apply_changes":
            table.append([{"n": 9, "day": "b", "s": 1}], schema_mode="merge")
            table.overwrite([{"n": n, "day": "b", "s": 1} for n in range(5)], where="day = 'b'")
            table.append([{"n": 10, "day": "b", "s": 1}])
        if place == path:
            table.world = At(table.world, COMMIT, "before", lambda: sw.open(path).maintain())  # type: ignore[assignment]
        WRITES[verb](table)
    assert rows(path) == rows(oracle)
    assert "OPTIMIZE" in {one.operation for one in sw.open(path).history(3)}


# --- what it does not touch --------------------------------------------------------------------------------
def test_tables_that_may_not_be_written_to_are_refused_and_append_only_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(path, **{"delta.appendOnly": "true"}).maintain()
    assert live(path) == 3
    log = max((path / "_delta_log").glob("0*.json"))
    mapped = actions(path, 0, "metaData")[0]
    mapped["configuration"]["delta.columnMapping.mode"] = "name"
    (log.parent / f"{int(log.stem) + 1:020}.json").write_text(json.dumps({"metaData": mapped}) + "\n")
    with pytest.raises(UnsupportedTableError, match="columnMapping"):
        sw.open(path).maintain()


def test_a_file_that_is_gone_keeps_its_group_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made(path)
    next((path / "day=a").glob("*.parquet")).unlink()
    report = sw.open(path).maintain()
    ((why, count),) = report.dropped.items()
    assert (report.groups, count) == (2, 1)
    assert "it is gone" in why


@each("more", [{"tags": {"ZCUBE_ID": "1"}}, {"clusteringProvider": "liquid"}])
def test_files_whose_rows_another_engine_put_in_order_stay(tmp_path: Path, more: dict[str, Any]) -> None:
    path = tmp_path / next(iter(more))
    table = made(path, days=())
    log = path / f"_delta_log/{table.version + 1:020}.json"
    adds = [one for version in range(1, 5) for one in actions(path, version, "add")]
    log.write_text(
        "".join(json.dumps({"add": {**one, **more, "dataChange": False}}) + "\n" for one in adds[:3])
    )
    assert sw.open(path).maintain(dry_run=True).groups == 0


# --- faults ----------------------------------------------------------------------------------------------
def test_a_lost_answer_is_found_and_a_commit_in_doubt_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    before, plain = rows(path), table.world
    table.world = Answers(plain, COMMIT, Unknown("lost"), times=1)  # type: ignore[assignment]
    assert table.maintain().groups == 3
    for day in ("a", "b"):
        table.append([{"n": 1, "day": day}])
    before = rows(path)
    table.world = Answers(plain, "commit.read_back", Busy("slow"))  # type: ignore[assignment]
    lost = Answers(table.world, COMMIT, Unknown("lost"), perform=False)
    table.world, table.limits = lost, table.limits.__class__(timeout_s=0.2)  # type: ignore[assignment]
    report = table.maintain()
    assert (report.groups, report.commits) == (0, ())
    assert report.in_doubt is not None
    assert rows(path) == before


def lively(place: Path) -> Table:
    table = made(place, files=2, days=("a",), **VECTORS)
    table.delete("n = 0")
    return table


def steps(folder: Path) -> list[str]:
    """The points of a run at which it writes or commits."""
    table = lively(folder)
    recorder = Recorder(table.world)
    table.world = recorder  # type: ignore[assignment]
    table.maintain()
    named = [
        one for one in recorder.steps if "#" not in one and one.startswith(("compact.", "stage.", "commit."))
    ]
    return [*(f"{one}:before" for one in named), "commit.put_commit:after"]


def test_whatever_step_fails_the_rows_stay_and_the_next_run_ends_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    whole = rows(Path(lively(tmp_path / "whole").uri))
    found = steps(tmp_path / "steps")
    assert any("stage.put_data" in one for one in found)
    for number, point in enumerate(found):
        with subtests.test(point):
            path = tmp_path / str(number)
            table = lively(path)

            def fail() -> None:
                raise ConnectionError("the machine is gone")

            table.world = At(table.world, *side_of(point), fail)  # type: ignore[assignment]
            with suppress(sw.SafewriteError):
                table.maintain()
            assert rows(path) == whole
            sw.open(path).maintain()
            assert rows(path) == whole
            assert live(path) == 1


def test_a_run_whose_commit_is_due_for_a_checkpoint_makes_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by: list[int] = []
    was = checkpoint_file.encoded

    def encoded(found: Any, *now: Any) -> Any:
        made_by.append(found.state.version)
        return was(found, *now)

    table = made(tmp_path / "t", files=9)  # the tenth commit is the run's own
    upkeep.finish()
    monkeypatch.setattr(checkpoint_file, "encoded", encoded)
    report = table.maintain()
    assert (report.commits, report.checkpoint) == ((10,), 10)
    upkeep.finish()
    assert made_by == [10]


def test_databricks_is_not_helped_where_it_puts_files_together_by_itself(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    info = {"operation": "OPTIMIZE", "engineInfo": "Databricks-Runtime/16.4.x-scala2.12", "timestamp": 1}
    path = tmp_path / "t" / "_delta_log" / f"{table.version + 1:020}.json"
    path.write_text(json.dumps({"commitInfo": info}))
    report = table.maintain()
    assert (report.groups, report.left) == (0, {"Databricks puts the table's files together by itself": 3})
    assert table.maintain(dry_run=True).left == report.left
