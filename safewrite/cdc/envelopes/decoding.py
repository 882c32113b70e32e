"""Decodes the records of a batch: each becomes changes, something to ignore, or a dead letter; none is dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from safewrite.cdc.connect.avro import Avro, SchemaOf
from safewrite.cdc.connect.converters import Form, Json, OfRegistry
from safewrite.cdc.connect.json import Part, Parts, json_of
from safewrite.cdc.connect.logical_types import UNREADABLE
from safewrite.cdc.connect.placeholder import UNAVAILABLE_TEXT, Placeholder
from safewrite.cdc.envelopes.column_batch import FEWEST, Block, Blocks
from safewrite.cdc.envelopes.debezium import Debezium
from safewrite.cdc.envelopes.debezium_events import TABLES, EventReader, of_event
from safewrite.cdc.envelopes.dms import BEFORE_IMAGE, Dms
from safewrite.cdc.envelopes.dms_events import DmsJson, DmsReader
from safewrite.cdc.envelopes.tombstones import Tombstone, deletes_of, endings, names_of, unmet
from safewrite.cdc.records.change import Change, DeadLetter, Ignored, Record, UndecodableError
from safewrite.cdc.records.prefixes import Prefixes
from safewrite.cdc.records.records import Records

PartOf = Callable[[bytes | None], Part | None]
Format = Literal["debezium-json", "debezium-avro", "dms-json"]


@dataclass
class Decoded:
    """What became of records.  Each is in one of these; one with two changes is in ``changes`` twice."""

    changes: list[Change] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    """Changes that were read by columns; none of them is in the list above."""
    dead: list[DeadLetter] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    tombstones: int = 0
    """Records without a value that are not in the list above, nor below."""
    unmet: list[Tombstone] = field(default_factory=list)
    """Tombstones whose delete did not come."""
    endings: dict[tuple[str, int], int] = field(default_factory=dict)
    """The deletes that partitions end with (``safewrite.cdc.envelopes.tombstones``)."""


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
        self.keys, self.values = Prefixes(), Prefixes()
        """What was met before payloads of JSON."""
        self._key_parts, self._value_parts = Parts(self.keys), Parts(self.values)
        self._blocks = self._by_columns(Placeholder(placeholder), before_image)
        self.fewest = FEWEST
        """So many records of one schema in a batch, or more, are read by columns."""
        self._lock = threading.Lock()

    def _by_columns(self, placeholder: Placeholder, before_image: str) -> Blocks | None:
        if self._form == "dms-json":
            of_dms = DmsJson(before_image)
            return Blocks(of_dms, lambda schema: DmsReader.of(schema, of_dms, before_image))
        if self._form == "debezium-avro" and self._avro is None:
            return None
        form: Form = (
            OfRegistry(self._avro)
            if self._avro is not None
            else Json(self.keys, self.values, of_event, TABLES)
        )
        return Blocks(form, lambda schema: EventReader.of(schema, form, placeholder))

    def decode(self, records: Records, ended: Mapping[tuple[str, int], int] | None = None) -> Decoded:
        """Decode all records of a batch: by columns what can be, the others one by one.

        Args:
            ended: the deletes that partitions ended with in the batch before.

        Raises:
            StorageError: the schema registry is away; nothing is known of the records then.
        """
        if self._avro is not None:
            self._avro.begin()
        if self._blocks is None:
            return self.decode_each(records)
        with self._lock:
            read = self._blocks.read(records, self.fewest)
        others = read.others_of()
        found = self.decode_each(records.take(others) if len(others) < len(records) else records)
        found.blocks, found.tombstones = read.blocks, read.tombstones
        if self._form != "dms-json":  # which writes none
            deletes = deletes_of(records, read.blocks, found.changes)
            with self._lock:
                places = unmet(records, deletes, ended or {})
                found.unmet = [self._tombstone(records[place], is_after) for place, is_after in places]
            found.tombstones -= len(found.unmet)
            found.endings = endings(records, deletes)
        return found

    def _tombstone(self, record: Record, is_after: bool) -> Tombstone:
        part_of = self._key_parts.part if self._avro is None else self._avro.part
        try:
            part = part_of(record.key)
            keys, fault = self._debezium.key_of(part)
        except UNREADABLE as error:
            return Tombstone(
                record, None, (record.topic,), is_after, f"the record's key cannot be read: {error}"
            )
        names = names_of(record.topic, part.payload, self._named(record, part)) if part else (record.topic,)
        return Tombstone(record, keys, names, is_after, fault)

    def _named(self, record: Record, part: Part) -> Mapping[str, Any] | None:
        """The schema of a key, by whose name its table is known; Avro's own name where there is none of Connect's."""
        if self._avro is None or record.key is None or (part.schema or {}).get("name") is not None:
            return part.schema
        parsed = self._avro.schema(record.key).parsed
        return parsed if isinstance(parsed, dict) else None

    def decode_each(self, records: Iterable[Record]) -> Decoded:
        """Decode records one by one.

        Raises:
            StorageError: the schema registry is away; nothing is known of the records then.
        """
        with self._lock:
            return self._decoded(records)

    def _decoded(self, records: Iterable[Record]) -> Decoded:
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
            return self._dms.changes(record, json_of(record.value))
        if self._form == "debezium-avro":
            if self._avro is None:
                raise UndecodableError("no schema registry is configured")
            return self._event(record, self._avro.part, self._avro.part)
        return self._event(record, self._key_parts.part, self._value_parts.part)

    def _event(self, record: Record, key_part: PartOf, value_part: PartOf) -> Any:
        value = value_part(record.value)
        try:
            key, why = key_part(record.key), None
        except UndecodableError as error:
            # A key matters only to a table without a primary_key, or to a row that lacks its columns.
            key, why = (
                None,
                (
                    f"the record's key cannot be read: {error}; set key.converter to the converter of the values, or name the "
                    "table's primary_key"
                ),
            )
        return self._debezium.changes(record, key, value, why)
