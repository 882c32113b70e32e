"""Converts values of files to the types that were declared for them: texts are parsed, Parquet's values are cast.

A declaration says what is meant, so more is taken than of a frame: a decimal for a float that equals it, a date for the
midnight of it, a time without a zone for UTC.  ``docs/values.md`` has the table of both.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.values import decimals
from safewrite.values.casts import in_calendar, in_unicode
from safewrite.values.fit import Convert
from safewrite.values.refusals import NotExactError, OtherMeaningError
from safewrite.values.text import from_hex, parsed
from safewrite.values.types import is_text

_ZEROS = r"(?:\.0+|(\.[0-9]*[1-9])0+)$"


def declared(kind: pa.DataType, *, texts: bool) -> Convert:
    """Converts to a declared type; ``texts`` are the bytes of a CSV file."""
    if texts and pa.types.is_binary(kind):
        return from_hex
    if texts:
        return lambda array: in_calendar(parsed(array.cast(pa.string()), kind))
    return lambda array: in_calendar(_cast(array, kind))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Types of Parquet: what a cast alters in silence, or gives another meaning, is refused."""
    found = array.type
    if is_text(found):
        texts = in_unicode(array.cast(pa.string()))
        return texts if kind == texts.type else parsed(texts, kind)
    if found == kind:
        return array
    if pa.types.is_time(found) and is_text(kind):  # Delta has no times of a day
        return pc.replace_substring_regex(array.cast(kind), _ZEROS, r"\1")
    if _family(found) != _family(kind):
        raise OtherMeaningError(f"a {found} is no {kind}")
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(found) and found.tz is None and kind.tz:
        return array.cast(pa.timestamp("us")).cast(kind)  # DMS writes UTC without saying so
    if pa.types.is_decimal(kind) and not pa.types.is_floating(found):
        return decimals.cast(array, kind)
    if pa.types.is_integer(kind) and pa.types.is_decimal(found):
        return decimals.whole(array, kind)
    values = array.cast(kind)
    may_lose = (
        _family(kind) in ("time", "time of day") or pa.types.is_floating(kind) or pa.types.is_floating(found)
    )
    if may_lose and not pc.all(pc.fill_null(_same(values.cast(found), array), True)).as_py():
        raise NotExactError("digits would be lost")
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
    if pa.types.is_time(kind):
        return "time of day"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    return str(kind)
