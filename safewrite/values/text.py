"""Parses texts as values of a type: numbers, dates and times as databases write them, bytes as hexadecimal digits."""

from __future__ import annotations

import re
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.values import decimals
from safewrite.values.refusals import NotExactError

_WHOLE = r"^-?[0-9]+$"
_SAME_WHOLE = r"^(?:\+?([0-9]+)|(-[0-9]+))(?:\.0*)?$"
"""The spellings of a whole number: Oracle's NUMBER comes as 7.0000000000."""
_PLUS = r"^\+([0-9.])"
_MIDNIGHT = r"^(\d{4}-\d\d-\d\d)[ T]00:00(?::00(?:\.0*)?)?$"
_ZEROS = r"(\.\d{6})0+(\s*(?:Z|[+-][\d:]+)?)$"
"""Digits past the microsecond that say nothing: SQL Server's datetime2 has seven."""
_CLOCK = r"^\d\d:\d\d(:\d\d(\.\d+)?)?$"
_BLANK = r"(\d)\s+(Z|[+-]\d{2}(?::?\d{2})?)$"
_INFINITE = r"(?i)inf"
_NO_MANTISSA = r"[eE].*$|[^0-9]"
_SURE_DIGITS = {pa.float16(): 3, pa.float32(): 6, pa.float64(): 15}
"""Numbers of so many digits have them again when they are written as long."""
_ZERO = r"^-?[0.]+(?:[eE]|$)"
_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)$"


def parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as a declared type.

    Raises:
        ValueError, ArrowInvalid: one of them is not a text of such a value.
    """
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_integer(kind):
        if not pc.all(pc.fill_null(pc.match_substring_regex(texts, _WHOLE), True)).as_py():
            texts = pc.replace_substring_regex(texts, _SAME_WHOLE, r"\1\2")
        if not pc.all(
            pc.fill_null(pc.match_substring_regex(texts, _WHOLE), True)
        ).as_py():  # Arrow reads 0x1F too
            texts = pa.array([None if one is None else _whole(one) for one in texts.to_pylist()], pa.string())
        return texts.cast(kind)
    if pa.types.is_date(kind):
        return pc.replace_substring_regex(texts, _MIDNIGHT, r"\1").cast(kind)
    if pa.types.is_floating(kind):
        return _binary(pc.replace_substring_regex(texts, _PLUS, r"\1"), kind)
    if pa.types.is_timestamp(kind):
        return _times(texts, kind)
    if pa.types.is_binary(kind):
        return from_hex(texts.cast(pa.binary()))
    if pa.types.is_decimal(kind):
        return decimals.of_texts(texts, kind)
    if pa.types.is_boolean(kind):
        texts = pc.replace_substring_regex(texts, _SAME_WHOLE, r"\1\2")
    return _clock_times(texts) if pa.types.is_time64(kind) else texts.cast(kind)


def _binary(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Binary numbers: 1e999 does not become infinity, nor 1e-999 zero, and no digit of a text is lost; such texts do not fit."""
    found = texts.cast(kind)
    for is_beyond, as_said, why in (
        (pc.is_inf(found), _INFINITE, "too large"),
        (pc.equal(found, pa.scalar(0.0, kind)), _ZERO, "too near to zero"),
    ):
        if pc.any(is_beyond).as_py():
            said = pc.match_substring_regex(texts, as_said)
            if pc.any(pc.and_not(is_beyond, said)).as_py():
                raise ValueError(why)
    digits = pc.replace_substring_regex(pc.replace_substring_regex(texts, _NO_MANTISSA, ""), "^0+", "")
    many = pc.greater(pc.utf8_length(digits), _SURE_DIGITS[kind])
    asked = pc.and_(pc.and_(many, pc.is_finite(found)), pc.not_equal(found.cast(pa.string()), texts))
    for text, value in zip(texts.filter(asked).to_pylist(), found.filter(asked).to_pylist(), strict=True):
        said = Decimal(text)
        if Context(prec=len(said.as_tuple().digits)).create_decimal(Decimal(value)) != said:
            raise NotExactError("digits would be lost")
    return found


def _whole(text: str) -> str:
    """A number with or without an exponent, if it is a whole one.  Raises ValueError for anything else."""
    if re.fullmatch(_WHOLE, text) is not None:
        return text
    if re.fullmatch(r"[+-]?[0-9]+(?:\.[0-9]*)?[Ee][+-]?[0-9]{1,2}", text) is None:
        raise ValueError("no whole number")
    found = Decimal(text)
    if found != found.to_integral_value():
        raise ValueError("no whole number")
    return str(int(found))


def _clock_times(texts: pa.Array) -> pa.Array:
    """Times of a day, to the microsecond, without a zone; MySQL's spans of more than a day are none."""
    if not pc.all(pc.fill_null(pc.match_substring_regex(texts, _CLOCK), True)).as_py():
        raise ValueError("no time of a day")
    times = pc.binary_join_element_wise("1970-01-01", pc.replace_substring_regex(texts, _ZEROS, r"\1"), " ")
    return times.cast(pa.timestamp("us")).cast(pa.time64("us"))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """DMS writes times without a zone, in UTC where the source has zones."""
    texts = pc.replace_substring_regex(texts, _ZEROS, r"\1\2")
    texts = pc.replace_substring_regex(texts, _BLANK, r"\1\2")
    zoned = pc.fill_null(pc.match_substring_regex(pc.utf8_slice_codeunits(texts, 10, 64), _ZONE), False)
    if not pc.any(zoned).as_py():
        return texts.cast(pa.timestamp("us")).cast(kind)
    if kind.tz is None:
        raise ValueError("a time with a zone, where the declared type has none")
    if pc.all(zoned).as_py():
        return texts.cast(kind)
    plain = pc.if_else(zoned, None, texts).cast(pa.timestamp("us")).cast(kind)
    return pc.coalesce(plain, pc.if_else(zoned, texts, None).cast(kind))


def from_hex(array: pa.Array) -> pa.Array:
    """Bytes of hexadecimal digits."""
    return pa.array(
        [None if one is None else bytes.fromhex(_digits(one)) for one in array.to_pylist()], pa.binary()
    )


def _digits(raw: bytes) -> str:
    text = raw.decode("ascii")
    if re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", text) is None:
        raise ValueError("no hexadecimal digits")
    return text
