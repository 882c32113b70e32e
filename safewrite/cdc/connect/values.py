"""Fits values into Arrow columns without a loss: what a column cannot hold as it is, is told, never cast."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.connect.misfits import shortened
from safewrite.cdc.records.change import UNAVAILABLE, UndecodableError
from safewrite.values.decimals import storable
from safewrite.values.limits import DECIMAL_DIGITS_MAX

BINARY_DIGITS = 17
"""So many digits tell every binary number of 64 bits from all others; what has more is a decimal."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MISFITS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, AttributeError)


def array_of(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Values as a column, and those that do not fit: why, by their place.  They are NULL in the column."""
    if set(map(type, values)) <= _as_they_are(kind):
        try:
            return pa.array(values, kind), {}
        except _MISFITS:
            pass  # find which below
    ready = _reader(kind)
    fitting: list[Any] = []
    misfits: dict[int, str] = {}
    for place, value in enumerate(values):
        try:
            fitting.append(None if value is None else ready(value))
        except _MISFITS as error:
            fitting.append(None)
            misfits[place] = str(error)
    try:
        return pa.array(fitting, kind), misfits
    except _MISFITS:
        pass
    for place, value in enumerate(fitting):  # rarely: find which
        try:
            pa.array([value], kind)
        except _MISFITS:
            fitting[place] = None
            shown = str(value) if isinstance(value, Decimal) and len(str(value)) < 100 else shortened(value)
            misfits[place] = f"{shown} does not fit the table's {str(kind).replace('decimal128', 'decimal')}"
    return pa.array(fitting, kind), misfits


def _as_they_are(kind: pa.DataType) -> frozenset[type]:
    """Types of Python whose values need no look at each: Arrow takes them whole, or not at all."""
    return next((types for matches, types in _SIMPLE if matches(kind)), frozenset())


_NULL = type(None)
_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (pa.types.is_integer, frozenset({int, _NULL})),
    (pa.types.is_float64, frozenset({float, int, _NULL})),
    (pa.types.is_string, frozenset({str, _NULL})),
    (pa.types.is_large_string, frozenset({str, _NULL})),
    (pa.types.is_boolean, frozenset({bool, _NULL})),
    (pa.types.is_binary, frozenset({bytes, _NULL})),
    (pa.types.is_date, frozenset({date, _NULL})),
    (pa.types.is_time, frozenset({time, _NULL})),
)


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


def is_nan(value: Any) -> bool:
    """Whether a value is a number that has no order."""
    return isinstance(value, float) and math.isnan(value)


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


# --- one value for a column ---------------------------------------------------------------------------
def _reader(kind: pa.DataType) -> Callable[[Any], Any]:
    for matches, read in _READERS:
        if matches(kind):
            return read
    if pa.types.is_timestamp(kind):
        return _zoned if kind.tz else _local
    if pa.types.is_float32(kind):
        return _single
    if pa.types.is_nested(kind):
        return _shaped(kind)
    raise UndecodableError(f"no value of a source fits a column of type {kind}")


def _refused(value: Any, what: str) -> UndecodableError:
    text = repr(value)
    return UndecodableError(f"{text if len(text) <= 80 else text[:77] + '...'} is no {what}")


def _number(value: Any) -> Any:
    if isinstance(value, Decimal):
        found = float(value)
        is_lost = found == 0 != value
        if len(value.as_tuple().digits) > BINARY_DIGITS or not math.isfinite(found) or is_lost:
            raise _refused(str(value), "number of 64 bits; name it in decimal_fields")
        return found
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(value, "number")
    return value


def _single(value: Any) -> Any:
    found = float(_number(value))
    if not math.isnan(found) and pa.scalar(found, pa.float32()).as_py() != found:
        raise _refused(value, "number of 32 bits")
    return found


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(value, "whole number")
    return value


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json_of(value)
    if isinstance(value, time):
        return value.isoformat()
    if not isinstance(value, str):
        raise _refused(value, "text")
    return value


def json_of(value: Any) -> str:
    """A list or a struct as a text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_number)


def _exact(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _refused(value, "decimal")
    return storable(value) if isinstance(value, Decimal) else value


def _shaped(kind: pa.DataType) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not _has_shape(value, kind):
            raise _refused(value, f"value of {kind}")
        return value

    return read


def _has_shape(value: Any, kind: pa.DataType) -> bool:
    """Whether a value has no other lists, pairs and fields than a type.

    Arrow takes a text for a list of its letters and passes over fields; a NULL for a pair of a map ends the process.
    """
    if value is None:
        return True
    if isinstance(value, Decimal):
        storable(value)
    if pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return isinstance(value, dict) and all(
            _has_shape(one, known[name]) if name in known else one is None for name, one in value.items()
        )
    if pa.types.is_map(kind):
        return isinstance(value, dict | list) and all(
            isinstance(pair, tuple)
            and len(pair) == 2
            and pair[0] is not None
            and _has_shape(pair[1], kind.item_type)
            for pair in (value.items() if isinstance(value, dict) else value)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return isinstance(value, list) and all(_has_shape(one, kind.value_type) for one in value)
    return True


def _local(value: Any) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise _refused(value, "time without a zone")
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a time without zone on purpose
    raise _refused(value, "time")


def _zoned(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _refused(value, "time with a zone")
    return value


def _instance(kind: type, what: str, but: type | None = None) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind) or (but is not None and isinstance(value, but)):
            raise _refused(value, what)
        return value

    return read


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, _instance(bool, "boolean")),
    (pa.types.is_integer, _whole),
    (pa.types.is_float64, _number),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, _instance(bytes, "bytes")),
    (pa.types.is_large_binary, _instance(bytes, "bytes")),
    (pa.types.is_decimal, _exact),
    (pa.types.is_date, _instance(date, "date", datetime)),
    (pa.types.is_time, _instance(time, "time of day")),
)
