"""Fills a topic with inserts as Debezium writes them in JSON, each with an id of its own, and mostly with its whole schema."""

from __future__ import annotations

import json
from typing import Any

from bench.cdc.events import bare, coded_with
from bench.cdc.producer import Producer
from bench.servers.kafka import Kafka

TABLE = "items"
TOPIC = f"shop.public.{TABLE}"
PARTITIONS = 2
_ROW: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "at"},
    {"type": "double", "optional": True, "field": "price"},
    {"type": "int32", "optional": True, "field": "quantity"},
    {"type": "string", "optional": True, "field": "note"},
]
_SOURCE = [
    *({"type": "string", "optional": False, "field": one} for one in ("connector", "name", "db", "schema", "table")),
    *({"type": "int64", "optional": True, "field": one} for one in ("ts_ms", "lsn", "txId")),
    {"type": "string", "optional": True, "field": "snapshot"},
]  # fmt: skip
_VALUE = {
    "type": "struct", "optional": False, "name": f"{TOPIC}.Envelope",
    "fields": [
        {"type": "struct", "optional": True, "name": f"{TOPIC}.Value", "field": "before", "fields": _ROW},
        {"type": "struct", "optional": True, "name": f"{TOPIC}.Value", "field": "after", "fields": _ROW},
        {"type": "struct", "optional": False, "name": "io.debezium.connector.postgresql.Source", "field": "source", "fields": _SOURCE},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
}  # fmt: skip
_KEY = {"type": "struct", "optional": False, "name": f"{TOPIC}.Key", "fields": _ROW[:1]}


def fill(kafka: Kafka, producer: Producer, rows: int, *, schemas: bool = True) -> int:
    """Send the inserts of the ids from 0 on; the bytes of an average value.

    Args:
        schemas: whether each has its schema around it.
    """
    size = 0
    for number in range(rows):
        key, value = insert(number, schemas=schemas)
        producer.send(number % PARTITIONS, key, value)
        size += len(value)
    if (told := producer.flush()) != rows:
        raise RuntimeError(f"{rows} records were made, and the broker at {kafka.endpoint_url} took {told}")
    return size // max(1, rows)


def insert(number: int, *, schemas: bool = True) -> tuple[bytes, bytes]:
    """Key and value of one record."""
    at = 1_700_000_000_000 + number
    row = {
        "id": number, "name": f"name {number}", "at": at * 1000, "price": number / 7, "quantity": number % 100,
        "note": None if number % 3 else "n" * 20,
    }  # fmt: skip
    source = {
        "connector": "postgresql", "name": "shop", "db": "d", "schema": "public", "table": TABLE, "ts_ms": at,
        "lsn": 1000 + number, "txId": 1 + number, "snapshot": "false",
    }  # fmt: skip
    value = {"before": None, "after": row, "source": source, "op": "c", "ts_ms": at}
    if not schemas:
        return bare({"id": number}), bare(value)
    return coded_with(_KEY_SCHEMA, {"id": number}), coded_with(_VALUE_SCHEMA, value)


_KEY_SCHEMA, _VALUE_SCHEMA = (json.dumps(one, separators=(",", ":")) for one in (_KEY, _VALUE))
