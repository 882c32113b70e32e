"""Reads records of AWS DMS as columns: what ``events`` does record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError
from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.dms.metadata import DATA, METADATA, milliseconds, of_dms
from safewrite.cdc.envelopes.envelope import Positions
from safewrite.cdc.envelopes.event_fields import (
    Fields,
    SchemaReader,
    fields,
    given_by,
    tables_of,
    text_of,
    with_offsets,
)
from safewrite.cdc.envelopes.position import LOWEST, or_none
from safewrite.cdc.records.change import SourceTable

_OPS = pa.array(["load", "insert", "update", "delete"])
TABLES = r'"table-name":\s*"(?P<table>[^"\\]*)"'
_POSITION, _NUMBER = "stream-position", "transaction-record-id"


@dataclass(frozen=True, slots=True)
class DmsReader(SchemaReader):
    """How records of one schema are read."""

    before_image: str
    tell_imageless: Callable[[str], None]
    """Called with each table that has updates without the row before."""

    @classmethod
    def of(
        cls, schema: Mapping[str, Any], converter: Converter, before_image: str, tell: Callable[[str], None]
    ) -> Self:
        """The reader of records that have this schema.

        Raises:
            UnsuitedError: they cannot be read by columns.
        """
        found = {str(one.get("field")): one for one in schema["fields"]}
        if METADATA not in found:
            raise UnsuitedError("no record of DMS")
        rows = RowReader.of(found[DATA], converter.carried)
        return cls(converter, given_by(schema, converter), rows, before_image, tell)

    def read(self, payloads: Any, _: pa.RecordBatch, fallback: RowFallback) -> DmsEvents:
        found = self.fields(payloads)
        data, image = (
            self.rows.read(found[DATA], fallback),
            self.rows.read(found[self.before_image], fallback),
        )
        said = DmsEvents(fields(found[METADATA]), {}, {}, len(payloads))
        deletes, has_image = said.is_of("delete"), pc.is_valid(found[self.before_image])
        fallback.where(pc.is_null(found[DATA]))
        fallback.where(pc.and_(deletes, has_image))
        imageless = pc.and_not(said.is_of("update"), has_image)
        for table in pc.unique(said.named().filter(imageless)).drop_null().to_pylist():
            self.tell_imageless(table)
        is_told = pc.or_(deletes, pc.and_not(has_image, said.is_of("load")))
        before = {
            name: pc.if_else(is_told, pc.coalesce(image[name], values), None) for name, values in data.items()
        }
        after = {name: pc.if_else(deletes, None, values) for name, values in data.items()}
        return DmsEvents(said.metadata, before, after, len(payloads))


@dataclass(frozen=True, slots=True)
class DmsEvents:
    """What records of one schema say, and the columns of their rows."""

    metadata: Fields
    before: Mapping[str, pa.Array]
    after: Mapping[str, pa.Array]
    length: int

    def is_of(self, operation: str) -> pa.Array:
        """Whether records are of an operation."""
        return pc.fill_null(pc.equal(self._text("operation"), operation), False)

    def operations(self, fallback: RowFallback, *, has_key: bool) -> pa.Array:
        fallback.unless(pc.equal(self._text("record-type"), "data"))
        fallback.unless(pc.is_in(self._text("operation"), _OPS))
        return pc.if_else(
            self.is_of("delete"), "d", "c"
        )  # an update has no row before it unless DMS is told so

    def times(self) -> pa.Array:
        told = (self._text("commit-timestamp").to_pylist(), self._text("timestamp").to_pylist())
        return pa.array([milliseconds(own or other) for own, other in zip(*told, strict=True)], pa.int64())

    def positions(self, offsets: pa.Array, fallback: RowFallback) -> Positions:
        given = (self.metadata.get(name, pa.nulls(self.length)).to_pylist() for name in (_POSITION, _NUMBER))
        told = [
            (LOWEST, None) if is_load else or_none(of_dms, {_POSITION: position, _NUMBER: number})
            for is_load, position, number in zip(self.is_of("load").to_pylist(), *given, strict=True)
        ]
        fallback.at(place for place, (_, unordered) in enumerate(told) if unordered is not None)
        core = pa.array([position for position, _ in told], pa.string())
        return Positions(with_offsets(core, offsets), pa.nulls(self.length, pa.int8()))

    def tables(self, fallback: RowFallback) -> Iterator[tuple[Any, SourceTable]]:
        names = (self._text("schema-name"), self._text("table-name"))
        return tables_of(pa.nulls(self.length, pa.string()), *names, fallback)

    def named(self) -> pa.Array:
        """The name of the table of each record."""
        return self._text("table-name")

    def _text(self, name: str) -> pa.Array:
        return text_of(self.metadata, name, self.length)
