"""Fits values of Python, or columns of others' types, into the type of a table's column: each as it is, or not at all, by row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.text.rendering import shown
from safewrite.values.casts import convert
from safewrite.values.decimals import storable
from safewrite.values.refusals import NotExactError
from safewrite.values.types import is_list, written

BINARY_DIGITS = 17
"""This many digits tell every binary number of 64 bits from all others; what has more is a decimal."""
_MISFITS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, AttributeError)


def column_of(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """A column under another type, as :func:`array_of` makes it of its values; at once where all fit."""
    if values.type == kind:
        return values, {}
    if _is_alike(values.type, kind):
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        try:
            return convert(whole, kind), {}
        except NotExactError:
            pass  # find which below
    return array_of(values.to_pylist(), kind)


def _is_alike(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether :func:`convert` takes the values of a type that :func:`array_of` takes."""
    into_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_integer(found):
        return bool(into_number)
    return bool(
        (pa.types.is_floating(found) and pa.types.is_floating(kind))
        or (pa.types.is_decimal(found) and pa.types.is_decimal(kind))
    )


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
            told = str(value) if isinstance(value, Decimal) and len(str(value)) < 100 else shown(value)
            misfits[place] = f"{told} does not fit the table's {written(kind)}"
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
)


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
    return _refuser(kind)


def _refuser(kind: pa.DataType) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        raise NotExactError(f"no value of a source fits a column of type {written(kind)}")

    return read


def _refused(value: Any, what: str) -> NotExactError:
    return NotExactError(f"{shown(value)} is no {what}")


def _number(value: Any) -> float:
    if isinstance(value, Decimal):
        found = float(value)
        is_lost = found == 0 != value
        if len(value.as_tuple().digits) > BINARY_DIGITS or not math.isfinite(found) or is_lost:
            raise _refused(str(value), "number of 64 bits; name it in decimal_fields")
        return found
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(value, "number")
    found = float(value)
    if found != value and not math.isnan(found):
        raise _refused(value, "number of 64 bits")
    return found


def _single(value: Any) -> Any:
    found = _number(value)
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
    """Reads lists, structs and maps of no other shape than a type, and what is in them as columns are read.

    Left to itself Arrow takes a text for a list of its letters, passes over fields, and makes 1 of 1.5; a NULL for a key of a
    map ends the process.
    """
    if pa.types.is_struct(kind):
        return _struct_reader(kind)
    if pa.types.is_map(kind):
        return _map_reader(kind)
    if not is_list(kind):
        return _refuser(kind)
    inner = _or_null(_reader(kind.value_type))

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _refused(value, f"value of {written(kind)}")
        return [inner(one) for one in value]

    return read


def _struct_reader(kind: pa.StructType) -> Callable[[Any], Any]:
    inner = {field.name: _or_null(_reader(field.type)) for field in kind}

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or any(value[name] is not None for name in value.keys() - inner):
            raise _refused(value, f"value of {written(kind)}")
        return {name: inner[name](one) for name, one in value.items() if name in inner}

    return read


def _map_reader(kind: pa.MapType) -> Callable[[Any], Any]:
    key, item = _reader(kind.key_type), _or_null(_reader(kind.item_type))

    def read(value: Any) -> Any:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or any(
            not isinstance(pair, tuple) or len(pair) != 2 or pair[0] is None for pair in pairs
        ):
            raise _refused(value, f"value of {written(kind)}")
        return [(key(one), item(other)) for one, other in pairs]

    return read


def _or_null(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


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


def _clock(value: Any) -> time:
    if not isinstance(value, time) or value.tzinfo is not None:  # Arrow drops the zone
        raise _refused(value, "time of day without a zone")
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
    (pa.types.is_fixed_size_binary, _instance(bytes, "bytes")),
    (pa.types.is_decimal, _exact),
    (pa.types.is_date, _instance(date, "date", datetime)),
    (pa.types.is_time, _clock),
)
