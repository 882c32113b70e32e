"""Dates, times of day and moments: whole numbers of a unit, and texts of ISO 8601."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types.column import LogicalColumn, Read, ReadArray, RowFallback, by_array
from safewrite.cdc.connect.logical_types.plain import text, whole
from safewrite.cdc.connect.misfits import clock_text, date_text, moment_text, plain_of
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.casts import in_calendar
from safewrite.values.limits import DAY_US, FIRST_DAY, LAST_DAY, span_of

_EPOCH, _EPOCH_DATE = datetime(1970, 1, 1), date(1970, 1, 1)  # noqa: DTZ001 - a time without zone on purpose
_FINER = re.compile(r"\.[0-9]{6}[0-9]*?[1-9]")
"""A fraction of a second below the microsecond."""
_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")


def _days(value: Any) -> date:
    return _EPOCH_DATE + timedelta(days=whole(value))


def _counted(as_text: Callable[[int], str]) -> Read:
    """Makes texts of whole numbers of a unit; another value stays what it is."""
    return lambda value: as_text(value) if type(value) is int else plain_of(value)


def moment(unit_ns: int) -> LogicalColumn:
    """A time without zone, of whole numbers of a unit since 1970."""
    return LogicalColumn(
        LOCAL,
        lambda value: _EPOCH + timedelta(microseconds=_microseconds(value, unit_ns)),
        lambda value: _EPOCH + timedelta(microseconds=whole(value) * unit_ns // 1000),
        _counted(lambda value: moment_text(value, unit_ns)),
        _by_number(times(max(unit_ns // 1000, 1), LOCAL), unit_ns),
    )


def time_of_day(unit_ns: int) -> LogicalColumn:
    """A time of day, of whole numbers of a unit since midnight."""

    def of(value: Any, whole_us: int) -> time:
        if not 0 <= whole_us < DAY_US:
            raise UndecodableError(f"{value} is no time of a day: {clock_text(whole(value), unit_ns)}")
        return (_EPOCH + timedelta(microseconds=whole_us)).time()

    return LogicalColumn(
        pa.time64("us"),
        lambda value: of(value, _microseconds(value, unit_ns)),
        lambda value: of(value, whole(value) * unit_ns // 1000),
        _counted(lambda value: clock_text(value, unit_ns)),
        _by_number(_of_day(max(unit_ns // 1000, 1)), unit_ns),
    )


def _microseconds(value: Any, unit_ns: int) -> int:
    found, rest = divmod(whole(value) * unit_ns, 1000)
    if rest:
        raise UndecodableError(f"{value} has nanoseconds, which no table keeps")
    return found


def instant(value: Any) -> datetime:
    """A text of ISO 8601 with a zone, as that moment in UTC."""
    said = text(value)
    if _FINER.search(said):
        raise UndecodableError(f"{said!r} has nanoseconds, which no table keeps")
    return floored_instant(said)


def floored_instant(value: Any) -> datetime:
    """The same, without what is finer than a microsecond."""
    said = text(value)
    try:
        found = datetime.fromisoformat(said)  # it passes over digits behind the sixth
    except ValueError as error:
        raise UndecodableError(f"{said!r} is no time") from error
    if found.tzinfo is None:
        raise UndecodableError(f"{said!r} has no zone")
    return found.astimezone(UTC)


def _instant_text(value: Any) -> Any:
    """A text of a time that is finer than a microsecond, in UTC; another stays what it is."""
    finer = _FINER.search(value) if isinstance(value, str) else None
    if finer is None:
        return plain_of(value)
    try:
        found = floored_instant(value)
    except (UndecodableError, OverflowError):
        return value
    return f"{found.replace(tzinfo=None).isoformat(timespec='seconds')}{finer[0]}Z"


def _by_number(read: ReadArray, unit_ns: int) -> Mapping[pa.DataType, ReadArray]:
    return {pa.int64(): read if unit_ns >= 1000 else _nanoseconds(read)}


def times(unit_us: int, type_: pa.DataType) -> ReadArray:
    """Reads whole numbers of a unit since 1970."""
    least, most = span_of(DAY_US // unit_us)
    return lambda values, fallback: pc.multiply(_within(values, fallback, least, most), unit_us).cast(type_)


def _within(values: Any, fallback: RowFallback, least: int, most: int) -> Any:
    """Numbers of a range; others are doubted, and NULL."""
    found = pc.min_max(values)
    if found["min"].as_py() is None or (found["min"].as_py() >= least and found["max"].as_py() <= most):
        return values
    beyond = pc.or_(pc.less(values, least), pc.greater(values, most))
    fallback.where(beyond)
    return pc.if_else(beyond, None, values)


def _nanoseconds(read: ReadArray) -> ReadArray:
    """Reads nanoseconds as microseconds, where nothing is lost."""

    def of(values: pa.Array, fallback: RowFallback) -> pa.Array:
        whole = pc.divide(values, 1000)
        fallback.where(pc.not_equal(pc.multiply(whole, 1000), values))
        return read(whole, fallback)

    return of


def _of_day(unit_us: int) -> ReadArray:
    most = DAY_US // unit_us - 1
    return lambda values, fallback: pc.multiply(_within(values, fallback, 0, most), unit_us).cast(
        pa.time64("us")
    )


def _day_array(values: pa.Array, fallback: RowFallback) -> pa.Array:
    return _within(values, fallback, FIRST_DAY, LAST_DAY).cast(pa.int32()).cast(pa.date32())


instants = by_array(INSTANT, lambda texts: in_calendar(texts.cast(INSTANT)), _ZONED)
"""Reads texts of ISO 8601 with a zone."""
DATE = LogicalColumn(pa.date32(), _days, plain=_counted(date_text), arrays={pa.int64(): _day_array})
ZONED = LogicalColumn(INSTANT, instant, floored_instant, _instant_text, {pa.string(): instants})
