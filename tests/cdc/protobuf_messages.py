"""Files of Protobuf without a compiler, a registry that has them, and records in its wire format."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from bench.cdc.protobuf import field_meta
from safewrite.cdc.connect.protobuf_files import pool_of
from tests.cdc.test_avro import Schemas

KINDS = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}
Fields = Sequence[tuple[str, str]]
"""A name, and what it is: a plain type, or the full name of a message or (``enum``) an enum; before it ``optional``, ``many`` or ``what`` (a oneof)."""


def add_message(to: Any, name: str, fields: Fields) -> Any:
    """A message of proto3."""
    made = to.add(name=name)
    for number, (field, told) in enumerate(fields, 1):
        *how, kind = told.split()
        one = made.field.add(name=field, number=number, label=3 if "many" in how else 1)
        if kind in KINDS:
            one.type = KINDS[kind]
        else:
            one.type, one.type_name = (14 if "enum" in how else 11), f".{kind}"
        if "what" in how:
            one.oneof_index = 0
            made.oneof_decl or made.oneof_decl.add(name="what")
    for field in made.field:  # synthetic ones come last
        if "optional" in dict(fields)[field.name].split():
            field.proto3_optional, field.oneof_index = True, len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")
    return made


def a_file(package: str, messages: Mapping[str, Fields], *needs: str) -> FileDescriptorProto:
    """A file of messages."""
    made = FileDescriptorProto(package=package, syntax="proto3", dependency=needs)
    for name, fields in messages.items():
        add_message(made.message_type, name, fields)
    return made


def scaled(field: FieldDescriptorProto, scale: int, precision: int) -> None:
    """Say as Connect's converter does how a decimal is."""
    field.options.MergeFromString(field_meta(precision, scale))


class ProtobufSchemas:
    """Puts files into a registry, and makes records of their messages."""

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self.files: dict[int, list[tuple[str, str]]] = {}

    def add(self, number: int, file: FileDescriptorProto, **references: FileDescriptorProto) -> None:
        """A schema by its id, and the files that it refers to by their names without ``.proto``."""
        told, files = [], []
        for name, one in references.items():
            told.append({"name": f"{name}.proto", "subject": f"of {name}", "version": 3})
            self._answer(f"/subjects/of%20{name}/versions/3", one, [])
            files.append((f"{name}.proto", _coded(one)))
        self._answer(f"/schemas/ids/{number}", file, told)
        self.files[number] = [*files, ("main", _coded(file))]

    def _answer(self, path: str, file: FileDescriptorProto, references: list[Any]) -> None:
        answer = {"schema": _coded(file), "schemaType": "PROTOBUF", "references": references}
        self.schemas.answers[f"{path}?format=serialized"] = answer

    def wire(self, number: int, name: str, value: Mapping[str, Any], path: bytes = b"\0") -> bytes:
        """A message behind the header; ``value`` as JSON has it."""
        _, pool = pool_of(self.files[number])
        message = GetMessageClass(pool.FindMessageTypeByName(name))()
        ParseDict(value, message, descriptor_pool=pool)
        return struct.pack(">bI", 0, number) + path + bytes(message.SerializeToString())


def _coded(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()
