"""Converts an array of simple values to a table's type exactly: the same values, or an error.

Every function takes and returns a ``pyarrow.Array`` and raises :class:`NotExactError` when a value would
change, or :class:`OtherMeaningError` when the two types mean different things (H3, H4).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.values import compute as pc
from safewrite.values import decimals
from safewrite.values.limits import DAY_US, outside_calendar
from safewrite.values.refusals import NotExactError, OtherMeaningError
from safewrite.values.types import is_bytes, is_text


def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """``values`` (no dictionary, no nesting) as ``target``, each value equal to what it was."""
    source = values.type
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    if is_text(target) and is_text(source):
        return in_unicode(values if source == target else _cast(values, target))
    if is_bytes(target) and is_bytes(source):
        return values if source == target else _cast(values, target)
    if pa.types.is_boolean(target) and pa.types.is_boolean(source):
        return values
    if pa.types.is_integer(target):
        return _to_integer(values, target)
    if pa.types.is_floating(target):
        return _to_float(values, target)
    if pa.types.is_decimal(target):
        return _to_decimal(values, target)
    if pa.types.is_date(target) and pa.types.is_date(source):
        return in_calendar(_cast(values, target))
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(source):
        return _to_timestamp(values, target)
    if pa.types.is_time64(target) and pa.types.is_time(source):
        return _within_a_day(_cast(values, target))
    raise OtherMeaningError(_advice(source, target))


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_decimal(target):
            return decimals.cast(values, target)
        if pa.types.is_decimal(values.type):
            return decimals.whole(values, target)
        return pc.cast(values, target, safe=True)
    except pa.ArrowInvalid as error:
        raise NotExactError(str(error).splitlines()[0]) from error


def _to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if pa.types.is_integer(source):
        return values if source == target else _cast(values, target)
    if pa.types.is_float16(source):
        raise OtherMeaningError("cast half floats to float32 first")
    if pa.types.is_floating(source):
        return _float_to_integer(values, target)
    if pa.types.is_decimal(source):
        return _cast(values, target)
    raise OtherMeaningError(_advice(source, target))


def _float_to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    numbers = _numbers(values)
    if np.isnan(numbers).any():
        raise NotExactError(f"NaN is no {target}")
    # numpy's own cast is undefined out of range, so the range is checked before it
    if not ((numbers >= -(2.0**63)) & (numbers < 2.0**63)).all():
        raise NotExactError(f"the value is beyond {target}")
    whole = numbers.astype(np.int64)
    if (whole != numbers).any():
        raise NotExactError("the value has a fraction")
    return _cast(pa.array(whole, mask=_mask(values)), target)


def _to_float(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if source == target:
        return values
    if pa.types.is_float16(source) or not (pa.types.is_integer(source) or pa.types.is_floating(source)):
        raise OtherMeaningError(_advice(source, target))
    result = pc.cast(values, target, safe=False)
    if pa.types.is_integer(source):
        _check_integers_kept(_numbers(values), _numbers(result), target)
        return result
    before, after = _numbers(values), _numbers(result)
    if not ((before == after) | (np.isnan(before) & np.isnan(after))).all():
        raise NotExactError(f"the value is no {target}")
    return result


def _check_integers_kept(whole: npt.NDArray[Any], real: npt.NDArray[Any], target: object) -> None:
    wide = real.astype(np.float64)
    limit = 2.0**64 if whole.dtype == np.uint64 else 2.0**63
    if (wide >= limit).any():  # rounded up beyond what the cast back below can hold
        raise NotExactError(f"the integer is no {target}")
    if (wide.astype(whole.dtype) != whole).any():
        raise NotExactError(f"the integer has more digits than a {target}")


def _to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if source == target:
        return values
    if not (pa.types.is_integer(source) or pa.types.is_decimal(source)):
        raise OtherMeaningError(_advice(source, target))
    return _cast(values, target)


def _to_timestamp(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if source.tz is None and target.tz is not None:
        raise OtherMeaningError(
            "a time without a zone is no instant; say which zone it is in (pandas: tz_localize, "
            "polars: replace_time_zone)"
        )
    if source.tz is not None and target.tz is None:
        raise OtherMeaningError(
            "an instant is no wall-clock time; drop the zone yourself (pandas: tz_localize(None), polars: "
            "replace_time_zone(None))"
        )
    return in_calendar(_cast(values, target))


def _within_a_day(values: pa.Array) -> pa.Array:
    """Refuse times of day that no clock shows; Arrow itself takes any number of microseconds."""
    span = pc.min_max(values.view(pa.int64())).as_py()
    if span["min"] is not None and (span["min"] < 0 or span["max"] >= DAY_US):
        raise NotExactError("the time is not between 00:00 and 24:00")
    return values


_FEW = 1000
"""Arrow checks so few texts sooner than numpy begins."""


def in_unicode(values: pa.Array) -> pa.Array:
    """``values``; raises NotExactError where one is a text that is no UTF-8: bytes that were declared to be one.

    Texts of ASCII alone, the most, are known by their largest byte: an eighth of the time of the whole check.
    """
    if len(values) < _FEW or not _is_ascii(values):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise NotExactError("it is no UTF-8") from error
    return values


def min_max(values: pa.Array) -> Any:
    """The least and the greatest of values; None where one is no UTF-8, as only other engines write them."""
    span = pc.min_max(values)
    try:
        return span.as_py()
    except UnicodeDecodeError:
        return None


def _is_ascii(texts: pa.StringArray) -> bool:
    _, offsets, data = texts.buffers()
    if data is None:
        return True
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bool(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0) < 128)


def in_calendar(values: pa.Array) -> pa.Array:
    """``values``; raises NotExactError where one is a date or time of a year that tables do not have."""
    if outside_calendar(values).any():
        raise NotExactError("the year is not between 1 and 9999")
    return values


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """The values as numpy, with 0 where NULL."""
    filled = pc.fill_null(values, pa.scalar(0, values.type)) if values.null_count else values
    array: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return array


def _mask(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not values.null_count:
        return None
    mask: npt.NDArray[np.bool_] = pc.is_null(values).to_numpy(zero_copy_only=False)
    return mask


def _advice(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_floating(source) and pa.types.is_decimal(target):
        return "binary fractions are not decimals; convert to decimal.Decimal with the rounding you want"
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        return "decimals are not binary fractions; convert to float yourself"
    if pa.types.is_date(source) and pa.types.is_timestamp(target):
        return "a date is no point in time; convert it to the midnight you mean"
    if pa.types.is_timestamp(source) and pa.types.is_date(target):
        return "a timestamp is no date; take the date in the zone you mean"
    if pa.types.is_time(target):
        return "say which time of day is meant with datetime.time, or a time type of Arrow"
    if pa.types.is_fixed_size_binary(target):
        return f"write bytes of length {target.byte_width} (for UUIDs, uuid.UUID objects do as well)"
    if pa.types.is_duration(source) or pa.types.is_time(source) or pa.types.is_interval(source):
        return "tables have no such type; convert it to a number or a string"
    return "convert the column yourself, so that the meaning is yours"
