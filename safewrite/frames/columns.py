"""Reads columns of a frame piece by piece, as often as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.values import compute as pc
from safewrite.values.instants import instants_of
from safewrite.values.python import ValueShape

Indices = npt.NDArray[np.int64]

_UNREADABLE = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What pyarrow raises where it has no array for values; a text that is not Unicode is a ValueError."""


class FrameColumn(Protocol):
    """One named column: its type over *all* rows, and its rows by range or by number."""

    name: str
    kind: pa.DataType
    nullable: bool

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        """Rows ``start`` to ``stop``."""

    def take(self, rows: Indices) -> pa.ChunkedArray:
        """The rows with these numbers, in this order."""


def _chunked(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


class ArrowColumn:
    """A column that is Arrow already; pieces share its memory."""

    def __init__(self, name: str, values: pa.ChunkedArray, *, nullable: bool = True) -> None:
        self.name = name
        self.kind = values.type
        self.nullable = nullable
        self._values = values

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._values.slice(start, stop - start)

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._values.take(pa.array(rows))


class NumpyColumn:
    """A one-dimensional numpy array.

    ``from_pandas=False``: a NaN stays a NaN and does not become NULL, whatever pandas means by it.
    """

    nullable = True

    def __init__(self, name: str, values: npt.NDArray[Any]) -> None:
        self.name = name
        self._values = values
        self.kind = self._to_arrow(values[:0]).type

    def _to_arrow(self, values: npt.NDArray[Any]) -> pa.Array:
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        try:
            return pa.array(values, from_pandas=False)
        except _UNREADABLE as error:
            raise _no_arrow(self.name, str(values.dtype), error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return _chunked(self._to_arrow(self._values[start:stop]))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return _chunked(self._to_arrow(self._values[rows]))


class ExtensionColumn:
    """A pandas Series of an extension dtype (Int64, string, category, Arrow, time zones).

    Not for one that holds Python objects: pyarrow would infer their type by rules of its own.
    """

    nullable = True

    def __init__(self, name: str, series: Any) -> None:
        self.name = name
        self._values = series.array
        """Not the Series: pandas looks for rows of one by what is asked for, again at each slice."""
        self.kind = self._to_arrow(self._values[:0]).type
        if pa.types.is_dictionary(self.kind):
            # an empty piece of a category keeps its categories, so this is the whole column's type
            self.kind = self.kind.value_type if len(self._values.categories) else pa.null()

    def _to_arrow(self, values: Any) -> pa.ChunkedArray:
        try:
            if is_sparse(values.dtype):
                return _chunked(pa.array(values.to_dense(), from_pandas=False))
            instants = instants_of(values)
            return _chunked(pa.array(values) if instants is None else instants)
        except _UNREADABLE as error:
            raise _no_arrow(self.name, str(values.dtype), error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._to_arrow(self._values[start:stop])

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._to_arrow(self._values[rows])


class ObjectColumn:
    """A sequence of Python objects, whose type is inferred over all of them; ``of_pandas``: by a Series of them."""

    nullable = True

    def __init__(
        self,
        name: str,
        values: Sequence[Any] | npt.NDArray[Any],
        hint: pa.DataType | None,
        *,
        of_pandas: bool = False,
    ) -> None:
        self.name = name
        self._values = values
        self.shape = ValueShape(name, hint, of_pandas)
        self.shape.look(values)
        self.shape.check_nan(values)
        self.kind = self.shape.arrow_type()

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return _chunked(self.shape.to_array(self._values[start:stop]))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        if isinstance(self._values, np.ndarray):
            return _chunked(self.shape.to_array(self._values[rows]))
        return _chunked(self.shape.to_array([self._values[row] for row in rows]))


class CategoryColumn:
    """A pandas categorical of Python objects: the type is inferred over the categories that some row has."""

    nullable = True

    def __init__(self, name: str, series: Any, hint: pa.DataType | None) -> None:
        self.name = name
        used = series.cat.remove_unused_categories()
        self._codes = used.cat.codes.to_numpy()
        self._categories = ObjectColumn(name, used.cat.categories.to_numpy(), hint, of_pandas=True)
        self.shape = self._categories.shape
        self.kind = self._categories.kind
        self._values = self._categories.piece(0, len(used.cat.categories)).combine_chunks()

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._decoded(self._codes[start:stop])

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._decoded(self._codes[rows])

    def _decoded(self, codes: npt.NDArray[Any]) -> pa.ChunkedArray:
        return _chunked(self._values.take(pa.array(codes, mask=codes < 0)))


class PolarsColumn:
    """A polars Series; converted piece by piece, since polars and pyarrow lay strings out differently."""

    nullable = True

    def __init__(self, name: str, series: Any) -> None:
        if _holds_objects(series.dtype):  # polars exports the addresses of the objects, as bytes
            raise _no_arrow(name, "polars.Object", "its values are Python objects")
        self.name = name
        self._series = series
        self.kind = self._to_arrow(series[:0]).type

    def _to_arrow(self, series: Any) -> pa.ChunkedArray:
        try:
            return _chunked(series.to_arrow())
        except _UNREADABLE as error:
            raise _no_arrow(self.name, f"polars.{self._series.dtype}", error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._to_arrow(self._series.slice(start, stop - start))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._to_arrow(self._series.gather(rows))


def is_sparse(dtype: Any) -> bool:
    """Whether a pandas dtype is a sparse one."""
    return hasattr(dtype, "subtype") and str(dtype.name).startswith("Sparse")


def _holds_objects(dtype: Any) -> bool:
    """Whether a polars dtype is Object, or contains it."""
    inner = [dtype.inner] if hasattr(dtype, "inner") else [f.dtype for f in getattr(dtype, "fields", ())]
    return str(dtype) == "Object" or any(map(_holds_objects, inner))


def _no_arrow(name: str, kind: str, why: object) -> InvalidInputError:
    return InvalidInputError(
        f"Column {name!r} of type {kind} has no Arrow type ({why}). Nothing was written. "
        "Convert it to a type that tables have."
    )


def untyped(table: pa.Table) -> pa.Table:
    """The table with columns of type null where no row has a value: pandas gives such a column any type."""
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        missing = pc.is_null(column, nan_is_null=True) if pa.types.is_floating(field.type) else None
        empty = column.null_count == len(column) if missing is None else pc.all(missing, min_count=0).as_py()
        fields.append(field.with_type(pa.null()) if empty else field)
        columns.append(pa.nulls(len(column)) if empty else column)
    return pa.table(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table's columns as a schema orders them, NULL in those that it lacks."""
    there = frozenset(table.column_names)
    columns = [
        table.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
