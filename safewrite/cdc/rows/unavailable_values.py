"""Finds values that a source left out where ``apply_changes`` does not look: under the key that a row had before.

PostgreSQL leaves a large value out of an update that did not touch it (TOAST), also where the update changed the key.
Debezium makes a delete of the old key and an insert of the new one of it, and the insert lacks the value.  The row with
the old key has it: in the batch, or in the table.  What one partition has of a key is complete up to the change that is
looked at; so a value counts only once the delete of the old key is in the batch too.

A batch may end between the two halves.  Then the delete takes the whole row to its new key, as of a moment before the
insert; else the value would be gone when the insert comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import NOBODY_HAS, UNAVAILABLE, DeadLetter, Op, left_out
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows

Key = tuple[Any, ...]
Read = Callable[[Sequence[Key]], Sequence[Mapping[str, Any]]]
"""The rows of a table that have one of these keys."""


@dataclass(frozen=True, slots=True)
class Half:
    """One half of a change of a key that came as a delete and an insert; ``other`` is the key of the other one."""

    core: str
    key: Key
    op: Op
    other: Key
    lacks: bool

    @classmethod
    def of(cls, row: ChangeRow, keys: Sequence[str]) -> Half | None:
        """The half that a row is, also where the filter made a delete of it; None of all other rows."""
        if row.other is None:
            return None
        op = Op.UPSERT if row.left else row.op
        return cls(_core(row), key_of(row, keys), op, row.other, bool(row.lacks))

    def asks(self, halves: Collection[tuple[str, Key, Op]]) -> bool:
        """Whether it takes values of the row with the other key, where these halves are in the batch."""
        if self.op is Op.UPSERT:
            return self.lacks and (self.core, self.other, Op.DELETE) in halves
        return (self.core, self.other, Op.UPSERT) not in halves


def asking(halves: Iterable[Half | None]) -> list[int]:
    """The places of the halves that take values of rows with other keys."""
    found = [*halves]
    there = {(one.core, one.key, one.op) for one in found if one is not None}
    return [place for place, one in enumerate(found) if one is not None and one.asks(there)]


def key_of(row: ChangeRow, keys: Sequence[str]) -> Key:
    """The key of a row."""
    return tuple(row.values.get(name) for name in keys)


def taking(rows: Sequence[ChangeRow], keys: Sequence[str]) -> list[ChangeRow]:
    """The rows that take values of rows with other keys."""
    return [rows[place] for place in asking(Half.of(row, keys) for row in rows)]


class UnavailableValues:
    """Looks values up for the rows of one table's share of a batch.

    Args:
        columns: of the table and of the batch.
        read: the table's rows, as they are before the batch.
    """

    def __init__(self, table: TargetTable, made: ChangeRows, columns: Iterable[str], read: Read) -> None:
        self._own, self._epoch, self._deleted = table.own, table.epoch, table.deleted_column
        self._made = made
        self._columns = [name for name in columns if name not in {*table.own.of_order, *made.keys}]
        self._read = read
        self._stored: dict[Key, Mapping[str, Any] | None] = {}
        self._truncates = sorted(self._position(row) for row in made.rows if row.op is Op.TRUNCATE)
        self._of_key: dict[Key, list[tuple[str, ChangeRow]]] = {}
        for row in made.rows:
            if row.op is not Op.TRUNCATE:
                self._of_key.setdefault(self._key(row), []).append((self._position(row), row))
        for found in self._of_key.values():
            found.sort(key=lambda one: one[0])

    # --- keys that changed ------------------------------------------------------------------------
    def follow_keys(self, asked: Sequence[ChangeRow], *, again: bool = False) -> None:
        """Fill inserts of changed keys, and take rows to their new key whose insert is in a later batch.

        Args:
            asked: the rows that take values, all of them (:func:`taking`).
            again: the batch has landed already, and only what it became is wanted.
        """
        inserts = [row for row in asked if row.op is Op.UPSERT]
        cut = [row for row in asked if row.op is Op.DELETE]
        if again:
            self._look_up([row.other for row in cut if row.other is not None])
            self._made.rows += [self._row(row, {}) for row in cut if self._was_taken(row)]
            return
        self._look_up([row.other for row in inserts if row.other is not None])
        self._look_up([key for row in cut for key in (self._key(row), row.other) if key is not None])
        for row in sorted([*inserts, *cut], key=self._position):
            if row.op is Op.UPSERT:
                self._fill(row)
            elif (values := self._all_values(row)) is not None:
                taken = self._row(row, values)
                self._made.rows.append(taken)
                of_key = self._of_key.setdefault(self._key(taken), [])
                of_key.append((self._position(taken), taken))
                of_key.sort(key=lambda one: one[0])

    def _fill(self, row: ChangeRow) -> None:
        assert row.other is not None
        lacks = []
        for name in row.lacks:
            value = self._value(row.other, name, _moment(row))
            if value is UNAVAILABLE:
                lacks.append(name)
            else:
                row.values[name] = value
        row.lacks = tuple(lacks)

    def _all_values(self, row: ChangeRow) -> dict[str, Any] | None:
        """All values that the row of a deletion had; None if one of them is not known."""
        values = {name: self._value(self._key(row), name, _moment(row)) for name in self._columns}
        return None if any(value is UNAVAILABLE for value in values.values()) else values

    def _row(self, row: ChangeRow, values: dict[str, Any]) -> ChangeRow:
        """The row of a deletion under its new key; every change of that key is newer."""
        assert row.other is not None
        order = {self._own.epoch: self._epoch, self._own.sequence: _bound(row)}
        keys = dict(zip(self._made.keys, row.other, strict=True))
        return ChangeRow(Op.UPSERT, order | values | keys, row.change)

    def is_late(self, row: ChangeRow) -> bool:
        """Whether the table has a newer row of the new key, to which :meth:`follow_keys` took this one: the insert came before."""
        stored = self._stored.get(self._key(row))
        if stored is None:
            return False
        return self._place(stored) > (row.values[self._own.epoch], row.values[self._own.sequence])

    def _was_taken(self, row: ChangeRow) -> bool:
        stored = None if row.other is None else self._stored.get(row.other)
        return stored is not None and stored[self._own.sequence] == _bound(row)

    # --- values that SQL of a row reads -----------------------------------------------------------
    def fill(self, row: ChangeRow, names: Iterable[str]) -> None:
        """Put in those values that the row before has: under its key, or the one that it had until now."""
        self._look_up([key for key in (self._key(row), row.other) if key is not None])
        key, before = self._key(row), self._position(row)
        if row.other is not None and not self._is_taken(row):
            # What the key had before it was another row's, also where it comes again; what has the old key may be its row still.
            if not self._left(row.other, row):
                return
            key, before = row.other, _moment(row)
        for name in names:
            value = self._value(key, name, before)
            if value is not UNAVAILABLE:
                row.values[name] = value
                row.lacks = tuple(one for one in row.lacks if one != name)

    def _is_taken(self, row: ChangeRow) -> bool:
        """Whether the table has the row under its new key already, for its delete was in a batch before."""
        stored = self._stored.get(self._key(row))
        return stored is not None and stored[self._own.sequence] == _bound(row)

    def is_past(self, row: ChangeRow, names: Collection[str]) -> bool:
        """Whether a later change of the key, in the table or in the batch, makes it no matter what a row lacks."""
        stored, at = self._stored.get(self._key(row)), self._position(row)
        if stored is not None and self._place(stored) >= (self._epoch, at):
            return True
        rows = self._of_key[self._key(row)]
        return any(place > at and not {*one.lacks} & {*names} for place, one in rows)

    def _left(self, key: Key, row: ChangeRow) -> bool:
        """Whether the batch has the delete of a row under the key that it had."""
        return any(one.op is Op.DELETE and _core(one) == _core(row) for _, one in self._of_key.get(key, ()))

    # --- values that are lost --------------------------------------------------------------------
    def unknown(self) -> list[DeadLetter]:
        """The changes that lack a value that is lost, and after which no other change of their key comes.

        Where deleted rows stay, all that lack one: else the value of a row that was deleted would be theirs.  A change that is older
        than the table's row is late, and nobody takes a value of it; unless that row is deleted.
        """
        lacking = [key for key, rows in self._of_key.items() if any(row.lacks for _, row in rows)]
        self._look_up(lacking)
        dead = []
        for key in lacking:
            for position, row in reversed(self._of_key[key]):
                if self._is_late(key, position):
                    break
                missing = [
                    name for name in row.lacks if self._value(key, name, position, UNAVAILABLE) is UNAVAILABLE
                ]
                if not missing and self._deleted is not None:
                    continue
                if not missing or self._is_truncated(position):
                    break
                dead.append(DeadLetter(row.change.record, left_out(missing, f"and {NOBODY_HAS}")))
        return dead

    def _is_late(self, key: Key, position: str) -> bool:
        """Whether the table has a newer row of a key, which is not deleted."""
        stored = self._stored[key]
        if stored is None or stored.get(self._deleted or ""):
            return False
        return self._place(stored) >= (self._epoch, position)

    def mark_first(self, gone: Collection[int]) -> None:
        """Mark the deletes before which neither the table nor the batch has a row of their key.

        Args:
            gone: records that do not land, by their ids.
        """
        deletes = [row for row in self._made.rows if row.op is Op.DELETE]
        self._look_up([self._key(row) for row in deletes])
        for row in deletes:
            before = [one for at, one in self._of_key[self._key(row)] if at < self._position(row)]
            row.is_first = self._stored[self._key(row)] is None and all(
                one.op is Op.DELETE or id(one.change.record) in gone for one in before
            )

    # --- looking ----------------------------------------------------------------------------------
    def _value(self, key: Key, name: str, before: str, absent: Any = None) -> Any:
        """The value of a column of a row right before a position; ``UNAVAILABLE`` where it is not known.

        A table that does not have the column says ``absent``.

        Changes that are older than the table's row are late: it stands, with its values.
        """
        rows, stored = self._of_key.get(key, []), self._stored.get(key)
        epoch, since = (0, "") if stored is None else self._place(stored)
        since = since if epoch == self._epoch else ""
        for position, row in reversed(rows[: bisect_left(rows, before, key=lambda one: one[0])]):
            if position < since:
                break
            if self._is_truncated(position, before) or row.op is Op.DELETE:
                return UNAVAILABLE
            if name not in row.lacks:
                return row.values.get(name)
            if row.other is not None:  # the past of a key ends where a row gets it
                return UNAVAILABLE if stored is None or since != _bound(row) else stored.get(name, absent)
        if stored is None or epoch > self._epoch or since >= before or self._is_truncated(since, before):
            return UNAVAILABLE
        if stored.get(self._deleted or ""):
            return UNAVAILABLE
        return stored.get(name, absent)

    def _is_truncated(self, after: str, before: str | None = None) -> bool:
        """Whether the table is emptied after a position, and before another."""
        place = bisect_left(self._truncates, after)
        return place < len(self._truncates) and (before is None or self._truncates[place] < before)

    def _look_up(self, keys: Sequence[Key]) -> None:
        wanted = [key for key in dict.fromkeys(keys) if key not in self._stored]
        if not wanted:
            return
        self._stored |= dict.fromkeys(wanted)
        for row in self._read(wanted):
            self._stored[tuple(row[name] for name in self._made.keys)] = row

    def _key(self, row: ChangeRow) -> Key:
        return key_of(row, self._made.keys)

    def _place(self, stored: Mapping[str, Any]) -> tuple[int, str]:
        """The epoch and the position of a row of the table."""
        return stored[self._own.epoch] or 0, stored[self._own.sequence] or ""

    def _position(self, row: ChangeRow) -> str:
        return str(row.values[self._own.sequence])


def _core(row: ChangeRow) -> str:
    """The position without Kafka's offset, as the source has it: both halves of a changed key have it."""
    return (row.change.told or row.change.position).rpartition("-")[0]


def _bound(row: ChangeRow) -> str:
    """A position before both halves, wherever each of them counts."""
    return f"{_core(row)}-"


def _moment(row: ChangeRow) -> str:
    """A position right before a row, and after all that came before it."""
    return f"{row.change.position.rpartition('-')[0]}-"
