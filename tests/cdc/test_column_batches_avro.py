"""Events in Avro that are read by columns say what they say when they are read one by one."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import KafkaRecord, UndecodableError
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.both_ways import Outcome, outcomes

TEXT = "__debezium_unavailable_value"
DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
YEAR_9999_MS = 253_402_300_799_999
SOURCE = {
    "type": "record", "name": "Source",
    "fields": [
        *({"name": one, "type": "string"} for one in ("connector", "db", "schema", "table")),
        {"name": "snapshot", "type": {"type": "enum", "name": "Snapshot", "symbols": ["true", "last", "false"]}},
        {"name": "sequence", "type": ["null", "string"]}, {"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": ["null", "long"]},
    ],
}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


class Registry:
    """Schemas by id; an id below 0 is away."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.asked: list[int] = []

    def add(self, schema: Any) -> int:
        text = json.dumps(schema)
        for number, known in self.schemas.items():
            if known == text:
                return number
        self.schemas[len(self.schemas) + 1] = text
        return len(self.schemas)

    def __call__(self, number: int) -> str:
        self.asked.append(number)
        if number == 404:
            raise sw.StorageError("the registry is away")
        if number not in self.schemas:
            raise UndecodableError(f"no schema {number}")
        return self.schemas[number]

    def coded(self, schema: Any, value: Any) -> bytes:
        """Confluent's wire format."""
        out = BytesIO(struct.pack(">bI", 0, self.add(schema)))
        out.seek(5)
        schemaless_writer(out, parse_schema(json.loads(json.dumps(schema))), value)
        return out.getvalue()


def envelope(kind: Any, name: str = "v") -> dict[str, Any]:
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": name, "type": ["null", kind]}]
    row = {"type": "record", "name": "Value", "fields": fields}
    return {
        "type": "record", "name": "Envelope", "namespace": "pg.a",
        "fields": [
            {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}, {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }  # fmt: skip


def event(
    known: Registry,
    kind: Any,
    op: str,
    after: Any,
    at: int,
    *,
    before: Any = None,
    key: Any = ...,
    **source: Any,
) -> KafkaRecord:
    told = {
        "connector": "postgresql", "db": "d", "schema": "public", "table": "a", "snapshot": "false", "sequence": '["7","8"]',
        "ts_ms": 5, "lsn": 1000 + at, **source,
    }  # fmt: skip
    value = {"before": before, "after": after, "source": told, "op": op, "ts_ms": 6}
    named = {"id": (after or before or {}).get("id")} if key is ... else key
    return KafkaRecord(
        "topic", 0, at, None if named is None else known.coded(KEY, named), known.coded(envelope(kind), value)
    )


def equal(known: Registry, records: Sequence[KafkaRecord], **table: Any) -> Outcome:
    by_columns, each = outcomes(records, decoder=partial(Decoder, "debezium-avro", schema_of=known), **table)
    assert by_columns.told() == each.told()
    return by_columns


def named(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "connect.name": name, **more}


WHOLE = [0, -1, 2**63 - 1, -(2**63), None]
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "double"}, {"name": "wkb", "type": ["null", "bytes"]}],
}
VARIABLE = {
    "type": "record", "name": "Variable", "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}  # fmt: skip
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
VALUES: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("int", "int", [0, -1, 2**31 - 1, None], []),
    ("long", "long", WHOLE, []),
    ("double", "double", [0.1, -0.0, float("nan"), None], [float("inf")]),
    ("float", "float", [1.5, 0.1], [float("-inf")]),
    ("boolean", "boolean", [True, False, None], []),
    ("string", "string", ["", "Zoë 🦆", "a\u0000b", None], [TEXT]),
    ("bytes", "bytes", [b"", b"\x00\xff", None], [TEXT.encode()]),
    ("fixed", {"type": "fixed", "name": "F", "size": 2}, [b"ab", None], []),
    ("enum", {"type": "enum", "name": "E", "symbols": ["a", "b"]}, ["a", "b", None], []),
    ("decimal", DECIMAL, [b"\x00", b"\xff", b"", b"\x0f\x42\x3f", None], [b"\x0f\x42\x40", b"\x7f" * 20, TEXT.encode()]),
    ("decimal of Connect", named("bytes", f"{CONNECT}Decimal", **{"connect.parameters": {"scale": "10"}}), [b"\x17"], [b"\x7f" * 17]),
    ("decimal of no digits", {**DECIMAL, "precision": 80, "scale": 60}, [b"\x17", b"\x7f" * 30], []),
    ("variable decimal", VARIABLE, [{"scale": 2, "value": b"\x17"}, None], []),
    ("date", named("int", f"{DEBEZIUM}Date"), [0, -719_162, 2_932_896, None], [-719_163, 2_932_897]),
    ("logical date", {"type": "int", "logicalType": "date"}, [1], [2**31 - 1]),
    ("micro time", {"type": "long", "logicalType": "time-micros"}, [0, 86_399_999_999], [86_400_000_000, -1]),
    ("nano time", named("long", f"{DEBEZIUM}NanoTime"), [0, 86_399_999_999_000], [1]),
    ("timestamp", {"type": "long", "logicalType": "timestamp-millis"}, [0, YEAR_9999_MS, None], [YEAR_9999_MS + 1, 2**63 - 1]),
    ("micro timestamp", named("long", f"{DEBEZIUM}MicroTimestamp"), [-1, 17], [2**63 - 1]),
    ("zoned timestamp", named("string", f"{DEBEZIUM}ZonedTimestamp"), ["2024-02-29T23:59:59.123456Z", None], ["2024-01-01", TEXT]),
    ("list", {"type": "array", "items": ["null", "string"]}, [["a", None], [], None], [[TEXT]]),
    ("list of bytes", {"type": "array", "items": "bytes"}, [[b"a"]], [[TEXT.encode()]]),
    ("struct", POINT, [{"x": 0.5, "wkb": b"a"}, {"x": 1.0, "wkb": None}, None], []),
]  # fmt: skip


def inserts(known: Registry, kind: Any, values: Sequence[Any]) -> list[KafkaRecord]:
    return [event(known, kind, "c", {"id": at, "v": value}, at) for at, value in enumerate(values)]


@pytest.mark.parametrize(("kind", "plain", "strange"), [pytest.param(*one[1:], id=one[0]) for one in VALUES])
def test_values_are_read_alike(kind: Any, plain: list[Any], strange: list[Any]) -> None:
    known = Registry()
    assert equal(known, inserts(known, kind, plain)).by_columns == len(plain), (
        "plain values are read by columns"
    )
    every = [*plain, *strange]
    found = equal(known, inserts(known, kind, every))
    assert len(found.rows) + len(found.dead) == len(every)
    pairs = [(new, old) for new in every for old in every[:6]]
    equal(
        known,
        [
            event(known, kind, "u", {"id": 1, "v": new}, at, before={"id": 1, "v": old})
            for at, (new, old) in enumerate(pairs)
        ],
    )


def test_a_map_is_read_one_by_one() -> None:
    known = Registry()
    found = equal(known, inserts(known, {"type": "map", "values": "int"}, [{"a": 1}, None]))
    assert (found.by_columns, len(found.rows)) == (0, 2)


def test_bytes_that_are_of_no_schema_are_dead_letters_alike() -> None:
    known = Registry()
    good = event(known, "string", "c", {"id": 1, "v": "xyz"}, 0)
    value, key = good.value or b"", good.key or b""
    strange = [
        b"", b"\0", value[:5], value[:-1], value + b"\0", b"\1" + value[1:], value[5:], b"\0\0\0\0\x63" + value[5:], b"{}", b"\0" * 5, b"\0" * 500,
        value.replace(b"xyz", b"\xff\xfe\xfd"), key, value.replace(b"postgresql", b"postgresqx"), b"\xff" * 40, value[:5] + b"\x80" * 30,
        value[:5] + b"\x04" + value[6:],
    ]  # fmt: skip
    for one in strange:
        equal(known, [good, replace(good, offset=1, value=one)])
    for one in (*strange, key[:5], key[:-1], key + b"\0"):
        equal(known, [good, replace(good, offset=1, key=one)])
    records = [replace(good, offset=at, value=one) for at, one in enumerate(strange)]
    many = [
        event(known, "string", "c", {"id": at, "v": "y"}, at)
        for at in range(len(strange), len(strange) + 300)
    ]
    found = equal(known, [*records, *many])
    assert found.by_columns > 200


def test_a_registry_that_is_away_fails_the_batch() -> None:
    known = Registry()
    good = event(known, "string", "c", {"id": 1, "v": "x"}, 0)
    away = replace(good, offset=1, value=struct.pack(">bI", 0, 404) + (good.value or b"")[5:])
    decoder = Decoder("debezium-avro", schema_of=known)
    with pytest.raises(sw.StorageError, match="away"):
        decoder.decode(KafkaRecords.of([good, away]))
    assert len(decoder.decode(KafkaRecords.of([good])).rows) == 1


def test_an_id_that_nobody_knows_is_asked_for_once_in_a_batch_and_again_in_the_next() -> None:
    known = Registry()
    good = event(known, "string", "c", {"id": 1, "v": "x"}, 0)
    value = struct.pack(">bI", 0, 99) + (good.value or b"")[5:]
    records = [good, *(replace(good, offset=at, value=value) for at in range(1, 50))]
    decoder = Decoder("debezium-avro", schema_of=known)
    for _ in range(2):
        assert [one.reason for one in decoder.decode(KafkaRecords.of(records)).dead] == ["no schema 99"] * 49
    assert known.asked.count(99) == 2
    known.schemas[99] = known.schemas[2]
    assert not decoder.decode(KafkaRecords.of(records)).dead


def test_schemas_of_one_batch_and_records_without_keys_are_read_alike() -> None:
    known = Registry()
    records = []
    for at in range(60):
        kind = ("string", "long", {"type": "array", "items": "string"})[at % 3]
        value = ("x", 17, ["y"])[at % 3]
        made = event(known, kind, "c", {"id": at, "v": value}, at)
        records.append(replace(made, key=None) if at % 7 == 0 else made)
    equal(known, records, primary_key=["id"])
    equal(known, records)


_ROW = st.fixed_dictionaries({"id": st.integers(0, 3), "v": st.sampled_from(["a", None, TEXT])})
_EVENT = st.tuples(
    st.sampled_from("ccuudrtx"), _ROW, st.none() | _ROW, st.booleans(), st.sampled_from(["true", "false"])
)


@settings(deadline=None)
@given(st.lists(_EVENT, max_size=10), st.sampled_from([{}, {"primary_key": ["id"]}, {"primary_key": ["v"]}]))
def test_any_events_are_read_alike(events: list[Any], table: dict[str, Any]) -> None:
    known = Registry()
    records = [
        event(
            known, "string", op, None if op in "dt" else after, at, before=before,
            key={"id": after["id"]} if has_key else None, snapshot=snapshot, sequence=None if at % 2 else '["7","8"]',
        )
        for at, (op, after, before, has_key, snapshot) in enumerate(events)
    ]  # fmt: skip
    equal(known, records, **table)
