"""Converts to decimals exactly where Arrow does not.

Arrow's numbers of 128 bits overflow without an error: 99 as ``decimal128(38, 38)`` becomes 0.318..., and 1E-41 becomes 0.
At some exponents it ends the process.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from safewrite.values import compute as pc
from safewrite.values.limits import DECIMAL_DIGITS_MAX, EXPONENT_MAX
from safewrite.values.refusals import NotExactError

_WIDEST = 76
"""Digits of Arrow's numbers of 256 bits."""
_PLUS = r"^\+([0-9.])"
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers and decimals as decimals of a type.

    Raises:
        ArrowInvalid: one does not fit.
    """
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))  # holds every 64-bit integer, signed or not
    found = values.type
    if found.precision - found.scale + kind.scale <= DECIMAL_DIGITS_MAX:
        return values.cast(kind)
    digits = max(kind.precision - kind.scale + found.scale, 1)  # more digits do not fit
    values = values.cast(pa.decimal256(min(digits, _WIDEST), found.scale))
    return values.cast(pa.decimal256(_WIDEST, kind.scale)).cast(kind)


def whole(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals as whole numbers of a type.

    Raises:
        ArrowInvalid: one does not fit.
    """
    if values.type.scale < 0:  # Arrow multiplies in as few bits as the decimals have
        values = values.cast(pa.decimal256(_WIDEST, values.type.scale)).cast(pa.decimal256(_WIDEST, 0))
    return values.cast(kind)


def bounded(value: Decimal) -> Decimal:
    """A decimal that can be written without an exponent.

    Raises:
        NotExactError: it has far too many digits.
    """
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > EXPONENT_MAX:
        raise NotExactError(f"a decimal of exponent {exponent} is refused: {EXPONENT_MAX} is the most")
    return value


def storable(value: Decimal) -> Decimal:
    """A decimal that Arrow takes for what it is, or refuses.

    Raises:
        NotExactError: it has more digits than any column, before the point or behind it.
    """
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or (
        exponent >= -DECIMAL_DIGITS_MAX and value.adjusted() < DECIMAL_DIGITS_MAX
    ):
        return value
    digits = bounded(value).as_tuple().digits
    found = Context(prec=len(digits), Emin=-2 * EXPONENT_MAX, Emax=2 * EXPONENT_MAX).normalize(value)
    if int(found.as_tuple().exponent) < -DECIMAL_DIGITS_MAX or found.adjusted() >= DECIMAL_DIGITS_MAX:
        raise NotExactError(
            f"a decimal of more than {DECIMAL_DIGITS_MAX} digits is refused: exponent {exponent}"
        )
    return found


def of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers that are written as texts, as decimals.

    Raises:
        NotExactError, ArrowInvalid: one is no decimal of this type.
    """
    if pc.any(pc.starts_with(texts, "+")).as_py():
        texts = pc.replace_substring_regex(texts, _PLUS, r"\1")
    written = _written(texts)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > DECIMAL_DIGITS_MAX or b"e" in written or b"E" in written:
        read = [None if one is None else _storable_text(one) for one in texts.to_pylist()]
        texts, longest = pa.array(read, pa.string()), _WIDEST
    if longest + kind.scale > DECIMAL_DIGITS_MAX:
        return texts.cast(pa.decimal256(_WIDEST, kind.scale)).cast(kind)
    return texts.cast(kind)


def _written(texts: pa.Array) -> bytes:
    """All texts of an array, one behind the other."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return b""
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    written: bytes = data[int(first) : int(last)].to_pybytes()
    return written


def _storable_text(text: str) -> str:
    if _NUMBER.fullmatch(text) is None:
        return text
    try:
        return format(storable(Decimal(text)), "f")
    except InvalidOperation as error:
        raise NotExactError("a decimal of far too large an exponent is refused") from error
