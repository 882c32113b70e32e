"""Reads keys and values of Connect's JSON converter, with their schemas around them or without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from safewrite.cdc.records.change import UndecodableError
from safewrite.cdc.records.prefixes import NUMBERS_AS_WRITTEN, Prefixes


@dataclass(frozen=True, slots=True)
class ConnectValue:
    """A decoded key or value: the payload, and the Connect schema of it where there is one."""

    payload: Any
    schema: Mapping[str, Any] | None = None
    version: str | None = None
    own_name: str | None = None
    """The name of a schema of Avro, where it has none of Connect's."""

    @property
    def name(self) -> str | None:
        """The name of the schema."""
        name = None if self.schema is None else self.schema.get("name")
        return name if isinstance(name, str) else self.own_name


_FRAME = 5
"""The bytes before an object that a registry's converter for JSON Schema wrote: a zero, and the number of the schema."""


def _is_framed(data: bytes) -> bool:
    # JSON in UTF-16 begins with a zero and a brace.
    return data[:1] == b"\0" and data[1:2] != b"{" and data[_FRAME : _FRAME + 1] == b"{"


def json_of(data: bytes | None) -> Any:
    """What bytes of JSON hold; None where there are none.

    Raises:
        UndecodableError: they are not JSON.
    """
    if data is None:
        return None
    try:
        return parsed(data)
    except ValueError as error:
        raise UndecodableError(f"the bytes are not JSON ({error})") from error


def parsed(data: bytes) -> Any:
    """What ``json.loads`` makes of the bytes, which would make a decoder for each record."""
    if data[:1] == b"{" and data[1:2] != b"\0":  # UTF-8, as json.detect_encoding tells
        return NUMBERS_AS_WRITTEN.decode(data.decode("utf-8", "surrogatepass"))
    return json.loads(data, parse_float=Decimal)


class JsonValues:
    """Reads keys and values of Connect's JSON converter, with their schemas around them or without."""

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes

    def part(self, data: bytes | None) -> ConnectValue | None:
        """The payload and its schema; None without a payload."""
        if data is None:
            return None
        for known in self._prefixes:
            if data.startswith(known.data) and data.endswith(b"}"):
                try:
                    payload = parsed(data[len(known.data) : -1])
                except ValueError:
                    break  # more than a payload comes after the schema
                self._prefixes.meet(known)
                return None if payload is None else ConnectValue(payload, known.schema)
        return self._whole(data)

    def _whole(self, data: bytes) -> ConnectValue | None:
        content = json_of(data[_FRAME:] if _is_framed(data) else data)
        if content is None:
            return None
        if not isinstance(content, dict) or set(content) != {"schema", "payload"}:
            return ConnectValue(content)
        schema = content["schema"]
        if schema is not None and not isinstance(schema, dict):
            raise UndecodableError("the schema around the payload is no schema")
        if schema is not None and (learned := self._prefixes.learn(data)) and learned.schema == schema:
            schema = learned.schema
        return None if content["payload"] is None else ConnectValue(content["payload"], schema)
