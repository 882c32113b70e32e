"""Defines what an envelope answers: what its records say, one by one and as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.known_schemas import SchemaOf
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.records.change import Ignored, KafkaRecord, SourceChange, SourceTable


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A tombstone whose delete did not come.

    ``names`` are those of the topic that the table has or would have, the surest first; ``is_after`` tells whether the
    batch has another record of the key before it.
    """

    record: KafkaRecord
    keys: Mapping[str, Any] | None
    names: tuple[str, ...]
    is_after: bool
    fault: str | None = None
    """Why its key cannot be read."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of events, and what those are that came before the connector saw a commit (``BEGINNINGS``)."""

    positions: pa.Array
    beginnings: pa.Array


class EventColumns(Protocol):
    """What records of one schema say of changes, and the columns of their rows."""

    @property
    def before(self) -> Mapping[str, pa.Array]:
        """The rows before the changes."""

    @property
    def after(self) -> Mapping[str, pa.Array]:
        """The rows after the changes."""

    def operations(self, fallback: RowFallback, *, has_key: bool) -> pa.Array:
        """What the changes do: ``d``, ``u`` of an update that is to tell its row's key before, or ``c`` of other rows."""

    def times(self) -> pa.Array:
        """When the source made the changes, by its clock, in milliseconds since 1970."""

    def positions(self, offsets: pa.Array, fallback: RowFallback) -> Positions:
        """The positions of the changes; ``offsets`` are Kafka's."""

    def tables(self, fallback: RowFallback) -> Iterator[tuple[Any, SourceTable]]:
        """The source tables, and which records are theirs.

        Raises:
            UnsuitedError: there are too many.
        """


class EventReader(Protocol):
    """How records of one schema are read as columns."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types that the columns of the rows get."""

    def read(self, payloads: Any, records: pa.RecordBatch, fallback: RowFallback) -> EventColumns:
        """What the records say, one for each payload.

        Raises:
            any of ``safewrite.cdc.connect.converters.UNSUITED``: one of them does not fit.
        """


class KeyReader(Protocol):
    """How keys of one schema are read as columns."""

    def read(self, payloads: Any, fallback: RowFallback) -> dict[str, pa.Array]:
        """The columns of keys; raises as :meth:`EventReader.read`."""


class Envelope(Protocol):
    """What a source puts around its rows.  Both readings have to agree; what is in doubt is read one by one."""

    converter: Converter
    row_headers: Sequence[str]
    """Records that have one of these headers are read one by one."""
    delete_headers: Sequence[str]
    """Records without a value that have one of these headers tell of a delete by themselves."""

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Tombstone | Ignored:
        """What one record says: changes, a delete without a position, or nothing about a row.

        Raises:
            UndecodableError: it is none of the envelope's.
        """

    def reader(self, schema: Mapping[str, Any]) -> EventReader:
        """What reads records of a schema as columns.

        Raises:
            UnsuitedError: they are read one by one.
        """

    def key_reader(self, schema: Mapping[str, Any]) -> KeyReader:
        """What reads their keys; raises as :meth:`reader`."""

    @property
    def tombstone(self) -> Callable[[KafkaRecord, bool], Tombstone] | None:
        """What reads a tombstone whose delete did not come (``is_after``); None where tombstones say nothing."""


@dataclass(frozen=True, slots=True)
class EnvelopeSettings:
    """What the configuration says of an envelope; None is its default."""

    schema_of: SchemaOf | None = None
    """Where the schemas of Avro or Protobuf come from."""
    placeholder: str | None = None
    """Debezium's ``unavailable.value.placeholder``, as it is set there (``hex:`` too)."""
    before_image: str | None = None
    """AWS DMS's ``BeforeImageSettings.FieldName``."""
    route_field: str | None = None
    """The field of events whose text says which of a topic's tables they are of."""


@dataclass(frozen=True, slots=True)
class EnvelopeKind:
    """An envelope that a configuration may name."""

    make: Callable[[EnvelopeSettings], Envelope]
    options: frozenset[str] = frozenset()
    """The fields of the configuration that mean something for it; ``registry`` is needed where it is among them."""
    has_keys: bool = True
    """Whether the keys of records name the columns of a table's key."""
    form: Literal["AVRO", "PROTOBUF"] = "AVRO"
    """The form of the schemas of the registry."""
    is_events: bool = False
    """Whether records are rows that change no other; their tables are appended to."""
    decimals: Literal["string"] | None = None
    """How texts of decimals are written that come without a schema; None where the configuration says so."""
