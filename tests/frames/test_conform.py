"""Casts that keep every value, and refusals that name the first one that would change."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested
from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.errors import WouldAlterError
from safewrite.frames.conform import conform
from safewrite.frames.source import as_frame
from safewrite.values.types import UTC_TIMESTAMP, list_of, map_of
from tests.frames.strategies import plain, tables

D = decimal.Decimal
INT, REAL, TEXT, NAIVE = pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")


def cast(values: pa.Array | list[Any], target: pa.DataType, *, nullable: bool = True) -> list[Any]:
    piece = as_frame({"a": values}).piece(0, len(values))
    result = conform(piece, pa.schema([pa.field("a", target, nullable=nullable)]))
    result.validate(full=True)
    assert result.schema.field("a").type == target
    return list(result.column("a").to_pylist())


KEPT: list[tuple[Any, pa.DataType]] = [
    (pa.array([-128, 127, None], INT), pa.int8()),
    (pa.array([2**31 - 1], pa.uint32()), pa.int32()),
    (pa.array([2**63 - 1], pa.uint64()), INT),
    (pa.array([255], pa.uint8()), pa.int16()),
    (pa.array([2**53, 2**54, -(2**63), None], INT), REAL),
    (pa.array([16777216], INT), pa.float32()),
    (pa.array([3.0, -0.0, 2.0**62, None]), INT),
    (pa.array([0.5, math.inf, None]), pa.float32()),
    (pa.array([0.1], pa.float32()), REAL),
    (pa.array([123], INT), pa.decimal128(5, 2)),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([D("1.50"), None], pa.decimal128(10, 2)), pa.decimal128(5, 1)),
    (pa.array([D("12.00")], pa.decimal128(10, 2)), INT),
    (pa.array(["x", None], pa.large_string()), TEXT),
    (pa.array(["x", None], pa.string_view()), TEXT),
    (pa.array(["x", None, "x"]).dictionary_encode(), TEXT),
    (pa.array([b"ab"], pa.binary(2)), pa.binary()),
    (pa.array([b"ab", None], pa.large_binary()), pa.binary()),
    (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date64()), pa.date32()),
    (pa.nulls(3), TEXT),
    (pa.nulls(3, TEXT), INT),
    (pa.array([[1], None, [], [2, None]], pa.large_list(INT)), list_of(pa.field("element", pa.int8()))),
    (pa.array([[1, 2], None], pa.list_(INT, 2)), list_of(pa.field("element", INT))),
    (
        pa.array([[("k", 1)], None, []], pa.map_(TEXT, INT)),
        map_of(TEXT, pa.field("value", pa.int16(), nullable=False)),
    ),
]


@pytest.mark.parametrize(("values", "target"), KEPT, ids=str)
def test_values_that_have_an_equal_in_the_target_are_kept(values: Any, target: pa.DataType) -> None:
    assert cast(values, target) == values.to_pylist()


CHANGED: list[tuple[Any, pa.DataType, str]] = [
    (pa.array([0, 2**31], INT), pa.int32(), "row 1: 2147483648"),
    (pa.array([2**63], pa.uint64()), INT, "row 0"),
    (pa.array([0, 2**53 + 1], INT), REAL, "row 1: 9007199254740993"),
    (pa.array([2**63 - 1], INT), REAL, "row 0"),
    (pa.array([2**64 - 1], pa.uint64()), REAL, "row 0"),
    (pa.array([16777217], INT), pa.float32(), "row 0"),
    (pa.array([1.0, 3.7]), INT, "row 1: 3.7"),
    (pa.array([1.0, math.nan]), INT, "Int64"),
    (pa.array([math.inf]), INT, "row 0"),
    (pa.array([2.0**63]), INT, "row 0"),
    (pa.array([0.1]), pa.float32(), "row 0: 0.1"),
    (pa.array([1e300]), pa.float32(), "row 0"),
    (pa.array([123456], INT), pa.decimal128(5, 2), "row 0"),
    (pa.array([D("1.555")]), pa.decimal128(10, 2), r"row 0: Decimal\('1.555'\)"),
    (pa.array([D("12345678901")]), pa.decimal128(10, 2), "row 0"),
    (pa.array([D("1.5")]), INT, "row 0"),
    (pa.array([None, 1577836800000000001], pa.timestamp("ns")), NAIVE, "row 1"),
    (pa.array([2**60], pa.timestamp("s")), NAIVE, "row 0"),
    (pa.array([-62135596801], pa.timestamp("s")), NAIVE, "year"),
    (pa.array([253402300800], pa.timestamp("s", tz="UTC")), UTC_TIMESTAMP, "year"),
    (pa.array([3_000_000], pa.date32()), pa.date32(), "year"),
    (pa.array([1], pa.date64()), pa.date32(), "row 0"),
    (
        pa.array([[1], None, [], [2, 300]], pa.list_(INT)),
        list_of(pa.field("element", pa.int8())),
        "row 3: 300",
    ),
]


@pytest.mark.parametrize(("values", "target", "message"), CHANGED, ids=str)
def test_a_value_that_would_change_is_refused_by_row_and_value(
    values: Any, target: pa.DataType, message: str
) -> None:  # H3, H4
    with pytest.raises(WouldAlterError, match=message):
        cast(values, target)


NEVER: list[tuple[Any, pa.DataType]] = [
    (pa.array(["1"]), INT),
    (pa.array([1]), TEXT),
    (pa.array([True]), INT),
    (pa.array([1]), pa.bool_()),
    (pa.array([0.5]), pa.decimal128(3, 1)),
    (pa.array([D("0.5")]), REAL),
    (pa.array([b"x"]), TEXT),
    (pa.array(["x"]), pa.binary()),
    (pa.array([0], pa.date32()), NAIVE),
    (pa.array([0], pa.timestamp("us")), pa.date32()),
    (pa.array([0], pa.timestamp("us")), UTC_TIMESTAMP),
    (pa.array([0], UTC_TIMESTAMP), NAIVE),
    (pa.array([0], pa.duration("s")), INT),
    (pa.array([0], pa.time64("us")), INT),
    (pa.array([1.0], pa.float16()), REAL),
    (pa.array([[1]]), INT),
    (pa.array([{"x": 1}]), pa.map_(TEXT, INT)),
    (pa.array([[1], None, [2, 3]], pa.list_view(INT)), list_of(pa.field("element", INT))),
]


@pytest.mark.parametrize(("values", "target"), NEVER, ids=str)
def test_types_of_another_meaning_are_never_cast(values: Any, target: pa.DataType) -> None:  # H4
    with pytest.raises(WouldAlterError, match="never turned"):
        cast(values, target)


def test_columns_go_by_name_and_not_by_position() -> None:  # H2
    target = pa.schema([("a", INT), ("b", INT)])
    assert conform(pa.table({"b": [2], "a": [1]}), target).to_pydict() == {"a": [1], "b": [2]}


def test_an_extra_column_is_refused_with_a_hint_at_its_spelling() -> None:  # H1
    target = pa.schema([("a", INT)])
    with pytest.raises(WouldAlterError, match="'b' is not in the table"):
        conform(pa.table({"a": [1], "b": [2]}), target)
    with pytest.raises(WouldAlterError, match="the table has 'a'"):
        conform(pa.table({"A": [1]}), target)


def test_a_missing_column_is_refused_unless_null_is_meant() -> None:  # H1
    target = pa.schema([pa.field("a", INT), pa.field("b", TEXT)])
    with pytest.raises(WouldAlterError, match="'b' of the table is missing"):
        conform(pa.table({"a": [1]}), target)
    assert conform(pa.table({"a": [1]}), target, allow_missing=True).to_pylist() == [{"a": 1, "b": None}]
    strict = pa.schema([pa.field("a", INT), pa.field("b", TEXT, nullable=False)])
    with pytest.raises(WouldAlterError, match="must not be NULL"):
        conform(pa.table({"a": [1]}), strict, allow_missing=True)


def test_null_in_a_column_that_must_have_values_is_refused_by_row() -> None:
    with pytest.raises(WouldAlterError, match="'a', row 1: NULL"):
        cast(pa.array([1, None]), INT, nullable=False)


def test_null_deep_in_a_struct_is_refused_but_not_beneath_a_null_struct() -> None:
    kind = pa.struct([pa.field("k", INT, nullable=False)])
    assert cast([{"k": 1}, None], kind) == [{"k": 1}, None]
    with pytest.raises(WouldAlterError, match=r"'a.k', row 2: NULL"):
        cast([{"k": 1}, None, {"k": None}], kind)
    with pytest.raises(WouldAlterError, match=r"'a.element', row 2: NULL"):
        cast([[1], [], [2, None]], pa.list_(pa.field("element", INT, nullable=False)))


def test_nested_fields_go_by_name_too() -> None:  # H2
    kind = pa.struct([("x", INT), ("y", INT)])
    assert cast([{"y": 2, "x": 1}], kind) == [{"x": 1, "y": 2}]
    with pytest.raises(WouldAlterError, match="'z' is not in the struct 'a'"):
        cast([{"y": 2, "x": 1, "z": 3}], kind)
    with pytest.raises(WouldAlterError, match="'x' of the struct 'a' of the table is missing"):
        cast([{"y": 2}], kind)


def test_clock_changes_keep_their_instants() -> None:  # H4: the hour that comes twice in Oslo
    utc = ["2020-10-25 00:30", "2020-10-25 01:30", "2020-03-29 00:59:59.999999"]
    local = pd.to_datetime(utc, format="mixed").tz_localize("UTC").tz_convert("Europe/Oslo")
    expected = [pd.Timestamp(u, tz="UTC").to_pydatetime() for u in utc]
    for data in (pd.DataFrame({"a": local}), pl.DataFrame({"a": list(local.to_pydatetime())})):
        result = conform(as_frame(data).piece(0, 3), pa.schema([("a", UTC_TIMESTAMP)]))
        assert [v.astimezone(dt.UTC) for v in result.column("a").to_pylist()] == expected


def test_the_first_and_last_moments_of_the_calendar_are_kept() -> None:  # H4
    ends = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
    assert cast(ends, NAIVE) == ends


def test_row_numbers_in_messages_count_from_the_start_of_the_frame() -> None:
    with pytest.raises(WouldAlterError, match="row 11"):
        conform(pa.table({"a": [0.0, 0.5]}), pa.schema([("a", INT)]), first_row=10)


def test_sliced_and_chunked_columns_with_garbage_beneath_null_are_read_right() -> None:
    lists = pa.array([[9], [1, 2], None, [3]])
    maps = pa.array([[("z", 9)], [("a", 1)], None, []], pa.map_(TEXT, INT))
    masked = pa.ListArray.from_arrays([0, 1, 2], [7, 8], mask=pa.array([True, False]))
    piece = pa.table({"l": lists, "m": maps}).slice(1)
    target = pa.schema(
        [("l", list_of(pa.field("element", INT))), ("m", map_of(TEXT, pa.field("value", INT)))]
    )
    assert conform(piece, target).to_pylist() == piece.to_pylist()
    assert cast(masked, list_of(pa.field("element", pa.int8()))) == [None, [8]]
    chunks = pa.chunked_array([pa.array(["x"]).dictionary_encode(), pa.array(["y"]).dictionary_encode()])
    assert conform(pa.table({"a": chunks}), pa.schema([("a", TEXT)])).column("a").to_pylist() == ["x", "y"]


@given(tables())
def test_a_table_of_the_right_schema_comes_out_equal(table: pa.Table) -> None:
    result = conform(table, table.schema)
    result.validate(full=True)
    assert plain(result) == plain(table)


NUMBERS = [
    pa.int8(),
    pa.int32(),
    INT,
    pa.uint64(),
    pa.float32(),
    REAL,
    pa.decimal128(20, 0),
    pa.decimal128(9, 3),
]


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_a_number_is_either_refused_or_equal_afterwards(
    data: st.DataObject, source: pa.DataType, target: pa.DataType
) -> None:  # H3
    if pa.types.is_floating(source):
        edges = st.sampled_from([0.5, -0.0, 2.0**24, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300, math.inf])
        number: st.SearchStrategy[Any] = (
            edges | st.floats(allow_nan=False) | st.integers(-200, 200).map(float)
        )
    elif pa.types.is_decimal(source):
        number = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: D(n).scaleb(-source.scale))
    else:
        info = np.iinfo(source.to_pandas_dtype())
        powers = st.integers(0, 64).flatmap(
            lambda n: st.sampled_from([2**n - 1, 2**n, 2**n + 1, -(2**n), 1 - 2**n])
        )
        number = (powers | st.integers()).filter(lambda n: info.min <= n <= info.max)
    values = data.draw(st.lists(st.none() | number, min_size=1, max_size=4))
    array = pa.array(values, source)
    try:
        result = cast(array, target)
    except WouldAlterError:
        return
    assert result == array.to_pylist()
