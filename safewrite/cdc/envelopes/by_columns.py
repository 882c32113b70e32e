"""Reads records of one schema all at once, as columns: what ``Envelope.changes`` reads one by one.

Only records that both readings decode identically are read here: rows that were inserted, updated, deleted or read, under a
schema that they have or that was inferred.  The rest are read one by one: truncates, values that were left out, keys that
changed, and whatever may be a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import UnsuitedError, flags
from safewrite.cdc.connect.converters import UNSUITED, SchemaGroup
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.envelope import Envelope, EventReader, KeyReader
from safewrite.cdc.records.change_set import (
    AFTER,
    BEFORE,
    BEGINNING,
    KEY,
    OP,
    PLACE,
    POSITION,
    TIME,
    ColumnBatch,
)
from safewrite.cdc.records.records import KafkaRecords

_PIECE, _PIECE_BYTES = 16_384, 64 << 20
"""At most this many records, of about this many bytes, are read at once; their columns stay in the processor's caches."""
FEWEST = 80
"""Fewer records of one schema are read faster one by one."""
_SMALLEST = 64
"""At most this many records are read one by one if one of them is unsuited."""
_LOOKS_MAX = 6
"""So many times as many records as there are may be read in vain, in the search for those that hold up others."""
_NO_NUMBERS = rb'"(NaN|-?Infinity)"'
"""Binary numbers for which JSON has no number: Connect writes texts.  Arrow reads none of their columns."""
_EXACT = float(2**53)
"""Whole numbers below it are binary numbers of 64 bits, too."""
_READERS_MAX = 1000
_R = TypeVar("_R")


@dataclass
class ReadRecords:
    """What was read of records: column batches, how many are tombstones, and the places of those that are read one by one."""

    batches: list[ColumnBatch] = field(default_factory=list)
    tombstones: int = 0
    others: list[Any] = field(default_factory=list)

    def others_of(self) -> Any:
        """Those places, in their order."""
        return np.sort(np.concatenate(self.others)) if self.others else np.zeros(0, "int64")


class ByColumns:
    """Reads the records of batches; it remembers schemas, and is not for several threads at once."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope, self._converter = envelope, envelope.converter
        self._readers: dict[Hashable, EventReader | None] = {}
        self._key_readers: dict[Hashable, KeyReader | None] = {}

    def read(self, records: KafkaRecords, fewest: int) -> ReadRecords:
        """ReadRecords what can be read by columns.

        Args:
            fewest: at least this many records that have one schema are read; fewer are given back.
        """
        found = ReadRecords()
        if not len(records):
            return found
        batch = _Batch(records)
        has_value = flags(records.data.column("value").is_valid())
        empty = ~has_value & ~batch.has_header(self._envelope.delete_headers)
        found.tombstones = int(empty.sum())
        plain = has_value & ~batch.has_header(self._envelope.row_headers)
        left = ~empty
        batches: dict[Any, list[ColumnBatch]] = {}
        for schemas, chosen in self._schemas(records, plain, fewest):
            if len(chosen) < fewest:
                continue
            left[chosen] = False
            for piece in batch.pieces(chosen):
                for one in self._tried(batch, schemas, piece, found):
                    batches.setdefault((one.source, one.data.schema, one.keys, one.is_inferred), []).append(
                        one
                    )
        found.others.append(np.flatnonzero(left))
        for alike in batches.values():
            found.batches.append(replace(alike[0], data=pa.concat_tables(one.data for one in alike)))
        return found

    # --- which records have one schema ------------------------------------------------------------------
    def _schemas(self, records: KafkaRecords, plain: Any, fewest: int) -> Iterator[tuple[_Schemas, Any]]:
        """The schemas of values and keys, and the places of the records that have both."""
        values, of_value = self._converter.groups(records, "value", fewest)
        keys, of_key = self._converter.groups(records, "key", fewest)
        of_key[flags(records.data.column("key").is_null())] = len(keys)
        both = np.where(plain & (of_value >= 0) & (of_key >= 0), of_value * (len(keys) + 1) + of_key, -1)
        order = np.argsort(both, kind="stable")
        starts = np.flatnonzero(np.diff(both[order], prepend=-1))
        for first, end in pairwise([*starts.tolist(), len(order)]):
            value, key = divmod(int(both[order[first]]), len(keys) + 1)
            yield _Schemas(values[value], keys[key] if key < len(keys) else None), order[first:end]

    # --- what they say ----------------------------------------------------------------------------------
    def _tried(
        self, batch: _Batch, schemas: _Schemas, chosen: Any, found: ReadRecords
    ) -> Iterator[ColumnBatch]:
        """The column batches of records of one schema.

        Of those that hold up others the halves are tried; first all without those that have a number that JSON does not have.
        """
        waiting, looks, is_first = [chosen], _LOOKS_MAX * len(chosen), True
        while waiting:
            chosen = waiting.pop()
            try:
                batches, others = self._batches(batch, schemas, chosen)
            except UNSUITED:
                looks -= len(chosen)
                odd = batch.are_like(chosen, _NO_NUMBERS) if is_first else chosen[:0]
                is_first = False
                if len(chosen) <= _SMALLEST or looks < 0 or not self._is_suited(schemas):
                    found.others.append(chosen)
                elif 0 < len(odd) < len(chosen):
                    found.others.append(odd)
                    waiting.append(np.setdiff1d(chosen, odd, assume_unique=True))
                else:
                    middle = len(chosen) // 2
                    waiting += [chosen[middle:], chosen[:middle]]
            else:
                found.others.append(others)
                yield from batches

    def _is_suited(self, schemas: _Schemas) -> bool:
        key = schemas.key
        return self._reader(schemas.value) is not None and (key is None or self._key_reader(key) is not None)

    def _batches(self, batch: _Batch, schemas: _Schemas, chosen: Any) -> tuple[list[ColumnBatch], Any]:
        """The column batches of records of one schema, and the places of those that are to be read one by one."""
        reader, key_of = self._reader(schemas.value), None
        if schemas.key is not None:
            key_of = self._key_reader(schemas.key)
        if reader is None or (key_of is None and schemas.key is not None):
            raise UnsuitedError("a schema")
        rows = batch.rows(chosen)
        payloads, key_payloads, fit = schemas.payloads(rows)
        if not fit.all():
            batches, others = self._batches(batch, schemas, chosen[fit]) if fit.any() else ([], chosen[:0])
            return batches, np.concatenate([others, chosen[~fit]])
        fallback = RowFallback(len(chosen))
        events = reader.read(payloads, rows, fallback)
        key = {} if key_of is None else key_of.read(key_payloads, fallback)
        if schemas.key is not None and schemas.key.is_inferred:
            _doubt_nulls(key.values(), fallback)
        if schemas.value.is_inferred:
            _doubt_large([*events.before.values(), *events.after.values()], fallback)
        columns = {f"{KEY}.{name}": values for name, values in key.items()}
        columns |= {f"{BEFORE}.{name}": values for name, values in events.before.items()}
        columns |= {f"{AFTER}.{name}": values for name, values in events.after.items()}
        positions = events.positions(rows.column("offset"), fallback)
        columns |= {
            OP: events.operations(fallback, has_key=bool(key)), POSITION: positions.positions, TIME: events.times(),
            BEGINNING: positions.beginnings, PLACE: pa.array(chosen),
        }  # fmt: skip
        data, types, names = pa.table(columns), reader.types, tuple(key)
        tables = list(events.tables(fallback))
        sure = ~fallback.mask()
        batches = [
            ColumnBatch(table, batch.records, data, types, names, schemas.value.is_inferred).where(
                of_table & sure
            )
            for of_table, table in tables
            if (of_table & sure).any()
        ]
        return batches, chosen[~sure]

    def _reader(self, group: SchemaGroup) -> EventReader | None:
        return _once(self._readers, group.name, lambda: self._envelope.reader(group.schema))

    def _key_reader(self, group: SchemaGroup) -> KeyReader | None:
        return _once(self._key_readers, group.name, lambda: self._envelope.key_reader(group.schema))


def _once(known: dict[Hashable, _R | None], name: Hashable, make: Callable[[], _R]) -> _R | None:
    """What is made of a schema, once; None where its records cannot be read by columns."""
    if name not in known:
        if len(known) >= _READERS_MAX:
            known.clear()
        try:
            known[name] = make()
        except UNSUITED:
            known[name] = None
    return known[name]


class _Batch:
    """The records of a batch, of which some are looked at at a time."""

    def __init__(self, records: KafkaRecords) -> None:
        self.records = records
        self._parts = [part for part in records.data.to_batches() if part.num_rows]
        self._starts = np.cumsum([0, *(part.num_rows for part in self._parts)])
        self._most = max(1, min(_PIECE, _PIECE_BYTES * len(records) // max(1, records.data.nbytes)))

    def pieces(self, places: Any) -> Iterator[Any]:
        """The places, so many at a time."""
        return (places[start : start + self._most] for start in range(0, len(places), self._most))

    def rows(self, places: Any) -> Any:
        """The records at places that rise."""
        cuts = np.searchsorted(places, self._starts)
        taken = []
        for part, at, first, last in zip(
            self._parts, self._starts.tolist(), cuts[:-1], cuts[1:], strict=False
        ):
            if last - first == part.num_rows:
                taken.append(part)
            elif last > first:
                taken.append(part.take(pa.array(places[first:last] - at)))
        return taken[0] if len(taken) == 1 else pa.Table.from_batches(taken).combine_chunks().to_batches()[0]

    def are_like(self, places: Any, pattern: bytes) -> Any:
        """Those of the places whose values have a regular expression in them."""
        values = self.rows(places).column("value")
        return places[flags(pc.match_substring_regex(values, pattern))]

    def has_header(self, names: Sequence[str]) -> Any:
        """Which records have a header of one of these names, as booleans of NumPy."""
        found = np.zeros(len(self.records), bool)
        if not names:
            return found
        wanted = pa.array(names)
        for start, part in zip(self._starts.tolist(), self._parts, strict=False):
            headers = part.column("headers")
            named = headers.flatten()
            if len(named):
                told = pc.is_in(pc.struct_field(named, "key"), wanted)
                found[start + pc.list_parent_indices(headers).filter(told).to_numpy()] = True
        return found


@dataclass(frozen=True, slots=True)
class _Schemas:
    """The schemas of records: of their values and their keys."""

    value: SchemaGroup
    key: SchemaGroup | None

    def payloads(self, rows: Any) -> tuple[Any, Any, Any]:
        """The payloads of values and keys, and which records can be read as columns, as far as is known by then."""
        values, fit = self.value.payloads(rows.column("value"))
        if self.key is None:
            return values, None, fit
        keys, key_fit = self.key.payloads(rows.column("key"))
        return values, keys, fit & key_fit


def _doubt_nulls(columns: Iterable[pa.Array], fallback: RowFallback) -> None:
    """Doubt keys that may lack a field which others have."""
    for column in columns:
        fallback.where(pc.is_null(column))


def _doubt_large(columns: Iterable[pa.Array], fallback: RowFallback) -> None:
    """Doubt numbers that were read as binary ones, and may have been whole ones with more digits."""
    for column in columns:
        if pa.types.is_floating(column.type):
            fallback.where(pc.greater_equal(pc.abs(column), _EXACT))
