"""Reads the payloads of Debezium's events of one schema as columns: what ``events`` does event by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError, fields_of
from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.envelopes.debezium.position_columns import positions_of
from safewrite.cdc.envelopes.debezium.rows import ROUTED
from safewrite.cdc.envelopes.envelope import Positions
from safewrite.cdc.envelopes.event_fields import (
    Fields,
    SchemaReader,
    clock,
    fields,
    given_by,
    number_of,
    tables_of,
    text_of,
)
from safewrite.cdc.records.change import SourceTable
from safewrite.cdc.records.change_set import AFTER, BEFORE

_OPS = pa.array(["c", "u", "r", "d"])
TABLES = r'"source":\{[^{}]*"table":"(?P<table>[^"\\]*)"'
"""Where an event in JSON names its table."""


@dataclass(frozen=True, slots=True)
class KeyColumns(SchemaReader):
    """How keys of one schema are read."""

    @classmethod
    def of(cls, schema: Mapping[str, Any], converter: Converter) -> Self:
        """The reader of a key's schema."""
        return cls(converter, given_by(schema, converter), RowReader.of(schema, converter.carried))

    def read(self, payloads: Any, fallback: RowFallback) -> dict[str, pa.Array]:
        """The columns of keys."""
        found = self.rows.read(self.converter.parsed(payloads, self.given), fallback)
        return {name: column for name, column in found.items() if not name.startswith(ROUTED)}


@dataclass(frozen=True, slots=True)
class DebeziumReader(SchemaReader):
    """How events of one schema are read."""

    @classmethod
    def of(cls, schema: Mapping[str, Any], converter: Converter, placeholder: Placeholder) -> Self:
        """The reader of an envelope's schema.

        Raises:
            UnsuitedError: its events cannot be read by columns.
        """
        found = {str(one.get("field")): one for one in schema["fields"]}
        row, before, carried = found[AFTER], found[BEFORE], converter.carried
        rows = RowReader.of(row, carried, placeholder)
        if (
            fields_of(before, carried) != fields_of(row, carried)
            or RowReader.of(before, carried).types != rows.types
        ):
            raise UnsuitedError("rows before and after a change have other schemas")
        given = pa.schema(fields_of(schema, carried))
        if not {"source", "op"} <= set(given.names):
            raise UnsuitedError("no envelope of Debezium")
        return cls(converter, given, rows)

    def read(self, payloads: Any, _: pa.RecordBatch, fallback: RowFallback) -> Events:
        found = self.fields(payloads)
        rows = {name: self.rows.read(found[name], fallback) for name in (BEFORE, AFTER)}
        return Events(found, rows[BEFORE], rows[AFTER])


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one schema: what they say of the change, and the columns of their rows."""

    said: Fields
    before: Mapping[str, pa.Array]
    after: Mapping[str, pa.Array]

    def operations(self, fallback: RowFallback, *, has_key: bool) -> pa.Array:
        op = self.said["op"]
        deletes = pc.fill_null(pc.equal(op, "d"), False)
        fallback.unless(pc.is_in(op, _OPS))
        # A delete with a row after it, or an upsert without one.
        fallback.where(pc.equal(deletes, pc.is_valid(self.said[AFTER])))
        if not has_key:
            fallback.where(pc.and_(deletes, pc.is_null(self.said[BEFORE])))
        return pc.if_else(deletes, "d", pc.if_else(pc.equal(op, "u"), "u", "c"))

    def times(self) -> pa.Array:
        own = number_of(fields(self.said["source"]), "ts_ms", len(self.said["op"]))
        told = number_of(self.said, "ts_ms", len(self.said["op"]))
        return pc.coalesce(clock(own), clock(told))

    def positions(self, offsets: pa.Array, fallback: RowFallback) -> Positions:
        connectors = pc.unique(self._source("connector")).to_pylist()
        if len(connectors) != 1:
            raise UnsuitedError("events of several connectors")
        said = self.said
        return positions_of(str(connectors[0]), said["source"], said.get("transaction"), offsets, fallback)

    def tables(self, fallback: RowFallback) -> Iterator[tuple[Any, SourceTable]]:
        return tables_of(self._source("db"), self._source("schema"), self._source("table"), fallback)

    def _source(self, name: str) -> pa.Array:
        return text_of(fields(self.said["source"]), name, len(self.said["op"]))
