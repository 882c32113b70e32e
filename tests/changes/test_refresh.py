"""A batch with full_refresh= is all there is: rows and what was remembered of before go in its commit."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

import safewrite as sw
from safewrite.errors import Kind
from safewrite.testing.steps import Answers, At
from tests.changes.test_decide import OTHER, K, down, up
from tests.changes.test_merge_on_read import Marked
from tests.changes.test_tables import COMMIT, HOW, Lake, apply, frame

pytestmark = pytest.mark.sweep("vectors", "merge-on-read")  # rows that are marked go one way in both formats

OF_BEFORE = [up((5, 0), "old"), up((5, 0), "old", OTHER), down((9, 0), (1, "y"))]


@pytest.fixture(params=["delta", "vectors", "merge-on-read"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    kind: str = request.param
    if kind == "merge-on-read":
        return Marked(tmp_path)
    return Lake("delta", tmp_path, vectors=kind == "vectors")


@pytest.mark.sweep("merge-on-read")
def test_rows_and_deletions_of_before_go_and_older_changes_count(lake: Lake) -> None:
    table = lake.open()
    apply(table, OF_BEFORE)
    apply(table, [up((6, 0), "mid", OTHER)])  # marks a row as gone where the table is merge-on-read
    anew = [up((1, 0), "new"), up((1, 0), "back", (1, "y")), up((2, 0), "newer")]
    receipt = apply(table, anew, full_refresh=True, key="anew")
    assert (receipt.changes["inserted"], receipt.changes["late"]) == (2, 0)
    assert receipt.removed_rows == (None if isinstance(lake, Marked) else 2)
    assert lake.rows() == {K: "newer", (1, "y"): "back"}
    apply(lake.open(), [up((2, 5), "goes on", OTHER), down((3, 0))])
    assert lake.rows() == {OTHER: "goes on", (1, "y"): "back"}
    again = apply(lake.open(), anew, full_refresh=True, key="anew")
    assert again.outcome == "already_committed"
    assert lake.rows() == {OTHER: "goes on", (1, "y"): "back"}


def test_its_own_deletions_are_remembered(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE)
    apply(lake.open(), [down((3, 0))], full_refresh=True)
    assert lake.rows() == {}
    assert apply(lake.open(), [up((2, 0), "late")]).changes["late"] == 1
    assert apply(lake.open(), [up((1, 0), "other", OTHER)]).changes["inserted"] == 1


def test_a_table_that_knows_what_it_remembers_refuses_another_key(lake: Lake) -> None:
    """What was read for one key is not taken for what is asked by another."""
    table, how = lake.open(), HOW | {"keys": ["a"]}
    apply(table, OF_BEFORE)
    assert [apply(table, [up((at, 0), "n")]).rows for at in (6, 7)] == [1, 1]
    with pytest.raises(sw.InvalidInputError, match="keys="):
        table.apply_changes(frame([up((8, 0), "n")]), **how)
    assert apply(table, [up((1, 0), "late", (1, "y"))]).changes["late"] == 1


def test_the_key_of_the_table_may_change(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE)
    how = HOW | {"keys": ["a"]}
    with pytest.raises(sw.InvalidInputError, match="keys="):
        lake.open().apply_changes(frame([up((6, 0), "n")]), **how)
    lake.open().apply_changes(frame([up((1, 0), "n")]), **how, full_refresh=True)
    lake.open().apply_changes(frame([up((2, 0), "m")]), **how)
    assert lake.rows() == {K: "m"}


@pytest.mark.long
def test_rows_that_another_writer_adds_meanwhile_go_too(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE)
    table, rival = lake.open(), lake.open()
    step = COMMIT[lake.format]
    table.world = At(table.world, step, "before", lambda: apply(rival, [up((10, 0), "theirs", (1, "y"))]))
    apply(table, [up((1, 0), "ours")], full_refresh=True)
    assert lake.rows() == {K: "ours"}


def test_an_answer_that_is_lost_refreshes_once(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE)
    table = lake.open()
    table.world = Answers(table.world, COMMIT[lake.format], times=1)
    apply(table, [up((1, 0), "new")], full_refresh=True, key="a")
    assert lake.rows() == {K: "new"}
    assert apply(lake.open(), [up((1, 0), "new")], full_refresh=True, key="a").outcome == "already_committed"


def test_an_empty_batch_empties_the_table_and_moves_its_positions(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE, positions={"topic": (None, 7)})
    apply(lake.open(), [], full_refresh=True, positions={"topic": (7, 3)})
    assert (lake.rows(), lake.open().positions()) == ({}, {"topic": 3})
    with pytest.raises(sw.ConflictError) as raised:
        apply(lake.open(), [], full_refresh=True, positions={"topic": (7, 4)})
    assert raised.value.kind is Kind.POSITION_MOVED


@pytest.mark.sweep("merge-on-read")
def test_a_rival_that_moves_the_position_first_stops_it(lake: Lake) -> None:
    apply(lake.open(), OF_BEFORE, positions={"topic": (None, 7)})
    table, rival = lake.open(), lake.open()
    more = [up((10, 0), "theirs", (1, "y"))]
    table.world = At(
        table.world, COMMIT[lake.format], "before", lambda: apply(rival, more, positions={"topic": (7, 8)})
    )
    with pytest.raises(sw.ConflictError):
        apply(table, [up((1, 0), "ours")], full_refresh=True, positions={"topic": (7, 9)})
    assert lake.rows()[1, "y"] == "theirs"


@pytest.mark.long
def test_a_delta_table_that_was_restored_goes_on_from_its_refresh(tmp_path: Path) -> None:
    """A RESTORE leaves positions where they are, and to go on would pass over rows; a refresh brings all of them."""
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0), "old")], positions={"topic": (None, 1)})
    apply(lake.open(), [up((2, 0), "mid")], positions={"topic": (1, 2)})
    deltalake.DeltaTable(lake.uri).restore(1)
    with pytest.raises(sw.ConflictError, match="restored"):
        apply(lake.open(), [up((3, 0), "new")], positions={"topic": (2, 3)})
    apply(lake.open(), [up((3, 0), "new")], full_refresh=True, positions={"topic": (2, 3)})
    apply(lake.open(), [up((4, 0), "newer")], positions={"topic": (3, 4)})
    assert lake.rows() == {K: "newer"}


def test_a_key_of_plain_changes_is_not_that_of_a_refresh_with_the_same_rows(lake: Lake) -> None:
    """Else the rows of before would stay, and the receipt would say that it is done."""
    some = [up((6, 0), "n")]
    apply(lake.open(), some, full_refresh=True, key="anew")
    apply(lake.open(), some, full_refresh=True, txn=("app", 1))
    apply(lake.open(), [up((7, 0), "old", OTHER)], key="plain")
    for other in ({"key": "anew"}, {"txn": ("app", 1)}, {"key": "plain", "full_refresh": True}):
        rows = [up((7, 0), "old", OTHER)] if "full_refresh" in other else some
        with pytest.raises(sw.ReplayMismatchError):
            apply(lake.open(), rows, **other)
    assert lake.rows() == {K: "n", OTHER: "old"}


def test_only_true_and_false_are_taken(lake: Lake) -> None:
    with pytest.raises(sw.InvalidInputError, match="True or False"):
        apply(lake.open(), [], full_refresh="yes")
