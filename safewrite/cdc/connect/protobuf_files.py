"""Makes messages of the files that a registry sends, with those that it takes for known: of Protobuf itself and of Connect."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

_OF_PROTOBUF = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
)  # fmt: skip
_BYTES, _TEXT, _INT32, _UINT32, _ONE = 12, 9, 5, 13, 1
"""Numbers of types and labels (descriptor.proto)."""
_OF_CONNECT: Mapping[str, tuple[str, str, Sequence[tuple[str, int]]]] = {
    "google/type/date.proto": ("google.type", "Date", [("year", _INT32), ("month", _INT32), ("day", _INT32)]),
    "google/type/timeofday.proto": (
        "google.type", "TimeOfDay",
        [("hours", _INT32), ("minutes", _INT32), ("seconds", _INT32), ("nanos", _INT32)],
    ),
    "confluent/type/decimal.proto": (
        "confluent.type", "Decimal", [("value", _BYTES), ("precision", _UINT32), ("scale", _INT32)],
    ),
    "confluent/meta.proto": ("confluent", "Meta", [("doc", _TEXT)]),
}  # fmt: skip
"""Files that Connect's converter names and no registry sends; of Meta only that there is such a message."""


def pool_of(files: Sequence[tuple[str, str]]) -> tuple[Any, Any]:
    """The last of some files, each a name and its descriptor in base64, and the pool of the messages of all of them.

    Raises:
        TypeError, ValueError, KeyError: they are no files of Protobuf, or lack one that they name.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool, given = DescriptorPool(), dict[str, Any]()
    try:
        for name, data in files:
            given[name] = FileDescriptorProto.FromString(base64.b64decode(data, validate=True))
            given[name].name = name
    except DecodeError as error:
        raise ValueError(str(error)) from error
    added = set[str]()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = given.get(name) or _known(name)
        for one in file.dependency:
            add(one)
        pool.AddSerializedFile(file.SerializeToString())

    main = files[-1][0]
    add(main)
    return given[main], pool


def _known(name: str) -> Any:
    """A file that every registry takes for known.

    Raises:
        KeyError: there is no such file.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    of_protobuf = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if of_protobuf in _OF_PROTOBUF:
        module = import_module(f"google.protobuf.{of_protobuf}_pb2")
        return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    if name not in _OF_CONNECT:
        raise KeyError(f"the file {name}, which the registry does not send")
    package, message, fields = _OF_CONNECT[name]
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    made = file.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields, 1):
        made.field.add(name=field, number=number, type=kind, label=_ONE)
    return file
