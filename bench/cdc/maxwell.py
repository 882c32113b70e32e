"""Writes events as Maxwell does to Kafka in JSON, with ``output_binlog_position``, ``output_xoffset`` and ``output_ddl``.

Source: "Data Format" of Maxwell's documentation; records are partitioned by primary key.  A record without a position, one of a
table that no job has and bytes that are no JSON are among them: each is to be a dead letter, and nothing of it may land.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime
from typing import Any

from bench.cdc.generator import SHAPES, Event, Record, Row, declared_tables, partition_of

_UNKNOWN = "ghosts"


class Maxwell:
    """Maxwell of one MySQL; the first rows come by a bootstrap, and have no position."""

    def __init__(self) -> None:
        self.dead = 0
        self.ignored = 0
        self.has_nan = False

    def records(self, event: Event) -> list[Record]:
        return [_record(event, _content(event))]

    def column_added(self, table: str, column: str, at: datetime) -> list[Record]:
        altered = {"type": "table-alter", "database": "shop", "table": table, "ts": int(at.timestamp()), "sql": f"ALTER TABLE {table}"}  # fmt: skip
        self.ignored += 1
        return [Record(0, None, json.dumps(altered).encode())]

    def poison(self, draw: random.Random, event: Event) -> list[Record]:
        kind = draw.randrange(3)
        self.dead += 1
        if kind == 0:
            return [Record(draw.randrange(2), b"k", b'{"database": "shop", "data": {')]
        if kind == 1:
            return [_record(event, _content(event) | {"table": _UNKNOWN})]
        unordered = _content(replace(event, op="update"))
        del unordered["position"]
        return [_record(event, unordered)]


def settings() -> dict[str, Any]:
    """What the job's configuration says about these records: Maxwell names no types."""
    return {"envelope": "maxwell-json", "tables": declared_tables("shop")}


def _record(event: Event, content: dict[str, Any]) -> Record:
    key = tuple(event.row[name] for name in SHAPES[event.table].key)
    said = {"database": "shop", "table": event.table} | {
        f"pk.{name}": event.row[name] for name in SHAPES[event.table].key
    }
    value = json.dumps(content, separators=(",", ":"))
    return Record(partition_of(event.table, key), json.dumps(said).encode(), value.encode())


def _content(event: Event) -> dict[str, Any]:
    kind = "bootstrap-insert" if event.op == "load" else event.op
    content: dict[str, Any] = {
        "database": "shop", "table": event.table, "type": kind, "ts": int(event.at.timestamp()),
        "data": _row(event.row),
    }  # fmt: skip
    if event.op != "load":
        content |= {"xid": event.position % 65_536, "xoffset": event.number, "position": f"binlog.000007:{event.position}"}  # fmt: skip
    if event.op == "update" and event.before is not None:
        old = {name: value for name, value in event.before.items() if value != event.row.get(name)}
        content["old"] = _row(old)
    return content


def _row(row: Row) -> Row:
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    """A value as Maxwell has it: times have no zone.  Booleans stay what they are, though MySQL has numbers for them."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return value if value is None or isinstance(value, int | float | str) else str(value)
