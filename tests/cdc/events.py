"""Events as Debezium and AWS DMS write them, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from safewrite.cdc.connect.misfits import Misfit
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.records.change import KafkaRecord

CUSTOMER: list[dict[str, Any]] = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
]


def record(
    value: Any, key: Any = None, *, offset: int = 0, headers: Mapping[str, Any] | None = None, **where: Any
) -> KafkaRecord:
    """A record with these as JSON; bytes stay as they are."""

    def coded(content: Any) -> bytes | None:
        if content is None or isinstance(content, bytes):
            return content
        return json.dumps(content, separators=(",", ":")).encode()  # as Connect's converter writes it

    named = tuple((name, coded(content)) for name, content in (headers or {}).items())
    return KafkaRecord(
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


SOURCE: list[dict[str, Any]] = [
    *({"type": "string", "optional": True, "field": name} for name in ("version", "connector", "name", "snapshot", "db")),
    *({"type": "string", "optional": True, "field": name} for name in ("sequence", "schema", "table")),
    *({"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "txId", "lsn", "xmin")),
]  # fmt: skip
TRANSACTION: list[dict[str, Any]] = [
    {"type": "string", "optional": False, "field": "id"},
    *(
        {"type": "int64", "optional": False, "field": name}
        for name in ("total_order", "data_collection_order")
    ),
]


def with_schema(
    payload: Any,
    fields: Sequence[Mapping[str, Any]] = CUSTOMER,
    source: Sequence[Mapping[str, Any]] = SOURCE,
) -> dict[str, Any]:
    """An envelope with the schema of rows of these fields."""
    row = struct(fields)
    around = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        struct(source, "io.debezium.connector.postgresql.Source", field="source"),
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
        struct(TRANSACTION, "event.block", field="transaction"),
    ]
    return {"schema": struct(around, "pg.public.customers.Envelope"), "payload": payload}


def told_with_schemas(records: Sequence[KafkaRecord]) -> list[KafkaRecord]:
    """The same records with schemas, by the values that a table's rows have; those of a table that has none stay as they are."""
    events = [_read(one) for one in records]
    kinds: dict[str, dict[str, set[str]]] = {}
    for event, key in filter(None, events):
        columns = kinds.setdefault(event["source"]["table"], {})
        for row in (event["before"], event["after"], key):
            for name, value in (row or {}).items():
                columns.setdefault(name, set()).update(
                    () if value is None else (_KINDS.get(type(value), "?"),)
                )
    return [
        _tombstone(one) if event is None else _told(one, *event, kinds[event[0]["source"]["table"]])
        for one, event in zip(records, events, strict=True)
    ]


def _tombstone(given: KafkaRecord) -> KafkaRecord:
    """A tombstone has the key of its delete, to the letter; other records stay as they are."""
    if given.value is not None or given.key is None:
        return given
    try:
        key = json.loads(given.key)
    except ValueError:
        return given
    if not isinstance(key, dict) or any(type(one) not in _KINDS for one in key.values()):
        return given
    fields = [{"type": _KINDS[type(one)], "optional": True, "field": name} for name, one in key.items()]
    return replace(
        given, key=record({"schema": struct(fields, "pg.public.customers.Key"), "payload": key}).value
    )


_KINDS = {int: "int64", str: "string", float: "double", bool: "boolean"}


def _read(given: KafkaRecord) -> tuple[Any, Any] | None:
    """The event and the key of a record, if its source has no fields but those of ``SOURCE``."""
    try:
        event, key = (None if data is None else json.loads(data) for data in (given.value, given.key))
    except ValueError:
        return None
    is_event = isinstance(event, dict) and set(event.get("source", {})) == {one["field"] for one in SOURCE}
    return (event, key) if is_event and isinstance(key, dict | None) else None


def _told(given: KafkaRecord, event: Any, key: Any, columns: Mapping[str, set[str]]) -> KafkaRecord:
    if any(len(kinds) > 1 or "?" in kinds for kinds in columns.values()):
        return given
    fields = [
        {"type": next(iter(kinds), "string"), "optional": True, "field": name}
        for name, kinds in columns.items()
    ]
    made = record(with_schema(event, fields)).value
    if key is None:
        return replace(given, value=made)
    named = struct([one for one in fields if one["field"] in key], "pg.public.customers.Key")
    return replace(given, key=record({"schema": named, "payload": key}).value, value=made)


def decoded(*records: KafkaRecord, form: str = "debezium-json", **settings: Any) -> Decoded:
    return Decoder(form, **settings).decode_each(records)


def one_value(type_: Mapping[str, Any], value: Any) -> Any:
    """The value of a column ``v`` of that schema, and its Arrow type; the reason if no column holds it."""
    found = decoded(record(with_schema(event("c", {"v": value}), [{**type_, "field": "v"}])))
    if found.dead:
        return found.dead[0].reason
    (change,) = found.rows
    assert change.after is not None
    value = change.after["v"]
    return value.why if isinstance(value, Misfit) else (value, str(change.types["v"]))


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
