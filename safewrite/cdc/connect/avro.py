"""Decodes Avro behind the header of a registry: Confluent's (a zero byte, four bytes of schema id) or that of AWS Glue.

Glue's is the byte 3, one that says whether the datum is compressed by zlib, and the 16 bytes of the version's id.

The values stay as Avro carries them (whole numbers, bytes), and the schema is translated to Connect's, so that one
module reads the logical types of JSON and Avro alike.
Source: "Wire format" of Confluent's Schema Registry; io.confluent.connect.avro.AvroData for ``connect.*`` attributes.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.known_schemas import KnownSchemas, SchemaId, SchemaOf
from safewrite.cdc.records.change import UndecodableError

HEADER = struct.Struct(">bI")
"""What is before a datum: a zero byte and the id of its schema."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_KINDS = {
    "int": "int32", "long": "int64", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "bytes": "bytes", "fixed": "bytes", "enum": "string", "array": "array", "map": "map", "record": "struct",
}  # fmt: skip
_LOGICAL = {
    "decimal": _DECIMAL,
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
}

_GLUE, GLUE_SIZE, _PLAIN, _ZLIB = 3, 18, 0, 5
_DATUM_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema of the registry."""

    number: SchemaId
    parsed: Any
    connect: Mapping[str, Any]

    @property
    def own_name(self) -> str | None:
        name = self.parsed.get("name") if isinstance(self.parsed, dict) else None
        return name if isinstance(name, str) else None

    def payload(self, data: bytes) -> Any:
        """What bytes in the wire format hold, behind their header.

        Raises:
            UndecodableError: they do not fit the schema.
        """
        from fastavro import schemaless_reader

        body = io.BytesIO(_datum(data))
        try:
            payload = schemaless_reader(body, self.parsed, None)
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
            raise UndecodableError(
                f"the bytes do not fit schema {self.number} of the registry ({error})"
            ) from error
        if body.read(1):
            raise UndecodableError(f"there are more bytes than schema {self.number} of the registry has")
        return payload


class Avro:
    """Knows the schemas of keys and values."""

    def __init__(self, schema_of: SchemaOf) -> None:
        self._schema_of = schema_of
        self._schemas = KnownSchemas(self._asked)

    def begin(self) -> None:
        """A batch begins."""
        self._schemas.begin()

    def heads(self, data: pa.Array) -> pa.Array:
        """What is before each datum and names its schema."""
        short, long = (pc.binary_slice(data, 0, size) for size in (HEADER.size, GLUE_SIZE))
        return pc.if_else(pc.starts_with(data, bytes([_GLUE])), long, short)

    def schema(self, data: bytes) -> AvroSchema:
        """The schema that bytes in the wire format name.

        Raises:
            UndecodableError: they are not in it, or the registry has no such schema.
        """
        return self._schemas.of(_id_of(data))

    def _asked(self, number: SchemaId) -> AvroSchema:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException

        text = self._schema_of(number)
        try:
            schema = json.loads(text)
            return AvroSchema(number, parse_schema(without_logical_types(schema)), to_connect(schema, {}))
        except (
            SchemaParseException, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError,
        ) as error:  # fmt: skip
            raise UndecodableError(f"schema {number} of the registry is no Avro schema ({error})") from error


def _id_of(data: bytes) -> SchemaId:
    """The id of the schema that a header names.

    Raises:
        UndecodableError: the bytes have no header of a registry.
    """
    if data[:1] == b"\0" and len(data) >= HEADER.size:
        return int(HEADER.unpack_from(data)[1])
    if data[:1] == bytes([_GLUE]) and len(data) >= GLUE_SIZE and data[1] in {_PLAIN, _ZLIB}:
        return str(uuid.UUID(bytes=data[2:GLUE_SIZE]))
    raise UndecodableError("the bytes are not in the wire format of a schema registry")


def _datum(data: bytes) -> bytes:
    """What is behind a header.

    Raises:
        UndecodableError: it cannot be decompressed.
    """
    if data[0] != _GLUE:
        return data[HEADER.size :]
    if data[1] == _PLAIN:
        return data[GLUE_SIZE:]
    unpacked = zlib.decompressobj()
    try:
        found = unpacked.decompress(data[GLUE_SIZE:], _DATUM_BYTES_MAX)
    except zlib.error as error:
        raise UndecodableError(
            f"the bytes behind the header are not compressed as it says ({error})"
        ) from error
    if not unpacked.eof:
        raise UndecodableError("the compressed bytes behind the header break off, or hold too many")
    return found


def without_logical_types(schema: Any) -> Any:
    """The schema by which values stay the numbers and bytes that they are."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    # A default cannot matter: the writer's schema is the reader's.
    kept = {
        name: value
        for name, value in schema.items()
        if name not in {"logicalType", "default"} and not name.startswith("connect.")
    }
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = without_logical_types(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [without_logical_types(field) for field in kept["fields"]]
    return kept


def to_connect(schema: Any, named: dict[str, Mapping[str, Any]], space: str = "") -> dict[str, Any]:
    """An Avro schema as Connect's.

    Args:
        named: records and enums that were defined so far, by full name.
        space: the namespace around it.

    Raises:
        UndecodableError: it names a type that it does not define.
    """
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        if len(kinds) != 1:  # no column has it; whoever leaves it out does not need one
            return {"type": f"union of {len(kinds)} types", "optional": True}
        return {**to_connect(kinds[0], named, space), "optional": True}
    if isinstance(schema, str):
        if schema in _KINDS:
            return {"type": _KINDS[schema]}
        full = schema if schema in named else f"{space}.{schema}"
        if full not in named:
            raise UndecodableError(f"the schema names {schema!r}, which it does not define")
        return dict(named[full])
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return to_connect(kind, named, space)
    if kind not in _KINDS:
        return to_connect(kind, named, space)
    made: dict[str, Any] = {"type": _KINDS[kind], **_identity(schema)}
    if kind in {"record", "enum", "fixed"}:
        name = str(schema["name"])
        space = str(schema.get("namespace") or (name.rpartition(".")[0] if "." in name else space))
        full = name if "." in name else f"{space}.{name}"
        named[full] = made
    if kind == "array":
        made["items"] = to_connect(schema["items"], named, space)
    elif kind == "map":
        made |= {"keys": {"type": "string"}, "values": to_connect(schema["values"], named, space)}
    elif kind == "record":
        made["fields"] = [
            {**to_connect(field["type"], named, space), "field": field["name"]} for field in schema["fields"]
        ]
    return made


def _identity(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The name and parameters of a logical type, by Connect's attributes or Avro's."""
    name = schema.get("connect.name") or _LOGICAL.get(str(schema.get("logicalType")))
    parameters = dict(schema.get("connect.parameters") or {})
    if name == _DECIMAL:
        parameters.setdefault("scale", str(schema.get("scale", 0)))
        if "precision" in schema:
            parameters.setdefault("connect.decimal.precision", str(schema["precision"]))
    found: dict[str, Any] = {}
    if name is not None:
        found["name"] = name
    if parameters:
        found["parameters"] = parameters
    return found
