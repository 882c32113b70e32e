"""Reads Maxwell's records as columns: what ``events`` does record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError
from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.envelope import Positions
from safewrite.cdc.envelopes.event_fields import (
    Fields,
    SchemaReader,
    checked,
    clock,
    given_by,
    number_of,
    tables_of,
    text_of,
    with_offsets,
)
from safewrite.cdc.records.change import SourceTable

DATA, OLD = "data", "old"
"""The fields of a record that have its row, and those values of it that an update replaced."""
READ = "bootstrap-insert"
"""The type of a row that a bootstrap read; it has no position, and comes before every change."""
COMMIT_LAST = "9" * 10
"""The place of the last record of a transaction."""
TABLES = r'(?P<table>"database":\s*"[^"\\]*",\s*"table":\s*"[^"\\]*")'
_OPS = pa.array(["insert", "update", "delete", READ])
_POSITION = r"\.(?P<file>[0-9]{1,10}):(?P<offset>[0-9]{1,18})$"


@dataclass(frozen=True, slots=True)
class MaxwellReader(SchemaReader):
    """How records of one schema are read."""

    @classmethod
    def of(cls, schema: Mapping[str, Any], converter: Converter) -> Self:
        """The reader of records that have this schema.

        Raises:
            UnsuitedError: they cannot be read by columns.
        """
        found = {str(one.get("field")): one for one in schema["fields"]}
        if not {"type", "position", DATA, OLD} <= set(found):
            raise UnsuitedError("no record of Maxwell, or one without a position")
        rows = RowReader.of(found[DATA], converter.carried)
        return cls(converter, given_by(schema, converter), rows)

    def read(self, payloads: Any, _: pa.RecordBatch, fallback: RowFallback) -> MaxwellEvents:
        said = self.fields(payloads)
        data, old = self.rows.read(said[DATA], fallback), self.rows.read(said[OLD], fallback)
        kind = text_of(said, "type", len(payloads))
        deletes, has_old = pc.equal(kind, "delete"), pc.is_valid(said[OLD])
        fallback.where(pc.is_null(said[DATA]))
        fallback.where(pc.and_(has_old, pc.not_equal(kind, "update")))
        is_told = pc.or_(deletes, has_old)
        before = {name: pc.if_else(is_told, pc.coalesce(old[name], one), None) for name, one in data.items()}
        after = {name: pc.if_else(deletes, None, one) for name, one in data.items()}
        return MaxwellEvents(said, kind, before, after)


@dataclass(frozen=True, slots=True)
class MaxwellEvents:
    """What records of one schema say, and the columns of their rows."""

    said: Fields
    kind: pa.Array
    before: Mapping[str, pa.Array]
    after: Mapping[str, pa.Array]

    def operations(self, fallback: RowFallback, *, has_key: bool) -> pa.Array:
        fallback.unless(pc.is_in(self.kind, _OPS))
        return pc.if_else(pc.equal(self.kind, "delete"), "d", "c")

    def times(self) -> pa.Array:
        return clock(pc.multiply(number_of(self.said, "ts", len(self.kind)), 1000))

    def positions(self, offsets: pa.Array, fallback: RowFallback) -> Positions:
        length, is_read = len(self.kind), pc.equal(self.kind, READ)
        told = pc.extract_regex(text_of(self.said, "position", length), _POSITION)
        file, offset = (
            pc.if_else(is_read, 0, pc.struct_field(told, name).cast(pa.int64()))
            for name in ("file", "offset")
        )
        within = checked(pc.fill_null(number_of(self.said, "xoffset", length), 0), 10, fallback)
        commit = self.said.get("commit")
        if commit is not None and commit.null_count < length:
            if not pa.types.is_boolean(commit.type):
                raise UnsuitedError("commit is not a boolean")
            within = pc.if_else(pc.fill_null(commit, False), COMMIT_LAST, within)
        core = pc.binary_join_element_wise(
            checked(file, 10, fallback), checked(offset, 20, fallback), within, ""
        )
        return Positions(with_offsets(pc.if_else(is_read, "", core), offsets), pa.nulls(length, pa.int8()))

    def tables(self, fallback: RowFallback) -> Iterator[tuple[Any, SourceTable]]:
        length = len(self.kind)
        names = text_of(self.said, "database", length), pa.nulls(length, pa.string())
        return tables_of(*names, text_of(self.said, "table", length), fallback)
