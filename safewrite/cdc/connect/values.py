"""Says what type a value has that came without a schema, and which values stand for one that the source does not tell."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.records.change import UNAVAILABLE

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def digits_pattern(count: int) -> str:
    """A regular expression of numbers with a point or an exponent that have so many digits or more, or that may be too small."""
    points = "|".join(rf"[0-9]{{{before}}}\.[0-9]{{{count - before}}}" for before in range(1, count))
    return rf"{points}|[0-9]{{{count}}}[.eE]|[eE]-[0-9]{{3}}"


def type_of(value: Any) -> pa.DataType | None:
    """The type of a column that came without a schema, by one value; None for NULL."""
    for kinds, type_ in _BY_VALUE:
        if isinstance(value, kinds):
            return type_
    return None


_BY_VALUE: tuple[tuple[type | tuple[type, ...], pa.DataType], ...] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    ((float, Decimal), pa.float64()),
    ((str, list, dict, time), pa.string()),
    (bytes, pa.binary()),
    (datetime, pa.timestamp("us")),
    (date, pa.date32()),
)


def is_told(value: Any) -> bool:
    """Whether a value is none that a source puts in place of one that it does not tell.

    In a row before a change PostgreSQL's default tells the key only; Debezium has NULL for the rest, and 0, ``""`` or 1970
    in columns that are NOT NULL.
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) != _EPOCH
    if isinstance(value, date):
        return value != _EPOCH.date()
    if isinstance(value, time):
        return value != time()
    return value is not UNAVAILABLE and bool(value)
