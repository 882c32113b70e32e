"""Reads records that are rows by themselves, one by one and as columns; their source is the topic, their order Kafka's offset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError
from safewrite.cdc.connect.converters import Converter, Grouped, JsonConverter, Of, RegistryConverter
from safewrite.cdc.connect.inference import Kinds
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.debezium.rows import NO_SHAPE, DebeziumRows
from safewrite.cdc.envelopes.envelope import Positions
from safewrite.cdc.envelopes.event_fields import (
    NoKeys,
    SchemaReader,
    clock,
    given_by,
    milliseconds,
    tables_of,
    with_offsets,
)
from safewrite.cdc.envelopes.position import LOWEST, with_offset
from safewrite.cdc.records.change import Ignored, KafkaRecord, Op, SourceChange, SourceTable, UndecodableError
from safewrite.cdc.records.records import KafkaRecords

_ANY_TABLE = r"(?P<table>^$)"
"""A topic has the records of one table."""


def _plain(kinds: Kinds) -> Kinds:
    """The kinds of a record without objects in it, of which texts are made as they were written."""
    if any(isinstance(one, dict) for one in kinds.values()):
        raise UnsuitedError("objects in a record")
    return kinds


def _keyless(records: KafkaRecords) -> Grouped:
    return [], np.zeros(len(records), "int64")  # as if there were none


class KeylessJson(JsonConverter):
    """Records in JSON, with schemas around them or without; their keys are not read."""

    def __init__(self, route_field: str | None) -> None:
        tables = (
            _ANY_TABLE if route_field is None else rf'"{re.escape(route_field)}"\s*:\s*"(?P<table>[^"\\]*)"'
        )
        super().__init__(_plain, tables)

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        return _keyless(records) if name == "key" else super().groups(records, name, fewest)


class KeylessRegistry(RegistryConverter):
    """Records in Avro or Protobuf; their keys are not read."""

    def groups(self, records: KafkaRecords, name: Of, fewest: int) -> Grouped:
        return _keyless(records) if name == "key" else super().groups(records, name, fewest)


class EventRecords(NoKeys):
    """Records that are rows.  Not for several threads at once: it remembers schemas."""

    def __init__(self, converter: Converter, route_field: str | None = None) -> None:
        self.converter, self._route = converter, route_field
        self.rows = DebeziumRows(None)

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Ignored:
        """The row of a record.

        Raises:
            UndecodableError: it is none.
        """
        value = self.converter.part(record.value, "value")
        if value is None or value.payload is None:
            return Ignored(record, "no value")
        if not isinstance(value.payload, dict):
            raise UndecodableError(
                f"the value is of type {type(value.payload).__name__}, and no row of fields"
            )
        shape = NO_SHAPE if value.schema is None else self.rows.shape(value.schema, value.version)
        row = self.rows.row(value.payload, shape, record.topic)
        change = SourceChange(
            Op.UPSERT,
            self._source(record, row),
            with_offset(LOWEST, record.offset),
            record,
            after=row,
            types=shape.types,
            source_time_ms=milliseconds(record.timestamp_ms),
        )
        return [change]

    def _source(self, record: KafkaRecord, row: Mapping[str, Any] | None) -> SourceTable:
        if self._route is None:
            return SourceTable("", "", record.topic)
        table = (row or {}).get(self._route)
        if not isinstance(table, str) or not table:
            raise UndecodableError(
                f"its field {self._route!r}, which names the table (route_field), has no text"
            )
        return SourceTable("", record.topic, table)

    def reader(self, schema: Mapping[str, Any]) -> EventsReader:
        return EventsReader.of(schema, self.converter, self._route)


@dataclass(frozen=True, slots=True)
class EventsReader(SchemaReader):
    """How records of one schema are read."""

    route: str | None

    @classmethod
    def of(cls, schema: Mapping[str, Any], converter: Converter, route: str | None) -> EventsReader:
        """The reader of records that have this schema.

        Raises:
            UnsuitedError: they cannot be read by columns.
        """
        return cls(converter, given_by(schema, converter), RowReader.of(schema, converter.carried), route)

    def read(self, payloads: Any, records: pa.RecordBatch, fallback: RowFallback) -> EventRows:
        rows = self.converter.parsed(payloads, self.given)
        fallback.where(pc.is_null(rows))
        return EventRows(records, self.rows.read(rows, fallback), self.route)


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of records of one schema."""

    records: pa.RecordBatch
    after: Mapping[str, pa.Array]
    route: str | None

    @property
    def before(self) -> Mapping[str, pa.Array]:
        return {name: pa.nulls(len(values), values.type) for name, values in self.after.items()}

    def operations(self, fallback: RowFallback, *, has_key: bool) -> pa.Array:
        return pa.repeat(pa.scalar("c"), len(self.records))

    def times(self) -> pa.Array:
        return clock(self.records.column("timestamp_ms"))

    def positions(self, offsets: pa.Array, fallback: RowFallback) -> Positions:
        core = pa.repeat(pa.scalar(LOWEST), len(self.records))
        return Positions(with_offsets(core, offsets), pa.nulls(len(self.records), pa.int8()))

    def tables(self, fallback: RowFallback) -> Iterator[tuple[Any, SourceTable]]:
        topics = self.records.column("topic")
        nothing = pa.nulls(len(topics), pa.string())
        if self.route is None:
            return tables_of(nothing, nothing, topics, fallback)
        named = self.after.get(self.route)
        if named is None or not pa.types.is_string(named.type):
            raise UnsuitedError("records without a text that names their table")
        return tables_of(nothing, topics, named, fallback)
