"""Holds the limits of every type that tables have, each once."""

from __future__ import annotations

import datetime as dt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.values import compute as pc

DECIMAL_DIGITS_MAX = 38
"""Of Delta and Iceberg alike."""
EXPONENT_MAX = 100_000
"""Of a decimal that is read at all: Arrow ends the process at one of ten million, and PostgreSQL's are up to 16,383."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999, in days since 1970: Python, Spark and the file statistics have names for no others."""
YEARS = "the years 1 to 9999"
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def span_of(unit_per_day: int) -> tuple[int, int]:
    """The first and the last number of a unit since 1970 that is of the years 1 to 9999 and has 64 bits."""
    return max(FIRST_DAY * unit_per_day, -(2**63)), min((LAST_DAY + 1) * unit_per_day - 1, 2**63 - 1)


def outside_calendar(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which dates and times are not of the years 1 to 9999 (in UTC)."""
    kind = values.type
    if pa.types.is_date32(kind):
        numbers, (low, high) = pc.cast(values, pa.int32()), span_of(1)
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        numbers, (low, high) = pc.cast(values, pa.int64()), span_of(86_400 * PER_SECOND[unit])
    else:
        return np.zeros(len(values), np.bool_)
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None or (least >= low and most <= high):
        return np.zeros(len(values), np.bool_)
    outside = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    return np.asarray(pc.fill_null(outside, False).to_numpy(zero_copy_only=False), np.bool_)


def utc(epoch_ms: object) -> dt.datetime | None:
    """A time of the log; None where it is none that a calendar has."""
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int | float):
        return None
    try:
        return _EPOCH + dt.timedelta(milliseconds=epoch_ms)
    except (OverflowError, ValueError):
        return None
