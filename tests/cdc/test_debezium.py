"""Events of Debezium in JSON, with their schema and without: what they say, and what cannot be read."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.records.change import UNAVAILABLE, Op
from tests.cdc.events import CUSTOMER, decoded, event, one_value, postgres, record, struct, with_schema


@pytest.mark.parametrize("op", ["c", "u", "r"])
@pytest.mark.parametrize("schema", [True, False])
def test_rows_that_come_or_change_are_upserts(op: str, schema: bool) -> None:
    payload = event(op, {"id": 1, "name": "Zoë"}, {"id": 1, "name": "Zoe"} if op == "u" else None)
    key = {"schema": struct(CUSTOMER[:1], "pg.Key"), "payload": {"id": 1}} if schema else {"id": 1}
    found = decoded(record(with_schema(payload) if schema else payload, key, offset=7))
    (change,) = found.rows
    assert (change.op, change.keys, change.after) == (Op.UPSERT, {"id": 1}, {"id": 1, "name": "Zoë"})
    assert (str(change.source), change.source_time_ms) == ("inventory.public.customers", 1714000000000)
    assert {name: str(kind) for name, kind in change.types.items()} == (
        {"id": "int64", "name": "string"} if schema else {}
    )


def test_a_delete_needs_its_key_only_and_the_tombstone_after_it_is_no_delete() -> None:
    found = decoded(record(event("d"), {"id": 1}), record(None, {"id": 1}, offset=1))
    assert [(change.op, change.keys) for change in found.rows] == [(Op.DELETE, {"id": 1})]
    assert [ignored.kind for ignored in found.ignored] == ["tombstone"]
    assert not found.dead


def test_a_delete_without_a_key_is_known_by_the_row_before() -> None:
    (change,) = decoded(record(event("d", None, {"id": 1, "name": "Ada"}))).rows
    assert change.before == {"id": 1, "name": "Ada"}
    assert "names no row" in decoded(record(event("d"))).dead[0].reason


def test_a_truncate_has_no_key() -> None:
    (change,) = decoded(record(event("t", None), {"id": None})).rows
    assert (change.op, change.keys) == (Op.TRUNCATE, None)


def test_the_two_events_of_a_changed_key_name_each_other() -> None:
    found = decoded(
        record(
            event("d", None, {"id": 1}),
            {"id": 1},
            headers={"__debezium.newkey": {"payload": {"id": 2}, "schema": None}},
        ),
        record(event("c", {"id": 2}), {"id": 2}, offset=2, headers={"__debezium.oldkey": {"id": 1}}),
    )
    assert [(change.op, change.keys, change.moved) for change in found.rows] == [
        (Op.DELETE, {"id": 1}, {"id": 2}),
        (Op.UPSERT, {"id": 2}, {"id": 1}),
    ]


def test_what_debezium_writes_beside_rows_is_ignored_and_counted() -> None:
    found = decoded(
        record({"ts_ms": 1}),
        record({"status": "BEGIN", "id": "571:53195829", "event_count": None}),
        record({"source": postgres(), "ddl": "CREATE TABLE t (id INT)", "databaseName": "inventory"}),
        record({"op": "m", "ts_ms": 1, "source": postgres(), "message": {"prefix": "p", "content": "Zm9v"}}),
    )
    assert [ignored.kind for ignored in found.ignored] == ["heartbeat", "transaction", "control", "message"]


def test_what_cannot_be_read_is_a_dead_letter_and_holds_nothing_up() -> None:
    """Failure mode of the recipes: one record stops the job, or is passed over."""
    poison: list[Any] = [
        b"\xff\xfe", b"", b"[1, 2]", b'"text"', b"{}", b'{"op": "c"}', b"[" * 100_000, {"op": "x", "source": postgres()},
        event("c", None), event("c", [1]),
        event("c", {"id": 1}, source=postgres(table="")),
        {"schema": "none", "payload": event("c", {"id": 1})}, {"schema": {"type": "struct"}, "payload": event("c", {"id": 1})},
        {"id": 1, "name": "unwrapped"},
    ]  # fmt: skip
    records = [record(value, {"id": 1}, offset=offset) for offset, value in enumerate(poison)]
    found = decoded(*records, record(event("c", {"id": 1}), {"id": 1}, offset=99))
    assert [letter.record.offset for letter in found.dead] == list(range(len(poison)))
    assert all(letter.reason for letter in found.dead)
    assert [change.record.offset for change in found.rows] == [99]


def numbers(value: int, size: int = 4) -> str:
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
LOGICAL: list[tuple[dict[str, Any], Any, Any, str]] = [
    ({"type": "int16"}, -1, -1, "int64"),
    ({"type": "float"}, 1.5, 1.5, "double"),
    ({"type": "double"}, "NaN", "NaN", "double"),
    ({"type": "boolean"}, False, False, "bool"),
    ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff", "binary"),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, "a-b", "a-b", "string"),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', '{"a": 1}', "string"),
    ({"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": "a,b"}}, "a", "a", "string"),
    (DECIMAL, numbers(-12345), Decimal("-123.45"), "decimal128(10, 2)"),
    ({**DECIMAL, "parameters": {"scale": "0"}}, numbers(2**100, 16), Decimal(2**100), "decimal128(38, 0)"),
    ({**DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "50"}}, numbers(-5), "-0.05", "string"),
    (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
        {"scale": 3, "value": numbers(10**30, 16)}, "1" + "0" * 27 + ".000", "string",
    ),
    ({"type": "int32", "name": "io.debezium.time.Date"}, -1, date(1969, 12, 31), "date32[day]"),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, 19000, date(2022, 1, 8), "date32[day]"),
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, datetime(1969, 12, 31, 23, 59, 59, 999000), "timestamp[us]"),  # noqa: DTZ001
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1), "timestamp[us]"),  # noqa: DTZ001
    ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 2000, datetime(1970, 1, 1, 0, 0, 0, 2), "timestamp[us]"),  # noqa: DTZ001
    ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, 1000, datetime(1970, 1, 1, 0, 0, 1), "timestamp[us]"),  # noqa: DTZ001
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2024-01-01T01:00:00.123456000+01:00",
        datetime(2024, 1, 1, 0, 0, 0, 123456, UTC), "timestamp[us, tz=UTC]",
    ),
    ({"type": "int32", "name": "io.debezium.time.Time"}, 1, time(0, 0, 0, 1000), "time64[us]"),
    ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 86399999999, time(23, 59, 59, 999999), "time64[us]"),
    ({"type": "int32", "name": "io.debezium.time.Year"}, 1999, 1999, "int64"),
    ({"type": "array", "items": {"type": "int32"}}, [1, None], [1, None], "list<item: int64>"),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}, {"a": None}, [("a", None)], "map<string, string>"),
    (
        {"type": "struct", "fields": [{"field": "x", "type": "double"}]}, {"x": 1.5}, {"x": 1.5}, "struct<x: double>",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "expected", "type_"), LOGICAL, ids=lambda one: None)
def test_a_value_of_every_logical_type_is_read_without_loss(
    schema: dict[str, Any], value: Any, expected: Any, type_: str
) -> None:
    found, kind = one_value(schema, value)
    assert kind == type_
    assert str(found) == "nan" if expected == "NaN" else (found == expected and type(found) is type(expected))
    assert one_value(schema, None) == (None, type_)


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1, "nanoseconds"),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            "2024-01-01T00:00:00.0000001Z",
            "nanoseconds",
        ),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2024-01-01T00:00:00", "no zone"),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 2**62, "no timestamp"),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 86400000000, "no time of a day"),
        ({"type": "int64"}, 2**63, "64 bits"),
        ({"type": "int32"}, 1.5, "no whole number"),
        ({"type": "int32"}, True, "no whole number"),
        ({"type": "bytes"}, "***", "base64"),
        ({"type": "boolean"}, 1, "neither true nor false"),
    ],
)
def test_a_value_that_no_table_keeps_as_it_is_makes_a_dead_letter(
    schema: dict[str, Any], value: Any, why: str
) -> None:
    reason = one_value(schema, value)
    assert isinstance(reason, str)
    assert why in reason
    assert "'v'" in reason


TEXT = "__debezium_unavailable_value"


RAW = TEXT.encode()
CODED = [base64.b64encode(bytes([one])).decode() for one in RAW]
"""numeric[] as Debezium has it: the bytes of the placeholder, each as the unscaled number of an item."""


@pytest.mark.parametrize(
    "value",
    [
        TEXT, base64.b64encode(RAW).decode(), [TEXT], [base64.b64encode(RAW).decode()], list(RAW), [float(one) for one in RAW],
        {TEXT: TEXT}, json.dumps({TEXT: TEXT}, separators=(",", ":")), [str(UUID(bytes=hashlib.md5(RAW).digest(), version=3))],
        CODED, [{"scale": 0, "value": one} for one in CODED], [one / 100 for one in RAW],
    ],
)  # fmt: skip
def test_what_the_source_left_out_is_told_from_null_by_kind(value: Any) -> None:
    """I12, T3-B8: text, bytes, maps, maps as JSON; arrays of texts, bytes, numbers and decimals; of UUIDs by Java's UUID."""
    (change,) = decoded(record(event("u", {"id": 1, "v": value, "n": None}), {"id": 1})).rows
    assert change.after == {"id": 1, "v": UNAVAILABLE, "n": None}


def test_the_placeholder_is_the_one_that_is_configured() -> None:
    given = event("u", {"id": 1, "a": "<same>", "b": TEXT, "c": []})
    for configured in ("<same>", "hex:" + b"<same>".hex()):
        (change,) = decoded(record(given), placeholder=configured).rows
        assert change.after == {"id": 1, "a": UNAVAILABLE, "b": TEXT, "c": []}


def test_java_names_a_uuid_by_its_bytes() -> None:
    """``UUID.nameUUIDFromBytes("a".getBytes())``, by Java 17."""
    assert Placeholder("a")._lists[3] == ["0cc175b9-c0f1-36a8-b1c3-99e269772661"]


def test_an_event_without_a_position_says_why() -> None:
    """A table may be ordered by columns of its rows instead, so the decoder does not decide."""
    for source in (postgres(None), {"connector": "db2", "table": "t"}):
        (change,) = decoded(record(event("c", {"id": 1}, source=source), {"id": 1})).rows
        assert change.unordered


def test_a_schema_that_was_read_before_is_read_by_its_bytes() -> None:
    """And what is no payload behind such bytes is still judged whole."""

    def coded(payload: object, fields: list[dict[str, Any]] = CUSTOMER) -> bytes:
        return json.dumps(with_schema(payload, fields), separators=(",", ":")).encode()

    known = coded(event("c", {"id": 1, "name": "Zoë"}))
    wider = [*CUSTOMER, {"type": "int64", "optional": True, "field": "n"}]
    twice = known[:-1] + b',"payload":' + json.dumps(event("c", {"id": 5, "name": "x"})).encode() + b"}"
    given = [
        known, coded(event("c", {"id": 2, "name": None})), coded(event("c", {"id": 3, "name": "", "n": 7}), wider),
        coded(event("c", {"id": 4, "name": "again"})), known[:-1] + b',"more":1}', known[:-1], known + b"}", twice,
    ]  # fmt: skip
    found = decoded(*(record(value, {"id": 1}, offset=place) for place, value in enumerate(given)))
    rows = {change.record.offset: change.after for change in found.rows}
    assert rows == {
        0: {"id": 1, "name": "Zoë"}, 1: {"id": 2, "name": None}, 2: {"id": 3, "name": "", "n": 7}, 3: {"id": 4, "name": "again"},
        7: {"id": 5, "name": "x"},
    }  # fmt: skip
    assert [str(one.types.get("n")) for one in found.rows[:4]] == ["None", "None", "int64", "None"]
    assert [letter.record.offset for letter in found.dead] == [4, 5, 6]
