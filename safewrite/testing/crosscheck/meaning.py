"""Reduces a value to its meaning, whatever library holds it: equal meanings, and only they, are the same value."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

Meaning = Any
"""None, or a tuple of the value's kind and the value."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the origin of both kinds of time
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def meaning(value: Any) -> Meaning:
    """The meaning of a Python value, of numpy's and pandas' scalars, of dicts (structs) and lists of pairs (maps)."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, np.generic):
        return _of_datetime64(value) if isinstance(value, np.datetime64) else meaning(value.item())
    match value:
        case bool():
            return "bool", value
        case int() | float() | Decimal():
            return _of_number(value)
        case str():
            return "text", value
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case uuid.UUID():
            return "bytes", value.bytes
        case dt.date() | dt.time():
            return _of_time(value)
        case Mapping():
            return "struct", frozenset((name, meaning(one)) for name, one in value.items())
        case list() | tuple() | np.ndarray():
            return _of_list(list(value))
    raise TypeError(f"no meaning is known for {type(value).__name__}: {value!r:.80}")


def _of_number(value: float | Decimal) -> Meaning:
    if isinstance(value, float):
        if math.isnan(value):
            return "number", "nan"
        if math.isinf(value):
            return "number", "inf" if value > 0 else "-inf"
        if value == 0 and math.copysign(1, value) < 0:
            return "number", "-0"
    return "number", Fraction(value)


def _of_time(value: dt.date | dt.time) -> Meaning:
    if isinstance(value, dt.datetime):
        return _of_datetime(value)
    if isinstance(value, dt.date):
        return "date", value.toordinal()
    midnight = dt.datetime.combine(dt.date(1970, 1, 1), value.replace(tzinfo=None))
    return "time", (midnight - _EPOCH) // _MICROSECOND


def _of_datetime(value: dt.datetime) -> Meaning:
    finer = Fraction(getattr(value, "nanosecond", 0), 1000)
    whole = dt.datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        value.tzinfo,
    )
    if whole.tzinfo is None:
        return "naive", (whole - _EPOCH) // _MICROSECOND + finer
    return "instant", (whole - _EPOCH_UTC) // _MICROSECOND + finer


def _of_datetime64(value: np.datetime64) -> Meaning:
    if np.isnat(value):
        return None
    unit = np.datetime_data(value.dtype)[0]
    if unit == "D":
        return "date", int(value.astype("datetime64[D]").astype(np.int64)) + dt.date(1970, 1, 1).toordinal()
    return "naive", Fraction(int(value.astype("datetime64[ns]").astype(np.int64)), 1000)


def _of_list(values: list[Any]) -> Meaning:
    if values and all(isinstance(one, tuple) and len(one) == 2 for one in values):
        return "map", frozenset((meaning(key), meaning(one)) for key, one in values)
    return "list", tuple(meaning(one) for one in values)


def read(value: Any, kind: pa.DataType) -> Meaning:
    """The meaning of a reader's value of a type: readers spell maps and empty values in many ways."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return "map", frozenset(
            (read(key, kind.key_type), read(one, kind.item_type)) for key, one in _pairs(value)
        )
    if pa.types.is_struct(kind):
        inner = [kind.field(number) for number in range(kind.num_fields)]
        return "struct", frozenset((field.name, read(value.get(field.name), field.type)) for field in inner)
    if pa.types.is_list(kind):
        return "list", tuple(read(one, kind.value_type) for one in value)
    return meaning(value)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return [(one["key"], one["value"]) if isinstance(one, Mapping) else tuple(one) for one in value]


def given(value: Any, kind: pa.DataType | None) -> Meaning:
    """The meaning of a value given for a column of a type: an empty list of pairs is an empty map."""
    if kind is not None and value is not None:
        if pa.types.is_map(kind) and isinstance(value, list):
            return "map", frozenset((given(key, None), given(one, kind.item_type)) for key, one in value)
        if pa.types.is_struct(kind) and isinstance(value, Mapping):
            types = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
            return "struct", frozenset((name, given(one, types.get(name))) for name, one in value.items())
        if pa.types.is_list(kind) and isinstance(value, list):
            return "list", tuple(given(one, kind.value_type) for one in value)
    return meaning(value)
