"""Reads values of Connect schemas column by column: what ``safewrite.cdc.connect.logical_types`` reads value by value.

Both have to agree: whatever is in doubt here (a value out of range, a text that is no time, the placeholder of a value that
the source left out) is told by its place, and its record is read by the other, which knows why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types import PLAIN, Column, binary, column_of
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.limits import DAY_US, FIRST_DAY, LAST_DAY, span_of

_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
_UNREADABLE = (
    UndecodableError,
    ArithmeticError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    pa.ArrowException,
)


class UnsuitedError(Exception):
    """Records cannot be read by columns; they are read one by one."""


@dataclass
class Doubts:
    """Rows whose records are to be read one by one."""

    length: int
    _found: list[Any] = field(default_factory=list)

    def where(self, mask: Any) -> None:
        """Doubt the rows where the mask is true; where it is NULL there is nothing to doubt."""
        if isinstance(mask, pa.Array | pa.ChunkedArray):
            if not pc.any(mask).as_py():
                return
            mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        self._found.append(mask)

    def unless(self, mask: Any) -> None:
        """Doubt the rows where the mask is not true."""
        self.where(pc.invert(pc.fill_null(mask, False)))

    def at(self, places: Iterable[int]) -> None:
        """Doubt these rows."""
        found = np.zeros(self.length, bool)
        found[list(places)] = True
        self._found.append(found)

    @property
    def any(self) -> bool:
        return any(one.any() for one in self._found)

    def mask(self) -> Any:
        """All rows in doubt, as booleans of NumPy."""
        return np.logical_or.reduce(self._found) if self._found else np.zeros(self.length, bool)


def flags(mask: Any) -> Any:
    """A mask as booleans of NumPy; NULL is false."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False).copy()


Read = Callable[[pa.Array, Doubts], pa.Array]
Carried = Mapping[Any, pa.DataType]
"""How a form of records carries the values of Connect's plain types."""
_NUMBER, _TEXT, _BYTES = pa.int64(), pa.string(), pa.binary()
IN_AVRO: Carried = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _NUMBER),
    **dict.fromkeys(("float", "float32", "double", "float64"), pa.float64()),
    "boolean": pa.bool_(),
    "string": _TEXT,
    "bytes": _BYTES,
}
IN_JSON: Carried = {**IN_AVRO, "bytes": _TEXT}


@dataclass(frozen=True, slots=True)
class Reader:
    """How the values of a column come, the type that they get, and how they get it."""

    given: pa.DataType
    type: pa.DataType
    read: Read


def reader_of(
    schema: Mapping[str, Any], carried: Carried = IN_JSON, placeholder: Placeholder | None = None
) -> Reader:
    """The reader of a schema's values.

    Args:
        carried: how the form of the records carries values.
        placeholder: doubt the values that are it.

    Raises:
        UnsuitedError: its values cannot be read by columns.
        UndecodableError: a type that is not known.
    """
    column, given = column_of(schema), given_of(schema, carried)
    return Reader(given, column.type, _doubting(placeholder, given, _read_of(schema, column, given)))


def _read_of(schema: Mapping[str, Any], column: Column, given: pa.DataType) -> Read:
    if column is PLAIN.get(str(schema.get("type"))) and given == column.type:
        return _as_they_are
    if pa.types.is_decimal(column.type) and given in {_TEXT, _BYTES}:
        return _decimals(column.type)
    expected, read = _BY_NAME.get(schema.get("name"), (None, None))
    return read if read is not None and given == expected else _each(column)


def given_of(schema: Mapping[str, Any], carried: Carried) -> pa.DataType:
    """The type by which Arrow takes a schema's values as they come, and nothing else.

    Raises:
        UnsuitedError: there is none.
    """
    kind = schema.get("type")
    if kind in carried:
        return carried[kind]
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return pa.list_(given_of(schema["items"], carried))
    if kind == "struct":
        return pa.struct(fields_of(schema, carried))
    raise UnsuitedError(f"type {kind!r}")


def fields_of(schema: Mapping[str, Any], carried: Carried) -> list[pa.Field]:
    """The fields of a struct, as Arrow takes them."""
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise UnsuitedError("a struct without fields")
    names = [str(one.get("field")) for one in fields]
    if len(set(names)) < len(names):
        raise UnsuitedError("a struct that has a field twice")
    return [pa.field(name, given_of(one, carried)) for name, one in zip(names, fields, strict=True)]


# --- how values get their type --------------------------------------------------------------------------
def _as_they_are(values: pa.Array, doubts: Doubts) -> pa.Array:
    if pa.types.is_floating(values.type):
        doubts.where(pc.is_inf(values))  # what has too many digits is that, too
    return values


def _doubting(placeholder: Placeholder | None, given: pa.DataType, read: Read) -> Read:
    """Reads what is no placeholder; numbers and booleans stand in for nothing else."""
    if placeholder is None or not (given in {_TEXT, _BYTES} or pa.types.is_nested(given)):
        return read
    known = pa.array([placeholder.raw] if given == _BYTES else sorted(placeholder.texts))

    def checked(values: pa.Array, doubts: Doubts) -> pa.Array:
        if not pa.types.is_nested(given):
            doubts.where(pc.is_in(values, known))
        elif values.null_count < len(values):
            listed = enumerate(values.to_pylist())
            doubts.at(place for place, value in listed if placeholder.may_stand_in(value))
        return read(values, doubts)

    return checked


def _each(column: Column) -> Read:
    return lambda values, doubts: one_by_one(values, column.type, column.read, doubts)


def one_by_one(values: Any, type_: pa.DataType, read: Callable[[Any], Any], doubts: Doubts) -> pa.Array:
    """Reads values as Python has them; what cannot be read is doubted, and NULL."""
    if values.null_count == len(values):
        return pa.nulls(len(values), type_)
    found, unread = [], []
    for place, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else read(value))
        except _UNREADABLE:
            found.append(None)
            unread.append(place)
    if unread:
        doubts.at(unread)
    return pa.array(found, type_)


def _decimals(type_: pa.DataType) -> Read:
    """Reads unscaled numbers, in two's complement; Arrow's decimals have the lowest byte first."""
    limit = 10**type_.precision

    def read(values: pa.Array, doubts: Doubts) -> pa.Array:
        found, unread = [], []
        for place, value in enumerate(values.to_pylist()):
            number = 0
            if value is not None:
                try:
                    number = int.from_bytes(binary(value), "big", signed=True)
                except UndecodableError:
                    unread.append(place)
                if abs(number) >= limit:
                    unread.append(place)
                    number = 0
            found.append(number.to_bytes(16, "little", signed=True))
        if unread:
            doubts.at(unread)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type_, len(values), [bits, pa.py_buffer(b"".join(found))])

    return read


def times(unit_us: int, type_: pa.DataType) -> Read:
    """Reads whole numbers of a unit since 1970."""
    least, most = span_of(DAY_US // unit_us)
    return lambda values, doubts: pc.multiply(_within(values, doubts, least, most), unit_us).cast(type_)


def _within(values: Any, doubts: Doubts, least: int, most: int) -> Any:
    """Numbers of a range; others are doubted, and NULL."""
    found = pc.min_max(values)
    if found["min"].as_py() is None or (found["min"].as_py() >= least and found["max"].as_py() <= most):
        return values
    beyond = pc.or_(pc.less(values, least), pc.greater(values, most))
    doubts.where(beyond)
    return pc.if_else(beyond, None, values)


def _nanoseconds(read: Read) -> Read:
    """Reads nanoseconds as microseconds, where nothing is lost."""

    def of(values: pa.Array, doubts: Doubts) -> pa.Array:
        whole = pc.divide(values, 1000)
        doubts.where(pc.not_equal(pc.multiply(whole, 1000), values))
        return read(whole, doubts)

    return of


def _of_day(unit_us: int) -> Read:
    most = DAY_US // unit_us - 1
    return lambda values, doubts: pc.multiply(_within(values, doubts, 0, most), unit_us).cast(pa.time64("us"))


def _days(values: pa.Array, doubts: Doubts) -> pa.Array:
    return _within(values, doubts, FIRST_DAY, LAST_DAY).cast(pa.int32()).cast(pa.date32())


def _instants(values: pa.Array, doubts: Doubts) -> pa.Array:
    plain = pc.match_substring_regex(values, _ZONED)
    if not pc.all(plain).as_py():
        doubts.unless(pc.fill_null(plain, True))
        values = pc.if_else(plain, values, None)
    return times(1, INSTANT)(
        values.cast(INSTANT).cast(pa.int64()), doubts
    )  # a month 13 is an error of Arrow's


_LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_BY_NAME: Mapping[Any, tuple[pa.DataType, Read]] = {
    "org.apache.kafka.connect.data.Date": (_NUMBER, _days),
    "org.apache.kafka.connect.data.Time": (_NUMBER, _of_day(1000)),
    "org.apache.kafka.connect.data.Timestamp": (_NUMBER, times(1000, _LOCAL)),
    "io.debezium.time.Date": (_NUMBER, _days),
    "io.debezium.time.Time": (_NUMBER, _of_day(1000)),
    "io.debezium.time.MicroTime": (_NUMBER, _of_day(1)),
    "io.debezium.time.NanoTime": (_NUMBER, _nanoseconds(_of_day(1))),
    "io.debezium.time.Timestamp": (_NUMBER, times(1000, _LOCAL)),
    "io.debezium.time.MicroTimestamp": (_NUMBER, times(1, _LOCAL)),
    "io.debezium.time.NanoTimestamp": (_NUMBER, _nanoseconds(times(1, _LOCAL))),
    "io.debezium.time.ZonedTimestamp": (_TEXT, _instants),
}
"""The type in JSON and the reading of a schema's name; others are read one by one."""


# --- rows -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class RowReader:
    """How the columns of a row are read."""

    columns: Mapping[str, Reader]

    @classmethod
    def of(
        cls, schema: Mapping[str, Any], carried: Carried, placeholder: Placeholder | None = None
    ) -> RowReader:
        """The reader of a struct's schema."""
        fields_of(schema, carried)
        made = {str(one["field"]): reader_of(one, carried, placeholder) for one in schema["fields"]}
        return cls(made)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types that the columns get."""
        return {name: one.type for name, one in self.columns.items()}

    def read(self, rows: Any, doubts: Doubts) -> dict[str, pa.Array]:
        """The columns of rows; NULL where there is no row."""
        values: Sequence[pa.Array] = rows.flatten()
        if rows.null_count == len(rows):
            return {name: pa.nulls(len(rows), one.type) for name, one in self.columns.items()}
        return {
            name: one.read(column, doubts)
            for (name, one), column in zip(self.columns.items(), values, strict=True)
        }
