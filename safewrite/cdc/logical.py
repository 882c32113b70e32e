"""Reads values of Kafka Connect and Debezium schemas: an Arrow type for each, and the value without loss.

A schema is a dict as Connect's JSON converter writes it (``type``, ``name``, ``parameters``, ``fields``, ``items``,
...); those of Avro are translated to the same form.  Numbers get the widest type of their kind (64 bits), so that a
source may widen a column without a change of the table.  Bytes are bytes, or base64 where they come from JSON.

Sources: Debezium's "data types" and "temporal types" of each connector; org.apache.kafka.connect.data.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.change import UndecodableError

DECIMAL_DIGITS_MAX = 38
"""Of Delta and Iceberg alike."""
UNAVAILABLE_TEXT = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""

_EXACT = Context(prec=400)
_EPOCH, _EPOCH_DATE = datetime(1970, 1, 1), date(1970, 1, 1)  # noqa: DTZ001 - a time without zone on purpose
_DAY_US = 86_400_000_000
_FINER = re.compile(r"\.[0-9]{6}[0-9]*?[1-9]")
"""A fraction of a second below the microsecond."""
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column, and how a value that is not NULL is read."""

    type: pa.DataType
    read: Read


class Placeholder:
    """Recognises the value that Debezium puts where PostgreSQL left out an unchanged one (TOAST), by its kind."""

    def __init__(self, text: str = UNAVAILABLE_TEXT) -> None:
        raw = bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()
        text = raw.decode("utf-8", "replace")
        coded = base64.b64encode(raw).decode()
        self.raw = raw
        self.texts = frozenset((text, coded, f'{{"{text}":"{text}"}}'))
        signed = [byte - 256 if byte > 127 else byte for byte in raw]
        self._lists: tuple[list[Any], ...] = ([text], [coded], [raw], [str(_name_uuid(raw))], signed)
        self._map = {text: text}

    def stands_in(self, value: Any) -> bool:
        """Whether a value, as it came, is the placeholder."""
        if isinstance(value, str):
            return value in self.texts
        if isinstance(value, bytes):
            return value == self.raw
        if isinstance(value, list):
            return bool(value) and value in self._lists
        return isinstance(value, dict) and value == self._map


def _name_uuid(raw: bytes) -> uuid.UUID:
    """Java's ``UUID.nameUUIDFromBytes``: version 3 without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)


def column_of(schema: Mapping[str, Any]) -> Column:
    """The column of a schema.

    Raises:
        UndecodableError: a type that is not known.
    """
    name = schema.get("name")
    if isinstance(name, str) and (made := _BY_NAME.get(name)):
        return made(schema)
    kind = schema.get("type")
    if kind in PLAIN:
        return PLAIN[str(kind)]
    if kind == "array":
        item = column_of(schema["items"])
        return Column(pa.list_(item.type), lambda value: [_null_or(item.read, one) for one in value])
    if kind == "map":
        return _map(schema)
    if kind == "struct":
        return _struct(schema)
    raise UndecodableError(f"the type {kind!r} of a schema is not known")


def row_of(schema: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a struct."""
    fields = schema.get("fields")
    if schema.get("type") != "struct" or not isinstance(fields, list):
        raise UndecodableError("the schema of a row is no struct")
    return {str(field["field"]): column_of(field) for field in fields}


def _null_or(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _map(schema: Mapping[str, Any]) -> Column:
    key, item = column_of(schema["keys"]), column_of(schema["values"])

    def read(value: Any) -> list[tuple[Any, Any]]:
        # Connect's JSON writes a map whose keys are no texts as a list of pairs.
        pairs = value.items() if isinstance(value, dict) else value
        return [(key.read(name), _null_or(item.read, one)) for name, one in pairs]

    return Column(pa.map_(key.type, item.type), read)


def _struct(schema: Mapping[str, Any]) -> Column:
    columns = row_of(schema)
    type_ = pa.struct([pa.field(name, column.type) for name, column in columns.items()])
    return Column(
        type_,
        lambda value: {name: _null_or(column.read, value.get(name)) for name, column in columns.items()},
    )


# --- plain values -------------------------------------------------------------------------------------
def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UndecodableError(f"{value!r} is no whole number")
    if not -(2**63) <= value < 2**63:
        raise UndecodableError(f"{value} does not fit into 64 bits")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        # Connect's JSON has no way to write these but as texts.
        if value in {"NaN", "Infinity", "-Infinity"}:
            return float(value)
        raise UndecodableError(f"{value!r} is no number")
    found = float(value)
    if math.isinf(found) and not isinstance(value, float):
        raise UndecodableError(f"{value} does not fit into 64 bits")
    return found


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UndecodableError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UndecodableError(f"{value!r} is no text")
    return value


def binary(value: Any) -> bytes:
    """Bytes as they are, or of base64."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableError(f"{value!r} is not base64") from error


# --- decimals -----------------------------------------------------------------------------------------
def unscaled(value: Any, scale: int) -> Decimal:
    """A decimal of the bytes of its unscaled number, in two's complement."""
    number = int.from_bytes(binary(value), "big", signed=True)
    return _EXACT.scaleb(Decimal(number), -scale)


def _decimal(schema: Mapping[str, Any]) -> Column:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", DECIMAL_DIGITS_MAX))
    if not 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
        return Column(pa.string(), lambda value: format(_decimal_of(value, scale), "f"))
    return Column(pa.decimal128(precision, scale), lambda value: _decimal_of(value, scale))


def _decimal_of(value: Any, scale: int) -> Decimal:
    # decimal.format=NUMERIC of Connect's JSON converter writes a number.
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    return unscaled(value, scale)


def _variable_decimal(value: Any) -> str:
    return format(unscaled(value["value"], _whole(value["scale"])), "f")


# --- times --------------------------------------------------------------------------------------------
def _days(value: Any) -> date:
    return _EPOCH_DATE + timedelta(days=_whole(value))


def _moment(unit_ns: int) -> Read:
    def read(value: Any) -> datetime:
        return _EPOCH + timedelta(microseconds=_microseconds(value, unit_ns))

    return read


def _time_of_day(unit_ns: int) -> Read:
    def read(value: Any) -> time:
        whole = _microseconds(value, unit_ns)
        if not 0 <= whole < _DAY_US:
            raise UndecodableError(f"{value} is no time of a day")
        return (_EPOCH + timedelta(microseconds=whole)).time()

    return read


def _microseconds(value: Any, unit_ns: int) -> int:
    whole, rest = divmod(_whole(value) * unit_ns, 1000)
    if rest:
        raise UndecodableError(f"{value} has nanoseconds, which no table keeps")
    return whole


def instant(value: Any) -> datetime:
    """A text of ISO 8601 with a zone, as that moment in UTC."""
    text = _text(value)
    if _FINER.search(text):
        raise UndecodableError(f"{text!r} has nanoseconds, which no table keeps")
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UndecodableError(f"{text!r} is no time") from error
    if found.tzinfo is None:
        raise UndecodableError(f"{text!r} has no zone")
    return found.astimezone(UTC)


PLAIN: Mapping[str, Column] = {
    "int8": Column(pa.int64(), _whole),
    "int16": Column(pa.int64(), _whole),
    "int32": Column(pa.int64(), _whole),
    "int64": Column(pa.int64(), _whole),
    "float": Column(pa.float64(), _number),
    "float32": Column(pa.float64(), _number),
    "double": Column(pa.float64(), _number),
    "float64": Column(pa.float64(), _number),
    "boolean": Column(pa.bool_(), _flag),
    "string": Column(pa.string(), _text),
    "bytes": Column(pa.binary(), binary),
}


def _fixed(type_: pa.DataType, read: Read) -> Callable[[Mapping[str, Any]], Column]:
    column = Column(type_, read)
    return lambda _: column


_BY_NAME: Mapping[str, Callable[[Mapping[str, Any]], Column]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _fixed(pa.date32(), _days),
    "org.apache.kafka.connect.data.Time": _fixed(pa.time64("us"), _time_of_day(1_000_000)),
    "org.apache.kafka.connect.data.Timestamp": _fixed(_LOCAL, _moment(1_000_000)),
    "io.debezium.data.VariableScaleDecimal": _fixed(pa.string(), _variable_decimal),
    "io.debezium.time.Date": _fixed(pa.date32(), _days),
    "io.debezium.time.Time": _fixed(pa.time64("us"), _time_of_day(1_000_000)),
    "io.debezium.time.MicroTime": _fixed(pa.time64("us"), _time_of_day(1000)),
    "io.debezium.time.NanoTime": _fixed(pa.time64("us"), _time_of_day(1)),
    "io.debezium.time.Timestamp": _fixed(_LOCAL, _moment(1_000_000)),
    "io.debezium.time.MicroTimestamp": _fixed(_LOCAL, _moment(1000)),
    "io.debezium.time.NanoTimestamp": _fixed(_LOCAL, _moment(1)),
    "io.debezium.time.ZonedTimestamp": _fixed(_INSTANT, instant),
}
