"""Understands Debezium's envelope: one event is one change, two where it changes a key.

The payload and its Connect schema come from JSON or Avro alike; without a schema the values stay as JSON has them.
Sources: "Data change events" of Debezium's connectors; "Tombstone events" and "primary key updates" there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.connect.json import Part
from safewrite.cdc.connect.logical_types import UNREADABLE, Column, row_of
from safewrite.cdc.connect.misfits import Misfit, shortened, text_of
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.envelopes.source_position import (
    beginning_of,
    is_of_snapshot,
    of_debezium,
    or_none,
    with_offset,
)
from safewrite.cdc.records.change import (
    UNAVAILABLE,
    AmbiguousError,
    Change,
    Ignored,
    Op,
    Record,
    SourceTable,
    UndecodableError,
)

BEFORE, AFTER = "before", "after"
"""The fields of an event that have its rows."""
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers by which the delete and the insert of a changed key name each other."""
_OPS = {"c": Op.UPSERT, "u": Op.UPSERT, "r": Op.UPSERT, "d": Op.DELETE, "t": Op.TRUNCATE}


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a schema, made once for all events that have it."""

    columns: Mapping[str, Column]
    types: Mapping[str, pa.DataType]
    version: str | None = None


YEAR_9999_MS = 253_402_300_800_000
NO_SHAPE = Shape({}, {})
_SAME_MAX = 1000
_NUMBERS = frozenset({int, float, bool, Decimal})
"""Types of values that stand in for no other."""


class Debezium:
    """Makes changes of events.  Not for several threads at once: it remembers schemas."""

    def __init__(self, placeholder: Placeholder) -> None:
        self._placeholder = placeholder
        self._shapes: dict[str, Shape] = {}
        self._same: dict[int, tuple[Mapping[str, Any], Shape]] = {}
        """The shape of a schema that is the same object as before; it is kept, so that no other gets its id."""

    def changes(
        self, record: Record, key: Part | None, value: Part | None, no_key: str | None = None
    ) -> Sequence[Change] | Ignored:
        """What a record says.

        Args:
            no_key: why its key cannot be read.

        Raises:
            UndecodableError: no event of Debezium's.
        """
        if value is None or value.payload is None:
            return Ignored(record, "tombstone")  # the delete came as an event of its own before it
        event = value.payload
        if not isinstance(event, dict):
            raise UndecodableError(f"the value is no event but {type(event).__name__}")
        if kind := _beside_rows(event):
            return Ignored(record, kind)
        op = _OPS.get(str(event.get("op")))
        source = event.get("source")
        if op is None or not isinstance(source, dict):
            raise UndecodableError(
                f"the value has no op and source of Debezium's envelope (op {event.get('op')!r}); events that were unwrapped "
                "(ExtractNewRecordState) have lost their position"
            )
        table = _table_of(source)
        position, unordered = or_none(of_debezium, source, event.get("transaction"))
        shape = self._shape(value)
        keys, why = self.key_of(key)
        change = Change(
            op,
            table,
            with_offset(position, record.offset),
            record,
            keys=keys,
            no_key=no_key or why,
            before=self._row(event.get(BEFORE), shape, source),
            after=self._row(event.get(AFTER), shape, source),
            types=shape.types,
            source_time_ms=_milliseconds(source.get("ts_ms"), event.get("ts_ms")),
            schema_version=shape.version,
            unordered=unordered,
            beginning=None if unordered else beginning_of(source),
            is_update=event.get("op") == "u",
            is_read=event.get("op") == "r" or is_of_snapshot(source),
        )
        return self._checked(change, key)

    def _checked(self, change: Change, key: Part | None) -> list[Change]:
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

    def _moved(self, moved: dict[str, Any] | None, key: Part | None) -> dict[str, Any] | None:
        """The key of a header, read as the record's own key is; None if it cannot be."""
        try:
            return (
                None
                if moved is None
                else self._key(Part(moved, key.schema, key.version) if key else Part(moved))
            )
        except UndecodableError:
            return None

    # --- rows and keys ----------------------------------------------------------------------------
    def _key(self, key: Part) -> dict[str, Any]:
        columns = {} if key.schema is None else self._columns(key.schema, key.version).columns
        return {
            name: value if value is None else _read(name, value, columns.get(name))
            for name, value in key.payload.items()
            if not name.startswith("__dbz__")  # what routing of many tables into one topic adds
        }

    def key_of(self, key: Part | None) -> tuple[dict[str, Any] | None, str | None]:
        """The columns of a key, or why there are none."""
        if key is None:
            return None, None
        if not isinstance(key.payload, dict):
            return None, (
                f"the record's key is no struct but {type(key.payload).__name__}; set key.converter to the converter of the values, "
                "or name the table's primary_key"
            )
        try:
            return self._key(key), None
        except UNREADABLE as error:
            return None, f"the schema of the record's key cannot be read: {error}"

    def _row(self, row: Any, shape: Shape, source: Mapping[str, Any]) -> dict[str, Any] | None:
        if row is None:
            return None
        if not isinstance(row, dict):
            raise UndecodableError(
                f"a row of the connector {source.get('connector')!r} is no struct but {type(row).__name__}: its events are not "
                "understood here"
            )
        stands_in, columns = self._placeholder.stands_in, shape.columns
        found: dict[str, Any] = {}
        for name, value in row.items():
            if value is None:
                found[name] = None
                continue
            column = columns.get(name)
            try:
                if type(value) not in _NUMBERS and stands_in(value):
                    found[name] = UNAVAILABLE
                else:
                    found[name] = value if column is None else column.read(value)
            except UNREADABLE as error:
                found[name] = _misfit(name, value, column, error)
        return found

    # --- schemas ----------------------------------------------------------------------------------
    def _shape(self, value: Part) -> Shape:
        schema = value.schema
        if schema is None:
            return NO_SHAPE
        return self._once(schema, lambda: self._shape_of_row(schema, value.version))

    def _shape_of_row(self, schema: Mapping[str, Any], version: str | None) -> Shape:
        fields = {str(one.get("field")): one for one in schema.get("fields") or ()}
        row = fields.get(AFTER) or fields.get(BEFORE)
        if row is None:
            raise UndecodableError("the schema has neither before nor after")
        return self._columns(row, version)

    def _columns(self, schema: Mapping[str, Any], version: str | None) -> Shape:
        return self._once(schema, lambda: self._shape_of(schema, version))

    def _once(self, schema: Mapping[str, Any], make: Callable[[], Shape]) -> Shape:
        """What is made of a schema, once for each object: a batch has few of them, and many records."""
        same = self._same.get(id(schema))
        if same is not None and same[0] is schema:
            return same[1]
        if len(self._same) > _SAME_MAX:
            self._same.clear()
        made = make()
        self._same[id(schema)] = (schema, made)
        return made

    def _shape_of(self, schema: Mapping[str, Any], version: str | None) -> Shape:
        known = version if version is not None else json.dumps(schema, sort_keys=True, separators=(",", ":"))
        known = f"{schema.get('name')}:{known}"
        if known not in self._shapes:
            columns = row_of(schema)
            types = {
                name: column.type for name, column in columns.items() if not pa.types.is_null(column.type)
            }
            self._shapes[known] = Shape(columns, types, version or f"crc:{zlib.crc32(known.encode()):08x}")
        return self._shapes[known]


def _read(name: str, value: Any, column: Column | None) -> Any:
    try:
        return value if column is None else column.read(value)
    except UNREADABLE as error:
        return _misfit(name, value, column, error)


def _misfit(name: str, value: Any, column: Column | None, error: Exception) -> Misfit:
    """What stands for a value that cannot be read: it matters only to a table that needs it."""
    why = str(error)
    if isinstance(error, AmbiguousError):
        return Misfit(value, f"column {name!r}: {why}", None)
    if column is not None and not isinstance(error, UndecodableError):
        why = f"{shortened(value)} is no {column.type} ({error})"
    if column is None or pa.types.is_null(column.type):
        return Misfit(value, f"column {name!r}: {why}", text_of)
    return Misfit(value, f"column {name!r}: {why}", column.text_of, column.floor)


def _table_of(source: Mapping[str, Any]) -> SourceTable:
    """A source's name of a table; MySQL has databases only."""
    table = source.get("table")
    if not isinstance(table, str) or not table:
        raise UndecodableError(
            f"the event's source names no table; events of the connector {source.get('connector')!r} are not understood here"
        )
    return SourceTable(str(source.get("db") or ""), str(source.get("schema") or ""), table)


def _beside_rows(event: Mapping[str, Any]) -> str | None:
    """What an event is that Debezium writes beside those of rows; None for all others."""
    if "op" in event:
        return "message" if event["op"] == "m" else None
    if "ddl" in event and "source" in event:
        return "control"
    if event.get("status") in {"BEGIN", "END"} and "id" in event:
        return "transaction"
    return "heartbeat" if set(event) == {"ts_ms"} else None


def _header(record: Record, name: str) -> dict[str, Any] | None:
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


def _milliseconds(*values: Any) -> int | None:
    """The first that is a time of a clock; it orders nothing, so another value is no fault."""
    return next((value for value in values if type(value) is int and 0 <= value < YEAR_9999_MS), None)
