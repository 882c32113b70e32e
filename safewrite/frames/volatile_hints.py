"""Guesses which columns are made in each attempt of a write: load times and drawn ids."""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

LOOKED_AT_MAX = 10_000
"""How many rows of a column are looked at."""
SPAN_MAX = timedelta(minutes=15)
"""Times of one attempt lie closer together than this."""
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_HOUR = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d(?=:\d\d)")


def looks_made(column: pa.ChunkedArray) -> str | None:
    """What the values look like if they are probably made in each attempt: a time, or drawn ids."""
    some = pc.drop_null(column.slice(0, LOOKED_AT_MAX))
    if not len(some):
        return None
    if pa.types.is_timestamp(some.type):
        return "a time" if _is_short(some) else None
    if not pa.types.is_string(some.type):
        return None
    texts = some.to_pylist()
    if all(_UUID.fullmatch(text) for text in texts):
        return "drawn ids"
    hours = {match[0] if (match := _HOUR.match(text)) else "" for text in texts}
    return "a time" if len(hours) == 1 and "" not in hours else None


def _is_short(times: pa.ChunkedArray) -> bool:
    ends = pc.min_max(times.cast(pa.int64()))
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[times.type.unit]
    return bool((ends["max"].as_py() - ends["min"].as_py()) <= SPAN_MAX.total_seconds() * unit)
