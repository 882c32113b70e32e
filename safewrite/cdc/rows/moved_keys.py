"""Follows changed keys that came as a delete and an insert, where tasks have one half each, or the batch has one alone.

A task has all changes of an old key up to its delete, for one partition has them; the insert may be with another task.  So it
tells of these changes, and the driver adds the table's rows: inserts get the values that their source left out by their places in
the batch, and a delete whose insert is in a later batch gets a row under its new key (``safewrite.cdc.rows.unavailable_values``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import KafkaRecord, Op
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows
from safewrite.cdc.rows.unavailable_values import Half, Key, Read, UnavailableValues, asking, key_of
from safewrite.changes.members.table_chunks import KeyReport

Hashes = npt.NDArray[np.uint64]
Placed = tuple[int, ChangeRow]
"""A row, and its place among the changes of the batch."""
OfKeys = Callable[[Collection[Key], Hashes], Iterable[ChangeRow]]
"""The changes of some keys, or of the hashes of these, that a task has read by columns."""


class Filled(NamedTuple):
    """Values that an insert gets, and the columns that it still lacks."""

    values: Mapping[str, Any]
    lacks: tuple[str, ...]


class FollowedKeys(NamedTuple):
    """What changed keys come to: values of inserts by their places, and rows under new keys, so many of which are late."""

    filled: Mapping[int, Filled]
    rows: Sequence[ChangeRow]
    late: int = 0


@dataclass
class KeyMoves:
    """What tasks know of the changed keys of a table."""

    halves: list[Half] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Those of the halves."""
    takers: dict[int, ChangeRow] = field(default_factory=dict)
    """By their places, the halves that take values of other rows for all that their task knows."""
    past: list[ChangeRow] = field(default_factory=list)
    """Further changes of the old keys of these."""
    olds: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """The hashes of the old keys."""
    is_scattered: bool = False
    """Whether there may be changes of an old key besides, with another task."""

    @classmethod
    def of(
        cls,
        rows: Sequence[Placed],
        keys: Sequence[str],
        hashes: Hashes | None,
        by_columns: OfKeys,
    ) -> KeyMoves:
        """What a task knows.

        Args:
            rows: its changes that were read one by one.
            hashes: those of their keys; None where equal keys may have several.
            by_columns: gives changes that were read by columns.
        """
        found = cls()
        placed = [(at, half) for at, (_, row) in enumerate(rows) if (half := Half.of(row, keys)) is not None]
        found.halves = [half for _, half in placed]
        found.places = [rows[at][0] for at, _ in placed]
        whole = {(half.core, half.key) for half in found.halves if half.op is Op.UPSERT and not half.lacks}
        takers = {
            at: half
            for at, half in placed
            if (half.lacks if half.op is Op.UPSERT else (half.core, half.other) not in whole)
        }
        if not takers:
            return found
        olds = {half.key for half in takers.values() if half.op is Op.DELETE}
        slim = {
            at: _slim(row) for at, (_, row) in enumerate(rows) if at in takers or key_of(row, keys) in olds
        }
        found.takers = {rows[at][0]: slim[at] for at in takers}
        found.past = [row for at, row in slim.items() if at not in takers]
        if hashes is None:
            found.is_scattered = True
        elif olds:
            found.olds = np.unique(hashes[[at for at, half in takers.items() if half.op is Op.DELETE]])
            found.past += [_slim(row) for row in by_columns(olds, found.olds)]
        return found

    def add(self, other: KeyMoves, keys: KeyReport | None, others: KeyReport | None) -> None:
        """Take in what another task knows; ``keys`` are those of all changes of the tasks before it, ``others`` its own."""
        self.is_scattered |= other.is_scattered or _meet(self.olds, others) or _meet(other.olds, keys)
        self.halves += other.halves
        self.places += other.places
        self.takers |= other.takers
        self.past += other.past
        self.olds = np.union1d(self.olds, other.olds)

    @property
    def asked(self) -> list[int]:
        """The places of the halves that take values, as all tasks know them together."""
        return [self.places[at] for at in asking(self.halves)]

    def followed(
        self,
        table: TargetTable,
        keys: tuple[str, ...],
        columns: Iterable[str],
        truncated: Iterable[str],
        read: Read,
        *,
        again: bool = False,
    ) -> FollowedKeys:
        """What the keys come to.

        Args:
            columns: of the table and of the batch.
            truncated: the positions at which the table is emptied.
            read: the table's rows, as they are before the batch.
            again: the batch has landed already, and only the rows under new keys are wanted that it brought.
        """
        asked = {place: self.takers[place] for place in self.asked}
        if not asked:
            return FollowedKeys({}, [])
        rows = [*self.takers.values(), *self.past]
        some = next(iter(asked.values())).change
        rows += [ChangeRow(Op.TRUNCATE, {table.own.sequence: position}, some) for position in truncated]
        made, lacked = ChangeRows(keys, rows), {place: row.lacks for place, row in asked.items()}
        count = len(rows)
        looked = UnavailableValues(table, made, columns, read)
        looked.follow_keys([*asked.values()], again=again)
        filled = {
            place: Filled({name: row.values[name] for name in lacked[place] if name not in row.lacks}, row.lacks)
            for place, row in asked.items()
            if row.op is Op.UPSERT
        }  # fmt: skip
        given = made.rows[count:]
        return FollowedKeys(filled, given, sum(looked.is_late(row) for row in given))


def _meet(olds: Hashes, keys: KeyReport | None) -> bool:
    """Whether one of these keys may be among those of other changes."""
    if not len(olds) or keys is None:
        return False
    return keys.hashes is None or bool(np.isin(olds, keys.hashes).any())


def _slim(row: ChangeRow) -> ChangeRow:
    """The row without the record that it came of."""
    at = row.change.record
    record = KafkaRecord(at.topic, at.partition, at.offset, None, None)
    change = replace(row.change, record=record, keys=None, before=None, after=None, types={}, moved=None)
    return replace(row, change=change)
