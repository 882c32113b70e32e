"""Reads the payloads of Debezium's events of one schema as columns: what ``safewrite.cdc.debezium`` does event by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.change import SourceTable
from safewrite.cdc.columns import Doubts, RowReader, UnsuitedError, fields_of
from safewrite.cdc.debezium import YEAR_9999_MS
from safewrite.cdc.forms import Form
from safewrite.cdc.logical import Placeholder
from safewrite.cdc.sequences import Fields, Sequences, fields, number_of, sequences_of, text_of

BEFORE, AFTER = "before", "after"
_TABLES_MAX = 16
_OPS = pa.array(["c", "u", "r", "d"])
_ROUTED = "__dbz__"
"""What names begin with that routing of many tables into one topic adds to keys."""


@dataclass(frozen=True, slots=True)
class KeyReader:
    """How keys of one schema are read."""

    form: Form
    given: pa.Schema
    row: RowReader

    @classmethod
    def of(cls, schema: Mapping[str, Any], form: Form) -> Self:
        """The reader of a key's schema."""
        return cls(form, pa.schema(fields_of(schema, form.carried)), RowReader.of(schema, form.carried))

    def read(self, payloads: Any, doubts: Doubts) -> dict[str, pa.Array]:
        """The columns of keys."""
        found = self.row.read(self.form.parsed(payloads, self.given), doubts)
        return {name: column for name, column in found.items() if not name.startswith(_ROUTED)}


@dataclass(frozen=True, slots=True)
class EventReader:
    """How events of one schema are read."""

    form: Form
    given: pa.Schema
    rows: RowReader

    @classmethod
    def of(cls, schema: Mapping[str, Any], form: Form, placeholder: Placeholder) -> Self:
        """The reader of an envelope's schema.

        Raises:
            UnsuitedError: its events cannot be read by columns.
        """
        found = {str(one.get("field")): one for one in schema["fields"]}
        row, before, carried = found[AFTER], found[BEFORE], form.carried
        rows = RowReader.of(row, carried, placeholder)
        if (
            fields_of(before, carried) != fields_of(row, carried)
            or RowReader.of(before, carried).types != rows.types
        ):
            raise UnsuitedError("rows before and after a change have other schemas")
        given = pa.schema(fields_of(schema, carried))
        if not {"source", "op"} <= set(given.names):
            raise UnsuitedError("no envelope of Debezium")
        return cls(form, given, rows)

    def read(self, payloads: Any, doubts: Doubts) -> Events:
        """Events, one for each payload."""
        found = fields(self.form.parsed(payloads, self.given))
        rows = {name: self.rows.read(found[name], doubts) for name in (BEFORE, AFTER)}
        return Events(found, rows[BEFORE], rows[AFTER])


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one schema: what they say of the change, and the columns of their rows."""

    said: Fields
    before: Mapping[str, pa.Array]
    after: Mapping[str, pa.Array]

    def operations(self, doubts: Doubts, *, has_key: bool) -> pa.Array:
        """What the changes do: ``u`` or ``d``."""
        op = self.said["op"]
        deletes = pc.fill_null(pc.equal(op, "d"), False)
        doubts.unless(pc.is_in(op, _OPS))
        # A delete with a row after it, or an upsert without one.
        doubts.where(pc.equal(deletes, pc.is_valid(self.said[AFTER])))
        if not has_key:
            doubts.where(pc.and_(deletes, pc.is_null(self.said[BEFORE])))
        return pc.if_else(deletes, "d", "u")

    def times(self) -> pa.Array:
        """When the source made the changes, by its clock."""
        own = number_of(fields(self.said["source"]), "ts_ms", len(self.said["op"]))
        told = number_of(self.said, "ts_ms", len(self.said["op"]))
        return pc.coalesce(_clock(own), _clock(told))

    def sequences(self, offsets: pa.Array, doubts: Doubts) -> Sequences:
        """The positions of the changes."""
        connectors = pc.unique(self._source("connector")).to_pylist()
        if len(connectors) != 1:
            raise UnsuitedError("events of several connectors")
        said = self.said
        return sequences_of(str(connectors[0]), said["source"], said.get("transaction"), offsets, doubts)

    def tables(self, doubts: Doubts) -> Iterator[tuple[Any, SourceTable]]:
        """The source tables, and which events are theirs.

        Raises:
            UnsuitedError: there are too many.
        """
        names = ("db", "schema", "table")
        told = {name: self._source(name) for name in names}
        doubts.where(pc.is_null(told["table"]))
        doubts.where(pc.equal(told["table"], ""))
        found = pa.table(told).group_by(list(names)).aggregate([])
        if found.num_rows > _TABLES_MAX:
            raise UnsuitedError("events of many tables")
        for row in found.to_pylist():
            chosen = np.ones(len(told["table"]), bool)
            for name in names if found.num_rows > 1 else ():
                chosen &= _equal(told[name], row[name])
            yield chosen, SourceTable(row["db"] or "", row["schema"] or "", row["table"] or "")

    def _source(self, name: str) -> pa.Array:
        return text_of(fields(self.said["source"]), name, len(self.said["op"]))


def _equal(values: pa.Array, one: str | None) -> Any:
    found = pc.is_null(values) if one is None else pc.fill_null(pc.equal(values, one), False)
    return found.to_numpy(zero_copy_only=False)


def _clock(times: pa.Array) -> pa.Array:
    is_time = pc.and_(pc.greater_equal(times, 0), pc.less(times, YEAR_9999_MS))
    return pc.if_else(is_time, times, None)
