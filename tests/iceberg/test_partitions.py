"""Partition texts mean what they say, and transforms of arrays are those of Iceberg's specification."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from safewrite.errors import InvalidInputError, UnsupportedTableError, WouldAlterError
from safewrite.frames.prepare import prepare
from safewrite.iceberg.data import partitions
from safewrite.iceberg.data.grouping import groups, sorted_rows
from safewrite.iceberg.data.schema import arrow_schema, arrow_type, iceberg_schema
from safewrite.iceberg.data.transforms import decimal_bytes, physical, transformed
from tests.frames.strategies import values_of

D = decimal.Decimal
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "day(ts)", StringType()),
    NestedField(4, "a", StructType(NestedField(5, "b", StringType()))),
    NestedField(6, "l", ListType(7, StringType())),
    NestedField(8, "id_bucket_16", IntegerType()),
    NestedField(9, "my col desc", DecimalType(9, 2)),
    NestedField(10, "x", TimestampType()),
)


@pytest.mark.parametrize(
    ("text", "source", "transform", "name"),
    [
        ("id", 1, IdentityTransform(), "id"),
        ("a.b", 5, IdentityTransform(), "a.b"),
        ("day(ts)", 3, IdentityTransform(), "day(ts)"),  # a column of that name
        ("days(ts)", 2, DayTransform(), "ts_day"),
        (" Day( x ) ", 10, DayTransform(), "x_day"),
        ("year(ts)", 2, YearTransform(), "ts_year"),
        ("month(ts)", 2, MonthTransform(), "ts_month"),
        ("hour(ts)", 2, HourTransform(), "ts_hour"),
        ("bucket(4, id)", 1, BucketTransform(4), "id_bucket_4"),
        ("bucket(16,id)", 1, BucketTransform(16), "id_bucket_16_part"),  # the name is a column's
        ("truncate(4, a.b)", 5, TruncateTransform(4), "a.b_trunc_4"),
        ("truncate(50, my col desc)", 9, TruncateTransform(50), "my col desc_trunc_50"),
        ("void(x)", 10, VoidTransform(), "x_null"),
    ],
)
def test_a_text_means_a_transform_of_a_column(
    text: str, source: int, transform: Transform[Any, Any], name: str
) -> None:
    found = partitions.spec([text], SCHEMA)
    assert found == PartitionSpec(PartitionField(source, 1000, transform, name))
    again = partitions.spec(partitions.spelled(found, SCHEMA), SCHEMA)
    assert again == found or text.startswith(("days", "day("))


def test_several_texts_get_ids_in_their_order_and_names_of_their_own() -> None:
    found = partitions.spec(["bucket(4, id)", "id", "day(x)", "void(id)"], SCHEMA)
    assert [(f.field_id, f.name) for f in found.fields] == [
        (1000, "id_bucket_4"),
        (1001, "id"),
        (1002, "x_day"),
        (1003, "id_null"),
    ]
    assert partitions.spec([], SCHEMA).is_unpartitioned()
    assert partitions.spec(found, SCHEMA) is found


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["nope"], "names no column"),
        (["ID"], "names no column"),
        (["day(nope)"], "names no column"),
        (["day(id)"], "does not take the type long"),
        (["truncate(3, ts)"], "does not take the type timestamptz"),
        (["a"], "does not take the type struct"),
        (["l.element"], "inside a list"),
        (["bucket(id)"], "no transform"),
        (["bucket(0, id)"], "from 1 to"),
        (["bucket(4294967296, id)"], "from 1 to"),
        (["week(ts)"], "no transform"),
        ([3], "list of texts"),
        ("id", "list of texts"),
        (["id", "id"], "already divides"),
        (["days(ts)", "hour(ts)"], "already divides"),
        (PartitionSpec(PartitionField(1, 1000, DayTransform(), "d")), "does not fit"),
        (PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "d")), "does not fit"),
    ],
)
def test_other_texts_are_refused(texts: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        partitions.spec(texts, SCHEMA)


def test_a_sort_text_may_say_the_direction_and_the_place_of_null() -> None:
    texts = ["id", "ts desc", "bucket(16, id) ASC nulls last", "my col desc", "my col desc desc NULLS FIRST"]
    up, down, first, last = SortDirection.ASC, SortDirection.DESC, NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
    assert partitions.sort(texts, SCHEMA) == SortOrder(
        SortField(1, IdentityTransform(), up, first),
        SortField(2, IdentityTransform(), down, last),
        SortField(1, BucketTransform(16), up, last),
        SortField(9, IdentityTransform(), up, first),
        SortField(9, IdentityTransform(), down, first),
    )
    assert partitions.sort([], SCHEMA).is_unsorted


@pytest.mark.parametrize("texts", [["nope desc"], ["id descending"], ["l"], [1], "id"])
def test_other_sort_texts_are_refused(texts: Any) -> None:
    with pytest.raises(InvalidInputError):
        partitions.sort(texts, SCHEMA)


HASHES: list[tuple[PrimitiveType, Any, int]] = [  # Iceberg specification, Appendix B
    (IntegerType(), 34, 2017239379),
    (LongType(), 34, 2017239379),
    (DecimalType(9, 2), D("14.20"), -500754589),
    (DateType(), dt.date(2017, 11, 16), -653330422),
    (TimeType(), dt.time(22, 31, 8), -662762989),
    (TimestampType(), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),  # noqa: DTZ001
    (TimestampType(), dt.datetime(2017, 11, 16, 22, 31, 8, 1), -1207196810),  # noqa: DTZ001
    (TimestamptzType(), dt.datetime(2017, 11, 16, 22, 31, 8, tzinfo=dt.UTC), -2047944441),
    (TimestampNanoType(), 1510871468000001001, -1207196810),
    (StringType(), "iceberg", 1210000089),
    (UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (FixedType(4), b"\x00\x01\x02\x03", -188683207),
    (BinaryType(), b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("kind", "value", "hashed"), HASHES, ids=str)
def test_buckets_are_those_of_the_specification(kind: PrimitiveType, value: Any, hashed: int) -> None:
    column = pa.array([value, None, value], arrow_type(kind, "a"))
    for buckets in (16, 2**31 - 1):
        expected = (hashed & (2**31 - 1)) % buckets
        assert _apply(column, BucketTransform(buckets), kind) == [expected, None, expected]


def test_a_negative_decimal_is_hashed_by_its_shortest_bytes() -> None:  # PyIceberg 0.11 takes one too many
    assert decimal_bytes(D("-1.28")) == b"\x80"
    assert _apply(pa.array([D("-1.28")], pa.decimal128(9, 2)), BucketTransform(1000), DecimalType(9, 2)) == [
        (mmh3.hash(b"\x80") & (2**31 - 1)) % 1000
    ]


TRUNCATED: list[tuple[PrimitiveType, int, Any, Any]] = [
    (IntegerType(), 10, 1, 0),
    (IntegerType(), 10, -1, -10),
    (LongType(), 2**31 - 1, -1, -(2**31) + 1),
    (DecimalType(4, 2), 50, D("10.65"), D("10.50")),
    (DecimalType(4, 2), 50, D("-0.05"), D("-0.50")),
    (StringType(), 3, "iceberg", "ice"),
    (StringType(), 2, "ü\U0001f600x", "ü\U0001f600"),
    (StringType(), 3, "", ""),
    (BinaryType(), 3, b"\x00\xff\x01\x02", b"\x00\xff\x01"),
]


@pytest.mark.parametrize(("kind", "width", "value", "expected"), TRUNCATED, ids=str)
def test_truncation_goes_down_and_cuts_whole_characters(
    kind: PrimitiveType, width: int, value: Any, expected: Any
) -> None:
    column = pa.array([value, None], arrow_type(kind, "a"))
    assert _apply(column, TruncateTransform(width), kind) == [expected, None]


@pytest.mark.parametrize(
    ("kind", "width", "value"),
    [(IntegerType(), 10, -(2**31)), (LongType(), 10, -(2**63)), (DecimalType(2, 0), 50, D(-99))],
    ids=str,
)
def test_a_number_that_truncation_would_wrap_around_is_refused(
    kind: PrimitiveType, width: int, value: Any
) -> None:
    with pytest.raises(WouldAlterError, match="'a'"):
        _apply(pa.array([0, value], arrow_type(kind, "a")), TruncateTransform(width), kind)


TIMES: dict[str, tuple[PrimitiveType, list[Transform[Any, Any]]]] = {
    "date": (DateType(), [YearTransform(), MonthTransform(), DayTransform()]),
    "timestamp": (TimestampType(), [YearTransform(), MonthTransform(), DayTransform(), HourTransform()]),
    "instant": (TimestamptzType(), [YearTransform(), MonthTransform(), DayTransform(), HourTransform()]),
}


@pytest.mark.parametrize("name", TIMES)
@given(data=st.data())
def test_years_months_days_and_hours_are_those_of_pyiceberg(name: str, data: st.DataObject) -> None:
    kind, transforms = TIMES[name]
    arrow = arrow_type(kind, "a")
    column = pa.array(data.draw(st.lists(values_of(arrow), max_size=6)), arrow)
    for transform in transforms:
        expected = [transform.transform(kind)(value) for value in physical(column).to_pylist()]
        assert _apply(column, transform, kind) == expected


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform()])
def test_times_before_1970_are_rounded_down(transform: Transform[Any, Any]) -> None:
    for unit, kind in (("us", TimestampType()), ("ns", TimestampNanoType())):
        column = pa.array([-1, 0, None], pa.timestamp(unit))
        assert _apply(column, transform, kind) == [-1, 0, None]


BY_VALUE: list[PrimitiveType] = [
    IntegerType(),
    LongType(),
    StringType(),
    BinaryType(),
    DecimalType(10, 2),
    DecimalType(38, 18),
]


@pytest.mark.sweep("long", "decimal(10, 2)", "binary")
@pytest.mark.parametrize("kind", BY_VALUE, ids=str)
@given(data=st.data(), width=st.integers(1, 2**31 - 1))
def test_buckets_and_truncation_are_those_of_pyiceberg(
    kind: PrimitiveType, data: st.DataObject, width: int
) -> None:
    arrow = arrow_type(kind, "a")
    column = pa.array(data.draw(st.lists(values_of(arrow), max_size=6)), arrow)
    bucket, truncate = BucketTransform(width), TruncateTransform(width)
    if not isinstance(kind, DecimalType):
        assert _apply(column, bucket, kind) == [bucket.transform(kind)(v) for v in column.to_pylist()]
    expected = [truncate.transform(kind)(v) for v in column.to_pylist()]
    try:
        found = _apply(column, truncate, kind)
    except WouldAlterError:
        with pytest.raises((pa.ArrowInvalid, OverflowError)):
            pa.array(expected, arrow)
    else:
        assert found == expected


def test_an_unknown_transform_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="'a'"):
        _apply(pa.array([1]), UnknownTransform("zorder"), LongType())


def _apply(column: pa.Array, transform: Transform[Any, Any], kind: PrimitiveType) -> list[Any]:
    padded = pa.concat_arrays([column.slice(0, 0), column, column])  # and a slice with an offset
    found = transformed(padded.slice(len(column)), transform, kind, "a")
    values: list[Any] = found.to_pylist()
    assert len(values) == len(column)
    return values


def test_null_nan_and_the_empty_text_are_partitions_with_all_their_rows() -> None:  # H5
    nan, other_nan = math.nan, -math.nan
    table = pa.table(
        {
            "s": ["", None, "null", "", None, "NULL", "x"],
            "x": pa.array([nan, nan, -0.0, other_nan, None, 0.0, 0.0], pa.float32()),
        }
    )
    schema = iceberg_schema(table.schema)
    prepared = prepare(table, arrow_schema(schema))
    found = groups(prepared, partitions.spec(["s", "x"], schema), schema)
    named = [(repr(group.values), group.rows.tolist()) for group in found]
    assert named == [
        ("('', nan)", [0, 3]),
        ("(None, nan)", [1]),
        ("('null', 0.0)", [2]),  # -0.0 equals 0.0, and Java compares partition values bit by bit
        ("(None, None)", [4]),
        ("('NULL', 0.0)", [5]),
        ("('x', 0.0)", [6]),
    ]


def test_a_column_within_structs_divides_rows_and_a_null_struct_has_null_in_it() -> None:
    kind = pa.struct([("in", pa.struct([("x", pa.int32())]))])
    table = pa.table({"a": pa.array([{"in": {"x": 1}}, None, {"in": None}, {"in": {"x": 1}}], kind)})
    schema = iceberg_schema(table.schema)
    found = groups(prepare(table, arrow_schema(schema)), partitions.spec(["a.in.x"], schema), schema)
    assert [(group.values, group.rows.tolist()) for group in found] == [((1,), [0, 3]), ((None,), [1, 2])]


@given(st.data())
def test_every_row_is_in_the_group_of_its_values(data: st.DataObject) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from([pa.float32(), pa.string(), pa.bool_()]), min_size=1, max_size=3)
    )
    rows = data.draw(st.integers(1, 12))
    few = {
        pa.float32(): st.sampled_from([0.0, math.nan, 1.5, None]),
        pa.string(): st.sampled_from(["", "a", None]),
        pa.bool_(): st.sampled_from([True, False, None]),
    }
    columns = [pa.array(data.draw(st.lists(few[k], min_size=rows, max_size=rows)), k) for k in kinds]
    table = pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])
    schema = iceberg_schema(table.schema)
    found = groups(prepare(table, arrow_schema(schema)), partitions.spec(table.column_names, schema), schema)
    assert sorted(row for group in found for row in group.rows) == list(range(rows))
    assert len({repr(group.values) for group in found}) == len(found)
    for group in found:
        for row in group.rows:
            assert repr(tuple(column[int(row)].as_py() for column in columns)) == repr(group.values)


def test_a_dropped_column_leaves_nulls_where_its_field_is_void_and_a_refusal_elsewhere() -> None:
    table = pa.table({"id": [1, 2]})
    schema = iceberg_schema(table.schema)
    prepared = prepare(table, arrow_schema(schema))
    void = PartitionSpec(PartitionField(99, 1000, VoidTransform(), "gone"))
    assert [(g.values, g.rows.tolist()) for g in groups(prepared, void, schema)] == [((None,), [0, 1])]
    gone = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"))
    with pytest.raises(UnsupportedTableError, match="gone"):
        groups(prepared, gone, schema)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", [5, 2, 3, 1, 0, 4]),
        ("x desc", [4, 0, 1, 3, 2, 5]),
        ("x nulls last", [2, 3, 1, 0, 4, 5]),
        ("x desc nulls first", [5, 4, 0, 1, 3, 2]),
    ],
)
def test_floats_sort_by_icebergs_order_with_nan_above_all(text: str, expected: list[int]) -> None:
    table = pa.table({"x": [math.inf, 0.0, -math.inf, -0.0, math.nan, None]})
    assert _sorted(table, [text]) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["b", "ä", "\U0001f600", "\uffff", "", None]), [5, 4, 0, 1, 3, 2]),
        (pa.array([b"\xff", b"\x00", b"", None]), [3, 2, 1, 0]),
        (pa.array([True, False, None]), [2, 1, 0]),
        (pa.array([uuid.UUID(int=2**127), uuid.UUID(int=1), None], pa.uuid()), [2, 1, 0]),
        (pa.array([D("1.00"), D("-1.00"), None]), [2, 1, 0]),
        (pa.array([dt.time(2), dt.time(1)]), [1, 0]),
        (pa.array([dt.date(1, 1, 1), dt.date(9999, 1, 1), None]), [2, 0, 1]),
    ],
    ids=["text", "binary", "boolean", "uuid", "decimal", "time", "date"],
)
def test_values_sort_in_the_order_of_their_type(column: pa.Array, expected: list[int]) -> None:
    assert _sorted(pa.table({"x": column}), ["x"]) == expected


def test_rows_that_sort_alike_stay_in_their_order() -> None:
    table = pa.table({"x": [1, 0, 1, 0, None, None], "y": [1, 2, 0, 3, 5, 4]})
    assert _sorted(table, ["x nulls last"]) == [1, 3, 0, 2, 4, 5]
    assert _sorted(table, ["x nulls last", "y desc"]) == [3, 1, 0, 2, 4, 5]
    assert _sorted(table, ["truncate(10, x)", "void(y)"]) == [4, 5, 0, 1, 2, 3]


def _sorted(table: pa.Table, sort_by: list[str]) -> list[int]:
    schema = iceberg_schema(table.schema)
    order = partitions.sort(sort_by, schema)
    found = sorted_rows(prepare(table, arrow_schema(schema)), order, schema)
    assert found is not None
    rows: list[int] = found.tolist()
    return rows
