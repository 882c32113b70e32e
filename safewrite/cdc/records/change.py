"""Defines one change of a source table, and what else a record of a topic can turn out to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa


class Op(StrEnum):
    """What a change does."""

    UPSERT = "u"
    DELETE = "d"
    TRUNCATE = "t"


class Beginning(StrEnum):
    """What an event of PostgreSQL is that came before the connector saw a commit.

    Such a change does not tell that it committed after the snapshot before it, whose rows may have a higher LSN.
    """

    SNAPSHOT_ROW = "snapshot row"
    CHANGE = "change"


class Unavailable:
    """The type of ``UNAVAILABLE``: a value that the source left out because it did not change."""

    def __repr__(self) -> str:
        return "UNAVAILABLE"

    def __reduce__(self) -> str:
        return "UNAVAILABLE"  # the same object in each process


UNAVAILABLE: Final = Unavailable()


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record of a topic, as Kafka has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it is: topic, partition, offset.  Records have the order of their places."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Where a row comes from; a part that the source does not have is empty."""

    database: str
    schema: str
    table: str

    def __str__(self) -> str:
        return ".".join(part for part in (self.database, self.schema, self.table) if part)


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One change of one row (of all rows: a truncate).

    ``position`` orders the changes of one key as text, byte by byte.  ``before`` and ``after`` are rows as Python has
    them, ``UNAVAILABLE`` where the source left a value out, a ``Misfit`` where no column holds it.  ``types`` are the Arrow types of their columns; a column
    that is not there came without a schema.  ``moved`` is the other half of a change of a key: the key that the row has
    from now on (of a delete), or had until now (of an upsert).
    """

    op: Op
    source: SourceTable
    position: str
    record: KafkaRecord
    keys: Mapping[str, Any] | None = None
    no_key: str | None = None
    """Why the record's key cannot be read."""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    source_time_ms: int | None = None
    moved: Mapping[str, Any] | None = None
    unordered: str | None = None
    """Why the source's position does not order it; ``position`` is Kafka's offset alone then."""
    beginning: Beginning | None = None
    told: str | None = None
    """The position that the source told, where ``position`` is a later one (``safewrite.cdc.rows.snapshot_boundary``)."""
    is_update: bool = False
    """Whether it is an event of an update, whose row may have had another key."""
    is_tombstone: bool = False
    """Whether it is a tombstone whose delete did not come; it has no position, and its source no database."""
    is_read: bool = False
    """Whether it tells of a row that was read, as a snapshot or a full load does, and of no change."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that cannot land, and why."""

    record: KafkaRecord
    reason: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A record that says nothing about a row: a tombstone after a delete, a heartbeat, a control record."""

    record: KafkaRecord
    kind: str


NOBODY_HAS = "neither the table nor this batch has them"


def left_out(names: Iterable[str], why: str) -> str:
    """The reason of a change that cannot land, for its source left values out that are needed; ``why`` says by whom, and where they are not."""
    return (
        f"the source left out {', '.join(names)} because they did not change, {why}; have the source send the row whole (a snapshot of it, "
        "or REPLICA IDENTITY FULL)"
    )


class UndecodableError(ValueError):
    """A record, or a value of it, that cannot be understood; its text becomes the reason of a dead letter."""


class AmbiguousError(UndecodableError):
    """A value that may be one, and may be what the source puts where it left one out."""
