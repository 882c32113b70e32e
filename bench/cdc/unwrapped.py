"""Writes events as Debezium's connector for MySQL does behind ``ExtractNewRecordState``, in JSON without schemas.

``add.fields`` puts the position in columns, and deletes come as rows (``rewrite-with-tombstone``).  Bytes that are no JSON, a row
without its columns of the change and one of a table that no job has are among them: each is to be a dead letter.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

from bench.cdc.generator import ADDED, SHAPES, Event, Record, Row, partition_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unwrapped:
    """A key that changes is a delete and an insert."""

    def __init__(self) -> None:
        self.dead = 0
        self.ignored = 0
        self.has_nan = False

    def records(self, event: Event) -> list[Record]:
        keys = [*SHAPES[event.table].key]
        if event.op == "update" and event.before and any(event.before[one] != event.row[one] for one in keys):
            return [*self._deleted(event, event.before), _record(event, "c", event.row)]
        if event.op == "delete":
            return self._deleted(event, event.row)
        return [_record(event, {"load": "r", "insert": "c", "update": "u"}[event.op], event.row)]

    def column_added(self, table: str, column: str, at: datetime) -> list[Record]:
        """No record: the next one of the table has the column."""
        return []

    def poison(self, draw: random.Random, event: Event) -> list[Record]:
        self.dead += 1
        kind = draw.randrange(3)
        if kind == 0:
            return [_record(event, "c", event.row)._replace(value=b'{"id": 1')]
        if kind == 1:
            return [_record(event, "c", event.row, table="ghosts")]
        row = {name: _value(value) for name, value in event.row.items()}
        return [_record(event, "c", event.row)._replace(value=json.dumps(row).encode())]

    def _deleted(self, event: Event, row: Row) -> list[Record]:
        """The delete, and the tombstone for compaction."""
        gone = _record(event, "d", row)
        self.ignored += 1
        return [gone, gone._replace(value=None)]


def settings() -> dict[str, Any]:
    """What the job's configuration says about these records, which have no schemas."""
    tables = []
    for name, shape in SHAPES.items():
        columns = shape.columns | {column: made for _, table, column, made in ADDED if table == name}
        times = {column: "epoch_us" for column, made in columns.items() if made.kind == "timestamp"}
        decimals = {column: list(made.digits) for column, made in columns.items() if made.digits}
        tables.append(
            {"table": name, "source": f"shop.{name}", "timestamp_fields": times, "decimal_fields": decimals}
        )
    return {"envelope": "debezium-unwrapped-json", "decimal_handling_mode": "string", "tables": tables}


def _record(event: Event, op: str, row: Row, table: str | None = None) -> Record:
    key = {name: row[name] for name in SHAPES[event.table].key}
    change = {
        "__op": op, "__deleted": str(op == "d").lower(), "__connector": "mysql", "__db": "shop",
        "__table": table or event.table, "__snapshot": "true" if op == "r" else "false", "__file": "binlog.000007",
        "__pos": event.position, "__row": event.number, "__source_ts_ms": _value(event.at) // 1000,
    }  # fmt: skip
    value = {name: _value(one) for name, one in row.items()} | change
    where = partition_of(event.table, tuple(key.values()))
    return Record(where, json.dumps(key).encode(), json.dumps(value).encode())


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        delta = value - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
