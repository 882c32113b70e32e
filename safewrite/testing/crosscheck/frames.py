"""Builds the frames that users bring, and blames a library, not safewrite, for rows that it alters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from safewrite.testing.crosscheck import kinds
from safewrite.testing.crosscheck.meaning import given, read
from safewrite.testing.crosscheck.program import Column, Row

Frame = Any


class CannotBringError(Exception):
    """A kind of frame cannot hold these rows as they are."""


def frame(by: str, rows: Sequence[Row], columns: tuple[Column, ...]) -> Frame:
    """The rows in a frame of a kind.

    Raises:
        CannotBringError: the frame's library refuses them, or makes other values of them.
    """
    try:
        return _MAKERS[by](rows, columns)
    except CannotBringError:
        raise
    except Exception as error:
        raise CannotBringError(f"{by}: {type(error).__name__}: {error}") from error


def _arrow(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    made = {}
    for column in columns:
        kind = kinds.arrow(column.kind)
        values = pa.array([row.get(column.name) for row in rows], kind)
        _must_hold(column, rows, values, kind)
        made[column.name] = values
    return pa.table(made)


def _must_hold(column: Column, rows: Sequence[Row], values: pa.Array, kind: pa.DataType) -> None:
    for row, value in zip(rows, values.to_pylist(), strict=True):
        if given(row.get(column.name), kind) != read(value, kind):
            raise CannotBringError(f"Arrow makes {value!r} of {row.get(column.name)!r}")


def _raw(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    return pa.table(
        {one.name: _declared([row.get(one.name) for row in rows], kinds.arrow(one.kind)) for one in columns}
    )


def _declared(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as Arrow has them whose texts may be any bytes."""
    if not _text_within(kind):
        return pa.array(values, kind)
    if pa.types.is_string(kind):
        held = [None if one is None else one.encode("utf-8", "surrogateescape") for one in values]
        return pa.array(held, pa.binary()).view(kind)
    gone = pa.array([one is None for one in values])
    if pa.types.is_struct(kind):
        inner = [kind.field(number) for number in range(kind.num_fields)]
        parts = [_declared([one and one.get(field.name) for one in values], field.type) for field in inner]
        return pa.StructArray.from_arrays(parts, fields=inner, mask=gone)
    ends = np.cumsum([0, *(len(one or ()) for one in values)])
    offsets = pa.array([*(None if one is None else int(at) for one, at in zip(values, ends, strict=False)),
                        int(ends[-1])], pa.int32())  # fmt: skip
    flat = [part for one in values for part in one or ()]
    if pa.types.is_map(kind):
        keys, items = ([pair[at] for pair in flat] for at in (0, 1))
        return pa.MapArray.from_arrays(
            offsets, _declared(keys, kind.key_type), _declared(items, kind.item_type), type=kind
        )
    return pa.ListArray.from_arrays(offsets, _declared(flat, kind.value_type), type=kind)


def _text_within(kind: pa.DataType) -> bool:
    return "string" in str(kind)


def _large(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    return _cast(_arrow(rows, columns), {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()})


def _views(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    return _cast(_arrow(rows, columns), {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()})


def _cast(table: pa.Table, others: dict[pa.DataType, pa.DataType]) -> pa.Table:
    return table.cast(
        pa.schema([field.with_type(others.get(field.type, field.type)) for field in table.schema])
    )


def _dictionaries(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    table = _arrow(rows, columns)
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_date(field.type) or pa.types.is_integer(field.type):
            encoded = table.column(number).dictionary_encode()
            table = table.set_column(number, field.name, encoded)
    return table


def _chunks(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.Table:
    return pa.concat_tables([_arrow([row], columns) for row in rows] or [_arrow([], columns)])


def _reader(rows: Sequence[Row], columns: tuple[Column, ...]) -> pa.RecordBatchReader:
    return _chunks(rows, columns).to_reader()


def _dicts(rows: Sequence[Row], columns: tuple[Column, ...]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def _polars(rows: Sequence[Row], columns: tuple[Column, ...]) -> pl.DataFrame:
    if any("map<" in column.kind for column in columns):
        raise CannotBringError("polars has no maps")
    made = pl.from_arrow(_arrow(rows, columns))
    assert isinstance(made, pl.DataFrame)
    return made


def _objects(rows: Sequence[Row], columns: tuple[Column, ...]) -> pd.DataFrame:
    return pd.DataFrame({column.name: _series(rows, column) for column in columns})


def _series(rows: Sequence[Row], column: Column) -> pd.Series[Any]:
    held = np.empty(len(rows), dtype=object)
    for number, row in enumerate(rows):
        held[number] = row.get(column.name)
    return pd.Series(held, dtype=object)


def _pandas(rows: Sequence[Row], columns: tuple[Column, ...]) -> pd.DataFrame:
    """Columns of pandas' own types, where one holds the values."""
    made = {column.name: _series(rows, column) for column in columns}
    for column in columns:
        name = _PANDAS.get(column.kind)
        if name is not None:
            made[column.name] = made[column.name].astype(name)
            _same(rows, column, made[column.name])
    return pd.DataFrame(made)


def _categories(rows: Sequence[Row], columns: tuple[Column, ...]) -> pd.DataFrame:
    made = {}
    for column in columns:
        series = _series(rows, column)
        if column.name != "id" and "<" not in column.kind:
            distinct: list[Any] = []
            for value in series:
                if value is not None and not any(value is one or value == one for one in distinct):
                    distinct.append(value)
            held = np.empty(len(distinct), dtype=object)
            held[:] = distinct
            codes = [-1 if value is None else _place(value, distinct) for value in series]
            series = pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(held, dtype=object)))
            _same(rows, column, series)
        made[column.name] = series
    return pd.DataFrame(made)


def _place(value: Any, among: list[Any]) -> int:
    return next(at for at, one in enumerate(among) if value is one or value == one)


def _with_arrow(rows: Sequence[Row], columns: tuple[Column, ...]) -> pd.DataFrame:
    return _arrow(rows, columns).to_pandas(types_mapper=pd.ArrowDtype)


def _same(rows: Sequence[Row], column: Column, series: Any) -> None:
    """Check that pandas holds what it was given: it merges 1 and True, and cuts what does not fit."""
    kind = kinds.arrow(column.kind)
    for row, value in zip(rows, series, strict=True):
        if given(row.get(column.name), kind) != given(value, kind) and not _is_nothing(
            row.get(column.name), value
        ):
            raise CannotBringError(f"pandas makes {value!r} of {row.get(column.name)!r}")


def _is_nothing(value: Any, held: Any) -> bool:
    return value is None and held != held  # noqa: PLR0124 - NaN stands for what is missing


_PANDAS = {
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "boolean",
    "string": "string",
    "instant": "datetime64[us, UTC]",
    "naive": "datetime64[us]",
}
_MAKERS: dict[str, Callable[[Sequence[Row], tuple[Column, ...]], Frame]] = {
    "arrow": _arrow,
    "dicts": _dicts,
    "pandas": _pandas,
    "pandas objects": _objects,
    "pandas categories": _categories,
    "pandas over arrow": _with_arrow,
    "polars": _polars,
    "large": _large,
    "views": _views,
    "dictionaries": _dictionaries,
    "chunks": _chunks,
    "reader": _reader,
}
ALL = tuple(_MAKERS)
RAW = "raw texts"
"""Arrow's arrays of bytes that were declared to be texts: those of ``ALL`` cannot hold what is no UTF-8."""
_MAKERS[RAW] = _raw
UNTYPED = ("dicts", "pandas objects", "pandas categories")
"""Kinds of frames that hold any Python object, so that a value may stray into them."""
