"""Reads Debezium's events of one schema all at once, as columns: what ``safewrite.cdc.debezium`` does event by event.

Only what both are sure to read alike is taken here: events with their schema, of rows that were inserted, updated, deleted
or read.  All others are given back, and read one by one: truncates, values that were left out, keys that changed, and
whatever may be a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.change import SourceTable, UndecodableError
from safewrite.cdc.columns import Doubts, UnsuitedError
from safewrite.cdc.debezium import NEW_KEY, OLD_KEY
from safewrite.cdc.events import AFTER, BEFORE, EventReader, KeyReader
from safewrite.cdc.logical import Placeholder
from safewrite.cdc.prefixes import Prefix, Prefixes
from safewrite.cdc.records import Records

OP, POSITION, TIME, BEGINNING, PLACE = "op", "position", "time", "beginning", "place"
"""Columns of a block beside those of its rows; ``place`` is that of the record."""
KEY = "key"
_PIECE = 16_384
"""Records that are read at once; their columns stay in the processor's caches."""
_SMALLEST = 64
"""So few records are read one by one if one of them is unsuited."""
_FAILURES_MAX = 24
_STRANGE_MAX = 16
_READERS_MAX = 1000
_MOVED = pa.array([NEW_KEY, OLD_KEY])
_R = TypeVar("_R")
UNSUITED = (
    UnsuitedError, UndecodableError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError, IndexError,
    ArithmeticError, RecursionError,
)  # fmt: skip
"""Whatever is wrong with records here, they are read one by one, which tells what it is."""


@dataclass(frozen=True)
class Block:
    """Changes of one source table as columns, in the order of their records.

    ``data`` has, beside the columns named above, ``after.NAME`` and ``before.NAME`` for each column of the rows, and
    ``key.NAME`` for each of the record's key.  ``types`` are those of the rows' columns, ``keys`` the names of the key's.
    """

    source: SourceTable
    records: Records
    data: pa.Table
    types: Mapping[str, pa.DataType]
    keys: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, of: str, name: str) -> pa.ChunkedArray | None:
        """A column of the rows after or before the change, or of the key; None if there is none of the name."""
        whole = f"{of}.{name}"
        return self.data.column(whole) if whole in self.data.schema.names else None

    def places(self) -> Any:
        """The places of the records."""
        return self.data.column(PLACE).to_numpy()

    def where(self, mask: Any) -> Block:
        """The changes at which a mask of NumPy is true."""
        return replace(self, data=self.data.filter(pa.array(mask))) if not mask.all() else self

    def with_column(self, name: str, values: pa.ChunkedArray) -> Block:
        """The block with another column of this name."""
        at = self.data.schema.get_field_index(name)
        return replace(self, data=self.data.set_column(at, name, values))


@dataclass
class Read:
    """What was read of records: blocks, how many are tombstones, and the places of those that are read one by one."""

    blocks: list[Block] = field(default_factory=list)
    tombstones: int = 0
    others: list[Any] = field(default_factory=list)

    def others_of(self) -> Any:
        """Those places, in their order."""
        return np.sort(np.concatenate(self.others)) if self.others else np.zeros(0, "int64")


class Blocks:
    """Reads the records of batches; it remembers schemas, and is not for several threads at once."""

    def __init__(self, placeholder: Placeholder, keys: Prefixes, values: Prefixes) -> None:
        self._placeholder = placeholder
        self._keys, self._values = keys, values
        self._event_readers: dict[bytes, EventReader | None] = {}
        self._key_readers: dict[bytes, KeyReader | None] = {}

    def read(self, records: Records) -> Read:
        """Read what can be read by columns."""
        found = Read()
        blocks: dict[Any, list[Block]] = {}
        at = 0
        for part in records.data.to_batches(max_chunksize=_PIECE):
            piece = _Piece(records, part, np.arange(at, at + part.num_rows), found)
            at += part.num_rows
            for block in self._piece(piece):
                blocks.setdefault((block.source, block.data.schema, block.keys), []).append(block)
        for alike in blocks.values():
            found.blocks.append(replace(alike[0], data=pa.concat_tables(one.data for one in alike)))
        return found

    # --- which records have one schema ------------------------------------------------------------------
    def _piece(self, piece: _Piece) -> Iterator[Block]:
        part = piece.part
        empty = part.column("value").is_null().to_numpy(zero_copy_only=False)
        piece.found.tombstones += int(empty.sum())
        plain = ~_is_moved(part.column("headers")) & ~empty
        taken = empty
        no_key = part.column("key").is_null().to_numpy(zero_copy_only=False)
        keys = [*self._groups(piece, "key", self._keys), (None, no_key)]
        for value, of_value in self._groups(piece, "value", self._values):
            for key, of_key in keys:
                chosen = of_value & of_key & plain
                if chosen.any():
                    taken = taken | chosen
                    yield from self._tried(piece, _Schemas(value, key), np.flatnonzero(chosen))
        if not taken.all():
            piece.found.others.append(piece.places[~taken])

    def _groups(self, piece: _Piece, name: str, known: Prefixes) -> list[tuple[_Group, Any]]:
        """The prefixes of keys or values, and which records have them."""
        data, number = piece.part.column(name), piece.part.column(f"{name}_prefix")
        groups: list[tuple[_Group, Any]] = []
        for one in pc.unique(number).to_pylist():
            if one is not None and (prefix := known.of(piece.records.prefixes[one])) is not None:
                mask = pc.fill_null(pc.equal(number, one), False).to_numpy(zero_copy_only=False)
                groups.append((_Group(prefix, 0), mask))
        left = pc.and_(data.is_valid(), number.is_null()).to_numpy(zero_copy_only=False).copy()
        for prefix in known if left.any() else ():
            _take(groups, prefix, data, left)
        for _ in range(_STRANGE_MAX):
            if not left.any():
                break
            first = int(np.argmax(left))
            learned = _learned(known, data[first].as_py())
            if learned is None or not _take(groups, learned, data, left):
                left[first] = False
        return groups

    # --- what they say ----------------------------------------------------------------------------------
    def _tried(self, piece: _Piece, schemas: _Schemas, chosen: Any) -> Iterator[Block]:
        """The blocks of records of one schema; of those that hold up others the halves are tried."""
        waiting, failures = [chosen], 0
        while waiting:
            chosen = waiting.pop()
            try:
                yield from self._blocks(piece, schemas, chosen)
            except UNSUITED:
                failures += 1
                if len(chosen) <= _SMALLEST or failures > _FAILURES_MAX or not self._is_suited(schemas):
                    piece.found.others.append(piece.places[chosen])
                else:
                    middle = len(chosen) // 2
                    waiting += [chosen[middle:], chosen[:middle]]

    def _is_suited(self, schemas: _Schemas) -> bool:
        key = schemas.key
        return self._event_reader(schemas.value.prefix) is not None and (
            key is None or self._key_reader(key.prefix) is not None
        )

    def _blocks(self, piece: _Piece, schemas: _Schemas, chosen: Any) -> list[Block]:
        """The blocks of records of one schema.  Nothing is noted of them before all are read."""
        events_of, key_of = self._event_reader(schemas.value.prefix), None
        if schemas.key is not None:
            key_of = self._key_reader(schemas.key.prefix)
        if events_of is None or (key_of is None and schemas.key is not None):
            raise UnsuitedError("a schema")
        rows = piece.rows(chosen)
        payloads, key_payloads, fit = schemas.payloads(rows)
        if not fit.all():
            blocks = self._blocks(piece, schemas, chosen[fit]) if fit.any() else []
            piece.found.others.append(piece.places[chosen[~fit]])
            return blocks
        doubts = Doubts(len(chosen))
        events = events_of.read(payloads, doubts)
        key = {} if key_of is None else key_of.read(key_payloads, doubts)
        columns = {f"{KEY}.{name}": values for name, values in key.items()}
        columns |= {f"{BEFORE}.{name}": values for name, values in events.before.items()}
        columns |= {f"{AFTER}.{name}": values for name, values in events.after.items()}
        sequences = events.sequences(rows.column("offset"), doubts)
        places = piece.places[chosen]
        columns |= {
            OP: events.operations(doubts, has_key=bool(key)), POSITION: sequences.positions, TIME: events.times(),
            BEGINNING: sequences.beginnings, PLACE: pa.array(places),
        }  # fmt: skip
        data, types, names = pa.table(columns), events_of.rows.types, tuple(key)
        tables = list(events.tables(doubts))
        sure = ~doubts.mask()
        blocks = [
            Block(table, piece.records, data, types, names).where(of_table & sure)
            for of_table, table in tables
            if (of_table & sure).any()
        ]
        if not sure.all():
            piece.found.others.append(places[~sure])
        return blocks

    def _event_reader(self, prefix: Prefix) -> EventReader | None:
        def make() -> EventReader:
            return EventReader.of(prefix.schema, self._placeholder)

        return _once(self._event_readers, prefix, make)

    def _key_reader(self, prefix: Prefix) -> KeyReader | None:
        return _once(self._key_readers, prefix, lambda: KeyReader.of(prefix.schema))


def _once(known: dict[bytes, _R | None], prefix: Prefix, make: Callable[[], _R]) -> _R | None:
    """What is made of a schema, once; None where its records cannot be read by columns."""
    if prefix.data not in known:
        if len(known) >= _READERS_MAX:
            known.clear()
        try:
            known[prefix.data] = make()
        except UNSUITED:
            known[prefix.data] = None
    return known[prefix.data]


def _learned(known: Prefixes, data: bytes) -> Prefix | None:
    try:
        return known.learn(data)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring records that are read at once, and what is found of them."""

    records: Records
    part: Any
    places: Any
    found: Read

    def rows(self, chosen: Any) -> Any:
        """Some of the records; all are not copied."""
        return self.part if len(chosen) == self.part.num_rows else self.part.take(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The schemas of records: of their values and their keys."""

    value: _Group
    key: _Group | None

    def payloads(self, rows: Any) -> tuple[Any, Any, Any]:
        """The payloads of values and keys, and which of them are objects of JSON as far as their ends tell."""
        values, fit = self.value.payloads(rows.column("value"))
        if self.key is None:
            return values, None, fit
        keys, key_fit = self.key.payloads(rows.column("key"))
        return values, keys, fit & key_fit


@dataclass(frozen=True, slots=True)
class _Group:
    """Records of one schema: its prefix, and how much of it is before their payloads."""

    prefix: Prefix
    length: int

    def payloads(self, data: Any) -> tuple[Any, Any]:
        """The payloads, and which of them are objects of JSON as far as their ends tell."""
        found = pc.binary_slice(data, self.length, -1)
        ends = (pc.ends_with(data, b"}"), pc.starts_with(found, b"{"), pc.ends_with(found, b"}"))
        return found, np.logical_and.reduce([one.to_numpy(zero_copy_only=False) for one in ends])


def _take(groups: list[tuple[_Group, Any]], prefix: Prefix, data: Any, left: Any) -> bool:
    """Take those that have a prefix out of what is left."""
    mask = pc.fill_null(pc.starts_with(data, prefix.data), False).to_numpy(zero_copy_only=False) & left
    if not mask.any():
        return False
    left &= ~mask
    groups.append((_Group(prefix, len(prefix.data)), mask))
    return True


def _is_moved(headers: Any) -> Any:
    """Which records have a header that tells of a changed key."""
    found = np.zeros(len(headers), bool)
    named = headers.flatten()
    if len(named):
        told = pc.is_in(pc.struct_field(named, "key"), _MOVED)
        parents = pc.list_parent_indices(headers)
        found[parents.filter(told).to_numpy()] = True
    return found
