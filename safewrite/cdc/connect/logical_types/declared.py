"""Columns that the configuration declares: times of ``timestamp_fields``, decimals of ``decimal_fields``."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types.column import LogicalColumn, ReadArray, RowFallback, by_array
from safewrite.cdc.connect.logical_types.decimals import unscaled, unscaled_array
from safewrite.cdc.connect.logical_types.plain import whole
from safewrite.cdc.connect.logical_types.times import (
    INSTANT,
    LOCAL,
    floored_instant,
    instant,
    instants,
    times,
)
from safewrite.cdc.records.change import UndecodableError
from safewrite.values import decimals

DecimalMode = Literal["precise", "string", "double"]
"""Debezium's ``decimal.handling.mode``: how texts of decimals are written."""
_UNITS_US = {"epoch_s": 1_000_000, "epoch_ms": 1000, "epoch_us": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITTEN = r"^-?[0-9]+(\.[0-9]+)?$"


@lru_cache
def declared_time(form: str) -> LogicalColumn:
    """A moment in UTC, of texts or numbers as ``timestamp_fields`` say they are written."""
    arrays: dict[pa.DataType, ReadArray] = dict.fromkeys((LOCAL, INSTANT), _as_utc)
    if form in _UNITS_US:
        arrays[pa.int64()] = times(_UNITS_US[form], INSTANT)
    elif form == "iso8601":
        arrays[pa.string()] = _written_instants
    read = partial(_time, form=form)
    return LogicalColumn(INSTANT, read, partial(read, is_floored=True), arrays=arrays)


def _time(value: Any, form: str, *, is_floored: bool = False) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if form in _UNITS_US:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise UndecodableError(f"{value!r} is no time of {form}")
        try:
            return _EPOCH + timedelta(microseconds=int(value) * _UNITS_US[form])
        except (ValueError, OverflowError) as error:
            raise UndecodableError(f"{value!r} is no time of {form}") from error
    if not isinstance(value, str):
        raise UndecodableError(f"{value!r} is no time of the form {form}")
    if form == "iso8601":
        text = value if _has_zone(value) else f"{value}+00:00"
        try:
            return floored_instant(text) if is_floored else instant(text)
        except UndecodableError as error:
            if _is_date(value):
                raise UndecodableError(
                    f"{value!r} is a date, and no time; declare its pattern of strptime"
                ) from error
            raise UndecodableError(str(error).replace(repr(text), repr(value))) from error
    found = datetime.strptime(value, form)  # noqa: DTZ007 - the zone is added below
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _has_zone(text: str) -> bool:
    clock = text[10:]
    return "+" in clock or "-" in clock or clock.endswith(("Z", "z"))


def _as_utc(values: pa.Array, fallback: RowFallback) -> pa.Array:
    """A time without a zone is taken for UTC."""
    return values.cast(INSTANT)


def _written_instants(values: pa.Array, fallback: RowFallback) -> pa.Array:
    zoned = pc.match_substring_regex(values, r"^.{10}.*[Zz+-]")
    if not pc.all(zoned).as_py():
        values = pc.if_else(zoned, values, pc.binary_join_element_wise(values, "Z", ""))
    return instants(values, fallback)


@lru_cache
def declared_decimal(precision: int, scale: int, texts: DecimalMode | None) -> LogicalColumn:
    """A decimal of ``decimal_fields``, exactly.

    Args:
        texts: how texts are written; None where it is not known, and a text is refused.
    """
    kind = pa.decimal128(precision, scale)

    def read(value: Any) -> Decimal:
        if isinstance(value, dict) and set(value) == {"scale", "value"}:  # VariableScaleDecimal
            value = unscaled(value["value"], whole(value["scale"]))
        elif isinstance(value, str) and texts is None:
            raise UndecodableError(
                f"the text {value!r} came without a schema, and may be a number or base64 of Connect's Decimal; set "
                "decimal_handling_mode to what decimal.handling.mode of the connector is (its default is precise)"
            )
        elif isinstance(value, str) and texts == "precise":
            value = unscaled(value, scale)
        return _decimal(value, kind)

    arrays: dict[pa.DataType, ReadArray] = {
        pa.int64(): by_array(kind, lambda some: decimals.cast(some, kind)),
        pa.string(): by_array(kind, lambda some: decimals.of_texts(some, kind), _WRITTEN),
    }
    if texts == "precise":
        arrays[pa.string()] = unscaled_array(kind)
    elif texts is None:
        del arrays[pa.string()]
    return LogicalColumn(kind, read, arrays=arrays)


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal | float):
        raise UndecodableError(f"{value!r} is no decimal")
    try:
        # A column of the source that is binary already (float of Avro) is the shortest number that reads back as it.
        found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation as error:
        raise UndecodableError(f"{value!r} is no decimal") from error
    if not found.is_finite():
        raise UndecodableError(f"{value!r} is no finite decimal")
    found = decimals.storable(found)
    pa.scalar(found, kind)
    return found
