"""Hypothesis strategies for Arrow tables with every type that a table column can have."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested
from __future__ import annotations

import datetime as dt
import decimal
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from safewrite.values.types import UTC_TIMESTAMP, list_of, map_of

_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    whole = st.integers(-(10**precision) + 1, 10**precision - 1)
    return whole.map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=50)))


LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): _TEXT,
    pa.binary(): st.binary(max_size=20),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    UTC_TIMESTAMP: _MOMENTS.map(lambda m: m.replace(tzinfo=dt.UTC)),
    pa.timestamp("us"): _MOMENTS,
    pa.decimal128(10, 2): _decimals(10, 2),
    pa.decimal128(38, 18): _decimals(38, 18),
}


# What Iceberg has besides; a frame's small integers become wider there.
ICEBERG_LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    kind: values for kind, values in LEAVES.items() if kind not in (pa.int8(), pa.int16())
} | {
    pa.time64("us"): st.times(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(16): st.binary(min_size=16, max_size=16),
}


@cache
def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, None among them."""
    if pa.types.is_struct(kind):
        inner: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {kind.field(i).name: values_of(kind.field(i).type) for i in range(kind.num_fields)}
        )
    elif pa.types.is_map(kind):
        inner = st.dictionaries(_values[kind.key_type], values_of(kind.item_type), max_size=3).map(
            lambda d: list(d.items())
        )
    elif pa.types.is_list(kind):
        inner = st.lists(values_of(kind.value_type), max_size=3)
    else:
        inner = _values[kind]
    return st.none() | inner


_values = LEAVES | ICEBERG_LEAVES


def types(
    *, nested: bool = True, of: dict[pa.DataType, st.SearchStrategy[Any]] = LEAVES
) -> st.SearchStrategy[pa.DataType]:
    """Column types; nested ones up to two levels."""
    return _types(tuple(of), nested)


@cache
def _types(of: tuple[pa.DataType, ...], nested: bool) -> st.SearchStrategy[pa.DataType]:
    """Made once: to make a strategy costs more than to draw from it."""
    leaves = st.sampled_from(of)
    if not nested:
        return leaves

    def deeper(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        fields = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(lambda t: list_of(pa.field("element", t))),
            inner.map(lambda t: map_of(pa.string(), pa.field("value", t))),
            fields.map(lambda ts: pa.struct([pa.field(f"f{i}", t) for i, t in enumerate(ts)])),
        )

    return st.recursive(leaves, deeper, max_leaves=4)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    nested: bool = True,
    rows_max: int = 8,
    columns_max: int = 4,
    of: dict[pa.DataType, st.SearchStrategy[Any]] = LEAVES,
) -> pa.Table:
    """A table with an ``id`` column (row numbers) and columns ``c0``, ``c1``, ... of any types."""
    rows = draw(st.integers(0, rows_max))
    kinds = draw(st.lists(types(nested=nested, of=of), min_size=1, max_size=columns_max))
    columns = {"id": pa.array(range(rows), pa.int64())}
    for i, kind in enumerate(kinds):
        values = draw(st.lists(values_of(kind), min_size=rows, max_size=rows))
        columns[f"c{i}"] = pa.array(values, kind)
    return pa.table(columns)


def plain(table: pa.Table) -> str:
    """The values as text in which NaN equals NaN, and -0.0 differs from 0.0."""
    return repr(table.to_pylist())
