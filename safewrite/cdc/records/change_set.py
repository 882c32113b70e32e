"""Holds changes of source tables: those that were read by columns, and those that were read one by one.

Who takes changes sees here, and nowhere else, that there are two forms of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.records.change import Beginning, DeadLetter, Op, SourceChange, SourceTable
from safewrite.cdc.records.records import KafkaRecords

OP, POSITION, TIME, BEGINNING, PLACE = "op", "position", "time", "beginning", "place"
"""Columns of a column batch besides those of its rows; ``place`` is that of the record."""
KEY, BEFORE, AFTER = "key", "before", "after"
"""What the names of the columns of keys and of rows begin with."""
BEGINNINGS: Mapping[Beginning, int] = {Beginning.SNAPSHOT_ROW: 1, Beginning.CHANGE: 2}
"""How a column names what an event is that came before the connector saw a commit; NULL for all others."""
_BEGINNING_OF = {number: kind for kind, number in BEGINNINGS.items()}
Place = tuple[str, int]
"""A topic and the number of a partition."""
_Group = TypeVar("_Group", bound=Hashable)


@dataclass(frozen=True)
class ColumnBatch:
    """Changes of one source table as columns, in the order of their records.

    ``data`` has, besides the columns named above, ``after.NAME`` and ``before.NAME`` for each column of the rows, and
    ``key.NAME`` for each of the record's key.  ``types`` are those of the rows' columns, ``keys`` the names of the key's.
    """

    source: SourceTable
    records: KafkaRecords
    data: pa.Table
    types: Mapping[str, pa.DataType]
    keys: tuple[str, ...]
    is_inferred: bool = False
    """Whether the types are those of the values, and no schema's."""

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, of: str, name: str) -> pa.ChunkedArray | None:
        """A column of the rows after or before the change, or of the key; None if there is none of the name."""
        whole = f"{of}.{name}"
        return self.data.column(whole) if whole in self.data.schema.names else None

    def places(self) -> Any:
        """The places of the records."""
        return self.data.column(PLACE).to_numpy()

    def topics(self) -> list[str]:
        """The topics of the records."""
        of_records = self.records.whereabouts.column("topic").take(self.data.column(PLACE))
        return [str(one) for one in pc.unique(of_records).to_pylist()]

    def beginnings(self) -> set[Beginning]:
        """What the changes are that came before the connector saw a commit."""
        found = pc.unique(self.data.column(BEGINNING)).to_pylist()
        return {_BEGINNING_OF[one] for one in found if one is not None}

    def values(self) -> pa.ChunkedArray:
        """The values of the records, as their bytes are."""
        return self.records.data.column("value").take(self.data.column(PLACE))

    def where(self, mask: Any) -> ColumnBatch:
        """The changes at which a mask of NumPy is true."""
        return replace(self, data=self.data.filter(pa.array(mask))) if not mask.all() else self

    def with_column(self, name: str, values: pa.ChunkedArray) -> ColumnBatch:
        """The batch with another column of this name."""
        at = self.data.schema.get_field_index(name)
        return replace(self, data=self.data.set_column(at, name, values))


@dataclass
class ChangeSet:
    """Changes, each of which is in one of both.  A record has one in a column batch, or all of its changes in ``rows``."""

    rows: list[SourceChange] = field(default_factory=list)
    columns: list[ColumnBatch] = field(default_factory=list)

    @property
    def by_columns(self) -> int:
        """How many records were read by columns."""
        return sum(len(batch) for batch in self.columns)

    @property
    def records(self) -> int:
        """How many records the changes come from."""
        return len({id(one.record) for one in self.rows}) + self.by_columns

    @property
    def newest_ms(self) -> int | None:
        """The latest time of a change by the source's clock."""
        times = [one.source_time_ms for one in self.rows]
        times += [pc.max(batch.data.column(TIME)).as_py() for batch in self.columns]
        return max((at for at in times if at is not None), default=None)

    @property
    def topics(self) -> set[str]:
        """The topics that events came in."""
        found = {one.record.topic for one in self.rows if not one.is_tombstone}
        return found.union(*(batch.topics() for batch in self.columns))

    @property
    def beginnings(self) -> set[Beginning]:
        """What the changes are that came before the connector saw a commit."""
        found = {one.beginning for one in self.rows if one.beginning is not None}
        return found.union(*(batch.beginnings() for batch in self.columns))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that the keys of all records name; none where the records have to be read in their order."""
        named = {batch.keys for batch in self.columns}
        return () if len(named) != 1 or self.rows else named.pop()

    def counts(self) -> Counter[SourceTable]:
        """How many changes each source has; tombstones name none."""
        found = Counter(one.source for one in self.rows if not one.is_tombstone)
        for batch in self.columns:
            found[batch.source] += len(batch)
        return found

    def since(self, starts: Mapping[Place, int]) -> ChangeSet:
        """The changes from these offsets on, by topic and partition."""
        rows = [
            one for one in self.rows if one.record.offset >= starts[one.record.topic, one.record.partition]
        ]
        kept = [batch.where(batch.records.is_since(starts, batch.places())) for batch in self.columns]
        return ChangeSet(rows, [batch for batch in kept if len(batch)])

    def without(self, letters: Iterable[DeadLetter]) -> ChangeSet:
        """The changes of all records that are no dead letters."""
        gone: dict[Place, set[int]] = {}
        for one in letters:
            gone.setdefault((one.record.topic, one.record.partition), set()).add(one.record.offset)
        if not gone:
            return self
        rows = [
            one
            for one in self.rows
            if one.record.offset not in gone.get((one.record.topic, one.record.partition), ())
        ]
        kept = [batch.where(~batch.records.are_at(gone)[batch.places()]) for batch in self.columns]
        return ChangeSet(rows, [batch for batch in kept if len(batch)])

    def grouped(self, of: Callable[[SourceTable, bool], _Group]) -> dict[_Group, ChangeSet]:
        """The changes by what ``of`` says of their source, and of whether they are tombstones."""
        known: dict[tuple[SourceTable, bool], _Group] = {}
        found: dict[_Group, ChangeSet] = {}

        def of_source(source: SourceTable, is_tombstone: bool) -> ChangeSet:
            told = source, is_tombstone
            if told not in known:
                known[told] = of(source, is_tombstone)
            return found.setdefault(known[told], ChangeSet())

        for batch in self.columns:
            of_source(batch.source, False).columns.append(batch)
        for one in self.rows:
            of_source(one.source, one.is_tombstone).rows.append(one)
        return found

    def deletes(self, records: KafkaRecords) -> Any:
        """Which of these records tell of a delete, as booleans of NumPy; all changes are of them."""
        found = np.zeros(len(records), bool)
        for batch in self.columns:
            found[batch.places()[pc.equal(batch.data.column(OP), "d").to_numpy()]] = True
        told: dict[Place, list[int]] = {}
        for one in self.rows:
            if one.op is Op.DELETE:
                told.setdefault((one.record.topic, one.record.partition), []).append(one.record.offset)
        if told:
            offsets = records.offsets()
            for place, at in records.partitions().items():
                found[at[np.isin(offsets[at], told.get(place, []))]] = True
        return found

    def letters(self, reason: str, table: str | None = None) -> list[DeadLetter]:
        """All records as dead letters, for one reason."""
        found = list({id(one.record): one.record for one in self.rows}.values())
        for batch in self.columns:
            found += batch.records.take(batch.places())
        return [DeadLetter(record, reason, table) for record in found]
