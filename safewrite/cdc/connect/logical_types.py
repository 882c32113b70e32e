"""Reads values of Kafka Connect and Debezium schemas: an Arrow type for each, and the value without loss.

A schema is a dict as Connect's JSON converter writes it (``type``, ``name``, ``parameters``, ``fields``, ``items``,
...); those of Avro are translated to the same form.  Numbers get the widest type of their kind (64 bits), so that a
source may widen a column without a change of the table.  Bytes are bytes, or base64 where they come from JSON.

Sources: Debezium's "data types" and "temporal types" of each connector; org.apache.kafka.connect.data.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.connect.misfits import clock_text, date_text, moment_text, plain_of, text_of
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.limits import DAY_US, DECIMAL_DIGITS_MAX, EXPONENT_MAX

_EPOCH, _EPOCH_DATE = datetime(1970, 1, 1), date(1970, 1, 1)  # noqa: DTZ001 - a time without zone on purpose
_FINER = re.compile(r"\.[0-9]{6}[0-9]*?[1-9]")
"""A fraction of a second below the microsecond."""
_LOCAL, _INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")

Read = Callable[[Any], Any]
UNREADABLE = (
    UndecodableError, ArithmeticError, ValueError, TypeError, KeyError, AttributeError, IndexError, pa.ArrowException,
)  # fmt: skip
"""What reading a value that does not fit raises."""


def _as_it_came(value: Any) -> Any:
    return plain_of(value)


@dataclass(frozen=True, slots=True)
class Column:
    """The type of a column, and how a value that is not NULL is read.

    ``floor`` reads a value as the nearest one below it that the type has, where the type has such; ``plain`` makes of a
    value that ``read`` refuses what JSON has, exactly.
    """

    type: pa.DataType
    read: Read
    floor: Read | None = None
    plain: Read = _as_it_came

    def plain_of(self, value: Any) -> Any:
        """A value as it came, as JSON has it: what is read, else what is refused."""
        if value is None:
            return None
        try:
            return plain_of(self.read(value))
        except UNREADABLE:
            return self.plain(value)

    def text_of(self, value: Any) -> str:
        """A value as it came, as a text."""
        return text_of(self.plain_of(value))


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
        return _list(schema)
    if kind == "map":
        return _map(schema)
    if kind == "struct":
        return _struct(schema)
    raise UndecodableError(f"the type {kind!r} of a schema is not known")


def row_of(schema: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a struct.  Values of one whose type is not known are refused one by one: it may be left out.

    Raises:
        UndecodableError: it is no struct.
    """
    return {name: _column_or_refusal(field) for name, field in _named(schema).items()}


def fields_of(schema: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a struct.

    Raises:
        UndecodableError: it is no struct, or has a type that is not known.
    """
    return {name: column_of(field) for name, field in _named(schema).items()}


def _named(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    fields = schema.get("fields")
    if schema.get("type") != "struct" or not isinstance(fields, list):
        raise UndecodableError("the schema of a row is no struct")
    return {str(field["field"]): field for field in fields}


def _column_or_refusal(schema: Mapping[str, Any]) -> Column:
    try:
        return column_of(schema)
    except UNREADABLE as error:
        why = (
            str(error)
            if isinstance(error, UndecodableError)
            else f"the schema of the column cannot be read: {error!r}"
        )

        def refuse(value: Any) -> Any:
            raise UndecodableError(why)

        return Column(pa.null(), refuse)


def _null_or(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _list(schema: Mapping[str, Any]) -> Column:
    item = column_of(schema["items"])

    def plain(value: Any) -> Any:
        return [item.plain_of(one) for one in value] if isinstance(value, list) else plain_of(value)

    return Column(
        pa.list_(item.type),
        lambda value: [_null_or(item.read, one) for one in value],
        lambda value: [_null_or(item.floor or item.read, one) for one in value],
        plain,
    )


def _map(schema: Mapping[str, Any]) -> Column:
    key, item = column_of(schema["keys"]), column_of(schema["values"])

    def pairs_of(value: Any) -> Any:
        # Connect's JSON writes a map whose keys are no texts as a list of pairs.
        return value.items() if isinstance(value, dict) else value

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return plain_of(value)
        return {str(key.plain_of(name)): item.plain_of(one) for name, one in value.items()}

    return Column(
        pa.map_(key.type, item.type),
        lambda value: [(key.read(name), _null_or(item.read, one)) for name, one in pairs_of(value)],
        lambda value: [
            (key.read(name), _null_or(item.floor or item.read, one)) for name, one in pairs_of(value)
        ],
        plain,
    )


def _struct(schema: Mapping[str, Any]) -> Column:
    columns = fields_of(schema)
    type_ = pa.struct([pa.field(name, column.type) for name, column in columns.items()])

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return plain_of(value)
        return {name: column.plain_of(value.get(name)) for name, column in columns.items()}

    return Column(
        type_,
        lambda value: {name: _null_or(column.read, value.get(name)) for name, column in columns.items()},
        lambda value: {
            name: _null_or(column.floor or column.read, value.get(name)) for name, column in columns.items()
        },
        plain,
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
    if abs(scale) > EXPONENT_MAX:
        raise UndecodableError(
            f"a decimal of scale {scale} is refused: {EXPONENT_MAX} digits behind the point are the most"
        )
    number = Decimal(int.from_bytes(binary(value), "big", signed=True))
    sign, digits, _ = number.as_tuple()
    return Decimal((sign, digits, -scale))  # exact, however many digits it has


def bounded(value: Decimal) -> Decimal:
    """A decimal that can be written without an exponent; Arrow ends the process at one of a hundred million.

    Raises:
        UndecodableError: it has far too many digits.
    """
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > EXPONENT_MAX:
        raise UndecodableError(f"a decimal of exponent {exponent} is refused: {EXPONENT_MAX} is the most")
    return value


def _decimal(schema: Mapping[str, Any]) -> Column:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", DECIMAL_DIGITS_MAX))
    if not 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
        return Column(pa.string(), lambda value: format(_decimal_of(value, scale), "f"))

    def plain(value: Any) -> Any:
        try:
            return _decimal_of(value, scale)
        except UNREADABLE:
            return plain_of(value)

    return Column(pa.decimal128(precision, scale), lambda value: _decimal_of(value, scale), plain=plain)


def _decimal_of(value: Any, scale: int) -> Decimal:
    # decimal.format=NUMERIC of Connect's JSON converter writes a number.
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return bounded(Decimal(value))
    return unscaled(value, scale)


def _variable_decimal(value: Any) -> str:
    return format(unscaled(value["value"], _whole(value["scale"])), "f")


# --- times --------------------------------------------------------------------------------------------
def _days(value: Any) -> date:
    return _EPOCH_DATE + timedelta(days=_whole(value))


def _counted(text: Callable[[int], str]) -> Read:
    """Makes texts of whole numbers of a unit; another value stays what it is."""
    return lambda value: text(value) if type(value) is int else plain_of(value)


def _moment(unit_ns: int) -> Column:
    """A time without zone, of whole numbers of a unit since 1970."""
    return Column(
        _LOCAL,
        lambda value: _EPOCH + timedelta(microseconds=_microseconds(value, unit_ns)),
        lambda value: _EPOCH + timedelta(microseconds=_whole(value) * unit_ns // 1000),
        _counted(lambda value: moment_text(value, unit_ns)),
    )


def _time_of_day(unit_ns: int) -> Column:
    def of(value: Any, whole_us: int) -> time:
        if not 0 <= whole_us < DAY_US:
            raise UndecodableError(f"{value} is no time of a day: {clock_text(_whole(value), unit_ns)}")
        return (_EPOCH + timedelta(microseconds=whole_us)).time()

    return Column(
        pa.time64("us"),
        lambda value: of(value, _microseconds(value, unit_ns)),
        lambda value: of(value, _whole(value) * unit_ns // 1000),
        _counted(lambda value: clock_text(value, unit_ns)),
    )


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
    return floored_instant(text)


def floored_instant(value: Any) -> datetime:
    """The same, without what is finer than a microsecond."""
    text = _text(value)
    try:
        found = datetime.fromisoformat(text)  # it passes over digits behind the sixth
    except ValueError as error:
        raise UndecodableError(f"{text!r} is no time") from error
    if found.tzinfo is None:
        raise UndecodableError(f"{text!r} has no zone")
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


def _fixed(column: Column) -> Callable[[Mapping[str, Any]], Column]:
    return lambda _: column


_DATE = Column(pa.date32(), _days, plain=_counted(date_text))


_BY_NAME: Mapping[str, Callable[[Mapping[str, Any]], Column]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "org.apache.kafka.connect.data.Date": _fixed(_DATE),
    "org.apache.kafka.connect.data.Time": _fixed(_time_of_day(1_000_000)),
    "org.apache.kafka.connect.data.Timestamp": _fixed(_moment(1_000_000)),
    "io.debezium.data.VariableScaleDecimal": _fixed(Column(pa.string(), _variable_decimal)),
    "io.debezium.time.Date": _fixed(_DATE),
    "io.debezium.time.Time": _fixed(_time_of_day(1_000_000)),
    "io.debezium.time.MicroTime": _fixed(_time_of_day(1000)),
    "io.debezium.time.NanoTime": _fixed(_time_of_day(1)),
    "io.debezium.time.Timestamp": _fixed(_moment(1_000_000)),
    "io.debezium.time.MicroTimestamp": _fixed(_moment(1000)),
    "io.debezium.time.NanoTimestamp": _fixed(_moment(1)),
    "io.debezium.time.ZonedTimestamp": _fixed(Column(_INSTANT, instant, floored_instant, _instant_text)),
}
