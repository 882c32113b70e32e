"""Every order of late and on-time changes of a row, some without all values, against a small oracle of one change at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.changes.meaning.decide import ChangeBatch, ChangeOp, KnownRows
from safewrite.changes.meaning.unchanged_values import COLUMN, TableEffect, settle
from tests.changes.test_unchanged import Lake, full, gone, put, row

ROWS = pa.schema({"id": pa.int64(), "at": pa.int64(), "v": pa.int64(), "w": pa.int64()})
STONES = pa.schema({"id": pa.int64(), "at": pa.int64()})
CARRIED = pa.schema({"id": pa.int64(), COLUMN: pa.string(), "at": pa.int64()})
ORIGIN, STORED = 20, 50
"""The row of the table is of the latter; a value that it carries on came with the former."""
Event = tuple[int, str]
"""A sequence, and one of: "d", a delete; "t", a truncate; else the columns that an upsert brings."""
EVENTS = [(at, what) for at in (10, 30, 40, 60, 70, 80) for what in ("d", "vw", "v", "w")]
EVENTS += [(ORIGIN, "vw"), (STORED, "w")]
"""The last two came before, and come again."""
BATCHES = [
    batch
    for size in (1, 2, 3)
    for batch in combinations(EVENTS, size)
    if len({at for at, _ in batch}) == size
]


class RefusedError(ValueError):
    """A value is lacking that nobody has."""


@dataclass
class State:
    """One key: its row, where each of its values came from, and the sequence of its deletion."""

    row: dict[str, int] | None = None
    at: int = 0
    origins: dict[str, int] = field(default_factory=dict)
    gone: int = 0
    floor: int = 0

    def take(self, event: Event) -> None:
        """Take in one change; what is older than the row takes nothing away from it."""
        at, what = event
        last = max(self.at if self.row is not None else 0, self.gone)
        if what == "t":
            self.floor = max(self.floor, at)
            if last < self.floor:
                self.row, self.gone = None, 0
        elif what == "d":
            if at > max(last, self.floor):
                self.row, self.gone = None, at
        elif self.row is not None and at <= self.at:
            if at > self.gone:
                newer = [name for name in what if self.origins[name] < at and self.origins[name] != self.at]
                self.row |= dict.fromkeys(newer, at)
                self.origins |= dict.fromkeys(newer, at)
        elif at > max(last, self.floor):
            before, origins = (self.row or {}, self.origins) if self.row is not None else ({}, {})
            self.row = {"v": before.get("v", -1), "w": before.get("w", -1)} | dict.fromkeys(what, at)
            self.origins = {**origins, **dict.fromkeys(what, at)}
            self.at, self.gone = at, 0

    def after(self, batch: Iterable[Event]) -> State:
        """What a batch leaves.

        Raises:
            RefusedError: it is refused.
        """
        done = replace(self, row=None if self.row is None else dict(self.row), origins=dict(self.origins))
        for event in sorted(batch):
            done.take(event)
        if -1 in (done.row or {}).values():
            raise RefusedError
        return done

    def told(self) -> tuple[Any, ...]:
        """The row, what is carried on, and the deletion."""
        if self.row is None:
            return None, (), self.gone or None
        carried = tuple(sorted((name, at) for name, at in self.origins.items() if at != self.at))
        return (self.at, self.row["v"], self.row["w"]), carried, None


STATES = {
    "nothing": State(),
    "a row": State({"v": STORED, "w": STORED}, STORED, {"v": STORED, "w": STORED}),
    "a row that carries a value on": State({"v": ORIGIN, "w": STORED}, STORED, {"v": ORIGIN, "w": STORED}),
    "a deleted row": State(gone=STORED),
}


def known(states: Sequence[State], floor: int = 0) -> KnownRows:
    """What a table has of keys, numbered in order."""
    rows, stones, carried = [], [], []
    for number, state in enumerate(states):
        row, entries, gone = state.told()
        rows += [dict(zip(ROWS.names, (number, *row), strict=True))] if row else []
        stones += [{"id": number, "at": gone}] if gone else []
        carried += [{"id": number, COLUMN: name, "at": at} for name, at in entries]
    made = [
        pa.Table.from_pylist(some, kind)
        for some, kind in ((rows, ROWS), (stones, STONES), (carried, CARRIED))
    ]
    return KnownRows(made[0], made[1], (floor,) if floor else None, None, made[2])


def changed(batches: Sequence[Sequence[Event]], order: int = 1) -> ChangeBatch:
    """One batch of the changes of all keys."""
    found = [(number, *event) for number, batch in enumerate(batches) for event in batch[::order]]
    cuts = sorted({(-1, at, what) for _, at, what in found if what == "t"})
    found = cuts + [one for one in found if one[2] != "t"]
    ops = {"d": ChangeOp.DELETE, "t": ChangeOp.TRUNCATE}
    rows = [
        {"id": number if what != "t" else None, "at": at} | {name: at for name in what if name in "vw"}
        for number, at, what in found
    ]
    return ChangeBatch(
        pa.Table.from_pylist(rows, ROWS),
        np.array([ops.get(what, ChangeOp.UPSERT) for _, _, what in found], np.int8),
        ("id",),
        ("at",),
        {
            name: np.array([what not in ("d", "t") and name not in what for _, _, what in found])
            for name in "vw"
        },
    )


def left(given: KnownRows, batch: ChangeBatch, done: TableEffect) -> dict[int, tuple[Any, ...]]:
    """What is of each key after a batch, as ``State.told`` says it."""
    decision = done.decision
    stays = np.setdiff1d(np.arange(given.rows.num_rows), decision.dropped)
    rows = [*given.rows.take(pa.array(stays)).to_pylist(), *done.rows.to_pylist()]
    stones = given.tombstones.take(pa.array(decision.kept, pa.int64())).to_pylist()
    stones += batch.table.take(pa.array(decision.deletes, pa.int64())).to_pylist()
    carried: dict[int, list[tuple[str, int]]] = {}
    for one in done.carried.to_pylist():
        carried.setdefault(one["id"], []).append((one[COLUMN], one["at"]))
    found: dict[int, tuple[Any, ...]] = {}
    for one in rows:
        assert one["id"] not in found
        entries = tuple(sorted(carried.pop(one["id"], [])))
        found[one["id"]] = ((one["at"], one["v"], one["w"]), entries, None)
    assert not carried
    for stone in stones:
        assert stone["id"] not in found
        found[stone["id"]] = (None, (), stone["at"])
    return found


def check(before: State, batches: Sequence[Sequence[Event]], *, refused_every: int, floor: int = 0) -> None:
    """All batches that are taken at once, each for a key of its own; of the others some, one by one."""
    wanted: list[State] = []
    taken: list[Sequence[Event]] = []
    refused: list[Sequence[Event]] = []
    for batch in batches:
        try:
            wanted.append(before.after(batch))
            taken.append(batch)
        except RefusedError:
            refused.append(batch)
    given = known([before] * len(taken), floor)
    for order in (1, -1):
        batch = changed(taken, order)
        done = settle(batch, given)
        found = left(given, batch, done)
        wrong = {
            taken[number]: (found.get(number, (None, (), None)), state.told())
            for number, state in enumerate(wanted)
            if found.get(number, (None, (), None)) != state.told()
        }
        assert wrong == {}
        assert done.decision.counts.changes == batch.table.num_rows
    for one in refused[::refused_every]:
        with pytest.raises(sw.InvalidInputError, match="unchanged="):
            settle(changed([one]), known([before], floor))


def batches_for(name: str, most: int) -> list[tuple[Event, ...]]:
    """Those without a change that ties with the deletion of a row."""
    small = [batch for batch in BATCHES if len(batch) <= most]
    return [batch for batch in small if name != "a deleted row" or (STORED, "w") not in batch]


@pytest.mark.sweep("nothing", "a row")
@pytest.mark.parametrize("name", STATES)
def test_every_batch_of_three_changes_leaves_what_the_oracle_says(name: str) -> None:
    check(STATES[name], batches_for(name, 3), refused_every=40)


@pytest.mark.sweep("35", "65", "45", "nothing")
@pytest.mark.parametrize(("name", "cut"), [*product(STATES, (15, 35, 45, 65, 75))])
def test_a_truncate_takes_what_is_older_and_nothing_from_a_newer_row(name: str, cut: int) -> None:
    """In the batch, and in one before it."""
    small = batches_for(name, 2)
    check(STATES[name], [(*batch, (cut, "t")) for batch in small], refused_every=60)
    check(STATES[name].after([(cut, "t")]), small, refused_every=60, floor=cut)


def test_a_row_that_came_back_after_its_deletion_gives_no_values() -> None:
    """By a rollback, or by a writer that knows no changes."""
    rows = pa.Table.from_pylist([{"id": 0, "at": 30, "v": 30, "w": 30}], ROWS)
    given = replace(known([State(gone=STORED)]), rows=rows)
    with pytest.raises(sw.InvalidInputError, match="unchanged="):
        settle(changed([[(20, "d"), (60, "w")]]), given)


# --- tables -------------------------------------------------------------------------------------------
MARKED = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {"write.merge.mode": "merge-on-read"},
}
CUT: dict[str, Any] = {"truncate_when": [("op", "=", "t")]}


@pytest.mark.long
@pytest.mark.parametrize("is_marked", [False, True], ids=["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("kind", MARKED)
def test_a_table_keeps_its_values_over_late_deletions(kind: str, is_marked: bool, tmp_path: Path) -> None:
    """In one batch, and in a group commit whose members come one after another."""
    lake = Lake(kind, tmp_path, MARKED[kind] if is_marked else None)
    lake.apply(*(full(15, "a", number) for number in (1, 2, 3, 4)))
    lake.apply(*(put(18, number, name="b", data=None) for number in (1, 2, 3)))
    late = [gone(17), put(20, name="c")]
    assert lake.apply(*late, gone(17, 2), put(16, 2, note="newer"), put(18, 2, name="b", data=None)) == {
        "updated": 2,
        "late": 2,
        "duplicate": 1,
    }
    assert lake.rows()[:2] == [row(20, "c", "note a", None), row(18, "b", "newer", None, 2)]
    told = lake.many(
        [gone(17, 3), put(20, 3, name="c")], [gone(21, 3), put(22, 3, name="d")], [put(23, 3, data=[7])]
    )
    assert [one if isinstance(one, str) else one.changes["updated"] for one in told] == [1, "unchanged=", 1]
    assert lake.rows()[2] == row(23, "c", "note a", [7], 3)
    cut = {"op": "t", "id": None, "lsn": 16, "lacks": None}
    assert lake.apply(cut, put(23, name="e"), **CUT) == {"updated": 1, "truncated": 1}
    assert lake.apply(put(24, data=[8]), **CUT) == {"updated": 1}
    assert lake.rows()[0] == row(24, "e", "note a", [8])
    assert [one["id"] for one in lake.rows()] == [1, 2, 3]
