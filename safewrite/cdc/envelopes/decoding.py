"""Decodes the records of a batch: each becomes changes, something to ignore, or a dead letter; none is dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from safewrite.cdc.connect.known_schemas import SchemaOf
from safewrite.cdc.envelopes.by_columns import FEWEST, ByColumns
from safewrite.cdc.envelopes.envelope import EnvelopeSettings, Tombstone
from safewrite.cdc.envelopes.registry import KINDS
from safewrite.cdc.envelopes.tombstones import endings, unmet
from safewrite.cdc.records.change import DeadLetter, Ignored, KafkaRecord, UndecodableError
from safewrite.cdc.records.change_set import ChangeSet, Place
from safewrite.cdc.records.records import KafkaRecords


@dataclass
class Decoded(ChangeSet):
    """What became of records.  Each is in one of these; one with two changes is among them twice."""

    dead: list[DeadLetter] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    tombstones: int = 0
    """Records without a value that are not in the list above, nor below."""
    unmet: list[Tombstone] = field(default_factory=list)
    """Tombstones whose delete did not come."""
    endings: dict[Place, int] = field(default_factory=dict)
    """The deletes that partitions end with (``safewrite.cdc.envelopes.tombstones``)."""


class Decoder:
    """Decodes records of one envelope.

    Args:
        envelope: one of ``KINDS``.
        schema_of, placeholder, before_image, route_field: its ``EnvelopeSettings``.
    """

    def __init__(
        self,
        envelope: str,
        *,
        schema_of: SchemaOf | None = None,
        placeholder: str | None = None,
        before_image: str | None = None,
        route_field: str | None = None,
    ) -> None:
        self.envelope = envelope
        self.settings = EnvelopeSettings(schema_of, placeholder, before_image, route_field)
        self._envelope = KINDS[envelope].make(self.settings)
        self._converter = self._envelope.converter
        self._by_columns = ByColumns(self._envelope)
        self.keys, self.values = self._converter.prefixes
        """What was met before payloads of JSON."""
        self.fewest = FEWEST
        """At least this many records of one schema in a batch are read by columns."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has a decoder of its own."""
        return _of_process, (self.envelope, self.settings, self.fewest)

    def decode(self, records: KafkaRecords, ended: Mapping[Place, int] | None = None) -> Decoded:
        """Decode all records of a batch: by columns what can be, the others one by one.

        Args:
            ended: the deletes that partitions ended with in the batch before.

        Raises:
            StorageError: the schema registry is away; nothing is known of the records then.
        """
        with self._lock:
            self._converter.begin()
            read = self._by_columns.read(records, self.fewest)
            others = read.others_of()
            found = self._decoded(records.take(others) if len(others) < len(records) else records)
            found.columns, found.tombstones = read.batches, read.tombstones
            if (tombstone := self._envelope.tombstone) is not None:
                deletes = found.deletes(records)
                places = unmet(records, deletes, ended or {})
                alone = [tombstone(records[place], is_after) for place, is_after in places]
                found.tombstones -= len(alone)
                found.unmet += alone
                found.endings = endings(records, deletes)
        return found

    def decode_each(self, records: Iterable[KafkaRecord]) -> Decoded:
        """Decode records one by one.

        Raises:
            StorageError: the schema registry is away; nothing is known of the records then.
        """
        with self._lock:
            return self._decoded(records)

    def each(self, changes: ChangeSet) -> Decoded:
        """The same changes, all of them read one by one, in the order of their records."""
        found = Decoded(list(changes.rows))
        for batch in changes.columns:
            read = self.decode_each(batch.records.take(batch.places()))
            found.rows += read.rows
            found.dead += read.dead
            found.ignored += read.ignored
        found.rows.sort(key=lambda one: one.record.place)
        return found

    def _decoded(self, records: Iterable[KafkaRecord]) -> Decoded:
        found = Decoded()
        for record in records:
            try:
                told = self._envelope.changes(record)
            except UndecodableError as error:
                found.dead.append(DeadLetter(record, str(error)))
            except (
                ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError,
            ) as error:  # fmt: skip
                # An unforeseen shape is that record's fault, and must not hold up the others.
                why = f"the record cannot be read: {type(error).__name__}: {error}"
                found.dead.append(DeadLetter(record, why))
            else:
                if isinstance(told, Ignored):
                    found.ignored.append(told)
                elif isinstance(told, Tombstone):
                    found.unmet.append(told)
                else:
                    found.rows += told
        return found


def _of_process(envelope: str, settings: EnvelopeSettings, fewest: int) -> Decoder:
    decoder = _known(envelope, settings)
    decoder.fewest = fewest
    return decoder


@lru_cache(maxsize=8)
def _known(envelope: str, settings: EnvelopeSettings) -> Decoder:
    """The decoder of a worker process, which remembers schemas; each could be asked for again."""
    return Decoder(
        envelope,
        schema_of=settings.schema_of,
        placeholder=settings.placeholder,
        before_image=settings.before_image,
        route_field=settings.route_field,
    )
