"""Compares keys and sequences of rows, column by column: composite ones part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Position: TypeAlias = tuple[Any, ...]
"""The sequence of one change, a value for each of its columns."""
Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]
_MANY = 8
"""So many times as many values are compared with those of few rows first."""


def ordered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as its values are compared: of floats NaN, which is no place in an order, is NULL, and -0.0 is 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    zero = pa.scalar(0.0, pa.float64()).cast(column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), pc.add(column, zero))


def starts_anew(columns: Sequence[pa.ChunkedArray]) -> Flags:
    """For rows in some order: whether each differs from the one before it in one of these columns; NULL equals NULL."""
    rows = len(columns[0])
    anew = np.ones(rows, np.bool_)
    if rows < 2:
        return anew
    anew[1:] = False
    for column in columns:
        after, before = column.slice(1), column.slice(0, rows - 1)
        differs = pc.fill_null(pc.not_equal(after, before), False)
        one_is_null = pc.not_equal(pc.is_null(after), pc.is_null(before))
        anew[1:] |= _flags(differs) | _flags(one_is_null)
    return anew


def in_order(
    table: pa.Table, names: Sequence[str], kind: npt.NDArray[np.generic], place: npt.NDArray[np.generic]
) -> Numbers:
    """Row numbers in the order of columns, NULL first, then of kind and place."""
    columns: list[pa.ChunkedArray | pa.Array] = []
    for name in names:
        column = table.column(name)
        if column.null_count:  # how NULL is placed is spelled differently by versions of pyarrow
            columns.append(pc.is_valid(column))
        columns.append(column)
    columns += [pa.array(kind), pa.array(place)]
    named = pa.table(columns, [f"c{number}" for number in range(len(columns))])
    keys = [(name, "ascending") for name in named.column_names]
    return np.asarray(pc.sort_indices(named, sort_keys=keys).to_numpy(), np.int64)


def groups(keys: pa.Table) -> Numbers:
    """A number for each row, equal for rows that are equal in every column."""
    rows = keys.num_rows
    order = in_order(keys, keys.column_names, np.zeros(rows, np.int8), np.arange(rows))
    ids = np.zeros(rows, np.int64)
    if rows:
        ids[order] = np.cumsum(starts_anew(keys.take(pa.array(order)).columns)) - 1
    return ids


def values_of(table: pa.Table, names: Sequence[str]) -> dict[str, pa.Array]:
    """The values that each of some columns has."""
    return {name: pc.drop_null(pc.unique(ordered(table.column(name)))) for name in names}


def among(table: pa.Table, values: Mapping[str, pa.Array]) -> Flags:
    """Which rows have such values in each of these columns: those with the same keys, and few others.

    It looks at each row once; :func:`groups` sorts them.
    """
    found = np.ones(table.num_rows, np.bool_)
    for name, wanted in sorted(values.items(), key=lambda one: len(one[1])):
        if not found.any():  # as of sequences: the many keys of a batch are not looked for then
            break
        column = ordered(table.column(name))
        found &= _flags(pc.is_in(column, value_set=_within(wanted.cast(column.type), column)))
    return found


def _within(values: pa.Array, column: pa.ChunkedArray) -> pa.Array:
    """Those that a column may have, where that is soon found: each value costs a place in a table."""
    if len(values) > _MANY * len(column):
        return values.filter(pc.is_in(values, value_set=pc.unique(column)))
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    if not any(is_kind(column.type) for is_kind in kinds):
        return values
    ends = pc.min_max(column)
    return values.filter(
        pc.and_(pc.greater_equal(values, ends["min"]), pc.less_equal(values, ends["max"])),
    )


def meeting(left: pa.Table, right: pa.Table, values: Mapping[str, pa.Array] | None = None) -> Flags:
    """Which rows of ``right`` are equal to one of ``left``, in all columns of these; only those that may be are sorted.

    ``values`` are those of ``left``, where they are known: see :func:`values_of`.
    """
    if not right.num_rows:  # as where all keys are new: what the others have need not be found
        return np.zeros(0, np.bool_)
    flags = among(right, values_of(left, left.column_names) if values is None else values)
    if not flags.any():
        return flags
    near = right.filter(pa.array(flags))
    if left.num_rows > _MANY * near.num_rows:
        left = left.filter(pa.array(among(left, values_of(near, near.column_names))))
    ids = groups(pa.concat_tables([left, near]))
    flags[flags] = np.isin(ids[left.num_rows :], ids[: left.num_rows])
    return flags


def compared(columns: Sequence[pa.ChunkedArray], position: Position) -> npt.NDArray[np.int8]:
    """-1, 0 or 1 for each row: before, at or after that position; NULL and NaN come before everything."""
    rows = len(columns[0])
    result = np.zeros(rows, np.int8)
    for column, value in zip(map(ordered, columns), position, strict=True):
        at = pa.scalar(value, column.type)
        undecided = result == 0
        before = _flags(pc.fill_null(pc.less(column, at), True))
        after = _flags(pc.fill_null(pc.greater(column, at), False))
        result[undecided & before] = -1
        result[undecided & after] = 1
    return result


def later(left: Position | None, right: Position) -> Position:
    """The later of two positions; None comes before all."""
    return right if left is None else max(left, right)


def position_of(columns: Sequence[pa.ChunkedArray], row: int) -> Position:
    """The sequence of one row."""
    return tuple(column[row].as_py() for column in columns)


def _flags(values: pa.ChunkedArray) -> Flags:
    return np.asarray(values.to_numpy(), np.bool_)
