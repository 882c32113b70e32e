"""Decodes the records of a batch: each becomes changes, something to ignore, or a dead letter; none is dropped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from safewrite.cdc.avro import Avro, SchemaOf
from safewrite.cdc.change import Change, DeadLetter, Ignored, Record, UndecodableError
from safewrite.cdc.debezium import Debezium, Part
from safewrite.cdc.dms import BEFORE_IMAGE, Dms
from safewrite.cdc.logical import UNAVAILABLE_TEXT, Placeholder

Format = Literal["debezium-json", "debezium-avro", "dms-json"]


@dataclass
class Decoded:
    """What became of records.  Each is in one of the lists; one with two changes is in ``changes`` twice."""

    changes: list[Change] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)


class Decoder:
    """Decodes records of one format.

    Args:
        schema_of: where the schemas of Avro come from.
        placeholder: Debezium's ``unavailable.value.placeholder``, as it is set there (``hex:`` too).
        before_image: AWS DMS's ``BeforeImageSettings.FieldName``.
    """

    def __init__(
        self,
        form: Format,
        *,
        schema_of: SchemaOf | None = None,
        placeholder: str = UNAVAILABLE_TEXT,
        before_image: str = BEFORE_IMAGE,
    ) -> None:
        self._form = form
        self._avro = None if schema_of is None else Avro(schema_of)
        self._debezium = Debezium(Placeholder(placeholder))
        self._dms = Dms(before_image=before_image)
        self._keys, self._values = Parts(), Parts()

    def decode(self, records: Iterable[Record]) -> Decoded:
        """Decode all records.

        Raises:
            StorageError: the schema registry is away; nothing is known of the records then.
        """
        found = Decoded()
        for record in records:
            try:
                what = self._one(record)
            except UndecodableError as error:
                found.dead.append(DeadLetter(record, str(error)))
            except (
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
                IndexError,
                ArithmeticError,
                RecursionError,
            ) as error:
                # A shape that nobody thought of is that record's fault, and must not hold up the others.
                found.dead.append(
                    DeadLetter(record, f"the record cannot be read: {type(error).__name__}: {error}")
                )
            else:
                if isinstance(what, Ignored):
                    found.ignored.append(what)
                else:
                    found.changes += what
        return found

    def _one(self, record: Record) -> Any:
        if self._form == "dms-json":
            return self._dms.changes(record, _json(record.value))
        if self._form == "debezium-avro":
            if self._avro is None:
                raise UndecodableError("no schema registry is configured")
            return self._debezium.changes(record, self._avro.part(record.key), self._avro.part(record.value))
        return self._debezium.changes(record, self._keys.part(record.key), self._values.part(record.value))


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return _parsed(data)
    except ValueError as error:
        raise UndecodableError(f"the bytes are not JSON ({error})") from error


# A number with a point is kept as it is written: a decimal column has more digits than a binary number.
_NUMBERS_AS_WRITTEN = json.JSONDecoder(parse_float=Decimal)


def _parsed(data: bytes) -> Any:
    """What ``json.loads`` makes of the bytes, which would make a decoder for each record."""
    if data[:1] == b"{" and data[1:2] != b"\0":  # UTF-8, as it is told there
        return _NUMBERS_AS_WRITTEN.decode(data.decode("utf-8", "surrogatepass"))
    return json.loads(data, parse_float=Decimal)


_FIRST, _THEN = '{"schema":', ',"payload":'
_SCHEMAS_MAX = 256


class Parts:
    """Reads keys and values of Connect's JSON converter, with their schemas around them or without.

    The schema is most of a record, and the same in almost all of a topic: its bytes are compared, and read once.
    """

    def __init__(self) -> None:
        self._known: list[tuple[bytes, dict[str, Any]]] = []
        """What precedes a payload, and the schema in it; the one that was met last is first."""

    def part(self, data: bytes | None) -> Part | None:
        """The payload and its schema; None where there is no payload."""
        if data is None:
            return None
        for place, (before, schema) in enumerate(self._known):
            if data.startswith(before) and data.endswith(b"}"):
                try:
                    payload = _parsed(data[len(before) : -1])
                except ValueError:
                    break  # more than a payload comes after the schema
                if place:
                    self._known.insert(0, self._known.pop(place))
                return None if payload is None else Part(payload, schema)
        return self._whole(data)

    def _whole(self, data: bytes) -> Part | None:
        content = _json(data)
        if content is None:
            return None
        if not isinstance(content, dict) or set(content) != {"schema", "payload"}:
            return Part(content)
        schema = content["schema"]
        if schema is not None and not isinstance(schema, dict):
            raise UndecodableError("the schema around the payload is no schema")
        if schema is not None:
            self._learn(data, schema)
        return None if content["payload"] is None else Part(content["payload"], schema)

    def _learn(self, data: bytes, schema: dict[str, Any]) -> None:
        text = data.decode("utf-8", "replace")
        if not text.startswith(_FIRST + "{"):  # written by another converter, with spaces or in another order
            return
        _, end = _WHOLE.raw_decode(text, len(_FIRST))
        if text.startswith(_THEN, end):
            before = text[: end + len(_THEN)].encode()
            if data.startswith(before):  # not where a character was replaced
                self._known.insert(0, (before, schema))
                del self._known[_SCHEMAS_MAX:]


_WHOLE = json.JSONDecoder()
