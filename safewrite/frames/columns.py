"""Columns of a frame, each of which can be read piece by piece and as often as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.frames.objects import Shape

Indices = npt.NDArray[np.int64]


class Column(Protocol):
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
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise _no_arrow(self.name, str(values.dtype), error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return _chunked(self._to_arrow(self._values[start:stop]))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return _chunked(self._to_arrow(self._values[rows]))


class ExtensionColumn:
    """A pandas Series of an extension dtype (Int64, string, category, Arrow, time zones)."""

    nullable = True

    def __init__(self, name: str, series: Any) -> None:
        self.name = name
        self._series = series
        self.kind = self._to_arrow(series.iloc[:0]).type
        if pa.types.is_dictionary(self.kind):
            # an empty piece of a category keeps its categories, so this is the whole column's type
            self.kind = self.kind.value_type if len(series.cat.categories) else pa.null()

    def _to_arrow(self, series: Any) -> pa.ChunkedArray:
        if hasattr(series.dtype, "subtype") and series.dtype.name.startswith("Sparse"):
            return _chunked(pa.array(series.sparse.to_dense().to_numpy(), from_pandas=False))
        try:
            return _chunked(pa.array(series.array))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
            raise _no_arrow(self.name, str(series.dtype), error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._to_arrow(self._series.iloc[start:stop])

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._to_arrow(self._series.iloc[rows])


class ObjectColumn:
    """A sequence of Python objects, whose type is inferred over all of them."""

    nullable = True

    def __init__(self, name: str, values: Sequence[Any] | npt.NDArray[Any], hint: pa.DataType | None) -> None:
        self.name = name
        self._values = values
        self.shape = Shape(name, hint)
        self.shape.look(values)
        self.kind = self.shape.arrow_type()

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return _chunked(self.shape.to_array(self._values[start:stop]))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        if isinstance(self._values, np.ndarray):
            return _chunked(self.shape.to_array(self._values[rows]))
        return _chunked(self.shape.to_array([self._values[row] for row in rows]))


class PolarsColumn:
    """A polars Series; converted piece by piece, since polars and pyarrow lay strings out differently."""

    nullable = True

    def __init__(self, name: str, series: Any) -> None:
        if "Object" in str(series.dtype):  # polars exports the addresses of the objects, as bytes
            raise _no_arrow(name, "polars.Object", "its values are Python objects")
        self.name = name
        self._series = series
        self.kind = self._to_arrow(series[:0]).type

    def _to_arrow(self, series: Any) -> pa.ChunkedArray:
        try:
            return _chunked(series.to_arrow())
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise _no_arrow(self.name, f"polars.{self._series.dtype}", error) from error

    def piece(self, start: int, stop: int) -> pa.ChunkedArray:
        return self._to_arrow(self._series.slice(start, stop - start))

    def take(self, rows: Indices) -> pa.ChunkedArray:
        return self._to_arrow(self._series.gather(rows))


def _no_arrow(name: str, kind: str, why: object) -> InvalidInputError:
    return InvalidInputError(
        f"Column {name!r} of type {kind} has no Arrow type ({why}). Nothing was written. "
        "Convert it to a type that tables have."
    )
