"""Says which versions changes add to a table that keeps all of them, and where those before them end now.

A version is a row from the position of the change that made it up to that of the next change of its key, or with no end.  Changes
may come late, so what is stored has to tell every change again: an upsert begins its version; a delete ends the version before it,
and is a row of its own without any length where there is none.  Rows are added, and their ends move; none goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.batch import Moves
from safewrite.cdc.routing.refusals import refuse_unplaced
from safewrite.changes.meaning.row_rule import RuledRows

REVISIONS = "cdc.revision"
"""The position of a table that counts its commits: a plan holds only for the versions that it was made of."""
At = tuple[int, str]
"""The epoch and the position of a change."""


class _Event(NamedTuple):
    """A change of a key; ``new`` and ``stored`` are its row in the batch or in the table, -1 where it has none.

    ``time`` and ``ended`` are as Arrow keeps times; ``until`` and ``ended`` say where a stored version ends.
    """

    at: At
    is_upsert: bool
    time: int | None
    new: int = -1
    stored: int = -1
    until: At | None = None
    ended: int | None = None


def next_revision(positions: Mapping[str, int]) -> Moves:
    """The move of the revision by a commit that holds only for the rows that it was made of."""
    known = positions.get(REVISIONS)
    return {REVISIONS: (known, (known or 0) + 1)}


@dataclass(frozen=True)
class VersionRule:
    """See :class:`safewrite.changes.meaning.row_rule.RowRule`: a key's versions are those of all its changes in their order.

    ``keys`` are those of the source's rows; a version is named by its beginning too.  ``revision`` is the number of the commit.
    """

    table: TargetTable
    keys: tuple[str, ...]
    revision: int

    def decided(self, changes: pa.Table, deletes: npt.NDArray[np.bool_], rows: pa.Table) -> RuledRows:
        """See :class:`safewrite.changes.meaning.row_rule.RowRule`."""
        written, late = self._written(changes, deletes, rows)
        come = written.table(changes, rows, self.keys, self.revision)
        return RuledRows(come, np.array([place for place, _ in written.stored], np.int64), late)

    def lone_deletes(self, changes: pa.Table, deletes: npt.NDArray[np.bool_], rows: pa.Table) -> set[At]:
        """The deletes that end no version: what keeps them is a row without values."""
        return {event.at for _, event in self._written(changes, deletes, rows)[0].deletes if event.new >= 0}

    def _written(
        self, changes: pa.Table, deletes: npt.NDArray[np.bool_], rows: pa.Table
    ) -> tuple[_VersionRows, int]:
        """The rows that come or end, and how many changes are late."""
        own, keys = self.table.own, self.keys
        refuse_unplaced(self.table, rows)
        of_batch, of_table = (
            _by_key(_new_events(changes, deletes, own), changes, keys),
            _by_key(_stored_events(rows, own), rows, keys),
        )
        values = _Values(changes, rows, frozenset({*self.table.own_columns}))
        written, late = _VersionRows(own), 0
        for key, new in of_batch.items():
            before = of_table.get(key, [])
            if len(new) == 1 and _follows(before, new[0]):
                written.add(key, [*before, *new])
                continue
            events = _told(before)
            newest = max(events, default=None)
            for event in new:
                late += newest is not None and event.at < newest
                events.setdefault(event.at, event)
            written.add(key, _without_copies([events[at] for at in sorted(events)], values))
        return written, late


def _by_key(
    events: Iterable[_Event], rows: pa.Table, keys: Sequence[str]
) -> dict[tuple[Any, ...], list[_Event]]:
    """Changes by the keys of their rows."""
    found: dict[tuple[Any, ...], list[_Event]] = {}
    for key, event in zip(
        zip(*(rows.column(name).to_pylist() for name in keys), strict=True), events, strict=True
    ):
        found.setdefault(key, []).append(event)
    return found


def _new_events(changes: pa.Table, deletes: npt.NDArray[np.bool_], own: OwnNames) -> Iterator[_Event]:
    """The changes of a batch."""
    times = _times(changes, own.from_time, own)
    for place, (at, goes, time) in enumerate(
        zip(_places(changes, own.epoch, own.sequence), deletes.tolist(), times, strict=True)
    ):
        yield _Event(at, not goes, time, place)


def _stored_events(rows: pa.Table, own: OwnNames) -> Iterator[_Event]:
    """The changes that made a table's versions; a delete is one that ends where it began."""
    times, ended = _times(rows, own.from_time, own), _times(rows, own.until_time, own)
    begun, ends = _places(rows, own.epoch, own.sequence), _places(rows, own.until_epoch, own.until)
    for place, (at, time, end, end_time) in enumerate(zip(begun, times, ends, ended, strict=True)):
        until = None if end[1] is None else end
        yield _Event(at, until != at, time, -1, place, until, end_time)


def _places(rows: pa.Table, epoch: str, sequence: str) -> Iterator[tuple[int, Any]]:
    return zip(rows.column(epoch).to_pylist(), rows.column(sequence).to_pylist(), strict=True)


def _times(rows: pa.Table, name: str, own: OwnNames) -> list[int | None]:
    """Times as Arrow keeps them, all in the unit of the beginnings: Python's own cost several times as much."""
    kind = rows.schema.field(own.from_time).type
    found: list[int | None] = rows.column(name).cast(kind).cast(pa.int64()).to_pylist()
    return found


def _follows(stored: Sequence[_Event], event: _Event) -> bool:
    """Whether a change is the first of its key, or comes behind the only one, which has a version without an end: as nearly all do."""
    if not stored:
        return True
    (before, *more) = stored
    return not more and before.until is None and before.at < event.at and not _is_copy(before, event)


def _told(stored: Iterable[_Event]) -> dict[At, _Event]:
    """The changes of a key that its versions tell of: what ended one without a version of its own is a delete."""
    found = {event.at: event for event in stored}
    ends = {event.until: event.ended for event in stored if event.until is not None}
    return {at: _Event(at, False, time) for at, time in ends.items()} | found


@dataclass(frozen=True)
class _Values:
    """Compares the rows of changes, without what the job writes."""

    columns: pa.Table
    stored: pa.Table
    own: frozenset[str]

    def are_equal(self, one: _Event, other: _Event) -> bool:
        return self._of(one) == self._of(other)

    def _of(self, event: _Event) -> dict[str, Any]:
        rows, place = (self.columns, event.new) if event.new >= 0 else (self.stored, event.stored)
        row: dict[str, Any] = rows.slice(place, 1).to_pylist()[0]
        return {name: value for name, value in row.items() if name not in self.own}


def _without_copies(events: Sequence[_Event], values: _Values) -> list[_Event]:
    """The changes without new ones that their source sent twice: nothing can come between both."""
    found: list[_Event] = []
    for event in events:
        before = found[-1] if found else None
        if (
            before is not None
            and event.new >= 0
            and _is_copy(before, event)
            and (not event.is_upsert or values.are_equal(before, event))
        ):
            continue
        found.append(event)
    return found


def _is_copy(before: _Event, event: _Event) -> bool:
    """Whether the source says of both that they are one change; upserts have to be equal, too."""
    return before.is_upsert == event.is_upsert and _core(before.at) == _core(event.at)


def _core(at: At) -> tuple[int, str]:
    """The position of the source, without Kafka's offset."""
    return at[0], at[1].rpartition("-")[0]


@dataclass
class _VersionRows:
    """Rows to write: their places in the batch or in the table, and where they end."""

    own: OwnNames
    new: list[tuple[int, _Event | None]] = field(default_factory=list)
    stored: list[tuple[int, _Event | None]] = field(default_factory=list)
    deletes: list[tuple[tuple[Any, ...], _Event]] = field(default_factory=list)

    def add(self, key: tuple[Any, ...], events: Sequence[_Event]) -> None:
        """Take in the changes of a key, in their order."""
        for place, event in enumerate(events):
            after = events[place + 1] if place + 1 < len(events) else None
            if event.new >= 0 and event.is_upsert:
                self.new.append((event.new, after))
            elif event.stored >= 0 and event.is_upsert:
                if event.until != (None if after is None else after.at):
                    self.stored.append((event.stored, after))
            elif event.stored < 0 and not (place and events[place - 1].is_upsert):
                self.deletes.append((key, event))

    def table(self, columns: pa.Table, stored: pa.Table, keys: Sequence[str], revision: int) -> pa.Table:
        """The rows with their ends."""
        own = self.own
        parts = [self._ending(columns, self.new), self._ending(stored, self.stored)]
        empty = [
            dict(zip(keys, key, strict=True))
            | dict(zip((own.epoch, own.sequence, own.from_time), (*event.at, event.time), strict=True))
            for key, event in self.deletes
        ]
        rows = pa.Table.from_pylist(empty, columns.schema)
        parts.append(self._ending(rows, list(enumerate(event for _, event in self.deletes))))
        whole = pa.concat_tables(parts)
        place = whole.schema.get_field_index(own.revision)
        return whole.set_column(
            place, whole.schema.field(place), pa.array([revision] * len(whole), pa.int64())
        )

    def _ending(self, rows: pa.Table, ends: Sequence[tuple[int, _Event | None]]) -> pa.Table:
        """Those rows, each with where it ends."""
        taken = rows.take(pa.array([place for place, _ in ends], pa.int64()))
        ended = [(None, None, None) if one is None else (*one.at, one.time) for _, one in ends]
        unit = taken.schema.field(self.own.from_time).type
        for number, name in enumerate(_ends(self.own)):
            place = taken.schema.get_field_index(name)
            kind = taken.schema.field(place)
            made = pa.array(
                [one[number] for one in ended], unit if name == self.own.until_time else kind.type
            )
            taken = taken.set_column(place, kind, made.cast(kind.type))
        return taken


def _ends(own: OwnNames) -> tuple[str, ...]:
    """The columns that say where a version ends."""
    return own.until_epoch, own.until, own.until_time
