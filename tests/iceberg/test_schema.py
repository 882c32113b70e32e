"""A frame's types become Iceberg's and come back as the Arrow types that frames are conformed to."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.prepare import prepare
from safewrite.frames.source import as_frame
from safewrite.iceberg.data.schema import (
    arrow_schema,
    column_type,
    iceberg_schema,
    known_columns,
    read_schema,
    struct_path,
)
from safewrite.values.types import UTC_TIMESTAMP, list_of, map_of
from tests.frames.strategies import plain, tables

ONE = uuid.UUID(int=1)

TYPES: list[tuple[IcebergType, pa.DataType]] = [
    (BooleanType(), pa.bool_()),
    (IntegerType(), pa.int32()),
    (LongType(), pa.int64()),
    (FloatType(), pa.float32()),
    (DoubleType(), pa.float64()),
    (DecimalType(9, 2), pa.decimal128(9, 2)),
    (DateType(), pa.date32()),
    (TimeType(), pa.time64("us")),
    (TimestampType(), pa.timestamp("us")),
    (TimestamptzType(), UTC_TIMESTAMP),
    (TimestampNanoType(), pa.timestamp("ns")),
    (TimestamptzNanoType(), pa.timestamp("ns", tz="UTC")),
    (StringType(), pa.string()),
    (UUIDType(), pa.binary(16)),
    (FixedType(7), pa.binary(7)),
    (BinaryType(), pa.binary()),
]


@pytest.mark.parametrize(("iceberg", "arrow"), TYPES, ids=str)
def test_each_type_has_one_arrow_type(iceberg: IcebergType, arrow: pa.DataType) -> None:
    schema = Schema(NestedField(1, "a", iceberg, required=False), NestedField(2, "b", iceberg, required=True))
    assert arrow_schema(schema) == pa.schema([("a", arrow), pa.field("b", arrow, nullable=False)])


def test_what_is_required_is_not_nullable_however_deep() -> None:
    inner = StructType(NestedField(5, "x", LongType(), required=True), NestedField(6, "y", LongType()))
    schema = Schema(
        NestedField(1, "l", ListType(2, inner, element_required=True)),
        NestedField(3, "m", MapType(4, StringType(), 7, DoubleType(), value_required=False)),
    )
    struct = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.int64())])
    assert arrow_schema(schema) == pa.schema(
        [
            ("l", list_of(pa.field("element", struct, nullable=False))),
            ("m", map_of(pa.string(), pa.field("value", pa.float64()))),
        ]
    )


def test_a_type_that_is_not_known_is_told_by_the_name_of_its_column() -> None:
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "v", GeometryType()))), NestedField(3, "id", LongType())
    )
    assert arrow_schema(schema).names == ["id"]
    assert [one.name for one in known_columns(schema).fields] == ["id"]
    read, unread = read_schema(schema)
    assert read.names == ["id"]
    assert re.search(r"'s\.v'.*geometry", unread["s"])


def test_a_column_of_the_type_unknown_is_null() -> None:
    """Iceberg table specification, "Primitive Types": always optional and NULL, and never in a file."""
    assert arrow_schema(Schema(NestedField(1, "v", UnknownType()))).field("v").type == pa.null()


CREATED: list[tuple[pa.DataType, IcebergType]] = [
    (pa.int8(), IntegerType()),
    (pa.int16(), IntegerType()),
    (pa.uint8(), IntegerType()),
    (pa.uint16(), IntegerType()),
    (pa.uint32(), LongType()),
    (pa.time32("s"), TimeType()),
    (pa.time64("ns"), TimeType()),
    (pa.timestamp("ns"), TimestampType()),
    (pa.timestamp("s", tz="Europe/Berlin"), TimestamptzType()),
    (pa.date64(), DateType()),
    (pa.large_string(), StringType()),
    (pa.dictionary(pa.int8(), pa.string()), StringType()),
    (pa.uuid(), UUIDType()),
    (pa.dictionary(pa.int8(), pa.uuid()), UUIDType()),
    (pa.binary(16), FixedType(16)),
    (pa.decimal128(38, 38), DecimalType(38, 38)),
]


@pytest.mark.parametrize(("arrow", "iceberg"), CREATED, ids=str)
def test_a_new_column_gets_the_smallest_type_that_holds_every_value(
    arrow: pa.DataType, iceberg: IcebergType
) -> None:
    schema = iceberg_schema(pa.schema([("a", arrow)]))
    assert schema.fields[0].field_type == iceberg
    assert arrow_schema(schema).field("a").type == column_type(arrow, "a")


@pytest.mark.parametrize(
    ("arrow", "message"),
    [
        (pa.null(), "only NULL"),
        (pa.uint64(), "decimal"),
        (pa.float16(), "float32"),
        (pa.duration("s"), "microseconds"),
        (pa.struct([]), "without fields"),
        (pa.list_(pa.duration("s")), "a.element"),
    ],
)
def test_what_no_iceberg_type_holds_is_refused(arrow: pa.DataType, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        iceberg_schema(pa.schema([("a", arrow)]))


@given(tables())
def test_a_created_table_has_the_types_that_a_first_frame_is_conformed_to(table: pa.Table) -> None:
    schema = iceberg_schema(table.schema)
    (found,) = prepare(table, arrow_schema(schema)).tables() if table.num_rows else [table.slice(0, 0)]
    assert plain(found) == plain(table)
    ids = list(schema._lazy_id_to_name)
    assert sorted(ids) == list(range(1, len(ids) + 1))


def test_uuids_and_times_of_day_are_taken_from_python_objects_at_any_depth() -> None:
    data = pd.DataFrame({"u": [ONE, None], "s": [{"u": [ONE]}, None], "t": [dt.time(1, 2, 3, 4), None]})
    schema = iceberg_schema(as_frame(data).arrow_schema())
    assert [str(f.field_type) for f in schema.fields] == ["uuid", "struct<4: u: optional list<uuid>>", "time"]
    (table,) = prepare(data, arrow_schema(schema)).tables()
    assert table.to_pylist()[0] == {"u": ONE.bytes, "s": {"u": [ONE.bytes]}, "t": dt.time(1, 2, 3, 4)}


EXACT: list[tuple[Any, pa.DataType, list[Any]]] = [
    ([dt.time(23, 59, 59, 999999), None], pa.time64("us"), [dt.time(23, 59, 59, 999999), None]),
    (pa.array([1], pa.time32("ms")), pa.time64("us"), [dt.time(0, 0, 0, 1000)]),
    (pa.array([1000], pa.time64("ns")), pa.time64("us"), [dt.time(0, 0, 0, 1)]),
    ([b"abc", None], pa.binary(3), [b"abc", None]),
    (pa.array([b"abc", None], pa.large_binary()), pa.binary(3), [b"abc", None]),
    ([ONE, None], pa.binary(16), [ONE.bytes, None]),
    ([ONE.bytes], pa.binary(16), [ONE.bytes]),
    ([ONE], pa.binary(), [ONE.bytes]),
    ([[ONE, None], None], list_of(pa.field("element", pa.binary(16))), [[ONE.bytes, None], None]),
    (pa.array([ONE.bytes], pa.binary(16)), pa.binary(16), [ONE.bytes]),
    (
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
        pa.timestamp("ns", tz="UTC"),
        [pd.Timestamp("2020-01-01", tz="UTC")],
    ),
]


@pytest.mark.parametrize(("values", "target", "expected"), EXACT, ids=str)
def test_values_of_icebergs_own_types_are_kept(values: Any, target: pa.DataType, expected: list[Any]) -> None:
    (table,) = prepare({"a": values}, pa.schema([("a", target)])).tables()
    assert table.column("a").type == target
    assert table.column("a").to_pylist() == expected


LOSSY: list[tuple[Any, pa.DataType, str]] = [
    (pa.array([0, 1001], pa.time64("ns")), pa.time64("us"), "row 1"),
    (pa.array([0, 86_400_000_000], pa.time64("us")), pa.time64("us"), "row 1.*24:00"),
    (pa.array([-1], pa.time64("us")), pa.time64("us"), "row 0"),
    (pa.array([1], pa.int64()), pa.time64("us"), "time of day"),
    (["12:00"], pa.time64("us"), "time of day"),
    (pa.array([1], pa.time64("us")), pa.int64(), "never turned"),
    (pa.array([1], pa.time64("us")), pa.string(), "never turned"),
    ([b"abc", b"ab"], pa.binary(3), "row 1"),
    (pa.array([b"abcd"], pa.binary(4)), pa.binary(3), "row 0"),
    ([str(ONE)], pa.binary(16), "length 16"),
    ([ONE], pa.string(), "never turned"),
    ([dt.datetime(1600, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ns", tz="UTC"), "row 0"),
]


@pytest.mark.parametrize(("values", "target", "message"), LOSSY, ids=str)
def test_values_that_would_change_are_refused(values: Any, target: pa.DataType, message: str) -> None:
    with pytest.raises(WouldAlterError, match=message):
        prepare({"a": values}, pa.schema([("a", target)]))


def test_a_time_of_day_with_a_zone_is_refused_and_not_stripped() -> None:
    with pytest.raises(InvalidInputError, match="zone"):
        prepare({"a": [dt.time(1, tzinfo=dt.UTC)]}, pa.schema([("a", pa.time64("us"))]))


@pytest.mark.parametrize("values", [[dt.time(1)], [ONE]], ids=["time", "uuid"])
def test_a_new_delta_table_has_neither_times_of_day_nor_uuids(values: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="cannot be a table column"):
        prepare({"a": values}, None)


def test_fingerprints_of_times_and_fixed_bytes_go_by_value() -> None:
    def of(values: Any, target: pa.DataType) -> str:
        return str(prepare({"a": values}, pa.schema([("a", target)])).fingerprint)

    clock, fixed = pa.time64("us"), pa.binary(16)
    assert of([dt.time(0, 0, 1), None], clock) == of(pa.array([1, None], pa.time32("s")), clock)
    assert of([dt.time(0, 0, 1)], clock) != of([dt.time(0, 0, 2)], clock)
    assert of([ONE, None], fixed) == of([ONE.bytes, None], fixed)
    assert of([ONE], fixed) != of([uuid.UUID(int=2)], fixed)
    many = [uuid.UUID(int=i).bytes for i in range(70_000)]  # more than a block: pieces have offsets
    assert of(many, fixed) == of(many[::-1], fixed)


def test_the_path_of_a_field_goes_through_structs_only() -> None:
    arrow = pa.schema(
        [("a", pa.struct([("b", pa.struct([("c", pa.int32())]))])), ("l", pa.list_(pa.int32()))]
    )
    schema = iceberg_schema(arrow)
    assert struct_path(schema, schema.find_field("a.b.c").field_id) == ("a", "b", "c")
    assert struct_path(schema, schema.find_field("l.element").field_id) is None
