"""Decodes Protobuf behind the header of a Confluent registry: a zero byte, four bytes of schema id, and which message of the schema.

A field that tells whether it was set (``optional``, in a oneof, a message) is NULL where it was not; any other has its default.
Sources: "Wire format" of Confluent's Schema Registry; io.confluent.connect.protobuf.ProtobufData for what Connect writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.connect.avro import HEADER
from safewrite.cdc.connect.known_schemas import KnownSchemas, SchemaId, SchemaOf
from safewrite.cdc.connect.protobuf_files import pool_of
from safewrite.cdc.records.change import UndecodableError

_MESSAGES_MAX = 32
"""No message is nested so deeply."""
_META = 1088
"""The number of Confluent's extension of a field's options (confluent/meta.proto)."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
Read = Callable[[Any], Any]
Column = tuple[dict[str, Any], Read]
"""The schema of a field as Connect has it, and what makes its payload of a value."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A message of a schema of the registry."""

    number: SchemaId
    own_name: str
    connect: Mapping[str, Any]
    parse: Read
    read: Read

    def payload(self, data: bytes) -> Any:
        """What bytes in the wire format hold, behind their header.

        Raises:
            UndecodableError: they do not fit the schema.
        """
        from google.protobuf import json_format
        from google.protobuf import message as messages

        try:
            message = self.parse(data[_path_of(data)[1] :])
            size = message.ByteSize()
            message.DiscardUnknownFields()
            if message.ByteSize() != size:
                raise UndecodableError(
                    f"the bytes have fields that {self.own_name} of schema {self.number} of the registry does not have"
                )
            return self.read(message)
        except (
            messages.Error,
            json_format.Error,
            ValueError,
            TypeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise UndecodableError(
                f"the bytes do not fit {self.own_name} of schema {self.number} of the registry ({error})"
            ) from error


class Protobuf:
    """Knows the schemas of keys and values."""

    def __init__(self, schema_of: SchemaOf) -> None:
        try:
            import google.protobuf.message  # noqa: F401
        except ImportError as error:
            raise sw.MissingExtraError(
                f"Records in Protobuf need the package protobuf. Nothing was read. {sw.MissingExtraError.command('protobuf')}"
            ) from error
        self._schema_of = schema_of
        self._files = KnownSchemas(self._asked)
        self._messages = KnownSchemas(self._message)

    def begin(self) -> None:
        """A batch begins."""
        self._files.begin()
        self._messages.begin()

    def heads(self, data: pa.Array) -> pa.Array:
        """What is before each message and names it, where it is the first of its schema; others name none, and are read one by one."""
        return pc.binary_slice(data, 0, HEADER.size + 1)

    def schema(self, data: bytes) -> ProtobufSchema:
        """The message that bytes in the wire format name.

        Raises:
            UndecodableError: they are not in it, or the registry has no such message.
        """
        return self._messages.of((_id_of(data), _path_of(data)[0]))

    def _asked(self, number: int) -> tuple[Any, Any]:
        """The file of a schema, and the pool of its messages."""
        try:
            return pool_of(json.loads(self._schema_of(number)))
        except (ValueError, TypeError, KeyError) as error:
            raise UndecodableError(
                f"schema {number} of the registry cannot be read as Protobuf ({error})"
            ) from error

    def _message(self, name: tuple[int, tuple[int, ...]]) -> ProtobufSchema:
        from google.protobuf.message_factory import GetMessageClass

        number, path = name
        file, pool = self._files.of(number)
        messages, names = file.message_type, [file.package] if file.package else []
        for place in path:
            if not 0 <= place < len(messages):
                raise UndecodableError(f"schema {number} of the registry has no message {list(path)}")
            names.append(messages[place].name)
            messages = messages[place].nested_type
        descriptor = pool.FindMessageTypeByName(".".join(names))
        _refuse_lost_nulls(descriptor)
        try:
            connect, read = _struct(descriptor, (), pool)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UndecodableError(
                f"the fields of {descriptor.full_name} cannot be read ({error})"
            ) from error
        text = str(number) if path == (0,) else f"{number}/{'.'.join(map(str, path))}"
        return ProtobufSchema(
            text, descriptor.full_name, connect, GetMessageClass(descriptor).FromString, read
        )


# --- the header -----------------------------------------------------------------------------------------
def _id_of(data: bytes) -> int:
    """The id of the schema that a header names.

    Raises:
        UndecodableError: the bytes have no header of a Confluent registry.
    """
    if data[:1] != b"\0" or len(data) <= HEADER.size:
        raise UndecodableError("the bytes are not in the wire format of a Confluent registry")
    return int(HEADER.unpack_from(data)[1])


def _path_of(data: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a schema the bytes are of, by its places from outside to inside; and where it begins.

    Raises:
        UndecodableError: the bytes break off.
    """
    if data[HEADER.size : HEADER.size + 1] == b"\0":
        return (0,), HEADER.size + 1
    count, at = _signed(data, HEADER.size)
    if not 0 < count <= _MESSAGES_MAX:
        raise UndecodableError(f"the header names a message by {count} places")
    path = []
    for _ in range(count):
        place, at = _signed(data, at)
        path.append(place)
    return tuple(path), at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length in zigzag form, and where it ends."""
    found = 0
    for place, byte in enumerate(data[at : at + 10]):
        found |= (byte & 127) << (7 * place)
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise UndecodableError("the bytes behind the id of the schema do not say which message they are")


# --- messages -------------------------------------------------------------------------------------------
def _refuse_lost_nulls(descriptor: Any) -> None:
    """Refuse events of Debezium that have NULL as 0 or an empty text: their source block has fields that may be NULL.

    Raises:
        UndecodableError: the converter wrote them so.
    """
    fields = descriptor.fields_by_name
    source = fields["source"].message_type if {"before", "after", "op", "source"} <= {*fields} else None
    if source is not None and not any(field.has_presence for field in source.fields):
        raise UndecodableError(
            "the events have NULL as 0, false or an empty text, and nothing tells which it was: set "
            "value.converter.optional.for.nullables to true at the connector, and have it send its rows again"
        )


def _struct(descriptor: Any, above: tuple[str, ...], pool: Any) -> Column:
    """A message as a struct of its fields."""
    above = (*above, descriptor.full_name)
    made = [(field.name, field.has_presence, *_field(field, above, pool)) for field in descriptor.fields]
    fields = [{**schema, "field": name} for name, _, schema, _ in made]
    readers = [(name, has_presence, read) for name, has_presence, _, read in made]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else read(getattr(message, name))
            for name, has_presence, read in readers
        }

    return {"type": "struct", "fields": fields}, read


def _field(field: Any, above: tuple[str, ...], pool: Any) -> Column:
    if not field.is_repeated:
        schema, read = _one(field, above, pool)
        return ({**schema, "optional": True} if field.has_presence else schema), read
    message = field.message_type
    if message is None or not message.GetOptions().map_entry:
        schema, read = _one(field, above, pool)
        return {"type": "array", "items": schema}, lambda values: [read(value) for value in values]
    keys, key = _one(message.fields_by_name["key"], above, pool)
    values, value = _one(message.fields_by_name["value"], above, pool)
    return {"type": "map", "keys": keys, "values": values}, lambda entries: {
        key(name): value(entries[name]) for name in entries
    }


def _as_it_is(value: Any) -> Any:
    return value


def _one(field: Any, above: tuple[str, ...], pool: Any) -> Column:
    """One value of a field."""
    if field.enum_type is not None:
        names = {one.number: one.name for one in reversed(field.enum_type.values)}
        return {"type": "string"}, lambda number: names.get(number, str(number))
    message = field.message_type
    if message is None:
        return {"type": _PLAIN[field.type]}, _as_it_is
    if message.full_name == "confluent.type.Decimal":
        return _decimal(field)
    if (known := _WELL_KNOWN.get(message.full_name)) is not None:
        return known
    if message.full_name in above or message.full_name in _OF_ANY_SHAPE or not message.fields:
        return {"type": "string", "name": "io.debezium.data.Json"}, partial(_json, pool)
    return _struct(message, above, pool)


def _json(pool: Any, message: Any) -> str:
    """A message that no struct has, since it may be in itself or has no field, as a text."""
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, preserving_proto_field_name=True, indent=None, descriptor_pool=pool))


# --- messages that are values ---------------------------------------------------------------------------
def _decimal(field: Any) -> Column:
    """Connect's Decimal; its scale is an option of the field, else each value has its own."""
    options = dict(_params_of(field.GetOptions().SerializeToString()))
    if "scale" not in options:
        parts = [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]
        schema = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": parts}
        return schema, lambda message: {"scale": message.scale, "value": message.value}
    scale, parameters = int(options["scale"]), {"scale": options["scale"]}
    if "precision" in options:
        parameters["connect.decimal.precision"] = options["precision"]

    def read(message: Any) -> bytes:
        if message.scale == scale:
            return bytes(message.value)
        raise ValueError(f"a decimal of scale {message.scale} in a field of scale {scale}")

    made = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
    return made, read


def _params_of(options: bytes) -> Iterator[tuple[str, str]]:
    """What Connect says of a field in its options (confluent.field_meta), whoever else knows that extension."""
    for meta in _parts(options):
        if meta.field_number != _META:
            continue
        for entry in _parts(meta.data):
            if entry.field_number == 2:
                both = {one.field_number: one.data.decode() for one in _parts(entry.data)}
                yield both.get(1, ""), both.get(2, "")


def _parts(data: Any) -> Any:
    """The fields of a message whose type is not known here."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    return UnknownFieldSet(Empty.FromString(bytes(data)))


def _day(message: Any) -> int:
    return date(message.year, message.month, message.day).toordinal() - _EPOCH_DAY


def _of_day(message: Any) -> int:
    return int(((message.hours * 60 + message.minutes) * 60 + message.seconds) * 10**9 + message.nanos)


def _wrapped(message: Any) -> Any:
    return message.value


_PLAIN: Mapping[int, str] = dict(
    enumerate(
        ("double", "float", "int64", "int64", "int32", "int64", "int64", "boolean", "string", "", "", "bytes",
         "int64", "", "int32", "int64", "int32", "int64"), 1
    )
)  # fmt: skip
"""Connect's types by the numbers of Protobuf's (descriptor.proto), those of unsigned numbers a size larger."""
_WELL_KNOWN: Mapping[str, Column] = {
    "google.protobuf.Timestamp": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, lambda message: message.ToJsonString(),
    ),
    "google.type.Date": ({"type": "int32", "name": "io.debezium.time.Date"}, _day),
    "google.type.TimeOfDay": ({"type": "int64", "name": "io.debezium.time.NanoTime"}, _of_day),
    **{
        f"google.protobuf.{name}Value": ({"type": kind}, _wrapped)
        for name, kind in {
            "Double": "double", "Float": "float", "Int64": "int64", "UInt64": "int64", "Int32": "int32",
            "UInt32": "int64", "Bool": "boolean", "String": "string", "Bytes": "bytes",
        }.items()
    },
}  # fmt: skip
_OF_ANY_SHAPE = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
