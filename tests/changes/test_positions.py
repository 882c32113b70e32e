"""Keys and sequences are compared column by column, and NULL equals NULL and comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safewrite.changes.meaning.memory import HORIZON_MS
from safewrite.changes.meaning.positions import (
    among,
    compared,
    groups,
    in_order,
    later,
    starts_anew,
    values_of,
)

ROWS = pa.table({"a": [1, 1, 1, None, None, None, 2], "b": ["x", "x", "y", "y", None, None, None]})


def test_a_row_starts_anew_where_a_column_differs_from_the_row_before() -> None:
    assert starts_anew(ROWS.columns).tolist() == [True, False, True, True, True, False, True]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_start_anew(rows: int) -> None:
    assert starts_anew(ROWS.slice(0, rows).columns).tolist() == [True] * rows


def test_rows_that_are_equal_in_every_column_are_one_group() -> None:
    ids = groups(ROWS)
    same = [[left == right for right in ids] for left in ids]
    rows = ROWS.to_pylist()
    assert same == [[left == right for right in rows] for left in rows]


def test_null_comes_first_and_place_decides_last() -> None:
    places = np.arange(7)
    assert in_order(ROWS, ["a", "b"], places * 0, -places).tolist() == [5, 4, 3, 1, 0, 2, 6]


@pytest.mark.parametrize(
    ("position", "expected"),
    [((1, "x"), [0, 0, 1, -1, -1, -1, 1]), ((2, "a"), [-1] * 7), ((1, "xa"), [-1, -1, 1, -1, -1, -1, 1])],
)
def test_a_row_is_before_at_or_after_a_position(position: tuple[Any, ...], expected: list[int]) -> None:
    assert compared(ROWS.columns, position).tolist() == expected


def test_rows_are_found_by_the_values_of_each_column() -> None:
    wanted = values_of(pa.table({"a": pa.array([1, None], pa.int32()), "b": ["y", "z"]}), ["a", "b"])
    assert among(ROWS, wanted).tolist() == [False, False, True, False, False, False, False]


def test_the_later_of_two_positions_is_decided_part_by_part() -> None:
    assert later(None, (1, "a")) == (1, "a")
    assert later((1, "b"), (1, "a")) == (1, "b")
    assert later((1, "b"), (2, "a")) == (2, "a")


def test_deleted_keys_are_remembered_for_fourteen_days() -> None:
    assert HORIZON_MS == 14 * 24 * 60 * 60 * 1000


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.date32(), pa.time32("s"), pa.time64("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"),
        pa.duration("us"), pa.decimal128(5, 1), pa.bool_(), pa.string(), pa.binary(),
    ],
    ids=str,
)  # fmt: skip
def test_keys_of_any_type_are_looked_for_at_the_ends_and_beyond(kind: pa.DataType) -> None:
    """Those beyond a column's ends are not asked for, where the ends are soon found."""
    drawn = [False, True, None, True] if kind == pa.bool_() else [2, 4, None, 6]
    values = pa.array(drawn, pa.bool_() if kind == pa.bool_() else pa.int8())
    values = (
        values.cast(pa.string()).cast(kind)
        if pa.types.is_binary(kind)
        else values.cast(_between(kind)).cast(kind)
    )
    table = pa.table({"k": pa.chunked_array([values, values.slice(0, 2)])})
    every = [True, True, False, True, True, True]
    assert among(table, values_of(table, ["k"])).tolist() == every
    for row in (0, 1, 3):
        one = table.slice(row, 1)
        wanted = [value == one["k"][0].as_py() for value in table["k"].to_pylist()]
        assert among(table, values_of(one, ["k"])).tolist() == wanted
        assert among(one, values_of(table, ["k"])).tolist() == [True]
    assert among(table, values_of(table.slice(2, 1), ["k"])).tolist() == [False] * 6
    assert among(table.slice(0, 0), values_of(table, ["k"])).tolist() == []


def _between(kind: pa.DataType) -> pa.DataType:
    """A type over which small numbers become this one."""
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        return kind
    return {32: pa.int32(), 64: pa.int64()}[kind.bit_width] if pa.types.is_temporal(kind) else pa.string()
