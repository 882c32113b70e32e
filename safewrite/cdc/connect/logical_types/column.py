"""Defines a logical type: the type of its columns, how it reads one value, and how it reads a column of values.

Both readings agree: where a column reads a value that may not fit (out of range, a text that is not a time), it notes the row,
and the record of that row is read value by value, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.misfits import plain_of, text_of
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.fit import Convert, fit

Read = Callable[[Any], Any]
"""Reads one value that is not NULL."""
UNREADABLE = (
    UndecodableError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError, IndexError, pa.ArrowException,
)  # fmt: skip
"""What reading a value that does not fit raises."""


def _as_it_came(value: Any) -> Any:
    return plain_of(value)


@dataclass
class RowFallback:
    """Rows whose records are to be read one by one."""

    length: int
    _found: list[Any] = field(default_factory=list)

    def where(self, mask: Any) -> None:
        """Fall back for the rows where the mask is true, not where it is false or NULL."""
        if isinstance(mask, pa.Array | pa.ChunkedArray):
            if not pc.any(mask).as_py():
                return
            mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        self._found.append(mask)

    def unless(self, mask: Any) -> None:
        """Fall back for the rows where the mask is false or NULL."""
        self.where(pc.invert(pc.fill_null(mask, False)))

    def at(self, places: Iterable[int]) -> None:
        """Fall back for these rows."""
        found = np.zeros(self.length, bool)
        found[list(places)] = True
        self._found.append(found)

    @property
    def any(self) -> bool:
        return any(one.any() for one in self._found)

    def mask(self) -> Any:
        """All these rows, as booleans of NumPy."""
        return np.logical_or.reduce(self._found) if self._found else np.zeros(self.length, bool)


ReadArray = Callable[[pa.Array, RowFallback], pa.Array]
"""Reads values of a column; those that may not fit are NULL, and their rows are noted."""


@dataclass(frozen=True, slots=True)
class LogicalColumn:
    """The type of a column, and how a value that is not NULL is read.

    ``floor`` reads a value as the nearest one below it that the type has, where the type has such; ``plain`` makes of a
    value that ``read`` refuses what JSON has, exactly.  ``arrays`` reads whole columns, by the Arrow type that values come
    in; those of other types are read one by one.
    """

    type: pa.DataType
    read: Read
    floor: Read | None = None
    plain: Read = _as_it_came
    arrays: Mapping[pa.DataType, ReadArray] = field(default_factory=dict)

    def plain_of(self, value: Any) -> Any:
        """A value as it came, as JSON has it: what is read, else what is refused."""
        if value is None:
            return None
        try:
            return plain_of(self.read(value))
        except UNREADABLE:
            return self.plain(value)

    def text_of(self, value: Any) -> str:
        """A value as it came, as a text."""
        return text_of(self.plain_of(value))

    def reader(self, given: pa.DataType) -> ReadArray:
        """How a column of values is read that come as this Arrow type."""
        return self.arrays.get(given) or self._each

    def _each(self, values: pa.Array, fallback: RowFallback) -> pa.Array:
        return one_by_one(values, self.type, self.read, fallback)


def one_by_one(
    values: Any, type_: pa.DataType, read: Callable[[Any], Any], fallback: RowFallback
) -> pa.Array:
    """Reads values as Python has them; what cannot be read is NULL, and its row is noted."""
    if values.null_count == len(values):
        return pa.nulls(len(values), type_)
    found, unread = [], []
    for place, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else read(value))
        except UNREADABLE:
            found.append(None)
            unread.append(place)
    if unread:
        fallback.at(unread)
    return pa.array(found, type_)


def by_array(kind: pa.DataType, into: Convert, pattern: str | None = None) -> ReadArray:
    """Reads columns by a conversion of arrays: the rows of values that it refuses, or of texts that are written otherwise, fall back."""

    def read(values: pa.Array, fallback: RowFallback) -> pa.Array:
        if pattern is not None:
            plain = pc.match_substring_regex(values, pattern)
            if not pc.all(plain).as_py():
                fallback.unless(pc.fill_null(plain, True))
                values = pc.if_else(plain, values, None)
        found, why = fit(values, kind, into)
        if why:
            fallback.at(why)
        return found

    return read
