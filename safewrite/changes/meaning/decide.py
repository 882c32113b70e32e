"""Decides what each change of a batch does: the last change of a key by its sequence wins, deletes included.

One sort puts what the table knows of a key and what the batch says of it side by side.  Within a batch the place of a
change decides between equal sequences; across batches nothing does, so unequal rows of one sequence are refused.
Sources: the AutoCDC semantics of Apache Spark (sql/pipelines, autocdc) for guarded deletes and late events;
docs/apply-changes.md for what goes past them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.changes.meaning.positions import (
    Flags,
    Numbers,
    Position,
    among,
    compared,
    in_order,
    later,
    ordered,
    position_of,
    starts_anew,
    values_of,
)
from safewrite.errors import InvalidInputError
from safewrite.frames.fingerprint import row_hashes

_KEYS_TOLD = 5
_FIRST = "Add a column to sequence_by= that tells which comes first, or correct the rows."
_ONE_ROW = (
    "An append or another writer doubled it. Leave one row of each key, in one commit: "
    "overwrite(rows, where=...) with the rows to keep."
)


class ChangeOp(IntEnum):
    """What a change does."""

    UPSERT = 0
    DELETE = 1
    TRUNCATE = 2


class ChangeStatus(IntEnum):
    """What became of a change."""

    LATE = 0
    INSERTED = 1
    UPDATED = 2
    DELETED = 3
    TOMBSTONED = 4
    DUPLICATE = 5
    SUPERSEDED = 6
    TRUNCATED = 7


@dataclass(frozen=True)
class ChangeBatch:
    """Changes in the order of their source.

    ``table`` has the target's columns; of a delete only its keys and sequence count, of a truncate its sequence.
    ``absent`` tells, by column, the upserts that do not bring a value, for the source did not change it; of those that the column
    ``marks`` marks it is NULL where nobody has it.
    """

    table: pa.Table
    ops: npt.NDArray[np.int8]
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    absent: Mapping[str, Flags] = field(default_factory=dict)
    marks: str | None = None

    @property
    def cuts(self) -> dict[str, pa.Array]:
        """The values that the sequences of truncates have; a row of any key may tie with one.  Nothing where there are none."""
        return cuts_of(self.table.filter(pa.array(self.ops == ChangeOp.TRUNCATE)), self.sequence_by)


def cuts_of(truncates: pa.Table, sequence_by: Sequence[str]) -> dict[str, pa.Array]:
    """See :attr:`ChangeBatch.cuts`."""
    return values_of(truncates, sequence_by) if truncates.num_rows else {}


@dataclass(frozen=True)
class KnownRows:
    """What a table holds of the keys of a batch, and what it remembers of keys that it holds no more.

    ``rows`` has the target's columns; with those of the keys come those that have the sequence of a truncate.  ``tombstones`` has keys and sequence of deleted rows, all of them.  Nothing at
    or before ``floor`` is in the table: it was truncated there.  Tombstones up to ``forgotten`` were given up.
    """

    rows: pa.Table
    tombstones: pa.Table
    floor: Position | None = None
    forgotten: Position | None = None
    carried: pa.Table = field(default_factory=lambda: pa.table({}))


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many changes of a batch did what; they add up to its number of changes.

    ``tombstoned`` are deletes of keys that had no row, ``late`` came after a newer change of their key,
    ``superseded`` came with one in their own batch.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    tombstoned: int = 0
    truncated: int = 0
    late: int = 0
    duplicate: int = 0
    superseded: int = 0

    @property
    def applied(self) -> int:
        """Changes that took effect."""
        return self.inserted + self.updated + self.deleted + self.tombstoned + self.truncated

    @property
    def changes(self) -> int:
        """All of them."""
        return self.applied + self.late + self.duplicate + self.superseded

    def to_dict(self) -> dict[str, int]:
        """As plain numbers, with the sum of those applied."""
        return {"applied": self.applied, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True)
class Decision:
    """What a batch does to a table.

    ``upserts`` are rows of the batch to be written, ``dropped`` rows of ``KnownRows.rows`` to be removed.  Where ``floor``
    moved, every row of the table before it goes too.  Tombstones are to be kept of ``kept``, rows of
    ``KnownRows.tombstones``, and of ``deletes``, rows of the batch.  ``status`` says what became of each change of one
    batch; it is empty where several decisions were summed up.
    """

    counts: ChangeCounts
    upserts: Numbers
    dropped: Numbers
    kept: Numbers
    deletes: Numbers
    floor: Position | None
    status: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8), repr=False)


def counted(status: npt.NDArray[np.int8]) -> ChangeCounts:
    """How many changes did what."""
    told = np.bincount(status, minlength=len(ChangeStatus))
    return ChangeCounts(
        **{field.name: int(told[ChangeStatus[field.name.upper()]]) for field in fields(ChangeCounts)}
    )


def decide(batch: ChangeBatch, known: KnownRows) -> Decision:
    """Decide about a batch.

    Raises:
        InvalidInputError: changes of one key and sequence differ, the target holds a key twice, or a change is
            older than what the table remembers; the keys are named and nothing was written.
    """
    return _Decider(batch, known).decision()


_TOMBSTONE, _ROW, _CHANGE = 0, 1, 2


class _Decider:
    """The entries of all keys, sorted by key, sequence, kind and place."""

    def __init__(self, batch: ChangeBatch, known: KnownRows) -> None:
        self.batch, self.known = batch, known
        self.names = (*batch.keys, *batch.sequence_by)
        self.status = np.full(batch.table.num_rows, ChangeStatus.SUPERSEDED, np.int8)
        self.floor, self.cut = self._truncated()
        keyed = np.flatnonzero(batch.ops != ChangeOp.TRUNCATE)
        self.stones = self._stones(has_truncates=len(keyed) < batch.table.num_rows)
        stones = known.tombstones.take(pa.array(self.stones))
        parts = [stones, known.rows, batch.table.take(pa.array(keyed))]
        counts = [part.num_rows for part in parts]
        whole = pa.concat_tables([part.select(self.names) for part in parts]).combine_chunks()
        whole = pa.table([ordered(column) for column in whole.columns], schema=whole.schema)
        kind = np.repeat(np.array([_TOMBSTONE, _ROW, _CHANGE], np.int8), counts)
        place = np.concatenate([self.stones, np.arange(counts[1]), keyed])
        order = in_order(whole, self.names, kind, place)
        self.entries = whole.take(pa.array(order))
        self.kind, self.place = kind[order], place[order]
        self.is_row, self.is_change = self.kind == _ROW, self.kind == _CHANGE
        self.op = np.full(len(order), ChangeOp.UPSERT, np.int8)
        self.op[self.is_change] = batch.ops[self.place[self.is_change]]
        self._mark()

    def _stones(self, *, has_truncates: bool) -> Numbers:
        """The tombstones that this batch may concern: a table remembers many more, which are not to be sorted each time."""
        stones = self.known.tombstones
        if has_truncates:
            return np.arange(stones.num_rows)
        return np.flatnonzero(among(stones, values_of(self.batch.table, self.batch.keys)))

    # --- the floor ------------------------------------------------------------------------------------
    def _truncated(self) -> tuple[Position | None, int]:
        """The floor after the batch, and the place of the truncate that made it; -1 if that was an earlier one."""
        places = np.flatnonzero(self.batch.ops == ChangeOp.TRUNCATE)
        if not len(places):
            return self.known.floor, -1
        truncates = self.batch.table.select(self.batch.sequence_by).take(pa.array(places))
        columns = [truncates.column(name) for name in self.batch.sequence_by]
        last = int(in_order(truncates, self.batch.sequence_by, places, places)[-1])
        position, floor = position_of(columns, last), self.known.floor
        if floor is not None:
            against = compared(columns, floor)
            self.status[places[against < 0]] = ChangeStatus.LATE
            self.status[places[against == 0]] = ChangeStatus.DUPLICATE
            if later(floor, position) == floor:
                return floor, -1
        self.status[places[last]] = ChangeStatus.TRUNCATED
        return position, int(places[last])

    def _above_floor(self) -> Flags:
        """Which entries the floor leaves standing."""
        if self.floor is None:
            return np.ones(len(self.kind), np.bool_)
        columns = [self.entries.column(name) for name in self.batch.sequence_by]
        against = compared(columns, self.floor)
        at = against == 0
        if self.cut < 0:
            return np.asarray(against >= 0)
        tied = at & (self.kind != _CHANGE)
        if tied.any():
            raise self._refused(
                tied, "has a row or tombstone with the sequence of a truncate, so neither comes first"
            )
        return np.asarray((against > 0) | (at & (self.place > self.cut)))

    # --- keys -----------------------------------------------------------------------------------------
    def _mark(self) -> None:
        """Find where keys and positions begin, and the last known entry and the last change of each key."""
        keys = [self.entries.column(name) for name in self.batch.keys]
        sequence = [self.entries.column(name) for name in self.batch.sequence_by]
        new_key = starts_anew(keys)
        new_position = new_key | starts_anew(sequence)
        self.starts = np.flatnonzero(new_key)
        self.group = np.cumsum(new_key) - 1
        self.position = np.cumsum(new_position) - 1
        self.stands = self._above_floor()
        twice = self._per_key(self.is_row) > 1
        if twice.any():
            raise self._refused(twice[self.group] & self.is_row, "is in the table twice", _ONE_ROW)
        self.last_known = self._last(self.stands & ~self.is_change)
        self.last_change = self._last(self.stands & self.is_change)

    def _per_key(self, flags: Flags) -> Numbers:
        """How many entries of each key are of a kind."""
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.asarray(np.add.reduceat(flags.astype(np.int64), self.starts))

    def _last(self, flags: Flags) -> Numbers:
        """For each key, the place of its last entry of a kind; -1 where it has none."""
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.asarray(np.maximum.reduceat(np.where(flags, np.arange(len(flags)), -1), self.starts))

    # --- the decision -----------------------------------------------------------------------------------
    def decision(self) -> Decision:
        """Put everything together."""
        row_of_key = self._last(self.stands & self.is_row)
        change_at = self._position_at(self.last_change)
        wins = (self.last_change >= 0) & (change_at > self._position_at(self.last_known))
        self._judge(change_at, wins)
        winners = self.last_change[wins]
        self._check_remembered(winners, self.last_known[wins] < 0)
        deletes = self.op[winners] == ChangeOp.DELETE
        had_row = row_of_key[wins] >= 0
        told = np.where(
            deletes,
            np.where(had_row, ChangeStatus.DELETED, ChangeStatus.TOMBSTONED),
            np.where(had_row, ChangeStatus.UPDATED, ChangeStatus.INSERTED),
        )
        self.status[self.place[winners]] = told
        # A row that is older than its key's tombstone came back by a rollback, or by a writer that knows no changes.
        stale = (row_of_key >= 0) & (self._last(self.stands & (self.kind == _TOMBSTONE)) > row_of_key)
        touched = self._per_key(self.is_change) > 0
        dropped = row_of_key[wins | (stale & touched)]
        gone = self.is_row & ~self.stands
        return Decision(
            counted(self.status),
            np.sort(self.place[winners[~deletes]]),
            np.sort(np.concatenate([self.place[dropped[dropped >= 0]], self.place[gone]])),
            self._kept(wins),
            np.sort(self.place[winners[deletes]]),
            self.floor,
            self.status,
        )

    def _position_at(self, entries: Numbers) -> Numbers:
        return np.where(entries >= 0, self.position[entries], -1) if len(self.position) else entries

    def _judge(self, change_at: Numbers, wins: Flags) -> None:
        """Tell changes that do not win: late, a duplicate, superseded; refuse those that tie with unequal rows."""
        last = self._last(~self.is_change)  # also what a truncate of this batch removes
        known_at = self._position_at(last)
        changes = np.flatnonzero(self.is_change)
        at, group = self.position[changes], self.group[changes]
        standing = self.stands[changes]
        place = self.place[changes]
        late = at < known_at[group]
        if self.known.floor is not None and len(changes):
            columns = [self.entries.column(name).take(pa.array(changes)) for name in self.batch.sequence_by]
            late |= ~standing & (compared(columns, self.known.floor) < 0)
        self.status[place[late]] = ChangeStatus.LATE
        same = at == known_at[group]
        equal = self._pairs(same, changes, last[group])
        self.status[place[same]] = np.where(equal[same], ChangeStatus.DUPLICATE, ChangeStatus.SUPERSEDED)
        tied = standing & same & ~equal & ~wins[group]
        twin = standing & (at == change_at[group]) & wins[group]
        before = np.roll(changes, 1)
        follows = twin & np.concatenate([[False], twin[1:] & (at[1:] == at[:-1]) & twin[:-1]])
        alike = self._pairs(follows, changes, before)
        both_upserts = follows & (self.op[changes] == ChangeOp.UPSERT) & (self.op[before] == ChangeOp.UPSERT)
        tied |= both_upserts & ~alike
        if tied.any():
            which = _at(changes[tied], len(self.kind))
            error = self._refused(which, "has unequal changes with one sequence")
            error.unordered = tuple(self.entries.select(self.names).filter(pa.array(which)).to_pylist())
            raise error
        self.status[place[np.flatnonzero(alike) - 1]] = ChangeStatus.DUPLICATE

    def _pairs(self, which: Flags, left: Numbers, right: Numbers) -> Flags:
        """Those of some pairs that say the same; rows are hashed only if there is a pair."""
        equal = np.zeros(len(which), np.bool_)
        if which.any():
            equal[which] = self._equal(left[which], right[which])
        return equal

    def _equal(self, left: Numbers, right: Numbers) -> Flags:
        """Whether pairs of entries say the same: a delete equals a tombstone, rows are equal in every column."""
        gone_left, gone_right = self._is_gone(left), self._is_gone(right)
        first, second = self._hashes
        same = (first[left] == first[right]) & (second[left] == second[right])
        return np.asarray((gone_left & gone_right) | (~gone_left & ~gone_right & same))

    def _is_gone(self, at: Numbers) -> Flags:
        return np.asarray(
            (self.kind[at] == _TOMBSTONE) | ((self.kind[at] == _CHANGE) & (self.op[at] == ChangeOp.DELETE))
        )

    @cached_property
    def _hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Hashes of the rows behind all entries; 0 for tombstones."""
        lanes = []
        rows, changes = row_hashes(self.known.rows), row_hashes(self.batch.table)
        for lane in range(2):
            values = np.zeros(len(self.kind), np.uint64)
            values[self.is_row] = rows[lane][self.place[self.is_row]]
            values[self.is_change] = changes[lane][self.place[self.is_change]]
            lanes.append(values)
        return lanes[0], lanes[1]

    def _check_remembered(self, winners: Numbers, unknown: Flags) -> None:
        """Refuse what is older than every tombstone that is still kept: whether its key was deleted cannot be told."""
        columns = [self.entries.column(name).take(pa.array(winners)) for name in self.batch.sequence_by]
        if self.known.forgotten is not None and len(winners):
            upserts = self.op[winners] == ChangeOp.UPSERT
            old = unknown & upserts & (compared(columns, self.known.forgotten) <= 0)
            if old.any():
                raise self._refused(
                    _at(winners[old], len(self.kind)),
                    "comes with a change from before the horizon of tombstones, so whether it was deleted since is not known",
                )
        if self.known.floor is not None and self.cut < 0 and len(winners):
            tied = unknown & (compared(columns, self.known.floor) == 0)
            if tied.any():
                raise self._refused(
                    _at(winners[tied], len(self.kind)),
                    "comes with the sequence of an earlier truncate, so neither comes first",
                )

    def _kept(self, wins: Flags) -> Numbers:
        """Tombstones that no newer change of their key, and no truncate, makes needless."""
        kept = self.stands & (self.kind == _TOMBSTONE)
        if len(self.group):
            kept &= ~wins[self.group]
        stays = np.ones(self.known.tombstones.num_rows, np.bool_)
        stays[self.stones] = False
        stays[self.place[kept]] = True
        return np.flatnonzero(stays)

    def _refused(self, which: Flags, why: str, cure: str = _FIRST) -> InvalidInputError:
        found = self.entries.select(self.batch.keys).filter(pa.array(which))
        return refused(found, why, cure)


def refused(keys: pa.Table, why: str, cure: str) -> InvalidInputError:
    """The error of a batch that cannot be applied; it names the keys."""
    each = keys.group_by(keys.column_names, use_threads=False).aggregate([])
    told = ", ".join(str(row) for row in each.slice(0, _KEYS_TOLD).to_pylist())
    more = "" if each.num_rows <= _KEYS_TOLD else f", ... ({each.num_rows} keys in all)"
    return InvalidInputError(f"A key {why}: {told}{more}. Nothing was written. {cure}")


def _at(places: Numbers, count: int) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[places] = True
    return flags
