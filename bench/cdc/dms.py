"""Writes events as AWS DMS does to Kafka in JSON, with ``IncludeTransactionDetails`` and ``BeforeImageSettings``.

Source: "Using Apache Kafka as a target for AWS DMS".  A column that is NULL is mostly left out (``IncludeNullAndEmpty`` is off
by default).  A record without transaction details, one of a table that nobody configured and bytes that are no JSON are among
them: each is to be a dead letter, and nothing of it may land.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime
from typing import Any

from bench.cdc.generator import SHAPES, Event, Record, Row, declared_tables, partition_of

_UNKNOWN = "ghosts"
_DETAILS = ("transaction-id", "transaction-record-id", "stream-position", "commit-timestamp")


class Dms:
    """DMS from PostgreSQL; the task's records are partitioned by primary key."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.dead = 0
        self.ignored = 0
        self.has_nan = False

    def records(self, event: Event) -> list[Record]:
        return [self._record(event, self._content(event))]

    def column_added(self, table: str, column: str, at: datetime) -> list[Record]:
        metadata = {
            "timestamp": _time(at), "record-type": "control", "operation": "add-column",
            "partition-key-type": "task-id", "schema-name": "public", "table-name": table,
        }  # fmt: skip
        control = {"columns": {column: {"type": "STRING"}}, "table-def": {"columns": {}}}
        self.ignored += 1
        return [Record(0, None, json.dumps({"control": control, "metadata": metadata}).encode())]

    def poison(self, draw: random.Random, event: Event) -> list[Record]:
        kind = draw.randrange(3)
        self.dead += 1
        if kind == 0:
            return [Record(draw.randrange(2), b"k", b'{"data": {"id": 1')]
        if kind == 1:
            stranger = self._content(event)
            stranger["metadata"]["table-name"] = _UNKNOWN
            return [self._record(event, stranger)]
        unordered = self._content(replace(event, op="update"))
        for name in _DETAILS:
            del unordered["metadata"][name]
        return [self._record(event, unordered)]

    def _record(self, event: Event, content: dict[str, Any]) -> Record:
        key = tuple(event.row[name] for name in SHAPES[event.table].key)
        name = f"public.{event.table}.{'.'.join(map(str, key))}"
        return Record(partition_of(event.table, key), name.encode(), json.dumps(content).encode())

    def _content(self, event: Event) -> dict[str, Any]:
        position = f"{event.position >> 32:08X}/{event.position & 0xFFFFFFFF:08X}"
        metadata: dict[str, Any] = {
            "timestamp": _time(event.at), "record-type": "data", "operation": event.op, "partition-key-type": "primary-key",
            "schema-name": "public", "table-name": event.table,
        }  # fmt: skip
        if event.op != "load":
            # Transaction ids come again, so nothing may be read from their order.
            metadata |= {
                "transaction-id": event.position % 65_536, "transaction-record-id": event.number,
                "stream-position": f"{position}.{event.number % 3}.{position}", "commit-timestamp": _time(event.at),
            }  # fmt: skip
        content: dict[str, Any] = {"data": self._data(event.row), "metadata": metadata}
        if event.op == "update" and event.before is not None:
            keys = SHAPES[event.table].key
            changed = {
                name: value
                for name, value in event.before.items()
                if name in keys or value != event.row.get(name)
            }
            content["before-image"] = self._data(changed)
        return content

    def _data(self, row: Row) -> dict[str, Any]:
        leaves_out = self._draw.random() < 0.7
        return {name: _value(value) for name, value in row.items() if value is not None or not leaves_out}


def settings() -> dict[str, Any]:
    """What the job's configuration says about these records: DMS tells no types."""
    return {"envelope": "dms-json", "tables": declared_tables("public")}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
