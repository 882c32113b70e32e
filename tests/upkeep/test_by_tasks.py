"""Groups of files are put together by tasks of executors: what holds in this process holds there, and no failure of theirs loses a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import IdentityTransform

import safewrite as sw
from safewrite.engine.abc import ExecutorsLackPythonError
from safewrite.errors import InternalError, InvalidInputError
from safewrite.testing.steps import At
from safewrite.upkeep import maintain, workplace
from safewrite.upkeep.workplace import Workplace
from tests.delta import test_row_ids
from tests.iceberg import test_v3_changes, v3_tables
from tests.upkeep import elsewhere, test_delta, test_iceberg
from tests.upkeep.elsewhere import Elsewhere
from tests.upkeep.test_side_by_side import FORMATS, made


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "SMALL", 0)


def of_lake(test: Callable[..., None], folder: Path) -> None:
    test(v3_tables.lake(folder))


def sorted_rows(folder: Path) -> None:
    """The rows of each new file are in the table's order."""
    lake = test_iceberg.Lake(folder / "t", days=("a",))
    with lake.catalog.load_table("db.t").update_sort_order() as order:
        order.desc("n", IdentityTransform())
    assert lake.open().maintain().files_out == 1
    found = lake.scan.to_arrow()["n"].to_pylist()
    assert found == sorted(found, reverse=True)
    assert len(found) == 15


ALIKE: list[Callable[[Path], None]] = [
    partial(test_delta.test_values_of_all_kinds_stay_whether_the_rows_of_files_are_copied_together_or_not, monkeypatch=pytest.MonkeyPatch(), copied=0),
    test_delta.test_rows_keep_their_order_and_all_their_values,
    test_delta.test_deletion_vectors_are_applied_and_small_files_with_all_rows_gone_go,
    test_delta.test_a_change_data_feed_shows_nothing_and_a_reader_of_what_came_nothing_new,
    test_delta.test_changes_by_key_find_their_rows_afterwards,
    test_row_ids.test_rows_that_a_compaction_moves_keep_their_ids_while_a_rival_marks_others,
    test_iceberg.test_each_partition_has_one_file_afterwards_and_every_reader_sees_the_same_rows,
    test_iceberg.test_a_second_rival_of_one_file_leaves_it_one_vector,
    test_iceberg.test_a_group_whose_rows_were_put_in_order_is_left_out,
    sorted_rows,
    partial(of_lake, test_v3_changes.test_upkeep_carries_ids_along_and_applies_vectors),
    partial(of_lake, test_v3_changes.test_rows_that_upkeep_moves_keep_their_ids_while_a_rival_marks_others),
]  # fmt: skip


def called(test: Any) -> str:
    inner = test.args[0] if isinstance(test, partial) and test.args else test
    return str(getattr(inner, "func", inner).__name__).removeprefix("test_")


@pytest.mark.parametrize("test", ALIKE, ids=called)
def test_what_holds_in_this_process_holds_by_tasks_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: Callable[[Path], None]
) -> None:
    """Values, order, vectors, ids and what rivals mark meanwhile, by tasks that are sent as bytes."""
    engine = Elsewhere()
    place = elsewhere.workplace(engine)
    monkeypatch.setattr(workplace, "workplace_of", lambda engine: place)
    test(tmp_path)
    assert engine.tasks > 0


# --- what fails there ------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fails", ["before", "after"])
def test_groups_with_which_executors_fail_are_left_to_the_next_run(
    tmp_path: Path, kind: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What tasks wrote is named by no commit; a run goes on after one failure, and ends with the second in a row."""
    table, rows = made(kind, tmp_path / "t")
    before, version = rows(), table.version
    place = elsewhere.workplace(engine := Elsewhere([fails]))
    report = table.maintain(engine=place)
    assert (report.groups, report.commits, report.dropped) == (0, (), {maintain.BROKEN: 2})
    assert (rows(), table.version) == (before, version)
    assert "an executor is gone" in caplog.text
    unnamed = {one.name for one in tmp_path.rglob("*.parquet")}
    report = table.maintain(engine=place)
    assert (report.groups, report.files_after, report.dropped, engine.jobs) == (2, 2, {}, 2)
    assert rows() == before
    assert {Path(name).name for name in live(table)}.isdisjoint(unnamed)


def live(table: sw.Table) -> list[str]:
    """The paths of the live files."""
    return [str(one.name) for one in table._inventory().files]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_cannot_be_read_there_takes_its_own_group_out(tmp_path: Path, kind: str) -> None:
    table, _ = made(kind, tmp_path / "t")
    next(one for one in tmp_path.rglob("*.parquet") if "day=b" in str(one)).write_bytes(b"PAR1 nothing")
    report = table.maintain(engine=elsewhere.workplace(Elsewhere()))
    assert report.groups == 1
    assert [(count, "Nothing was" in why) for why, count in report.dropped.items()] == [(1, True)]
    found = table.rows(where="day = 'a'")
    assert sorted(found["n"].to_pylist()) == sorted(100 * number + n for number in range(3) for n in range(5))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_run_ends_where_executors_fail_twice_in_a_row(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "GROUPS_MAX", 1)
    table, rows = made(kind, tmp_path / "t", "abcd")
    before = rows()
    place = elsewhere.workplace(engine := Elsewhere(["before", "", "before", "after"]), cores=1)
    report = table.maintain(engine=place)
    assert (report.groups, report.dropped, report.left) == (1, {maintain.BROKEN: 3}, {})
    engine.fails = ["before", "before"]
    report = table.maintain(engine=place)
    assert (report.groups, report.dropped, report.left) == (0, {maintain.BROKEN: 2}, {maintain.BROKEN: 1})
    assert table.maintain(engine=place).groups == 3
    assert rows() == before


@pytest.mark.parametrize("kind", FORMATS)
def test_a_task_that_ran_again_has_its_files_named_once(tmp_path: Path, kind: str) -> None:
    """The files of the try whose report was lost have other names, and nobody names them."""
    table, rows = made(kind, tmp_path / "t")
    before, files = rows(), {*tmp_path.rglob("*.parquet")}
    report = table.maintain(engine=elsewhere.workplace(Elsewhere(["again"])))
    came = {one.name for one in {*tmp_path.rglob("*.parquet")} - files if "checkpoint" not in one.name}
    assert (report.groups, len(came)) == (2, 4)
    named = {Path(one).name for one in live(table)}
    assert len(named) == 2
    assert named < came
    assert rows() == before


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fails", ["lost", "twice"])
def test_a_report_that_is_missing_or_comes_twice_ends_the_run_before_its_commit(
    tmp_path: Path, kind: str, fails: str
) -> None:
    table, rows = made(kind, tmp_path / "t")
    before = rows()
    with pytest.raises(InternalError, match="reported"):
        table.maintain(engine=elsewhere.workplace(Elsewhere([fails])))
    assert rows() == before
    assert table.maintain().groups == 2
    assert rows() == before


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("forced", [False, True], ids=["auto", "spark"])
def test_executors_without_python_are_left_alone_unless_they_were_asked_for(
    tmp_path: Path, kind: str, forced: bool
) -> None:
    table, rows = made(kind, tmp_path / "t")
    before = rows()
    place = elsewhere.workplace(Elsewhere([ExecutorsLackPythonError("They have no Python.")]), forced=forced)
    assert place.executors is not None
    place.executors._is_asked = True
    if forced:
        with pytest.raises(ExecutorsLackPythonError):
            table.maintain(engine=place)
    else:
        assert table.maintain(engine=place).groups == 2
        assert place.engine is None
    assert rows() == before


def test_a_table_that_executors_do_not_reach_is_refused_or_kept_in_shape_here(tmp_path: Path) -> None:
    table, rows = made("iceberg", tmp_path / "t")
    table._format.planner.catalog = None  # type: ignore[attr-defined]
    before, engine = rows(), Elsewhere()
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        table.maintain(engine=elsewhere.workplace(engine))
    place = elsewhere.workplace(engine, forced=False)
    assert place.executors is not None
    place.executors._is_asked = True
    assert table.maintain(engine=place).groups == 2
    assert (rows(), engine.jobs) == (before, 0)


# --- where, and how much at once -------------------------------------------------------------------------
def test_a_small_table_stays_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = made("delta", tmp_path / "t")
    size = table.maintain(dry_run=True).bytes_in
    monkeypatch.setattr(workplace, "SMALL", size)
    place = elsewhere.workplace(engine := Elsewhere())
    assert table.maintain(engine=place).groups == 2
    assert engine.jobs == 0


def test_only_the_bytes_of_the_budget_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = made("delta", tmp_path / "t")
    size = table.maintain(dry_run=True).bytes_in
    monkeypatch.setattr(workplace, "SMALL", size // 2 + 1)
    place = elsewhere.workplace(engine := Elsewhere())
    assert table.maintain(engine=place, budget_bytes=size // 2 + 1).groups == 1
    assert engine.jobs == 0


def test_a_commit_has_a_target_size_for_each_core_of_the_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = made("delta", tmp_path / "t", "abcdef")
    monkeypatch.setattr(maintain, "GROUPS_MAX", 1)
    report = table.maintain(engine=elsewhere.workplace(engine := Elsewhere(), cores=3))
    assert (report.groups, len(report.commits), engine.jobs, engine.tasks) == (6, 2, 2, 6)


def test_where_runs_took_less_is_remembered_over_tables_of_a_job(tmp_path: Path) -> None:
    """A job has one place for all its tables; what starts is in the first run, which is not counted."""
    executors = elsewhere.workplace(Elsewhere(), forced=False).executors
    place = Workplace.of(executors)
    (first, _), (second, _) = (made("delta", tmp_path / name) for name in ("one", "two"))
    assert place.choice.costs is not None
    before = place.choice.costs[0].sums
    first.maintain(engine=place)
    assert place.choice.costs[0].sums == before
    second.maintain(engine=place)
    assert place.choice.costs[0].sums > before
    assert "by this process" in place.choice.last


def test_the_time_of_tasks_is_in_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "GROUPS_MAX", 1)
    table, _ = made("delta", tmp_path / "t")
    clock = [0.0]
    engine = Elsewhere()
    run = engine.run

    def slow(tasks: Any) -> Any:
        clock[0] += 100
        return run(tasks)

    monkeypatch.setattr(engine, "run", slow)
    monkeypatch.setattr("safewrite.table.verbs.monotonic_s", lambda world: clock[0])
    report = table.maintain(engine=elsewhere.workplace(engine, cores=1), budget_s=50)
    assert (report.groups, report.left) == (1, {maintain.OVER_TIME: 1})


@pytest.mark.parametrize("kind", FORMATS)
def test_a_rival_that_takes_a_file_while_tasks_work_takes_one_group_alone(tmp_path: Path, kind: str) -> None:
    table, rows = made(kind, tmp_path / "t")
    other = sw.open(tmp_path / "t") if kind == "delta" else None
    step = "commit.put_commit" if kind == "delta" else "swap.commit"

    def act() -> None:
        rival = other or sw.open("db.t", catalog=table._format.connection.catalog)  # type: ignore[attr-defined]
        rival.overwrite([{"n": 7, "day": "a"} | ({} if kind == "delta" else {"s": 1})], where="day = 'a'")

    table.world = At(table.world, step, "before", act)
    report = table.maintain(engine=elsewhere.workplace(Elsewhere()))
    assert (report.groups, [*report.dropped.values()]) == (1, [1])
    assert len(rows()) == 15 + 1


def test_a_name_of_no_engine_is_refused(tmp_path: Path) -> None:
    table, _ = made("delta", tmp_path / "t")
    with pytest.raises(InvalidInputError, match="engine is 'auto', 'local' or 'spark', not 'sprak'"):
        table.maintain(engine="sprak")  # type: ignore[arg-type]
