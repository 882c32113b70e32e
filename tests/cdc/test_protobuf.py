"""Protobuf in Confluent's wire format: events of any shape, and Debezium's; what was not set is told from what is 0."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.landing.landing import WorkOf
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table.by_tasks import ExecutorWork
from tests.cdc.events import postgres
from tests.cdc.jobs import Job
from tests.cdc.on_executors import Executors
from tests.cdc.protobuf_messages import ProtobufSchemas, a_file, add_message, scaled
from tests.cdc.test_avro import Schemas, serving

schemas = pytest.fixture(serving, name="schemas")
FEWEST = pytest.mark.parametrize("fewest", [1, 1000], ids=["by columns", "one by one"])
PLAIN = [
    ("id", "int64"), ("name", "optional string"), ("kind", "enum shop.Kind"), ("tags", "many string"),
    ("text", "what string"), ("number", "what double"), ("at", "google.protobuf.Timestamp"),
    ("count", "google.protobuf.Int64Value"), ("place", "geo.Place"), ("day", "google.type.Date"),
    ("big", "uint64"), ("raw", "bytes"), ("f", "float"), ("is_new", "bool"), ("places", "many geo.Place"),
]  # fmt: skip
NEEDS = (
    "google/protobuf/timestamp.proto",
    "google/protobuf/wrappers.proto",
    "google/type/date.proto",
    "geo.proto",
)
FULL = {
    "id": 2**53 + 1, "name": "", "kind": "SALE", "tags": ["a", "é"], "number": 0.5, "at": "2026-11-26T15:00:00.123456Z",
    "count": 0, "place": {"street": "A", "number": 0}, "day": {"year": 2026, "month": 2, "day": 28}, "big": 2**63 - 1,
    "raw": "AP8=", "f": 0.25, "isNew": True, "places": [{"street": "B"}, {"number": 7}],
}  # fmt: skip
LANDED = {
    "id": 2**53 + 1, "name": "", "kind": "SALE", "tags": ["a", "é"], "text": None, "number": 0.5,
    "at": datetime(2026, 11, 26, 15, 0, 0, 123456, UTC), "count": 0, "place": {"street": "A", "number": 0},
    "day": date(2026, 2, 28), "big": 2**63 - 1, "raw": b"\0\xff", "f": 0.25, "is_new": True,
    "places": [{"street": "B", "number": None}, {"street": None, "number": 7}],
}  # fmt: skip
ANY_NAN = b"\x12\x10\x0a\x0e\x0a\x01x\x12\x09\x11\0\0\0\0\0\0\xf8\x7f"
"""Field 2, a Struct whose field x is no number, which JSON does not have."""
EMPTY = {
    "id": 0, "name": None, "kind": "NONE", "tags": [], "text": None, "number": None, "at": None, "count": None, "place": None,
    "day": None, "big": 0, "raw": b"", "f": 0.0, "is_new": False, "places": [],
}  # fmt: skip


def events(schemas: Schemas) -> ProtobufSchemas:
    """Schema 5, whose second message has a third in itself, and the file that it refers to."""
    registry = ProtobufSchemas(schemas)
    file = a_file("shop", {"Event": PLAIN}, *NEEDS, "google/protobuf/struct.proto")
    for number, name in enumerate(("NONE", "SALE")):
        (file.enum_type[0] if file.enum_type else file.enum_type.add(name="Kind")).value.add(
            name=name, number=number
        )
    other = add_message(file.message_type, "Other", [("n", "int64")])
    add_message(other.nested_type, "Nothing", [])
    inner = [("tree", "shop.Other.Inner"), ("any", "google.protobuf.Struct"), ("none", "shop.Other.Nothing"), ("counts", "many shop.Other.Inner.CountsEntry")]  # fmt: skip
    made = add_message(other.nested_type, "Inner", inner)
    add_message(
        made.nested_type, "CountsEntry", [("key", "int32"), ("value", "string")]
    ).options.map_entry = True
    place = a_file("geo", {"Place": [("street", "optional string"), ("number", "optional int32")]})
    registry.add(5, file, geo=place)
    return registry


def job_of(folder: Path, schemas: Schemas, form: str = "delta", **more: Any) -> Job:
    table = {"table": "events", "source": "topic", "mode": "append", "metadata": {"o": "offset"}, **more}
    settings = {"envelope": "events-protobuf", "registry": {"url": schemas.url, "patience_s": 0.0}}
    return Job(folder, [table], form, settings, schemas=False)


def land(
    job: Job, *values: bytes | None, fewest: int = 1, work: WorkOf = ExecutorWork.here
) -> list[dict[str, Any]]:
    """The rows by the offsets of their records, by a reader that is not ours."""
    landing = job.landing()
    landing.decoder.fewest = fewest
    landing.land(
        job.batch([KafkaRecord("topic", 0, at, None, value) for at, value in enumerate(values)]), work
    )
    assert job.verdict().faults == ()
    name = job.tables[0]["table"]
    found = sorted(job.read(name).to_pylist(), key=lambda row: row["o"])
    return [{key: value for key, value in row.items() if key != "o"} for row in found]


@FEWEST
@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_events_land_with_all_that_their_messages_have(
    tmp_path: Path, schemas: Schemas, form: str, fewest: int
) -> None:
    """What has a presence and was not set is NULL; the rest has its default.  A number that an enum does not name is its text."""
    registry, job = events(schemas), job_of(tmp_path, schemas, form)
    values = [registry.wire(5, "shop.Event", one) for one in (FULL, {}, {"kind": 7, "name": "x"})]
    assert land(job, *values, fewest=fewest) == [LANDED, EMPTY, EMPTY | {"kind": "7", "name": "x"}]
    assert not job.letters()
    kinds = job.read("events").schema
    assert [str(kinds.field(name).type) for name in ("at", "day", "count")] == [
        "timestamp[us, tz=UTC]",
        "date32[day]",
        "int64",
    ]
    assert schemas.asked == [
        "/schemas/ids/5?format=serialized",
        "/subjects/of%20geo/versions/3?format=serialized",
    ]


def test_executors_read_the_same(tmp_path: Path, schemas: Schemas) -> None:
    """They get the registry's address with their task, and ask it themselves."""
    registry, job = events(schemas), job_of(tmp_path, schemas)
    values = [registry.wire(5, "shop.Event", one) for one in (FULL, {})]
    assert land(job, *values, work=Executors().work) == [LANDED, EMPTY]


def test_messages_in_messages_and_of_any_shape_land(tmp_path: Path, schemas: Schemas) -> None:
    """The header names them by their places; what may be in itself, or has no fields, is a JSON text, and a map is a map."""
    registry, job = events(schemas), job_of(tmp_path, schemas)
    value = {
        "tree": {"counts": {"1": "a"}},
        "any": {"b": [1, None]},
        "none": {},
        "counts": {"-3": "x", "4": ""},
    }
    (row,) = land(job, registry.wire(5, "shop.Other.Inner", value, path=b"\x04\x02\x02"))
    assert row | {"counts": sorted(row["counts"])} == {
        "tree": '{"counts": {"1": "a"}}', "any": '{"b": [1.0, null]}', "none": "{}", "counts": [(-3, "x"), (4, "")],
    }  # fmt: skip


def test_bytes_of_the_documentation_are_read(tmp_path: Path, schemas: Schemas) -> None:
    """No library wrote these: field 1 is 150, as in the guide to Protobuf's encoding; the second message of schema 5 by one place."""
    events(schemas)
    assert land(job_of(tmp_path, schemas), b"\0\0\0\0\5" + b"\x02\x02" + b"\x08\x96\x01") == [{"n": 150}]


def test_bytes_that_do_not_fit_are_dead_letters_and_hold_up_no_other(
    tmp_path: Path, schemas: Schemas
) -> None:
    """Also fields that the schema does not have, and numbers that no column has."""
    registry, job = events(schemas), job_of(tmp_path, schemas)
    good, head = registry.wire(5, "shop.Event", FULL), b"\0\0\0\0\5\0"
    schemas.add(6, {"type": "string"})
    schemas.answers["/schemas/ids/6?format=serialized"] = schemas.answers["/schemas/ids/6"]
    schemas.answers["/schemas/ids/8?format=serialized"] = {"schema": "AAAA", "schemaType": "PROTOBUF"}
    bad = {
        good[:-3]: "do not fit shop.Event of schema 5",
        head + b"\xa0\x1f\x01": "have fields that shop.Event of schema 5 of the registry does not have",
        head + b"\x4a\x03\xa0\x1f\x01": "have fields that shop.Event",
        head + b"\x12\x01\xff": "do not fit",
        b"\0\0\0\0\5": "not in the wire format",
        b"\1\0\0\0\5\0": "not in the wire format",
        b"\0\0\0\0\5\x02\x0a": "has no message [5]",
        b"\0\0\0\0\5\x02\x01": "has no message [-1]",
        b"\0\0\0\0\5\x80": "do not say which message",
        b"\0\0\0\0\5\xfe\1": "by 127 places",
        b"\0\0\0\0\6\0": "is AVRO, not Protobuf",
        b"\0\0\0\0\7\0": "does not know schema 7",
        b"\0\0\0\0\x08\0": "cannot be read as Protobuf",
        b"\0\0\0\0\5\x04\x02\x02" + ANY_NAN: "do not fit shop.Other.Inner",
        registry.wire(5, "shop.Event", {"big": 2**64 - 1}): "18446744073709551615 does not fit into 64 bits",
        registry.wire(5, "shop.Event", {"at": "2026-11-26T15:00:00.123456789Z"}): "nanoseconds",
    }
    assert land(job, good, *bad, good) == [LANDED, LANDED]
    reasons = {letter["offset"]: letter["reason"] for letter in job.letters()}
    assert sorted(reasons) == list(range(1, len(bad) + 1))
    for (at, told), why in zip(sorted(reasons.items()), bad.values(), strict=True):
        assert why in told, at


def test_a_registry_that_sends_no_descriptors_stops_the_job(schemas: Schemas) -> None:
    """Else every record of it would be a dead letter."""
    schemas.answers["/schemas/ids/5?format=serialized"] = {
        "schema": 'syntax = "proto3";',
        "schemaType": "PROTOBUF",
    }
    with pytest.raises(sw.StorageError, match="format=serialized"):
        Registry(schemas.url, form="PROTOBUF")(5)


# --- Debezium -------------------------------------------------------------------------------------------
ROW = [("id", "int32"), ("name", "optional string"), ("n", "optional int64"), ("paid", "confluent.type.Decimal"), ("loose", "confluent.type.Decimal")]  # fmt: skip
SOURCE = [
    ("connector", "string"), ("db", "string"), ("schema", "string"), ("table", "string"), ("ts_ms", "int64"),
    ("lsn", "optional int64"), ("snapshot", "optional string"), ("sequence", "optional string"),
]  # fmt: skip


def debezium(schemas: Schemas, *, has_nulls: bool = True) -> ProtobufSchemas:
    """As Connect's converter registers them: schema 1 is the key's, 2 the value's."""
    registry = ProtobufSchemas(schemas)
    source = [(name, kind if has_nulls else kind.split()[-1]) for name, kind in SOURCE]
    file = a_file(
        "pg.public.customers", {"Envelope": []}, "confluent/meta.proto", "confluent/type/decimal.proto"
    )
    of = "pg.public.customers.Envelope"
    fields = [("before", f"{of}.Value"), ("after", f"{of}.Value"), ("source", f"{of}.Source"), ("op", "string"), ("ts_ms", "optional int64")]  # fmt: skip
    del file.message_type[:]
    made = add_message(file.message_type, "Envelope", fields)
    value = add_message(made.nested_type, "Value", ROW)
    scaled(value.field[3], 2, 10)
    add_message(made.nested_type, "Source", source)
    registry.add(1, a_file("pg.public.customers", {"Key": [("id", "int32")]}))
    registry.add(2, file)
    return registry


def change(registry: ProtobufSchemas, op: str, key: int, *, offset: int, **row: Any) -> KafkaRecord:
    names = {name for name, _ in SOURCE}
    source = {name: value for name, value in postgres(offset + 1).items() if name in names}
    told = {
        "op": op,
        "source": source,
        "ts_ms": 1714000000000,
        ("before" if op == "d" else "after"): {"id": key, **row},
    }
    value = registry.wire(2, "pg.public.customers.Envelope", told)
    return KafkaRecord("topic", 0, offset, registry.wire(1, "pg.public.customers.Key", {"id": key}), value)


def number(unscaled: bytes, scale: int) -> dict[str, Any]:
    import base64

    return {"value": base64.b64encode(unscaled).decode(), "scale": scale}


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_changes_of_debezium_land_with_their_keys_and_nulls(
    tmp_path: Path, schemas: Schemas, form: str
) -> None:
    """Key 0, NULL and 0, decimals with the scale of their field and of their own, a value that the source left out, deletes."""
    registry = debezium(schemas)
    settings = {"envelope": "debezium-protobuf", "registry": {"url": schemas.url}}
    job = Job(tmp_path, [{"table": "customers"}], form, settings, schemas=False)
    landing = job.landing()
    landing.decoder.fewest = 1
    first = [
        change(
            registry, "c", 0, offset=0, name="", n=0, paid=number(b"\x00\x96", 2), loose=number(b"\xff", 3)
        ),
        change(registry, "r", 1, offset=1, name="Ada"),
        change(registry, "c", 2, offset=2, name="gone"),
        change(registry, "c", 3, offset=3, paid=number(b"\x01", 3)),
    ]
    then = [
        change(registry, "u", 1, offset=4, name="__debezium_unavailable_value", n=5),
        change(registry, "d", 2, offset=5),
        KafkaRecord("topic", 0, 6, first[2].key, None),
    ]
    for at, records in enumerate((first, then)):
        lines = landing.land(job.batch(records, at), Executors().work)
        assert [line.by_executors > 0 for line in lines if line.table] == [True]
    rows = sorted(job.read("customers").to_pylist(), key=lambda row: row["id"])
    assert [{name: row[name] for name, _ in ROW} for row in rows] == [
        {"id": 0, "name": "", "n": 0, "paid": Decimal("1.50"), "loose": "-0.001"},
        {"id": 1, "name": "Ada", "n": 5, "paid": None, "loose": None},
    ]
    assert job.read("customers").schema.field("paid").type == pa.decimal128(10, 2)
    assert ["scale 3 in a field of scale 2" in letter["reason"] for letter in job.letters()] == [True]
    assert job.verdict().faults == ()


def test_events_whose_nulls_are_lost_are_dead_letters(tmp_path: Path, schemas: Schemas) -> None:
    """Connect's converter writes NULL as 0 unless it is told otherwise; the source block shows that it was not."""
    registry = debezium(schemas, has_nulls=False)
    settings = {"envelope": "debezium-protobuf", "registry": {"url": schemas.url}}
    job = Job(tmp_path, [{"table": "customers"}], settings=settings, schemas=False)
    job.land(change(registry, "c", 1, offset=0, name="Ada"))
    (letter,) = job.letters()
    assert "optional.for.nullables" in letter["reason"]


def test_a_configuration_of_glue_is_refused(tmp_path: Path) -> None:
    settings = {"envelope": "events-protobuf", "registry": {"glue_region": "eu-central-1"}}
    with pytest.raises(sw.InvalidInputError, match="as texts alone"):
        Job(tmp_path, [{"table": "a", "mode": "append"}], settings=settings).landing()


def test_without_the_library_the_job_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schemas: Schemas
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf.message", None)
    with pytest.raises(sw.MissingExtraError, match="need the package protobuf"):
        job_of(tmp_path, schemas).landing()
