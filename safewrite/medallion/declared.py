"""Reads values of files as the types that were declared for them, and says which cannot be."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_WHOLE = r"^[+-]?[0-9]+$"
_INFINITE = r"(?i)inf"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"


def arrow_type(name: Any) -> pa.DataType:
    """The Arrow type of a declared one.

    Raises:
        ValueError: there is none of that name.
    """
    found = _PLAIN.get(name) if isinstance(name, str) else None
    decimal = _DECIMAL.fullmatch(name) if isinstance(name, str) else None
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        found = pa.decimal128(int(decimal[1]), int(decimal[2]))
    if found is None:
        raise ValueError(f"{name!r} is no type; there are {', '.join(_PLAIN)} and decimal(p,s)")
    return found


def read(
    column: pa.ChunkedArray, kind: pa.DataType, *, texts: bool
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """A column under its declared type, and which of its values could not be read (NULL in their place).

    ``texts``: the bytes of a CSV file; columns of Parquet files have types of their own, and no value is altered.
    """
    if column.type == kind and not texts:
        return column, np.zeros(len(column), np.bool_)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    convert = _converter(kind, texts=texts)
    try:
        return pa.chunked_array([convert(column.combine_chunks())], kind), np.zeros(len(column), np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        return _one_by_one(column, kind, convert)


Converter = Callable[[pa.Array], pa.Array]


def _one_by_one(
    column: pa.ChunkedArray, kind: pa.DataType, convert: Converter
) -> tuple[pa.ChunkedArray, npt.NDArray[np.bool_]]:
    """Each distinct value by itself: slow, and only for columns that hold bad ones."""
    whole = column.combine_chunks()
    coded = whole.dictionary_encode()
    values, good = [], []
    for value in coded.dictionary:
        one = pa.array([value.as_py()], coded.dictionary.type)
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
        _all(pc.match_substring_regex(texts, _WHOLE), "no whole number")  # Arrow reads 0x1F too
        return texts.cast(kind)
    if pa.types.is_floating(kind):
        found = texts.cast(kind)
        said = pc.match_substring_regex(
            texts, _INFINITE
        )  # 1e999 is no infinity, but a number that does not fit
        _all(pc.or_(pc.invert(pc.is_inf(found)), said), "too large")
        return found
    if pa.types.is_timestamp(kind):
        return _times(texts, kind)
    if pa.types.is_binary(kind):
        return _from_hex(texts.cast(pa.binary()))
    return texts.cast(kind)


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """DMS writes times without a zone, in UTC where the source has zones."""
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
