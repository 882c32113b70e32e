"""Reads from the statistics of a data file between which bounds its columns lie."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from safewrite.delta.log.actions import Action, stats_of
from safewrite.frames.spans import Span

_CUT = dt.timedelta(milliseconds=1)
"""Bounds of times are cut off at milliseconds."""


_REMEMBERED = 20_000
"""Statistics are read again at each write to a table: at most this many are remembered with their bounds."""


class Bounded:
    """Columns whose bounds are asked for; equal ones are one object, for Arrow compares types by their texts."""

    def __init__(self, columns: tuple[tuple[str, pa.DataType], ...]) -> None:
        self._schema, self._names = pa.schema(columns), [name for name, _ in columns]

    @classmethod
    def of(cls, schema: pa.Schema, names: Collection[str]) -> Bounded:
        """Those of these columns that the schema has."""
        there = frozenset(schema.names)
        return _bounded(tuple((name, schema.field(name).type) for name in names if name in there))

    def spans(self, add: Action) -> Mapping[str, Span]:
        """The bounds of the columns, where the file has any that every engine understands alike."""
        text = add.get("stats")
        return _remembered(self, text) if isinstance(text, str) else {}

    def read(self, text: str) -> Mapping[str, Span]:
        """The bounds that a file's statistics tell."""
        return _spans(stats_of({"stats": text}), self._schema, self._names)


_bounded = lru_cache(_REMEMBERED)(Bounded)
_remembered = lru_cache(_REMEMBERED)(Bounded.read)


def _spans(stats: Mapping[str, Any], schema: pa.Schema, names: Collection[str]) -> Mapping[str, Span]:
    rows = stats.get("numRecords")
    lowest, highest, nulls = (_each(stats, what) for what in ("minValues", "maxValues", "nullCount"))
    found: dict[str, Span] = {}
    for name in names:
        kind, count = schema.field(name).type, nulls.get(name)
        if type(count) is int and count == rows:
            found[name] = Span(is_empty=True)
            continue
        low, high = _value(lowest.get(name), kind), _value(highest.get(name), kind)
        if isinstance(high, dt.datetime):
            high = None if high.year == dt.MAXYEAR else high + _CUT
        if low is not None or high is not None:
            found[name] = Span(low, high, has_nulls=count != 0)
    return found


def _each(stats: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    found = stats.get(what)
    return found if isinstance(found, dict) else {}


def _value(bound: Any, kind: pa.DataType) -> Any:
    """A bound as a value of its column; None where it is not there, or of a kind whose order engines spell in their own ways."""
    try:
        if pa.types.is_integer(kind):
            return bound if type(bound) is int and -(2**63) <= bound < 2**63 else None
        if not isinstance(bound, str):
            return None
        if pa.types.is_string(kind):
            return bound
        if pa.types.is_date(kind):
            return dt.date.fromisoformat(bound)
        if pa.types.is_timestamp(kind):
            moment = dt.datetime.fromisoformat(bound)
            return moment if (moment.tzinfo is not None) == (kind.tz is not None) else None
    except ValueError:
        pass
    return None
