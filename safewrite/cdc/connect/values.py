"""Says what type a value has that came without a schema, and which values stand for one that the source does not tell."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.records.change import UNAVAILABLE
from safewrite.values.limits import DECIMAL_DIGITS_MAX

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


def merged(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that holds all values of both; None if there is none."""
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if pa.types.is_integer(one) and pa.types.is_decimal(other):
            return _decimal(DECIMAL_DIGITS_MAX, other.scale) if other.precision < 19 + other.scale else other
        if pa.types.is_integer(one) and pa.types.is_floating(other):
            return pa.float64()
        if pa.types.is_date(one) and pa.types.is_timestamp(other) and other.tz is None:
            return other
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        return _decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)
    return None


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


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
