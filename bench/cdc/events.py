"""Makes events of rows as Debezium's connector for PostgreSQL writes them, in JSON with schemas and without or in Avro, and as
AWS DMS does.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastavro import parse_schema, schemaless_writer

from safewrite.cdc.connect.avro import HEADER
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change import KafkaRecord

Payload = dict[str, Any]
_FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "at"},
    {"type": "double", "optional": True, "field": "price"},
    {"type": "int32", "optional": True, "field": "quantity"},
    {"type": "string", "optional": True, "field": "note"},
]

_SOURCE = [
    *({"type": "string", "optional": True, "field": name} for name in ("connector", "db", "schema", "table")),
    *({"type": "int64", "optional": True, "field": name} for name in ("lsn", "txId", "ts_ms")),
]
_ENVELOPE = [
    {"type": "struct", "fields": _SOURCE, "optional": False, "field": "source"},
    {"type": "string", "optional": False, "field": "op"},
    {"type": "int64", "optional": True, "field": "ts_ms"},
]


@cache
def _schemas(table: str) -> tuple[str, str]:
    """The schemas of values and keys, as the converter writes them."""
    row = {"type": "struct", "fields": _FIELDS, "optional": True, "name": f"pg.public.{table}.Value"}
    event = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}, *_ENVELOPE]}
    key = {"type": "struct", "fields": _FIELDS[:1]}
    return json.dumps(event, separators=(",", ":")), json.dumps(key, separators=(",", ":"))


def _in_json(table: str, key: Payload, value: Payload) -> tuple[bytes, bytes]:
    event, named = _schemas(table)
    return coded_with(named, key), coded_with(event, value)


def coded_with(schema: str, payload: Payload) -> bytes:
    """JSON with its schema around it."""
    return b'{"schema":%s,"payload":%s}' % (schema.encode(), bare(payload))


def bare(payload: Payload) -> bytes:
    """JSON as Connect's converter writes it."""
    return json.dumps(payload, separators=(",", ":")).encode()


def in_bare_json(_: str, key: Payload, value: Payload) -> tuple[bytes, bytes]:
    """Without schemas: ``schemas.enable=false`` of Connect's converter."""
    return bare(key), bare(value)


def in_dms(table: str, key: Payload, value: Payload) -> tuple[bytes, bytes]:
    """The same row as AWS DMS tells it, with ``IncludeTransactionDetails``; updates have no before-image."""
    at, time = value["source"]["lsn"], "2026-01-01T00:00:00.000000Z"
    metadata = {
        "timestamp": time, "record-type": "data", "operation": {"c": "insert", "u": "update"}[value["op"]], "partition-key-type": "primary-key",
        "schema-name": "public", "table-name": table, "transaction-id": at % 65_536, "transaction-record-id": at,
        "stream-position": f"{at >> 32:08X}/{at & 0xFFFFFFFF:08X}.1.x", "commit-timestamp": time,
    }  # fmt: skip
    return f"public.{table}.{key['id']}".encode(), bare({"data": value["after"], "metadata": metadata})


_COLUMNS = {"int64": "long", "int32": "int", "string": "string", "double": "double"}


def _avro(fields: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """A schema of Connect's as Confluent's converter makes it, with NULL allowed but in what is named ``id``."""

    def one(field: dict[str, Any]) -> Any:
        kind: Any = _COLUMNS[field["type"]]
        kind = {"type": kind, "connect.name": field["name"]} if "name" in field else kind
        return kind if field["field"] == "id" else ["null", kind]

    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field["field"], "type": one(field)} for field in fields],
    }


AVRO: dict[int, dict[str, Any]] = {
    1: _avro(_FIELDS[:1], "Key"),
    2: {
        "type": "record", "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", _avro(_FIELDS, "Value")]}, {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": _avro(_SOURCE, "Source")}, {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]},
        ],
    },
}  # fmt: skip
"""Schemas of the registry by their ids, of keys and of values."""
_WRITERS = {number: parse_schema(copy.deepcopy(schema)) for number, schema in AVRO.items()}


def in_avro(_: str, key: Payload, value: Payload) -> tuple[bytes, bytes]:
    return _datum(1, key), _datum(2, value)


def _datum(number: int, value: Payload) -> bytes:
    out = io.BytesIO()
    out.write(HEADER.pack(0, number))
    schemaless_writer(out, _WRITERS[number], value)
    return out.getvalue()


@dataclass
class Events:
    """Events as Debezium's connector for PostgreSQL writes them, in JSON with schemas or another form."""

    offset: int = 0
    coded: Callable[[str, Payload, Payload], tuple[bytes, bytes]] = _in_json

    def batch(self, number: int, ids: Iterable[int], op: Callable[[int], str], table: int = 0) -> Batch:
        """One event for each id."""
        records = []
        for key in ids:
            self.offset += 1
            records.append(self._record(f"t{table}", key, op(key)))
        return Batch.of_records(number, records, {"topic": "id-1"})

    def _record(self, table: str, key: int, op: str) -> KafkaRecord:
        row: dict[str, Any] = {
            "id": key, "name": f"name {key}", "at": 1_700_000_000_000_000 + key, "price": key / 7, "quantity": key % 100,
            "note": None if key % 3 else "n" * 20,
        }  # fmt: skip
        offset = self.offset
        source = {"connector": "postgresql", "db": "d", "schema": "public", "table": table, "lsn": offset, "txId": offset, "ts_ms": 1_700_000_000_000 + offset}  # fmt: skip
        value = {"before": None, "after": row, "source": source, "op": op, "ts_ms": 1_700_000_000_000}
        return KafkaRecord("topic", 0, offset, *self.coded(table, {"id": key}, value))
