"""A value that its column cannot hold matters only to a table that needs it, and the table says what becomes of it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.both_ways import outcomes
from tests.cdc.events import event, postgres, record, struct, with_schema
from tests.cdc.jobs import Job
from tests.cdc.test_column_batches import ID, decimal, equal, inserts, named, row

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
NANO, MICRO = named("int64", f"{TIME}NanoTimestamp"), named("int64", f"{TIME}MicroTimestamp")
CLOCK, DAY = named("int64", f"{TIME}MicroTime"), named("int32", f"{TIME}Date")
ZONED, NANO_TIME = named("string", f"{TIME}ZonedTimestamp"), named("int64", f"{TIME}NanoTime")
INFINITY = 9_223_372_036_825_200_000
LATE = datetime(2022, 4, 1, 11, 11, 42, 929775)  # noqa: DTZ001
STAMPS = {"type": "array", "items": {**MICRO, "optional": True}}

MISFITS: list[tuple[str, dict[str, Any], Any, str, Any]] = [
    ("datetime2(7)", NANO, 1_648_811_502_929_775_100, "2022-04-01T11:11:42.9297751", LATE),
    ("before 1970", NANO, -1, "1969-12-31T23:59:59.999999999", datetime(1969, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    ("time(7)", NANO_TIME, 100, "00:00:00.0000001", "00:00:00"),
    ("datetimeoffset(7)", ZONED, "2024-01-01T00:00:00.1234567+01:00", "2023-12-31T23:00:00.1234567Z", datetime(2023, 12, 31, 23, 0, 0, 123456, UTC)),
    ("infinity", MICRO, INFINITY, "infinity", None),
    ("-infinity", MICRO, -9_223_372_036_832_400_000, "-infinity", None),
    ("44 BC", MICRO, -63_517_824_000_000_000, "-0043-03-15T00:00:00", None),
    ("year 12345", MICRO, 327_403_382_400_000_000, "+12345-01-01T00:00:00", None),
    ("infinity with zone", ZONED, "infinity", "infinity", None),
    ("date of infinity", DAY, 2**31 - 1, "infinity", None),
    ("date of 44 BC", DAY, -735_160, "-0043-03-15", None),
    ("24:00:00", CLOCK, 86_400_000_000, "24:00:00", None),
    ("TIME of days", CLOCK, 3_020_399_000_000, "838:59:59", None),
    ("negative TIME", CLOCK, -3_600_000_001, "-01:00:00.000001", None),
    ("times in a list", STAMPS, [0, None, INFINITY], '["1970-01-01T00:00:00",null,"infinity"]', None),
    ("nanoseconds in a list", {"type": "array", "items": NANO}, [1500], '["1970-01-01T00:00:00.0000015"]', [datetime(1970, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
    ("nanoseconds in a struct", struct([{**NANO, "field": "at"}], "s"), {"at": 1}, '{"at":"1970-01-01T00:00:00.000000001"}', {"at": datetime(1970, 1, 1)}),  # noqa: DTZ001
    ("nanoseconds in a map", {"type": "map", "keys": {"type": "string"}, "values": NANO}, {"a": 1}, '{"a":"1970-01-01T00:00:00.000000001"}', [("a", datetime(1970, 1, 1))]),  # noqa: DTZ001
    ("whole number of 65 bits", {"type": "int64"}, 2**64, str(2**64), None),
    ("decimal of too many digits", named("bytes", f"{CONNECT}Decimal", parameters={"scale": "2", "connect.decimal.precision": "6"}), decimal(10**8), "1000000.00", None),
    ("a number for a text", {"type": "string"}, 1.5, "1.5", None),
    ("a type that nobody knows", {"type": "int128"}, [1], "[1]", None),
]  # fmt: skip
kinds = pytest.mark.parametrize(
    ("schema", "value", "text", "floor"), [pytest.param(*one[1:], id=one[0]) for one in MISFITS]
)


def values(records: list[KafkaRecord], **table: Any) -> dict[int, Any]:
    """The value of the column ``v`` by offset, as both ways read it; None is NULL, and what is a dead letter is missing."""
    found = equal(records, primary_key=["id"], **table)
    return {offset: rows[0].get("v") for offset, rows in found.rows.items()}


@pytest.mark.sweep(
    "-infinity",
    "infinity",
    "24:00:00",
    "44 BC",
    "TIME of days",
    "date of 44 BC",
    "datetimeoffset(7)",
    "infinity with zone",
    "nanoseconds in a map",
    "time(7)",
    "date of infinity",
    "datetime2(7)",
    "before 1970",
    "negative TIME",
    "times in a list",
    "whole number of 65 bits",
    "nanoseconds in a struct",
)
@kinds
def test_a_value_that_does_not_fit_is_a_dead_letter_or_what_the_table_says(
    schema: dict[str, Any], value: Any, text: str, floor: Any
) -> None:
    """T3-B13: the hint of the dead letter names the setting."""
    for many in (1, 90):
        given = inserts(schema, [value, None] * many)
        found = equal(given, primary_key=["id"])
        assert len(found.dead) == many
        assert len(found.rows) == many
        assert "on_misfit" in found.dead[0]
        assert "column 'v'" in found.dead[0]
        nulls = values(given, on_misfit={"v": "null"})
        assert set(nulls.values()) == {None}
        assert len(nulls) == 2 * many
        assert values(given, on_misfit={"v": "text"}) == dict(enumerate([text, None] * many))
        floored = values(given, on_misfit="floor")
        assert floored.get(0) == floor
        assert len(floored) == many + many * (floor is not None)


@kinds
def test_a_column_that_is_left_out_is_not_read(
    schema: dict[str, Any], value: Any, text: str, floor: Any
) -> None:
    """T3-B13."""
    found = equal(inserts(schema, [value, None]), leave_out=["v"])
    assert not found.dead
    assert "v" not in found.types
    assert len(found.rows) == 2


@pytest.mark.sweep(
    "24:00:00",
    "negative TIME",
    "TIME of days",
    "times in a list",
    "nanoseconds in a list",
    "nanoseconds in a struct",
    "nanoseconds in a map",
    "infinity with zone",
    "date of infinity",
    "date of 44 BC",
    "time(7)",
    "datetimeoffset(7)",
    "year 12345",
)
@kinds
def test_a_row_before_a_change_is_read_as_far_as_it_is_needed(
    schema: dict[str, Any], value: Any, text: str, floor: Any
) -> None:
    """T3-B9: a delete needs its key, and an update that mends the value needs nothing of the row before."""
    fields = [ID, {**schema, "field": "v"}]
    records = [
        row("u", {"id": 1, "v": None}, fields, 0, before={"id": 1, "v": value}),
        row("d", None, fields, 1, before={"id": 2, "v": value}),
        row("d", None, fields, 2, before={"id": 3, "v": value}, key=None),
    ]
    tables: list[dict[str, Any]] = [{}, {"name_mapping": {"v": "w"}}, {"on_misfit": {"v": "text"}}]
    for table in tables:
        found = equal(records, primary_key=["id"], **table)
        assert not found.dead
        assert [found.rows[offset][0]["_cdc_op"] for offset in range(3)] == ["u", "d", "d"]
        assert [found.rows[offset][0]["id"] for offset in range(3)] == [1, 2, 3]


def test_values_that_fit_are_texts_too_where_others_land_as_such() -> None:
    """One column has one type: that of a text, and values are written alike, by rows and by columns."""
    texts = {
        "NanoTimestamp": (NANO, [0, 1000, 1_500_000], ["1970-01-01T00:00:00", "1970-01-01T00:00:00.000001", "1970-01-01T00:00:00.001500"]),
        "ZonedTimestamp": (ZONED, ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+01:00"], ["2024-01-01T00:00:00Z", "2023-12-31T23:00:00.500000Z"]),
        "Date": (DAY, [0, -719_162], ["1970-01-01", "0001-01-01"]),
        "MicroTime": (CLOCK, [1, 3_600_000_000], ["00:00:00.000001", "01:00:00"]),
        "Decimal": (named("bytes", f"{CONNECT}Decimal", parameters={"scale": "2"}), [decimal(-5), decimal(10**20)], ["-0.05", "1000000000000000000.00"]),
        "list": (STAMPS, [[0], []], ['["1970-01-01T00:00:00"]', "[]"]),
        "double": ({"type": "double"}, [1.5, "NaN", 1e300], ["1.5", "nan", "1e+300"]),
        "boolean": ({"type": "boolean"}, [True], ["true"]),
        "bytes": ({"type": "bytes"}, ["AP8="], ["AP8="]),
    }  # fmt: skip
    for kind, (schema, given, expected) in texts.items():
        for table in ({"on_misfit": {"v": "text"}}, {"on_misfit": {"v": "text"}, "format": "iceberg"}):
            found = values(inserts(schema, given), **table)
            assert found == dict(enumerate(expected)), kind


def test_a_table_that_has_the_column_as_a_time_keeps_its_type() -> None:
    schema = pa.schema({"id": pa.int64(), "v": pa.timestamp("us")})
    found = equal(inserts(NANO, [1000, 1]), schema=schema, on_misfit={"v": "text"}, primary_key=["id"])
    assert found.rows[0][0]["v"] == datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert "on_misfit text needs a column of texts, and the table's is timestamp[us]" in found.dead[1]
    schema = schema.set(1, pa.field("v", pa.string()))
    found = equal(inserts(NANO, [1000, 1]), schema=schema, on_misfit={"v": "text"}, primary_key=["id"])
    assert found.rows[1][0]["v"] == "1970-01-01T00:00:00.000000001"


def test_a_key_that_does_not_fit_lands_as_a_text_or_not_at_all() -> None:
    """Two keys that are told apart by nanoseconds would be one row, and NULL is no key."""
    fields = [{**NANO, "field": "id"}]
    records = []
    for at in (1001, 1002):
        content = with_schema(event("c", {"id": at}, source=postgres(at, "a")), fields)
        coded = {"schema": struct(fields, "a.Key"), "payload": {"id": at}}
        records.append(record(content, coded, offset=at))
    for mode in ("null", "floor", "dead-letter"):
        found = equal(records, on_misfit=mode)
        assert sorted(found.dead) == [1001, 1002]
    found = equal(records, on_misfit={"id": "text"})
    assert [found.rows[at][0]["id"] for at in (1001, 1002)] == [
        "1970-01-01T00:00:00.000001001",
        "1970-01-01T00:00:00.000001002",
    ]


def test_a_value_that_the_tables_column_does_not_take_is_null_where_the_table_says_so() -> None:
    """T3-B15: the reason names the column's type, not what Arrow calls it."""
    digits = {"scale": "2", "connect.decimal.precision": "12"}
    wide = named("bytes", f"{CONNECT}Decimal", parameters=digits)
    schema = pa.schema({"id": pa.int64(), "v": pa.decimal128(10, 2)})
    given = inserts(wide, [decimal(7), decimal(10**11), None])
    found = equal(given, schema=schema, primary_key=["id"])
    assert (
        found.dead[1]
        == "column 'v': 1000000000.00 does not fit the table's decimal(10, 2); widen the column, map it to a new "
        "name (name_mapping), or set on_misfit"
    )
    assert values(given, schema=schema, on_misfit="null") == {0: Decimal("0.07"), 1: None, 2: None}


def test_a_time_of_the_configuration_is_floored_or_null_too() -> None:
    """T3-B13: ``timestamp_fields`` of texts with seven digits."""
    given = inserts({"type": "string"}, ["2024-01-01T00:00:00.1234567", "soon"])
    table: dict[str, Any] = {"timestamp_fields": {"v": "iso8601"}}
    assert not values(given, **table)
    floored = values(given, on_misfit={"v": "floor"}, **table)
    assert floored == {0: datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)}
    assert values(given, on_misfit={"v": "null"}, **table) == {0: None, 1: None}
    assert values(inserts(NANO, [1500]), on_misfit="floor", **table) == {
        0: datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    }


# --- decimals -------------------------------------------------------------------------------------------
@pytest.mark.sweep("7777", "0123", "-1", "1e10")
@pytest.mark.parametrize("text", ["0123", "7777", "1e10", "BAg=", "12.50", "-1"])
def test_a_text_of_a_decimal_without_a_schema_is_read_in_one_way(text: str) -> None:
    """T3-B6: base64 of Connect's Decimal and a number may have one spelling; the configuration says which it is."""
    number = base64.b64decode(text) if text not in {"12.50", "-1"} else None
    precise = None if number is None else Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-2)
    plain = None if text == "BAg=" else Decimal(text)
    for mode, expected in ((None, None), ("precise", precise), ("string", plain), ("double", plain)):
        for many in (1, 100):
            records = [
                record(event("c", {"id": at, "v": text}, source=postgres(at, "a")), {"id": at}, offset=at)
                for at in range(many)
            ]
            settings = {} if mode is None else {"decimal_handling_mode": mode}
            ways = outcomes(records, job_settings=settings, decimal_fields={"v": [14, 2]}, primary_key=["id"])
            assert ways[0].told() == ways[1].told()
            for found in ways:
                assert [one[0]["v"] for one in found.rows.values()] == (
                    [] if expected is None else [expected] * many
                )
                assert mode is not None or "decimal_handling_mode" in found.dead[0]
                assert mode is not None or "base64" in found.dead[0]


def test_a_number_and_a_decimal_of_its_own_scale_need_no_setting() -> None:
    records = [
        record(event("c", {"id": at, "v": value}, source=postgres(at, "a")), {"id": at}, offset=at)
        for at, value in enumerate([12.5, 7, {"scale": 3, "value": "MDk="}])
    ]
    found = equal(records, decimal_fields={"v": [14, 3]}, primary_key=["id"])
    assert [found.rows[at][0]["v"] for at in range(3)] == [Decimal("12.5"), Decimal(7), Decimal("12.345")]


@pytest.mark.sweep("-3-130000", "0-130000", "50-130000")
@pytest.mark.parametrize("digits", [39, 400, 401, 4301, 130_000])
@pytest.mark.parametrize("scale", [0, 50, -3])
def test_a_number_of_very_many_digits_is_exact(digits: int, scale: int) -> None:
    """T3-B7: PostgreSQL's numeric has up to 131,072 digits before the point and 16,383 behind it."""
    written = ("1234567890" * (digits // 10 + 1))[:digits]
    number = int(Decimal(written)) if digits > 4300 else int(written)
    schema = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]}  # fmt: skip
    expected = (
        written + "000" if scale < 0 else (f"{written[:-scale]}.{written[-scale:]}" if scale else written)
    )
    if scale > 0 and digits <= scale:
        expected = f"0.{written.rjust(scale, '0')}"
    for sign in (1, -1):
        given = inserts(schema, [{"scale": scale, "value": decimal(sign * number)}])
        assert values(given) == {0: ("-" if sign < 0 else "") + expected}


@pytest.mark.parametrize("scale", [100_001, -100_001, 2**31 - 1])
def test_a_number_of_a_scale_that_fills_the_memory_is_a_dead_letter(scale: int) -> None:
    schema = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]}  # fmt: skip
    assert not values(inserts(schema, [{"scale": scale, "value": "AQ=="}]))


@pytest.mark.sweep("0e-99999999", "-1e-999999999", "1e-10000000")
@pytest.mark.parametrize("number", ["1e999999999", "-1e-999999999", "0e-99999999", "1e-10000000"])
def test_a_number_with_a_huge_exponent_is_a_dead_letter_and_does_not_end_the_process(number: str) -> None:
    """Arrow writes over its stack where it makes a decimal of one."""
    for many in (1, 100):
        records = []
        for at in range(many):
            content = json.dumps(event("c", {"id": at, "v": "<v>"}, source=postgres(at, "a")))
            records.append(record(content.replace('"<v>"', number).encode(), {"id": at}, offset=at))
        for table in (
            {"decimal_fields": {"v": [14, 2]}},
            {"schema": pa.schema({"id": pa.int64(), "v": pa.decimal128(14, 2)})},
            {"schema": pa.schema({"id": pa.int64(), "v": pa.list_(pa.decimal128(14, 2))})},
        ):
            assert not values(records, **table)
        assert values(records, on_misfit={"v": "text"}) == dict.fromkeys(range(many), str(Decimal(number)))
    precise = named("bytes", f"{CONNECT}Decimal", parameters={"scale": "2"})
    for schema in (precise, {**precise, "parameters": {"scale": "60"}}):
        content = inserts(schema, ["<v>"])[0].value or b""
        assert not values([record(content.replace(b'"<v>"', number.encode()), offset=0)])


def test_texts_of_values_without_a_schema_are_as_they_were_written() -> None:
    written = [
        "7",
        "0.50",
        '"x"',
        "true",
        "9223372036854775808",
        '[1,0.50,"é"]',
        '{"a":1.0}',
        "12345678901234567890.5",
    ]
    for many in (1, 20):
        records = []
        for at, text in enumerate(written * many):
            content = json.dumps(event("c", {"id": at, "v": "<v>"}, source=postgres(at, "a")))
            records.append(record(content.replace('"<v>"', text).encode(), {"id": at}, offset=at))
        expected = [text.strip('"') if text == '"x"' else text for text in written * many]
        assert values(records, on_misfit={"v": "text"}) == dict(enumerate(expected))


# --- what the source left out ---------------------------------------------------------------------------
RAW = b"__debezium_unavailable_value"
FLAGS = {"type": "array", "items": {"type": "boolean"}}


def test_a_list_that_may_be_the_placeholder_or_a_value_is_a_dead_letter_under_each_setting() -> None:
    """T3-B8: of boolean[] Debezium makes a list of as many times true as the placeholder has bytes."""
    given = inserts(FLAGS, [[True] * len(RAW), [True] * 3, [True] * 27 + [False]])
    for mode in ("dead-letter", "null", "floor", "text"):
        found = equal(given, on_misfit={"v": mode}, primary_key=["id"])
        assert sorted(found.dead) == [0]
        assert "REPLICA IDENTITY FULL" in found.dead[0]
    assert not equal(given, leave_out=["v"], primary_key=["id"]).dead


# --- keys of other converters ---------------------------------------------------------------------------
@pytest.mark.sweep("100")
@pytest.mark.parametrize("key", [b"Struct{id=1}", (1).to_bytes(8, "big"), b"1", b'"1"', b"\xff", b"[1]"])
@pytest.mark.parametrize("many", [1, 100])
def test_a_key_of_another_converter_matters_only_where_it_is_needed(key: bytes, many: int) -> None:
    """T3-B15: key.converter is StringConverter or LongConverter, and the rows have the key."""
    fields = [ID, {"type": "string", "field": "v"}]
    whole = [replace(row("c", {"id": at, "v": "x"}, fields, at), key=key) for at in range(many)]
    found = equal(whole, primary_key=["id"])
    assert len(found.rows) == many
    found = equal(whole)
    assert len(found.dead) == many
    assert "key" in found.dead[0]
    assert "primary_key" in found.dead[0]
    gone = [replace(row("d", None, fields, 0, key=None), key=key)]
    assert "key" in equal(gone, primary_key=["id"]).dead[0]


def test_events_of_a_connector_whose_rows_are_documents_name_it() -> None:
    source = {**postgres(1, "a"), "connector": "mongodb"}
    for given in (source, {"connector": "mongodb", "collection": "a", "db": "d"}):
        found = equal([record(event("c", '{"_id": 1}', source=given), {"id": "1"})], primary_key=["id"])
        assert "mongodb" in found.dead[0]


# --- on disk --------------------------------------------------------------------------------------------
@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_rows_of_odd_times_land_change_and_go(tmp_path: Path, form: str) -> None:
    """T3-B9, T3-B13: SQL Server's datetime2(7), PostgreSQL's infinity, MySQL's TIME; read by deltalake and PyIceberg."""
    kinds = [NANO, MICRO, CLOCK, DAY, ZONED]
    odd = [1_648_811_502_929_775_100, INFINITY, 3_020_399_000_000, 2**31 - 1, "2024-01-01T00:00:00.1234567Z"]
    fields = [ID, *({**kind, "field": f"c{at}"} for at, kind in enumerate(kinds))]
    whole = {f"c{at}": value for at, value in enumerate(odd)}
    empty = dict.fromkeys(whole)
    modes = {"c0": "floor", "c1": "null", "c2": "text", "c3": "text"}
    job = Job(tmp_path, [{"table": "a", "on_misfit": modes, "leave_out": ["c4"]}], form, schemas=False)
    job.land(
        row("c", {"id": 1, **whole}, fields, 0), row("c", {"id": 2, **whole}, fields, 1), row("c", {"id": 3, **whole}, fields, 2),
        row("c", {"id": 4, **empty, "c3": 0}, fields, 3),
    )  # fmt: skip
    landed = {"id": 1, "c0": LATE, "c1": None, "c2": "838:59:59", "c3": "infinity"}
    assert job.rows("a")[1] == landed
    assert job.rows("a")[4] == {
        "id": 4,
        "c0": None,
        "c1": None,
        "c2": None,
        "c3": date(1970, 1, 1).isoformat(),
    }
    job.land(
        row("u", {"id": 1, **empty}, fields, 4, before={"id": 1, **whole}), row("d", None, fields, 5, before={"id": 2, **whole}),
        row("u", {"id": 3, **whole}, fields, 6, before={"id": 9, **whole}), number=1,
    )  # fmt: skip
    assert job.rows("a")[1] == {"id": 1, "c0": None, "c1": None, "c2": None, "c3": None}
    assert sorted(job.rows("a")) == [1, 3, 4]
    assert not job.letters()
