"""Keys and sequences are compared column by column, and NULL equals NULL and comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from safewrite.changes.memory import HORIZON_MS
from safewrite.changes.positions import among, compared, groups, in_order, later, starts_anew, values_of

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
