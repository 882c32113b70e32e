"""Deletes remove exactly the rows for which where is true, beside others, and once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import safewrite as sw
from safewrite.protocol.effects import Effect, Get, Outcome, PutIfAbsent

Row = tuple[int | None, str | None]
BEFORE: list[Row] = [(1, "a"), (2, "b"), (3, None), (4, "a"), (5, "b"), (None, "b")]


def rows(*values: Row) -> pa.Table:
    return pa.table({"n": pa.array([n for n, _ in values], pa.int64()), "day": [day for _, day in values]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Days a, b and NULL, written by deltalake: one file a day and write."""
    write_deltalake(tmp_path / "t", rows(*BEFORE[:3]), partition_by=["day"])
    write_deltalake(tmp_path / "t", rows(*BEFORE[3:]), mode="append")
    return tmp_path / "t"


@pytest.fixture
def table(folder: Path) -> sw.Table:
    return sw.open(folder)


def contents(folder: Path) -> list[Row]:
    """The table's rows, as deltalake reads them."""
    read = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted(((row["n"], row["day"]) for row in read), key=str)


def without(*gone: Row) -> list[Row]:
    return sorted((row for row in BEFORE if row not in gone), key=str)


def actions(folder: Path, version: int, name: str) -> list[dict[str, Any]]:
    lines = (folder / f"_delta_log/{version:020}.json").read_text().splitlines()
    return [action[name] for action in map(json.loads, lines) if name in action]


class Watched:
    """A table's world, in which something happens before its first try at a version."""

    def __init__(self, table: sw.Table, act: Callable[[], object] | None = None) -> None:
        self.world, self.act = table.world, act
        self.asked: list[Effect] = []
        table.world = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        self.asked.append(effect)
        if self.act is not None and isinstance(effect, PutIfAbsent) and effect.path.endswith(".json"):
            act, self.act = self.act, None
            act()
        return self.world.perform(effect)

    def data_files_read(self) -> list[str]:
        return [e.path for e in self.asked if isinstance(e, Get) and e.path.endswith(".parquet")]


# --- what goes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("day = 'a'", [(1, "a"), (4, "a")]),
        ("day IS NULL", [(3, None)]),
        ("day = 'b' AND n > 2", [(5, "b")]),
        ([("n", "in", [1, 2])], [(1, "a"), (2, "b")]),
        ("NOT (n > 2)", [(1, "a"), (2, "b")]),
        ("n > 2 OR day = 'b'", [(2, "b"), (3, None), (4, "a"), (5, "b"), (None, "b")]),
        ("true", BEFORE),
    ],
)
def test_the_rows_for_which_where_is_true_go_and_those_for_which_it_is_null_stay(
    table: sw.Table, folder: Path, where: Any, gone: list[Row]
) -> None:
    receipt = table.delete(where)
    assert (receipt.outcome, receipt.version, receipt.rows) == (sw.Outcome.COMMITTED, 2, 0)
    assert contents(folder) == without(*gone)
    assert table.version == 2


def test_whole_partitions_go_without_a_look_at_their_rows(table: sw.Table, folder: Path) -> None:
    world = Watched(table)
    table.delete("day = 'a'")
    assert world.data_files_read() == []
    assert (len(actions(folder, 2, "remove")), actions(folder, 2, "add")) == (2, [])


def test_the_commit_says_what_was_deleted_as_spark_says_it(table: sw.Table, folder: Path) -> None:
    table.delete("n > 4")
    (info,) = actions(folder, 2, "commitInfo")
    assert info["operation"] == "DELETE"
    assert info["operationParameters"] == {"predicate": '["\\"n\\" > 4"]'}
    assert info["operationMetrics"] == {"numRemovedFiles": "1", "numAddedFiles": "1", "numDeletedRows": "1"}
    assert info["isBlindAppend"] is False


# --- refused --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", [None, "", [], "nothing = 1", "n", "n = NULL"])
def test_a_delete_needs_a_condition_that_is_understood(table: sw.Table, folder: Path, where: Any) -> None:
    with pytest.raises(sw.InvalidInputError):
        table.delete(where)
    assert contents(folder) == without()
    assert table.refresh().version == 1


def test_an_append_only_table_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", rows(*BEFORE), configuration={"delta.appendOnly": "true"})
    with pytest.raises(sw.UnsupportedTableError, match="appendOnly: no engine may remove"):
        sw.open(tmp_path / "t").delete("n = 1")
    assert contents(tmp_path / "t") == without()


def test_a_table_that_is_not_there_yet_has_nothing_to_delete(tmp_path: Path) -> None:
    with pytest.raises(sw.TableNotFoundError):
        sw.open(tmp_path / "t", create=True).delete("true")
    assert not list(tmp_path.rglob("*.json"))


# --- beside others ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["day = 'a'", "n = 7"])
def test_rows_appended_meanwhile_that_match_go_too_and_the_others_stay(
    table: sw.Table, folder: Path, where: str
) -> None:
    """As if they had been appended just before: by removing their files, or by planning anew."""
    write_deltalake(folder, rows((7, "a")), mode="append")
    Watched(table, lambda: write_deltalake(folder, rows((7, "a"), (8, "b")), mode="append"))
    receipt = table.delete(where)
    assert receipt.version == 4
    gone = [(1, "a"), (4, "a")] if where == "day = 'a'" else []
    assert contents(folder) == sorted([*without(*gone), (8, "b")], key=str)


def test_rows_deleted_by_another_meanwhile_do_not_come_back(table: sw.Table, folder: Path) -> None:
    Watched(table, lambda: DeltaTable(folder).delete("n = 2"))
    assert table.delete("n = 5").version == 3
    assert contents(folder) == without((2, "b"), (5, "b"))


# --- once -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [{"key": "event"}, {"txn": ("app", 1)}])
@pytest.mark.parametrize("where", ["n > 2", "n > 1000"])
def test_a_repeat_deletes_nothing_that_came_since(
    table: sw.Table, folder: Path, where: str, name: dict[str, Any]
) -> None:
    """Also where the first call found no rows: it is a commit all the same, and only the first counts."""
    first = table.delete(where, **name)
    write_deltalake(folder, rows((5000, "a")), mode="append")
    for again in (table, sw.open(folder)):
        repeat = again.delete(where, **name)
        assert (repeat.outcome, repeat.version, repeat.rows) == (
            sw.Outcome.ALREADY_COMMITTED,
            first.version,
            0,
        )
        assert repeat.fingerprint == first.fingerprint
    assert (5000, "a") in contents(folder)


@pytest.mark.parametrize("name", [{"key": "event"}, {"txn": ("app", 1)}])
def test_a_repeat_with_another_where_is_refused(table: sw.Table, folder: Path, name: dict[str, Any]) -> None:
    table.delete("n = 1", **name)
    for again in (table, sw.open(folder)):
        with pytest.raises(sw.ReplayMismatchError):
            again.delete("n = 2", **name)
    assert contents(folder) == without((1, "a"))


def test_a_delete_is_no_repeat_of_an_overwrite_without_rows(table: sw.Table, folder: Path) -> None:
    table.overwrite(rows(), where="n = 1", key="event")
    with pytest.raises(sw.ReplayMismatchError):
        table.delete("n = 1", key="event")


def test_resolve_knows_a_delete(table: sw.Table) -> None:
    receipt = table.delete("n = 1", key="event")
    found = table.resolve("event")
    assert found is not None
    assert (found.version, found.rows, found.fingerprint) == (receipt.version, 0, receipt.fingerprint)
