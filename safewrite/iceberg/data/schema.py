"""Translates Iceberg's schemas to Arrow's and back.

Source: Iceberg table specification, "Schemas and Data Types".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from safewrite.errors import InternalError, InvalidInputError, UnsupportedTableError
from safewrite.values import kept_names
from safewrite.values.field_defaults import with_default
from safewrite.values.types import (
    NAIVE_TIMESTAMP,
    UTC_TIMESTAMP,
    canonical_leaf,
    check_names,
    is_uuid,
    list_of,
    map_of,
    mapped_type,
)
from safewrite.values.unsupported import unsupported

UUID_STORAGE = pa.binary(16)

_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: NAIVE_TIMESTAMP,
    TimestamptzType: UTC_TIMESTAMP,
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    StringType: pa.string(),
    UUIDType: UUID_STORAGE,
    BinaryType: pa.binary(),
    UnknownType: pa.null(),  # its only value is NULL, and no file has it (format version 3)
}
_PLAIN = frozenset({*_PRIMITIVES, DecimalType, FixedType})
# Tables of format version 2 have no nanoseconds and no 8- or 16-bit integers.
_CREATED: dict[pa.DataType, Callable[[], IcebergType]] = {
    pa.bool_(): BooleanType,
    pa.int32(): IntegerType,
    pa.int64(): LongType,
    pa.float32(): FloatType,
    pa.float64(): DoubleType,
    pa.date32(): DateType,
    pa.time64("us"): TimeType,
    NAIVE_TIMESTAMP: TimestampType,
    UTC_TIMESTAMP: TimestamptzType,
    pa.string(): StringType,
    pa.binary(): BinaryType,
}
_WIDENED = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}


def arrow_schema(iceberg: Schema) -> pa.Schema:
    """The Arrow schema that frames are conformed to, without metadata; columns of types that are not known (variant) are none of it.

    A UUID is a byte string of 16; columns that are not required are nullable.
    """
    return read_schema(iceberg)[0]


def written_schema(iceberg: Schema) -> pa.Schema:
    """As :func:`arrow_schema`, with the defaults that fields of structs get where a frame lacks them (``write-default``)."""
    found = arrow_schema(iceberg)
    for column in iceberg.fields:
        if is_nested(column) and (at := found.get_field_index(column.name)) >= 0:
            found = found.set(at, _with_defaults(column, found.field(at)))
    return found


def is_nested(column: NestedField) -> bool:
    """Whether a column has fields or elements of its own."""
    return isinstance(column.field_type, StructType | ListType | MapType)


def _with_defaults(iceberg: NestedField, field: pa.Field) -> pa.Field:
    return field.with_type(_inner_defaults(iceberg.field_type, field.type))


def _inner_defaults(iceberg: IcebergType, kind: pa.DataType) -> pa.DataType:
    """The type with the defaults of the fields of its structs."""
    if isinstance(iceberg, StructType):
        fields = []
        for at, one in enumerate(iceberg.fields):
            field = _with_defaults(one, kind.field(at))
            fields.append(
                field if one.write_default is None else with_default(field, stored(one.write_default))
            )
        return pa.struct(fields)
    if isinstance(iceberg, ListType):
        return list_of(_with_defaults(iceberg.element_field, kind.value_field))
    if isinstance(iceberg, MapType):
        key = _inner_defaults(iceberg.key_type, kind.key_type)
        return map_of(key, _with_defaults(iceberg.value_field, kind.item_field))
    return kind


def stored(value: Any) -> Any:
    """A default as Arrow takes it."""
    return value.bytes if isinstance(value, UUID) else value


def known_columns(iceberg: Schema) -> Schema:
    """The schema without columns of types that are not known, at any depth."""
    unread = unread_columns(iceberg)
    if not unread:
        return iceberg
    return Schema(*(one for one in iceberg.fields if one.name not in unread), schema_id=iceberg.schema_id)


def unread_columns(iceberg: Schema) -> dict[str, str]:
    """Why columns of types that are not known are no part of :func:`arrow_schema`, by their names."""
    plain = all(type(one.field_type) in _PLAIN for one in iceberg.fields)
    return {} if plain else read_schema(iceberg)[1]


def read_schema(iceberg: Schema) -> tuple[pa.Schema, dict[str, str]]:
    """As :func:`arrow_schema`, of the columns whose types are known, and why each other is not."""
    fields: list[pa.Field] = []
    unread: dict[str, str] = {}
    for field in iceberg.fields:
        try:
            fields.append(_arrow_field(field, ""))
        except UnsupportedTableError as error:
            unread[field.name] = error.message.partition(". ")[0]
    return pa.schema(fields), unread


def arrow_type(kind: IcebergType, column: str) -> pa.DataType:
    """The Arrow type of an Iceberg type; ``column`` is for messages."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field, f"{column}.") for field in kind.fields])
    if isinstance(kind, ListType):
        element = arrow_type(kind.element_type, f"{column}.element")
        return list_of(pa.field("element", element, nullable=not kind.element_required))
    if isinstance(kind, MapType):
        key = arrow_type(kind.key_type, f"{column}.key")
        value = arrow_type(kind.value_type, f"{column}.value")
        return map_of(key, pa.field("value", value, nullable=not kind.value_required))
    if type(kind) in _PRIMITIVES:
        return _PRIMITIVES[type(kind)]
    raise unsupported(column, str(kind), "Iceberg")


def _arrow_field(field: NestedField, parent: str) -> pa.Field:
    path = f"{parent}{field.name}"
    return pa.field(field.name, arrow_type(field.field_type, path), nullable=not field.required)


def struct_path(schema: Schema, field_id: int) -> tuple[str, ...] | None:
    """The names from the column down to a field; None if there is none, or lists or maps are on the way."""
    return struct_paths(schema).get(field_id)


def struct_paths(schema: Schema) -> dict[int, tuple[str, ...]]:
    """As :func:`struct_path`, of every field that has one."""
    return dict(_paths_in(schema.fields, ()))


def _paths_in(fields: Iterable[NestedField], above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for field in fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _paths_in(field.field_type.fields, path)


def column_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type of a column that is created for a frame's column of type ``kind``.

    Iceberg has times of day, byte strings of fixed length and UUIDs, which Delta lacks, and no integers
    below 32 bits.  Raises InvalidInputError where no Iceberg type holds every value.
    """
    return mapped_type(kind, column, _leaf)


def _leaf(kind: pa.DataType) -> pa.DataType | None:
    if is_uuid(kind):
        return UUID_STORAGE
    if pa.types.is_fixed_size_binary(kind):
        return kind
    if pa.types.is_time(kind):
        return pa.time64("us")
    found = canonical_leaf(kind)
    return _WIDENED.get(found, found)


def iceberg_schema(arrow: pa.Schema) -> Schema:
    """The Iceberg schema of a table made for a frame of schema ``arrow`` (as the frame came).

    Types are those of :func:`column_type`; a column is a UUID if Arrow's type says so.  Field ids count
    from 1; the catalog gives the final ones.  Raises InvalidInputError naming the column of a type that
    no Iceberg type holds, or of a name that Iceberg keeps.
    """
    check_names(arrow.names, where="the data")
    _check_kept(arrow.names)
    ids = count(1)
    own = [next(ids) for _ in arrow]  # as catalogs number them: a struct's fields before their contents
    return Schema(*(_iceberg_field(field, field.name, i, ids) for field, i in zip(arrow, own, strict=True)))


def _check_kept(names: Iterable[str]) -> None:
    for name in kept_names.among(names, kept_names.ICEBERG):
        raise InvalidInputError(
            f"Column {name!r} has a name that Iceberg keeps for itself: Spark could not read the table with it. Nothing was written. "
            f"Rename the column; Iceberg keeps {', '.join(sorted(kept_names.ICEBERG))}."
        )


def iceberg_type(field: pa.Field) -> IcebergType:
    """The type of a column or field that is there already, or of a field in one."""
    return _iceberg_type(field.type, field.name, count(1))


def _iceberg_field(field: pa.Field, column: str, field_id: int, ids: Iterator[int]) -> NestedField:
    kind = _iceberg_type(field.type, column, ids)
    return NestedField(field_id=field_id, name=field.name, field_type=kind, required=not field.nullable)


def _iceberg_type(found: pa.DataType, column: str, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type for ``found``, which is a frame's and not a canonical type: those have no UUIDs."""
    if pa.types.is_dictionary(found) or pa.types.is_run_end_encoded(found):
        return _iceberg_type(found.value_type, column, ids)
    kind = column_type(found, column)
    if is_uuid(found):
        return UUIDType()
    if pa.types.is_struct(kind):
        fields = [found.field(i) for i in range(found.num_fields)]
        own = [next(ids) for _ in fields]
        named = zip(fields, own, strict=True)
        return StructType(*(_iceberg_field(f, f"{column}.{f.name}", i, ids) for f, i in named))
    if pa.types.is_list(kind):
        own_id, element = next(ids), found.value_field
        inner = _iceberg_type(element.type, f"{column}.element", ids)
        return ListType(element_id=own_id, element_type=inner, element_required=not element.nullable)
    if pa.types.is_map(kind):
        key_id, value_id, item = next(ids), next(ids), found.item_field
        key = _iceberg_type(found.key_type, f"{column}.key", ids)
        value = _iceberg_type(item.type, f"{column}.value", ids)
        return MapType(
            key_id=key_id, key_type=key, value_id=value_id, value_type=value, value_required=not item.nullable
        )
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    if kind not in _CREATED:
        raise InternalError(f"The type {kind} of column {column!r} has no Iceberg type; please report this.")
    return _CREATED[kind]()
