"""Reads values of files as the declared types, and says which cannot be read."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = r"^-?[0-9]+$"
_SAME_WHOLE = r"^\+?(-?[0-9]+)(?:\.0*)?$"
"""The spellings of a whole number: Oracle's NUMBER comes as 7.0000000000."""
_PLUS = r"^\+([0-9.])"
_MIDNIGHT = r"^(\d{4}-\d\d-\d\d)[ T]00:00(?::00(?:\.0*)?)?$"
_ZEROS = r"(\.\d{6})0+(\s*(?:Z|[+-][\d:]+)?)$"
"""Digits past the microsecond that say nothing: SQL Server's datetime2 has seven."""
_BLANK = r"(\d)\s+(Z|[+-]\d{2}(?::?\d{2})?)$"
_DAY_MIN, _DAY_MAX = (
    dt.date(year, *day).toordinal() - 719_163 for year, day in ((1, (1, 1)), (9999, (12, 31)))
)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INFINITE = r"(?i)inf"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"


def called(kind: pa.DataType) -> str:
    """A type in a reason why a value is not taken."""
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return f"{kind} of the years 1 to 9999" if is_time else str(kind)


def read(
    column: pa.ChunkedArray, kind: pa.DataType, *, texts: bool
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """A column under its declared type, and which of its values could not be read (NULL in their place).

    ``texts``: the bytes of a CSV file; columns of Parquet files have types of their own, and no value is altered.
    """
    if column.type == kind and not texts:
        return _in_calendar(column, np.zeros(len(column), np.bool_))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    convert = _converter(kind, texts=texts)
    try:
        found, bad = (
            pa.chunked_array([convert(column.combine_chunks())], kind),
            np.zeros(len(column), np.bool_),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        found, bad = _one_by_one(column, kind, convert)
    return _in_calendar(found, bad)


def outside_calendar(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which dates and times are not of the years 1 to 9999 (in UTC): tables and most readers have no others."""
    kind = values.type
    if pa.types.is_date32(kind):
        low, high, numbers = _DAY_MIN, _DAY_MAX, values.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        per_day = 86_400 * _PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit]
        low, high, numbers = _DAY_MIN * per_day, (_DAY_MAX + 1) * per_day - 1, values.cast(pa.int64())
        low, high = max(low, -(2**63)), min(high, 2**63 - 1)
    else:
        return np.zeros(len(values), np.bool_)
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    return np.asarray(pc.fill_null(outside, False).to_numpy(), np.bool_)


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values; of years that Python has no dates of, as texts."""
    columns = {}
    for name in rows.column_names:
        outside = outside_calendar(rows[name])
        columns[name] = rows[name].to_pylist() if not outside.any() else _texts(rows[name], outside)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


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


def _in_calendar(
    values: pa.ChunkedArray, bad: npt.NDArray[np.bool_]
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """What no table takes is bad, and NULL in its place."""
    outside = outside_calendar(values)
    if not outside.any():
        return values, bad
    kept = pc.if_else(pa.array(outside), pa.scalar(None, values.type), values)
    return pa.chunked_array(kept.chunks, values.type), bad | outside


Converter = Callable[[pa.Array], pa.Array]


def _one_by_one(
    column: pa.ChunkedArray, kind: pa.DataType, convert: Converter
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """Each distinct value by itself: slow, and only for columns that hold bad ones."""
    whole = column.combine_chunks()
    coded = whole.dictionary_encode()
    values, good = [], []
    for number in range(len(coded.dictionary)):
        one = coded.dictionary.slice(number, 1)
        try:
            values.append(convert(one))
            good.append(True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
            values.append(pa.nulls(1, kind))
            good.append(False)
    known = pa.concat_arrays(values) if values else pa.nulls(0, kind)
    found = known.take(coded.indices)
    is_good = pa.array(good, pa.bool_()).take(coded.indices)
    bad = np.asarray(pc.fill_null(pc.invert(is_good), False).to_numpy(zero_copy_only=False), np.bool_)
    return pa.chunked_array([found], kind), bad


def _converter(kind: pa.DataType, *, texts: bool) -> Converter:
    if not texts:
        return lambda array: _cast(array, kind)
    if pa.types.is_binary(kind):
        return _from_hex
    return lambda array: _from_text(array.cast(pa.string()), kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Types of Parquet: what a cast alters in silence, or gives another meaning, is refused."""
    found = array.type
    if pa.types.is_string(found) or pa.types.is_large_string(found):
        return array.cast(kind) if pa.types.is_string(kind) else _from_text(array.cast(pa.string()), kind)
    if _family(found) != _family(kind):
        raise ValueError(f"a {found} is no {kind}")
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(found) and found.tz is None and kind.tz:
        return array.cast(pa.timestamp("us")).cast(kind)  # DMS writes UTC without saying so
    values = array.cast(kind)
    if _family(kind) == "time" or pa.types.is_floating(kind) or pa.types.is_floating(found):
        _all(_same(values.cast(found), array), "digits would be lost")
    return values


def _same(back: pa.Array, array: pa.Array) -> pa.Array:
    same = pc.equal(back, array)
    return pc.or_kleene(same, pc.is_nan(array)) if pa.types.is_floating(array.type) else same


def _family(kind: pa.DataType) -> str:
    """What a value means: Arrow casts numbers to times, and times to days, without a word."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "time"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    return str(kind)


def _from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_integer(kind):
        if not pc.all(pc.fill_null(pc.match_substring_regex(texts, _WHOLE), True)).as_py():
            texts = pc.replace_substring_regex(texts, _SAME_WHOLE, r"\1")
        if not pc.all(
            pc.fill_null(pc.match_substring_regex(texts, _WHOLE), True)
        ).as_py():  # Arrow reads 0x1F too
            texts = pa.array([None if one is None else _whole(one) for one in texts.to_pylist()], pa.string())
        return texts.cast(kind)
    if pa.types.is_date(kind):
        return pc.replace_substring_regex(texts, _MIDNIGHT, r"\1").cast(kind)
    if pa.types.is_floating(kind):
        found = pc.replace_substring_regex(texts, _PLUS, r"\1").cast(kind)
        said = pc.match_substring_regex(
            texts, _INFINITE
        )  # 1e999 is no infinity, but a number that does not fit
        _all(pc.or_(pc.invert(pc.is_inf(found)), said), "too large")
        return found
    if pa.types.is_timestamp(kind):
        return _times(texts, kind)
    if pa.types.is_binary(kind):
        return _from_hex(texts.cast(pa.binary()))
    if pa.types.is_decimal(kind):
        texts = pc.replace_substring_regex(texts, _PLUS, r"\1")
    return texts.cast(kind)


def _whole(text: str) -> str:
    """A number with an exponent, if it is a whole one.  Raises ValueError for anything else."""
    if re.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]*)?[Ee][+-]?[0-9]{1,2}", text) is None:
        raise ValueError("no whole number")
    found = Decimal(text)
    if found != found.to_integral_value():
        raise ValueError("no whole number")
    return str(int(found))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """DMS writes times without a zone, in UTC where the source has zones."""
    texts = pc.replace_substring_regex(texts, _ZEROS, r"\1\2")
    texts = pc.replace_substring_regex(texts, _BLANK, r"\1\2")
    zoned = pc.fill_null(pc.match_substring_regex(pc.utf8_slice_codeunits(texts, 10, 64), _ZONE), False)
    if not pc.any(zoned).as_py():
        return texts.cast(pa.timestamp("us")).cast(kind)
    if kind.tz is None:
        raise ValueError("a time with a zone, where the declared type has none")
    if not pc.all(zoned).as_py():
        raise ValueError("times with and without zone")
    return texts.cast(kind)


def _from_hex(array: pa.Array) -> pa.Array:
    return pa.array(
        [None if one is None else bytes.fromhex(_digits(one)) for one in array.to_pylist()], pa.binary()
    )


def _digits(raw: bytes) -> str:
    text = raw.decode("ascii")
    if re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", text) is None:
        raise ValueError("no hexadecimal digits")
    return text


def _all(good: pa.Array, what: str) -> None:
    if not pc.all(pc.fill_null(good, True)).as_py():
        raise ValueError(what)


def decimal_number(text: str) -> int:
    """A change sequence as a number.  Raises ValueError for anything but digits."""
    if not re.fullmatch(r"[0-9]{1,38}", text):
        raise ValueError(f"{text!r} is no number of at most 38 digits")
    return int(text)


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
