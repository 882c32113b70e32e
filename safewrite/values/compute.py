"""Hands on ``pyarrow.compute``, and imports it only where more is asked of it than each append asks.

Importing it writes the help texts of 286 functions, a tenth of what a cold start pays until its first row is safe.  What is
defined here asks pyarrow's compiled functions by their names.  The methods of arrays that do the same import it
(``cast``, ``fill_null``, ``flatten`` of a list, ...).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

try:
    from pyarrow._compute import CastOptions, call_function
except ImportError:  # a release that has them elsewhere: all of it is imported, and works as well
    from pyarrow.compute import CastOptions, call_function


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def any(values: Any) -> Any:  # noqa: A001 - its name in pyarrow
    """Whether one of the values is true."""
    return call_function("any", [values])


def cast(values: Any, to: Any, *, safe: bool = True) -> Any:
    """The values as another type; ``safe``: refused where one does not fit."""
    return call_function("cast", [values], CastOptions.safe(to) if safe else CastOptions.unsafe(to))


def fill_null(values: Any, fill: Any) -> Any:
    """The values, ``fill`` in the place of each NULL."""
    if not isinstance(fill, pa.Scalar | pa.Array | pa.ChunkedArray):
        fill = pa.scalar(fill, values.type)
    elif fill.type != values.type:
        return __getattr__("fill_null")(values, fill)
    return call_function("coalesce", [values, fill])


def is_nan(values: Any) -> Any:
    """Which values are NaN."""
    return call_function("is_nan", [values])


def is_null(values: Any, **settings: Any) -> Any:
    """Which values are NULL."""
    return __getattr__("is_null")(values, **settings) if settings else call_function("is_null", [values])


def is_valid(values: Any) -> Any:
    """Which values are not NULL."""
    return call_function("is_valid", [values])


def list_flatten(values: Any) -> Any:
    """The elements of the lists that are not NULL, one after another."""
    return call_function("list_flatten", [values])


def list_value_length(values: Any) -> Any:
    """The length of each list."""
    return call_function("list_value_length", [values])


def min_max(values: Any) -> Any:
    """The least and the greatest value."""
    return call_function("min_max", [values])
