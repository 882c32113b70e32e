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
        return self._debezium.changes(record, _part(record.key), _part(record.value))


def _json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        # A number with a point is kept as it is written: a decimal column has more digits than a binary number.
        return json.loads(data, parse_float=Decimal)
    except ValueError as error:
        raise UndecodableError(f"the bytes are not JSON ({error})") from error


def _part(data: bytes | None) -> Part | None:
    """A key or value of Connect's JSON converter, with its schema around it or without."""
    content = _json(data)
    if content is None:
        return None
    if isinstance(content, dict) and set(content) == {"schema", "payload"}:
        schema = content["schema"]
        if schema is not None and not isinstance(schema, dict):
            raise UndecodableError("the schema around the payload is no schema")
        return None if content["payload"] is None else Part(content["payload"], schema)
    return Part(content)
