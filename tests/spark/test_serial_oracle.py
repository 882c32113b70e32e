"""The oracle of test_serial_outcome.py: its changes depend on their order, and it notices what is wrong."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from tests.spark import serial
from tests.spark.serial import Append, Change, Compact, Insert, difference, replayed

SEEDS = range(20)
FIRST = Append("first", serial.FIRST)


def some(seed: int) -> list[Change]:
    """A history: statements of all kinds among the changes of two writers."""
    ids = [*range(40), *range(10_000, 10_060), *range(990_000, 990_010)]
    left: list[list[Change]] = [[*serial.statements(seed, 12, ids=ids, copies=True)]]
    left += [[*serial.writes(seed, writer, 10, removes=True)] for writer in range(2)]
    rng = random.Random(seed)
    found: list[Change] = [FIRST]
    while any(left):
        found.append(rng.choice([one for one in left if one]).pop(0))
    return found


def rows_of(history: list[Change]) -> serial.Rows:
    return replayed([one.name for one in history], {one.name: one for one in history})[-1]


def test_every_kind_of_statement_changes_rows_but_for_the_compaction() -> None:
    for seed in SEEDS:
        history = some(seed)
        states = replayed([one.name for one in history], {one.name: one for one in history})
        for (before, after), change in zip(itertools.pairwise(states), history[1:], strict=True):
            assert (before == after) == isinstance(change, Compact) or isinstance(change, serial.Remove)
        assert {type(one).__name__ for one in history} == {
            "Append", "Remove", "Update", "Delete", "Merge", "Insert", "Copy", "Compact"
        }  # fmt: skip


def test_changes_that_change_places_often_leave_other_rows() -> None:
    """Two appends do not, and others only where the one comes upon rows of the other: that is often enough."""
    told = []
    for seed in SEEDS:
        history = some(seed)
        found = rows_of(history)
        for at in range(1, len(history) - 1):
            swapped = [*history[:at], history[at + 1], history[at], *history[at + 2 :]]
            kinds = {type(history[at]), type(history[at + 1])}
            if kinds <= {Append, Insert, Compact}:
                assert rows_of(swapped) == found
            elif Compact not in kinds:
                told.append(bool(difference(rows_of(swapped), found)))
    assert sum(told) > len(told) / 3


@pytest.mark.parametrize("seed", [0, 1])
def test_a_row_that_is_missing_doubled_or_altered_is_named(seed: int) -> None:
    found = rows_of(some(seed))
    row = min(found)
    lost = found - Counter([row])
    assert not difference(found, found)
    assert difference(found, lost) == f"missing [{row}], extra []"
    assert difference(found, found + Counter([row])) == f"missing [], extra [{row}]"
    assert "extra [(-1, 0)]" in difference(found, lost + Counter([(-1, 0)]))


def test_a_change_that_was_committed_twice_or_that_nobody_meant_is_named() -> None:
    changes: dict[str, Change] = {"first": FIRST}
    with pytest.raises(AssertionError, match="first was committed twice"):
        replayed(["first", "first"], changes)
    with pytest.raises(AssertionError, match="nobody meant other"):
        replayed(["first", "other"], changes)


def test_one_seed_makes_the_same_changes_again() -> None:
    assert some(7) == some(7)
    assert some(7) != some(8)
