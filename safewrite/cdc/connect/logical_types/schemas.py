"""Finds the logical type of a schema of Kafka Connect or Debezium.

A schema is a dict as Connect's JSON converter writes it (``type``, ``name``, ``parameters``, ``fields``, ``items``,
...); those of Avro are translated to the same form.  Numbers get the widest type of their kind (64 bits), so that a
source may widen a column without a change of the table.  Bytes are bytes, or base64 where they come from JSON.

Sources: Debezium's "data types" and "temporal types" of each connector; org.apache.kafka.connect.data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from safewrite.cdc.connect.logical_types.column import UNREADABLE, LogicalColumn, Read
from safewrite.cdc.connect.logical_types.decimals import VARIABLE_SCALE, decimal
from safewrite.cdc.connect.logical_types.plain import PLAIN
from safewrite.cdc.connect.logical_types.times import DATE, ZONED, moment, time_of_day
from safewrite.cdc.connect.misfits import plain_of
from safewrite.cdc.records.change import UndecodableError


def column_of(schema: Mapping[str, Any]) -> LogicalColumn:
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


def row_of(schema: Mapping[str, Any]) -> dict[str, LogicalColumn]:
    """The columns of a struct.  Values of one whose type is not known are refused one by one: it may be left out.

    Raises:
        UndecodableError: it is no struct.
    """
    return {name: _column_or_refusal(field) for name, field in _named(schema).items()}


def fields_of(schema: Mapping[str, Any]) -> dict[str, LogicalColumn]:
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


def _column_or_refusal(schema: Mapping[str, Any]) -> LogicalColumn:
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

        return LogicalColumn(pa.null(), refuse)


def _null_or(read: Read, value: Any) -> Any:
    return None if value is None else read(value)


def _list(schema: Mapping[str, Any]) -> LogicalColumn:
    item = column_of(schema["items"])

    def plain(value: Any) -> Any:
        return [item.plain_of(one) for one in value] if isinstance(value, list) else plain_of(value)

    return LogicalColumn(
        pa.list_(item.type),
        lambda value: [_null_or(item.read, one) for one in value],
        lambda value: [_null_or(item.floor or item.read, one) for one in value],
        plain,
    )


def _map(schema: Mapping[str, Any]) -> LogicalColumn:
    key, item = column_of(schema["keys"]), column_of(schema["values"])

    def pairs_of(value: Any) -> Any:
        # Connect's JSON writes a map whose keys are no texts as a list of pairs.
        return value.items() if isinstance(value, dict) else value

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return plain_of(value)
        return {str(key.plain_of(name)): item.plain_of(one) for name, one in value.items()}

    return LogicalColumn(
        pa.map_(key.type, item.type),
        lambda value: [(key.read(name), _null_or(item.read, one)) for name, one in pairs_of(value)],
        lambda value: [
            (key.read(name), _null_or(item.floor or item.read, one)) for name, one in pairs_of(value)
        ],
        plain,
    )


def _struct(schema: Mapping[str, Any]) -> LogicalColumn:
    columns = fields_of(schema)
    type_ = pa.struct([pa.field(name, column.type) for name, column in columns.items()])

    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return plain_of(value)
        return {name: column.plain_of(value.get(name)) for name, column in columns.items()}

    return LogicalColumn(
        type_,
        lambda value: {name: _null_or(column.read, value.get(name)) for name, column in columns.items()},
        lambda value: {
            name: _null_or(column.floor or column.read, value.get(name)) for name, column in columns.items()
        },
        plain,
    )


def _fixed(column: LogicalColumn) -> Callable[[Mapping[str, Any]], LogicalColumn]:
    return lambda _: column


_BY_NAME: Mapping[str, Callable[[Mapping[str, Any]], LogicalColumn]] = {
    "org.apache.kafka.connect.data.Decimal": decimal,
    "org.apache.kafka.connect.data.Date": _fixed(DATE),
    "org.apache.kafka.connect.data.Time": _fixed(time_of_day(1_000_000)),
    "org.apache.kafka.connect.data.Timestamp": _fixed(moment(1_000_000)),
    "io.debezium.data.VariableScaleDecimal": _fixed(VARIABLE_SCALE),
    "io.debezium.time.Date": _fixed(DATE),
    "io.debezium.time.Time": _fixed(time_of_day(1_000_000)),
    "io.debezium.time.MicroTime": _fixed(time_of_day(1000)),
    "io.debezium.time.NanoTime": _fixed(time_of_day(1)),
    "io.debezium.time.Timestamp": _fixed(moment(1_000_000)),
    "io.debezium.time.MicroTimestamp": _fixed(moment(1000)),
    "io.debezium.time.NanoTimestamp": _fixed(moment(1)),
    "io.debezium.time.ZonedTimestamp": _fixed(ZONED),
}
"""The logical types that are known, by the name of their schema; a schema of another name is read as its plain type."""
