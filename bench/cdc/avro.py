"""Writes events as Debezium's connector for MySQL does with Confluent's Avro converter.

Among them are bytes without a schema id, an id that no registry knows, and a table that nobody configured: each is to be a
dead letter, and nothing of it may land.
"""

from __future__ import annotations

import io
import random
import struct
from datetime import UTC, datetime
from typing import Any

from fastavro import parse_schema, schemaless_writer

from bench.cdc.generator import ADDED, SHAPES, Column, Event, Record, Row, partition_of
from bench.cdc.registry import Registry

_UNKNOWN_ID = 4_000_000
_PLAIN = {"int64": "long", "string": "string", "boolean": "boolean", "double": "double"}
_SOURCE = {
    "type": "record", "name": "Source", "namespace": "io.debezium.connector.mysql",
    "fields": [
        *({"name": name, "type": "string"} for name in ("connector", "name", "snapshot", "db", "table", "file")),
        *({"name": name, "type": "long"} for name in ("ts_ms", "pos", "row")),
    ],
}  # fmt: skip


class DebeziumAvro:
    """A table gets another schema id with each column that is added; a key that changes is a delete and an insert."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._columns = {name: dict(shape.columns) for name, shape in SHAPES.items()}
        self._keys = {name: self._key_schema(name) for name in SHAPES}
        self._values = {name: self._value_schema(name) for name in SHAPES}
        self.dead = 0
        self.ignored = 0
        self.has_nan = True

    def records(self, event: Event) -> list[Record]:
        keys = [*SHAPES[event.table].key]
        if event.op == "update" and event.before and any(event.before[one] != event.row[one] for one in keys):
            return [*self._deleted(event, event.before), self._record(event, "c", None, event.row)]
        if event.op == "delete":
            return self._deleted(event, event.row)
        op = {"load": "r", "insert": "c", "update": "u"}[event.op]
        return [self._record(event, op, event.before, event.row)]

    def column_added(self, table: str, column: str, at: datetime) -> list[Record]:
        """No record: the next one of the table has another schema."""
        made = next(made for _, where, name, made in ADDED if (where, name) == (table, column))
        self._columns[table][column] = made
        self._values[table] = self._value_schema(table)
        return []

    def poison(self, draw: random.Random, event: Event) -> list[Record]:
        self.dead += 1
        good = self._record(event, "c", None, event.row, draw.choice([event.table, "ghosts"]))
        assert good.value is not None
        if b"ghosts" in good.value:
            return [good]
        if draw.random() < 0.5:
            return [good._replace(value=good.value[5:])]
        return [good._replace(value=struct.pack(">bI", 0, _UNKNOWN_ID) + good.value[5:])]

    def _deleted(self, event: Event, row: Row) -> list[Record]:
        """The delete, and the tombstone for compaction."""
        gone = self._record(event, "d", row, None)
        self.ignored += 1
        return [gone, gone._replace(value=None)]

    def _record(
        self, event: Event, op: str, before: Row | None, after: Row | None, table: str | None = None
    ) -> Record:
        row = after or before or {}
        key = {name: row[name] for name in SHAPES[event.table].key}
        source = {
            "connector": "mysql", "name": "shop", "snapshot": "true" if op == "r" else "false", "db": "shop",
            "table": table or event.table, "file": "binlog.000007", "ts_ms": _milliseconds(event.at),
            "pos": event.position, "row": event.number,
        }  # fmt: skip
        value = {
            "before": self._row(event.table, before), "after": self._row(event.table, after), "source": source, "op": op,
            "ts_ms": _milliseconds(event.at),
        }  # fmt: skip
        where = partition_of(event.table, tuple(key.values()))
        return Record(
            where, self._coded(*self._keys[event.table], key), self._coded(*self._values[event.table], value)
        )

    def _coded(self, number: int, schema: Any, datum: Any) -> bytes:
        """A datum as the converter writes it."""
        return coded(number, schema, datum)

    def _row(self, table: str, row: Row | None) -> Row | None:
        if row is None:
            return None
        names = [*SHAPES[table].key, *self._columns[table]]
        return {name: _value(row.get(name)) for name in names}

    # --- schemas ----------------------------------------------------------------------------------
    def _key_schema(self, table: str) -> tuple[int, Any]:
        fields = [{"name": name, "type": _PLAIN[made.kind]} for name, made in SHAPES[table].key.items()]
        return self._known({"type": "record", "name": "Key", "namespace": f"shop.{table}", "fields": fields})

    def _value_schema(self, table: str) -> tuple[int, Any]:
        row = {"type": "record", "name": "Value", "fields": self._fields(table)}
        around = [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": _SOURCE}, {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ]  # fmt: skip
        schema = {"type": "record", "name": "Envelope", "namespace": f"shop.{table}", "fields": around}
        return self._known(schema)

    def _fields(self, table: str) -> list[dict[str, Any]]:
        """Those of a row."""
        fields: list[dict[str, Any]] = [
            {"name": name, "type": _PLAIN[made.kind]} for name, made in SHAPES[table].key.items()
        ]
        fields += [
            {"name": name, "type": ["null", _type(made)], "default": None}
            for name, made in self._columns[table].items()
        ]
        return fields

    def _known(self, schema: dict[str, Any]) -> tuple[int, Any]:
        return self._registry.add(schema), parse_schema(schema)


def settings(registry: Registry) -> dict[str, Any]:
    """What the job's configuration says about these records; the types are in their schemas."""
    tables = [{"table": name, "source": f"shop.{name}"} for name in SHAPES]
    return {"envelope": "debezium-avro", "registry": {"url": registry.url}, "tables": tables}


def _type(made: Column) -> Any:
    if made.digits is not None:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": made.digits[0],
            "scale": made.digits[1],
        }
    if made.kind == "timestamp":
        return {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    return _PLAIN[made.kind]


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return _milliseconds(value) * 1000 + value.microsecond % 1000
    return value


def _milliseconds(at: datetime) -> int:
    delta = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def coded(number: int, schema: Any, datum: Any) -> bytes:
    """A datum as Confluent's converter writes it."""
    body = io.BytesIO()
    schemaless_writer(body, schema, datum)
    return struct.pack(">bI", 0, number) + body.getvalue()
