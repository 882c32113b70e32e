"""Writes events as Debezium's connector for MySQL does with Confluent's ProtobufConverter (``optional.for.nullables=true``)."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from bench.cdc.avro import DebeziumAvro
from bench.cdc.generator import ADDED, SHAPES, Column
from bench.cdc.registry import Registry
from safewrite.cdc.connect.protobuf_files import pool_of

_KINDS = {"int64": 3, "timestamp": 3, "string": 9, "boolean": 8, "double": 1}
"""Numbers of types; a time is a whole number of microseconds, for Protobuf keeps no type of Debezium's."""
_DECIMAL, _META = "confluent.type.Decimal", 1088
_SOURCE = dict.fromkeys(("connector", "name", "snapshot", "db", "table", "file"), 9) | dict.fromkeys(("ts_ms", "pos", "row"), 3)  # fmt: skip
_NULLABLE = frozenset({"snapshot", "row"})
Fields = Iterable[tuple[str, int | str, bool]]
"""A name, the number of its type or the name of its message, and whether it may be NULL."""


class DebeziumProtobuf(DebeziumAvro):
    """The same events in Protobuf: a message for the row, one for the source and one around both."""

    def _key_schema(self, table: str) -> tuple[int, Any]:
        file = self._file(table, "")
        _add(file.message_type.add(name="Key"), [(name, _KINDS[made.kind], False) for name, made in SHAPES[table].key.items()])  # fmt: skip
        return self._made(file, f"shop.{table}.Key")

    def _value_schema(self, table: str) -> tuple[int, Any]:
        of, file = (
            f"shop.{table}.Envelope",
            self._file(table, "confluent/meta.proto", "confluent/type/decimal.proto"),
        )
        around, columns = file.message_type.add(name="Envelope"), self._columns[table]
        _add(around, [("before", f"{of}.Value", True), ("after", f"{of}.Value", True), ("source", f"{of}.Source", True), ("op", 9, False), ("ts_ms", 3, True)])  # fmt: skip
        row = around.nested_type.add(name="Value")
        keys = [(name, _KINDS[made.kind], False) for name, made in SHAPES[table].key.items()]
        _add(row, [*keys, *((name, _kind(made), True) for name, made in columns.items())])
        for field in row.field:
            if field.name in columns and (digits := columns[field.name].digits) is not None:
                field.options.MergeFromString(field_meta(*digits))
        _add(around.nested_type.add(name="Source"), [(name, kind, name in _NULLABLE) for name, kind in _SOURCE.items()])  # fmt: skip
        return self._made(file, of)

    def _file(self, table: str, *needs: str) -> FileDescriptorProto:
        return FileDescriptorProto(package=f"shop.{table}", syntax="proto3", dependency=filter(None, needs))

    def _made(self, file: FileDescriptorProto, name: str) -> tuple[int, Any]:
        """The id of a file, and the class of its first message."""
        data = base64.b64encode(file.SerializeToString()).decode()
        _, pool = pool_of([("main", data)])
        number = self._registry.add(data, "PROTOBUF")
        return number, GetMessageClass(pool.FindMessageTypeByName(name))

    def _coded(self, number: int, schema: Any, datum: Any) -> bytes:
        message = schema()
        _fill(message, datum)
        return struct.pack(">bI", 0, number) + b"\0" + bytes(message.SerializeToString())


def settings(registry: Registry) -> dict[str, Any]:
    """What the job's configuration says about these records: the times, and all else is in the schemas."""
    tables = []
    for name, shape in SHAPES.items():
        columns = shape.columns | {column: made for _, table, column, made in ADDED if table == name}
        times = {column: "epoch_us" for column, made in columns.items() if made.kind == "timestamp"}
        tables.append({"table": name, "source": f"shop.{name}", "timestamp_fields": times})
    return {"envelope": "debezium-protobuf", "registry": {"url": registry.url}, "tables": tables}


def _kind(made: Column) -> int | str:
    return _DECIMAL if made.digits is not None else _KINDS[made.kind]


def _add(message: DescriptorProto, fields: Fields) -> None:
    """Give a message its fields; what may be NULL is in a oneof of its own, as proto3 spells it."""
    for number, (name, kind, is_nullable) in enumerate(fields, 1):
        field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind}"
            continue
        field.type = kind  # type: ignore[assignment]
        if is_nullable:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def _fill(message: Any, datum: Mapping[str, Any]) -> None:
    for name, value in datum.items():
        if isinstance(value, dict):
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), value)
        elif isinstance(value, Decimal):
            number, exponent = (
                int(value.scaleb(-int(value.as_tuple().exponent))),
                int(value.as_tuple().exponent),
            )
            one = getattr(message, name)
            one.value = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
            one.scale = -exponent
        elif value is not None:
            setattr(message, name, value)


def field_meta(precision: int, scale: int) -> bytes:
    """The option by which the converter says how a decimal is (confluent.field_meta), in its bytes."""
    params = {"scale": str(scale), "precision": str(precision)}
    entries = [_part(1, name.encode()) + _part(2, value.encode()) for name, value in params.items()]
    return _part(_META, b"".join(_part(2, one) for one in entries))


def _part(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
