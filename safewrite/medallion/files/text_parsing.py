"""Reads columns of files as their declared types, and says which values cannot be read."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.values.declared import declared
from safewrite.values.fit import fit
from safewrite.values.limits import YEARS, outside_calendar
from safewrite.values.refusals import OtherMeaningError
from safewrite.values.types import is_text, is_uuid


def called(kind: pa.DataType) -> str:
    """A type in a reason why a value is not taken."""
    return f"{kind} of {YEARS}" if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else str(kind)


def read(
    column: pa.ChunkedArray, kind: pa.DataType, *, texts: bool
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """A column under its declared type, and which of its values could not be read (NULL in their place).

    ``texts``: the bytes of a CSV file; columns of Parquet files have types of their own, and no value is altered.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        column = _stored(column, kind)
    if pa.types.is_boolean(kind) and _is_number(column.type):
        return _flags(column)
    try:
        found, why = fit(column.combine_chunks(), kind, declared(kind, texts=texts))
    except OtherMeaningError:
        return pa.chunked_array([pa.nulls(len(column), kind)]), np.asarray(column.is_valid().to_numpy())
    bad = np.zeros(len(column), np.bool_)
    bad[list(why)] = True
    return pa.chunked_array([found], kind), bad


def _stored(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """What an extension of Arrow is stored as, such as JSON's texts; UUIDs where a text is declared as texts."""
    if is_uuid(column.type) and is_text(kind):
        return pa.chunked_array(
            [pa.array([None if one is None else str(one) for one in column.to_pylist()], kind)]
        )
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _flags(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """Flags of sources that have none: 1 and 0, as in CSV files, and no other number."""
    is_decimal = pa.types.is_decimal(column.type)
    one, zero = (
        pc.equal(column, pa.scalar(Decimal(number)) if is_decimal else pa.scalar(number, column.type))
        for number in (1, 0)
    )
    found = pc.if_else(pc.or_(one, zero), one, pa.scalar(None, pa.bool_()))
    return found, np.asarray(pc.and_(column.is_valid(), found.is_null()).to_numpy(), np.bool_)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values; of years that Python has no dates of, as texts."""
    columns = {}
    for name in rows.column_names:
        outside = outside_calendar(rows[name])
        columns[name] = _values(rows[name]) if not outside.any() else _texts(rows[name], outside)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:  # a text that is no UTF-8, which Parquet does not look at
        raw = column.cast(pa.binary()).to_pylist()
        return [None if one is None else one.decode("utf-8", "backslashreplace") for one in raw]


def plain_value(column: pa.ChunkedArray, row: int) -> Any:
    """One value, as :func:`plain`."""
    return plain(pa.table({"value": column.slice(row, 1)}))[0]["value"]


def _texts(values: pa.ChunkedArray, outside: npt.NDArray[np.bool_]) -> list[Any]:
    inside = pc.if_else(pa.array(outside), pa.scalar(None, values.type), values).to_pylist()
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()).to_pylist()
    return [
        f"{values.type} {number} after 1970" if bad else value
        for value, number, bad in zip(inside, numbers, outside.tolist(), strict=True)
    ]


def stamp_number(name: str) -> int:
    """The time in the name of a change file (yyyymmdd-hhmmss and up to four digits of the second) as a number of 18 digits.

    Raises:
        ValueError: it has another name; a copy has that of its original and more.
    """
    found = re.fullmatch(r"([0-9]{8})-([0-9]{6})([0-9]{0,4})", name)
    if found is None:
        raise ValueError(f"{name!r} is not yyyymmdd-hhmmssfff")
    dt.datetime.strptime(found[1] + found[2], "%Y%m%d%H%M%S").replace(tzinfo=dt.UTC)
    return int(found[1] + found[2] + found[3].ljust(4, "0"))
