"""Understands Debezium's envelope: one event is one change, two where it changes a key.

The payload and its Connect schema come from JSON or Avro alike; without a schema the values stay as JSON has them.
Sources: "Data change events" of Debezium's connectors; "Tombstone events" and "primary key updates" there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.json import ConnectValue
from safewrite.cdc.connect.logical_types.column import UNREADABLE
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.envelopes.debezium.event_columns import DebeziumReader, KeyColumns
from safewrite.cdc.envelopes.debezium.positions import beginning_of, is_of_snapshot, of_debezium
from safewrite.cdc.envelopes.debezium.rows import NO_SHAPE, DebeziumRows, RowShape
from safewrite.cdc.envelopes.envelope import Tombstone
from safewrite.cdc.envelopes.event_fields import milliseconds
from safewrite.cdc.envelopes.position import or_none, with_offset
from safewrite.cdc.envelopes.tombstones import names_of
from safewrite.cdc.records.change import Ignored, KafkaRecord, Op, SourceChange, SourceTable, UndecodableError
from safewrite.cdc.records.change_set import AFTER, BEFORE

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers by which the delete and the insert of a changed key name each other."""
_OPS = {"c": Op.UPSERT, "u": Op.UPSERT, "r": Op.UPSERT, "d": Op.DELETE, "t": Op.TRUNCATE}


class Debezium:
    """Debezium's events.  Not for several threads at once: it remembers schemas."""

    row_headers: Sequence[str] = (NEW_KEY, OLD_KEY)
    delete_headers: Sequence[str] = ()

    def __init__(self, converter: Converter, placeholder: Placeholder) -> None:
        self.converter = converter
        self.placeholder = placeholder
        self.rows = DebeziumRows(placeholder)

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Tombstone | Ignored:
        value = self.converter.part(record.value, "value")
        if value is None or value.payload is None:
            return Ignored(record, "tombstone")  # the delete came as an event of its own before it
        event = value.payload
        if not isinstance(event, dict):
            raise UndecodableError(f"the value is no event but {type(event).__name__}")
        if kind := _kind_without_rows(event):
            return Ignored(record, kind)
        return self.of_event(record, event, lambda: self._shape(value))

    def of_event(
        self, record: KafkaRecord, event: Mapping[str, Any], shape_of: Callable[[], RowShape]
    ) -> list[SourceChange]:
        """The changes of an event, whose rows have the columns of a shape."""
        op = _OPS.get(str(event.get("op")))
        source = event.get("source")
        if op is None or not isinstance(source, dict):
            raise UndecodableError(
                f"the value has no op and source of Debezium's envelope (op {event.get('op')!r}); events that were unwrapped "
                "(ExtractNewRecordState) are of envelope debezium-unwrapped-json or debezium-unwrapped-avro"
            )
        table = _table_of(source)
        position, unordered = or_none(of_debezium, source, event.get("transaction"))
        shape = shape_of()
        key, no_key = self._key_part(record)
        keys, why = self.rows.key_of(key)
        change = SourceChange(
            op,
            table,
            with_offset(position, record.offset),
            record,
            keys=keys,
            no_key=no_key or why,
            before=self.rows.row(event.get(BEFORE), shape, source.get("connector")),
            after=self.rows.row(event.get(AFTER), shape, source.get("connector")),
            types=shape.types,
            source_time_ms=milliseconds(source.get("ts_ms"), event.get("ts_ms")),
            unordered=unordered,
            beginning=None if unordered else beginning_of(source),
            is_update=event.get("op") == "u",
            is_read=event.get("op") == "r" or is_of_snapshot(source),
        )
        return self._checked(change, key)

    def reader(self, schema: Mapping[str, Any]) -> DebeziumReader:
        return DebeziumReader.of(schema, self.converter, self.placeholder)

    def key_reader(self, schema: Mapping[str, Any]) -> KeyColumns:
        return KeyColumns.of(schema, self.converter)

    def tombstone(self, record: KafkaRecord, is_after: bool) -> Tombstone:
        try:
            part = self.converter.part(record.key, "key")
            keys, fault = self.rows.key_of(part)
        except UNREADABLE as error:
            why = f"the record's key cannot be read: {error}"
            return Tombstone(record, None, (record.topic,), is_after, why)
        names = (record.topic,) if part is None else names_of(record.topic, part.payload, part.name)
        return Tombstone(record, keys, names, is_after, fault)

    def _key_part(self, record: KafkaRecord) -> tuple[ConnectValue | None, str | None]:
        """The key of a record, or why it cannot be read: it matters only to a table without a primary_key."""
        try:
            return self.converter.part(record.key, "key"), None
        except UndecodableError as error:
            return None, (
                f"the record's key cannot be read: {error}; set key.converter to the converter of the values, or name the "
                "table's primary_key"
            )

    def _checked(self, change: SourceChange, key: ConnectValue | None) -> list[SourceChange]:
        if change.op is Op.TRUNCATE:
            return [replace(change, keys=None)]
        if change.op is Op.UPSERT and change.after is None:
            raise UndecodableError("the event has no row after the change")
        if change.keys is None and change.op is Op.DELETE and change.before is None:
            why = "it has neither a key nor a row before the change"
            raise UndecodableError(f"the event names no row: {change.no_key or why}")
        header = NEW_KEY if change.op is Op.DELETE else OLD_KEY
        moved = self._moved(_header(change.record, header), key)
        return [change if moved is None else replace(change, moved=moved)]

    def _moved(self, moved: dict[str, Any] | None, key: ConnectValue | None) -> dict[str, Any] | None:
        """The key of a header, read as the record's own key is; None if it cannot be."""
        if moved is None:
            return None
        try:
            return self.rows.columns_of_key(replace(key, payload=moved) if key else ConnectValue(moved))
        except UndecodableError:
            return None

    def _shape(self, value: ConnectValue) -> RowShape:
        schema = value.schema
        if schema is None:
            return NO_SHAPE
        return self.rows.once(schema, lambda: self._shape_of_row(schema, value.version))

    def _shape_of_row(self, schema: Mapping[str, Any], version: str | None) -> RowShape:
        fields = {str(one.get("field")): one for one in schema.get("fields") or ()}
        row = fields.get(AFTER) or fields.get(BEFORE)
        if row is None:
            raise UndecodableError("the schema has neither before nor after")
        return self.rows.shape(row, version)


def _table_of(source: Mapping[str, Any]) -> SourceTable:
    """A source's name of a table; MySQL has databases only."""
    table = source.get("table")
    if not isinstance(table, str) or not table:
        raise UndecodableError(
            f"the event's source names no table; events of the connector {source.get('connector')!r} are not understood here"
        )
    return SourceTable(str(source.get("db") or ""), str(source.get("schema") or ""), table)


def _kind_without_rows(event: Mapping[str, Any]) -> str | None:
    """What an event is without a row; None for all others."""
    if "op" in event:
        return "message" if event["op"] == "m" else None
    if "ddl" in event and "source" in event:
        return "control"
    if event.get("status") in {"BEGIN", "END"} and "id" in event:
        return "transaction"
    return "heartbeat" if set(event) == {"ts_ms"} else None


def _header(record: KafkaRecord, name: str) -> dict[str, Any] | None:
    """A header that Connect's JSON converter wrote, with or without its schema."""
    for found, value in record.headers:
        if found == name and value is not None:
            try:
                content = json.loads(value)
            except (ValueError, RecursionError):
                return None  # Avro: the delete and the insert are events of their own in any case
            if isinstance(content, dict) and set(content) == {"schema", "payload"}:
                content = content["payload"]
            return content if isinstance(content, dict) else None
    return None
