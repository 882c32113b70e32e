"""Events as Debezium and AWS DMS write them, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from safewrite.cdc.change import Record
from safewrite.cdc.decoding import Decoded, Decoder, Format

CUSTOMER: list[dict[str, Any]] = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
]


def record(
    value: Any, key: Any = None, *, offset: int = 0, headers: Mapping[str, Any] | None = None, **where: Any
) -> Record:
    """A record with these as JSON; bytes stay as they are."""

    def coded(content: Any) -> bytes | None:
        return content if content is None or isinstance(content, bytes) else json.dumps(content).encode()

    named = tuple((name, coded(content)) for name, content in (headers or {}).items())
    return Record(
        where.get("topic", "topic"), where.get("partition", 0), offset, coded(key), coded(value), named
    )


def postgres(lsn: int | None = 10, table: str = "customers", **more: Any) -> dict[str, Any]:
    """The ``source`` block of PostgreSQL's connector."""
    return {
        "version": "3.0.5.Final", "connector": "postgresql", "name": "pg", "ts_ms": 1714000000000, "snapshot": "false",
        "db": "inventory", "sequence": '[null,"24023128"]', "schema": "public", "table": table, "txId": 555, "lsn": lsn,
        "xmin": None, **more,
    }  # fmt: skip


def event(op: str, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    """An envelope without its schema."""
    found = {
        "before": before,
        "after": after,
        "source": postgres(),
        "op": op,
        "ts_ms": 1714000000142,
        "transaction": None,
    }
    return found | more


def struct(
    fields: Sequence[Mapping[str, Any]], name: str = "pg.public.customers.Value", **more: Any
) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": True, "name": name, **more}


def with_schema(payload: Any, fields: Sequence[Mapping[str, Any]] = CUSTOMER) -> dict[str, Any]:
    """An envelope with the schema of rows of these fields."""
    row = struct(fields)
    around = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        struct(
            [{"type": "string", "field": "connector"}],
            "io.debezium.connector.postgresql.Source",
            field="source",
        ),
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return {"schema": struct(around, "pg.public.customers.Envelope"), "payload": payload}


def decoded(*records: Record, form: Format = "debezium-json", **settings: Any) -> Decoded:
    return Decoder(form, **settings).decode_each(records)


def one_value(type_: Mapping[str, Any], value: Any) -> Any:
    """The value of a column ``v`` of that schema, and its Arrow type; the reason if it is a dead letter."""
    found = decoded(record(with_schema(event("c", {"v": value}), [{**type_, "field": "v"}])))
    if found.dead:
        return found.dead[0].reason
    (change,) = found.changes
    assert change.after is not None
    return change.after["v"], str(change.types["v"])


def dms(
    operation: str,
    data: Any,
    before: Any = None,
    *,
    position: str | None = None,
    number: int | None = 1,
    **more: Any,
) -> dict[str, Any]:
    """A record of AWS DMS with ``IncludeTransactionDetails``."""
    metadata = {
        "timestamp": "2024-07-29T00:58:17.983670Z", "record-type": "data", "operation": operation,
        "partition-key-type": "schema-table", "schema-name": "public", "table-name": "customers", "transaction-id": 1139,
        "transaction-record-id": number, "commit-timestamp": "2024-07-29T00:58:17.974340Z",
        "stream-position": position or "00000002/7C007178.3.00000002/7C007178", **more,
    }  # fmt: skip
    if operation == "load":
        metadata = {
            name: value
            for name, value in metadata.items()
            if "transaction" not in name and name != "stream-position"
        }
    found = {"data": data, "metadata": metadata}
    return found if before is None else {**found, "before-image": before}
