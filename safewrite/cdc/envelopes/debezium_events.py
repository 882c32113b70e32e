"""Reads the payloads of Debezium's events of one schema as columns: what ``safewrite.cdc.envelopes.debezium`` does event by event.

``Reader`` and ``Told`` are what it has in common with readers of other envelopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import Doubts, RowReader, UnsuitedError, fields_of
from safewrite.cdc.connect.inference import Kinds, rows_of
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.envelopes.debezium import AFTER, BEFORE, YEAR_9999_MS
from safewrite.cdc.envelopes.source_positions import (
    Fields,
    Sequences,
    fields,
    number_of,
    sequences_of,
    text_of,
)
from safewrite.cdc.records.change import SourceTable

if TYPE_CHECKING:
    from safewrite.cdc.connect.converters import Form

_TABLES_MAX = 16
_OPS = pa.array(["c", "u", "r", "d"])
TABLES = r'"source":\{[^{}]*"table":"(?P<table>[^"\\]*)"'
"""Where an event in JSON names its table."""
_ROUTED = "__dbz__"
"""What names begin with that routing of many tables into one topic adds to keys."""


class Told(Protocol):
    """What records of one schema say of changes, and the columns of their rows."""

    @property
    def before(self) -> Mapping[str, pa.Array]:
        """The rows before the changes."""

    @property
    def after(self) -> Mapping[str, pa.Array]:
        """The rows after the changes."""

    def operations(self, doubts: Doubts, *, has_key: bool) -> pa.Array:
        """What the changes do: ``d``, ``u`` of an update that is to tell its row's key before, or ``c`` of other rows."""

    def times(self) -> pa.Array:
        """When the source made the changes, by its clock, in milliseconds since 1970."""

    def sequences(self, offsets: pa.Array, doubts: Doubts) -> Sequences:
        """The positions of the changes."""

    def tables(self, doubts: Doubts) -> Iterator[tuple[Any, SourceTable]]:
        """The source tables, and which records are theirs.

        Raises:
            UnsuitedError: there are too many.
        """


class Reader(Protocol):
    """How records of one schema are read."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types that the columns of the rows get."""

    def read(self, payloads: Any, doubts: Doubts) -> Told:
        """What the records say, one for each payload.

        Raises:
            any of ``safewrite.cdc.connect.converters.UNSUITED``: one of them does not fit.
        """


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

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        return self.rows.types

    def read(self, payloads: Any, doubts: Doubts) -> Events:
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
        op = self.said["op"]
        deletes = pc.fill_null(pc.equal(op, "d"), False)
        doubts.unless(pc.is_in(op, _OPS))
        # A delete with a row after it, or an upsert without one.
        doubts.where(pc.equal(deletes, pc.is_valid(self.said[AFTER])))
        if not has_key:
            doubts.where(pc.and_(deletes, pc.is_null(self.said[BEFORE])))
        return pc.if_else(deletes, "d", pc.if_else(pc.equal(op, "u"), "u", "c"))

    def times(self) -> pa.Array:
        own = number_of(fields(self.said["source"]), "ts_ms", len(self.said["op"]))
        told = number_of(self.said, "ts_ms", len(self.said["op"]))
        return pc.coalesce(_clock(own), _clock(told))

    def sequences(self, offsets: pa.Array, doubts: Doubts) -> Sequences:
        connectors = pc.unique(self._source("connector")).to_pylist()
        if len(connectors) != 1:
            raise UnsuitedError("events of several connectors")
        said = self.said
        return sequences_of(str(connectors[0]), said["source"], said.get("transaction"), offsets, doubts)

    def tables(self, doubts: Doubts) -> Iterator[tuple[Any, SourceTable]]:
        return tables_of(self._source("db"), self._source("schema"), self._source("table"), doubts)

    def _source(self, name: str) -> pa.Array:
        return text_of(fields(self.said["source"]), name, len(self.said["op"]))


def tables_of(
    databases: pa.Array, schemas: pa.Array, tables: pa.Array, doubts: Doubts
) -> Iterator[tuple[Any, SourceTable]]:
    """The source tables of these names, and which records are theirs.

    Raises:
        UnsuitedError: there are too many.
    """
    told = {"database": databases, "schema": schemas, "table": tables}
    doubts.where(pc.is_null(tables))
    doubts.where(pc.equal(tables, ""))
    found = pa.table(told).group_by(list(told)).aggregate([])
    if found.num_rows > _TABLES_MAX:
        raise UnsuitedError("records of many tables")
    for row in found.to_pylist():
        chosen = np.ones(len(tables), bool)
        for name in told if found.num_rows > 1 else ():
            chosen &= _equal(told[name], row[name])
        yield chosen, SourceTable(**{name: value or "" for name, value in row.items()})


def _equal(values: pa.Array, one: str | None) -> Any:
    found = pc.is_null(values) if one is None else pc.fill_null(pc.equal(values, one), False)
    return found.to_numpy(zero_copy_only=False)


def _clock(times: pa.Array) -> pa.Array:
    is_time = pc.and_(pc.greater_equal(times, 0), pc.less(times, YEAR_9999_MS))
    return pc.if_else(is_time, times, None)


def of_event(kinds: Kinds) -> Kinds:
    """The kinds of an event of Debezium, whose rows before and after a change have the same columns.

    Raises:
        UnsuitedError: it is none.
    """
    rows = rows_of(kinds, (AFTER, BEFORE))
    return {**kinds, BEFORE: rows, AFTER: rows}
