"""Gives deletes their place among the changes of their key, where the source did not tell it.

A tombstone has no position of the source: it is after all that its partition has before it.  A table that columns of its
rows order (``precombine_key``) has no value for a delete but what the row before it says, and PostgreSQL's default tells
the key only: the rest is NULL, or 0, ``""`` and 1970 in columns that are NOT NULL.  Such a delete ranks by its position, as
the newest of what was changed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.misfits import Misfit
from safewrite.cdc.envelopes.position import OFFSET_WIDTH
from safewrite.cdc.records.change import UNAVAILABLE, DeadLetter, KafkaRecord, Op, UndecodableError
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows
from safewrite.values.objects import array_of
from safewrite.values.python import is_nan

Key = tuple[Any, ...]
Read = Callable[[Sequence[Key]], Sequence[Mapping[str, Any]]]
"""The rows of a table that have one of these keys, as it was before the batch."""


@dataclass(frozen=True)
class _Rival:
    """What a key has besides a delete: a row of the table, or a change of the batch."""

    op: Op
    epoch: int
    order: tuple[Any, ...]
    position: str
    record: KafkaRecord | None
    """None of a row of the table."""

    @property
    def rank(self) -> tuple[Any, ...]:
        return (self.epoch, *((one is not None, one) for one in self.order), self.position)

    @property
    def offset(self) -> int:
        """Kafka's offset of the change; -1 where it has none."""
        told = self.position.rpartition("-")[2]
        return int(told) if told.isdecimal() and len(told) == OFFSET_WIDTH else -1


def rank(
    table: TargetTable, made: ChangeRows, schema: pa.Schema | None, *, topics: Container[str], read: Read
) -> list[KafkaRecord]:
    """Rank the deletes of a table's rows that need it; the records of those that have nothing to delete, which are left out.

    Args:
        schema: the table's; None before it is made.
        topics: those that rows of the table are known to come from.
    """
    asked = [row for row in made.rows if needs_rank(table, row)]
    return _Ranking(table, made, schema, topics).ranked(asked, read) if asked else []


def needs_rank(table: TargetTable, row: ChangeRow) -> bool:
    """Whether the place of a row is looked for; one that left the filter has the values that order it."""
    if row.op is not Op.DELETE or row.left:
        return False
    return row.change.is_tombstone or table.sequence == "precombine"


class _Ranking:
    def __init__(
        self, table: TargetTable, made: ChangeRows, schema: pa.Schema | None, topics: Container[str]
    ) -> None:
        self._table, self._made, self._topics = table, made, topics
        self._own, self._order = table.own, tuple(table.precombine_key or ())
        self._types = {} if schema is None else {field.name: field.type for field in schema}

    def ranked(self, asked: Sequence[ChangeRow], read: Read) -> list[KafkaRecord]:
        keys = {id(row): self._key(row.values) for row in asked}
        wanted = dict.fromkeys(key for key in keys.values() if key is not None)
        rivals: dict[Key, list[_Rival]] = {key: [] for key in wanted}
        for of, rival in (*self._of_batch(rivals), *self._of_table(read([*wanted]))):
            if of in rivals:
                rivals[of].append(rival)
        gone: set[int] = set()
        idle: list[KafkaRecord] = []
        for row in asked:
            key = keys[id(row)]
            place = self._place_tombstone if row.change.is_tombstone else self._place_delete
            try:
                lands = place(row, () if key is None else rivals[key])
            except UndecodableError as error:
                self._made.dead.append(DeadLetter(row.change.record, str(error), self._table.name))
                gone.add(id(row))
            else:
                if not lands:
                    gone.add(id(row))
                    idle.append(row.change.record)
        self._made.rows = [row for row in self._made.rows if id(row) not in gone]
        return idle

    # --- places -----------------------------------------------------------------------------------
    def _place_tombstone(self, row: ChangeRow, rivals: Sequence[_Rival]) -> bool:
        """Put a tombstone behind all that its partition has before it; False where its delete came, or nothing is there.

        Raises:
            UndecodableError: nothing tells whether it is newer than the row.
        """
        record = row.change.record
        before = [one for one in rivals if one.record is None or _is_before(one.record, record)]
        of_batch = [one for one in before if one.record is not None]
        if of_batch and max(of_batch, key=lambda one: one.offset).op is Op.DELETE:
            return False
        newest = max((one for one in before if one.op is Op.UPSERT), key=lambda one: one.rank, default=None)
        if newest is None:
            return False
        if record.topic not in self._topics:
            raise UndecodableError(
                f"the delete of this tombstone did not come (log compaction), and no row of {self._table.name} is known to be of its topic "
                f"{record.topic!r}, which may be that of another database. Have the source send the row again, or delete it"
            )
        if any(one.record is None and one.offset >= record.offset for one in before):
            raise UndecodableError(
                "the delete of this tombstone did not come (log compaction), and the row of its key is of another partition, or of the "
                "topic before it was created again: nothing tells which is newer. Have the source send the row again, or delete it"
            )
        if None in newest.order:
            raise UndecodableError(
                f"the delete of this tombstone did not come (log compaction), and {', '.join(self._order)} of its row, which order the "
                "changes (precombine_key), have no value"
            )
        core = newest.position.rpartition("-")[0]
        row.values[self._own.epoch] = newest.epoch
        row.values[self._own.sequence] = f"{core}-{record.offset:0{OFFSET_WIDTH}d}"
        row.values |= dict(zip(self._order, newest.order, strict=True))
        return True

    def _place_delete(self, row: ChangeRow, rivals: Sequence[_Rival]) -> bool:
        """Rank a delete behind what was changed before it; False where nothing tells a place, and nothing is there."""
        at = (row.values[self._own.epoch], row.values[self._own.sequence])
        own = self._order_of(row.values)
        before = [
            one.order
            for one in rivals
            if one.op is Op.UPSERT and (one.epoch, one.position) < at and None not in one.order
        ]
        order = max([*before, *([] if own is None else [own])], default=None)
        if order is None:
            return False
        row.values |= dict(zip(self._order, order, strict=True))
        return True

    # --- what a key has ---------------------------------------------------------------------------
    def _of_batch(self, wanted: Container[Key]) -> Iterator[tuple[Key, _Rival]]:
        for row in self._made.rows:
            if row.op is not Op.TRUNCATE and not row.change.is_tombstone:
                yield from self._rival(row.op, row.values, row.change.record)
        needed = (*self._made.keys, *self._order, *self._own.of_order)
        for part in self._made.projected:
            columns = [part.columns[name].to_pylist() for name in needed]
            operations, places = part.operations.to_pylist(), part.batch.places()
            for at, values in enumerate(zip(*columns, strict=True)):
                named = dict(zip(needed, values, strict=True))
                if self._key(named) in wanted:
                    record = part.batch.records[int(places[at])]
                    yield from self._rival(Op(operations[at]), named, record)

    def _of_table(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Key, _Rival]]:
        for row in rows:
            if row.get(self._own.until) is None:
                is_deleted = row.get(self._table.deleted_column or "")
                yield from self._rival(Op.DELETE if is_deleted else Op.UPSERT, row, None)

    def _rival(
        self, op: Op, values: Mapping[str, Any], record: KafkaRecord | None
    ) -> Iterator[tuple[Key, _Rival]]:
        key = self._key(values)
        if key is not None:
            order = self._order_of(values) or (None,) * len(self._order)
            position = str(values.get(self._own.sequence) or "")
            yield key, _Rival(op, values.get(self._own.epoch) or 0, order, position, record)

    def _key(self, values: Mapping[str, Any]) -> Key | None:
        """A key as the table has it; None where it can have none such."""
        found = tuple(self._stored(name, values.get(name)) for name in self._made.keys)
        return None if any(value is None for value in found) else found

    def _order_of(self, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        found = tuple(self._stored(name, values.get(name)) for name in self._order)
        return None if any(value is None or is_nan(value) for value in found) else found

    def _stored(self, name: str, value: Any) -> Any:
        """A value as the table's column has it, so that it compares with those of its rows; None where it has none such."""
        if value is None or value is UNAVAILABLE or isinstance(value, Misfit | list | dict):
            return None
        kind = self._types.get(name)
        return value if kind is None else array_of([value], kind)[0][0].as_py()


def _is_before(one: KafkaRecord, other: KafkaRecord) -> bool:
    """Whether a record comes before another one of its partition."""
    return (one.topic, one.partition) == (other.topic, other.partition) and one.offset < other.offset
