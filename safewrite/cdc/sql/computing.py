"""Filters the rows of a table's changes and computes columns of them, by the SQL of the configuration.

A row that the filter does not let pass is a delete from here on: the row before it may have passed.  Deletes and truncates pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit, ColumnTypes
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import NOBODY_HAS, DeadLetter, Op, left_out
from safewrite.cdc.records.change_set import OP
from safewrite.cdc.rows.project_columns import Projected
from safewrite.cdc.rows.rows import ChangeRows
from safewrite.cdc.rows.unavailable_values import UnavailableValues
from safewrite.cdc.sql.row_sql import Evaluated, GivenValues, RowSql
from safewrite.changes.members.table_chunks import UnfitError


def compute(
    table: TargetTable, made: ChangeRows, found: sw.Table | None, lookup: UnavailableValues | None
) -> int:
    """Filter rows and compute their columns, in place.

    Args:
        found: the table; None before it is made.
        lookup: finds values that rows lack; None leaves such rows as they are, of a batch that has landed before, or where no row lacks one.

    Returns:
        How many changes are not in the rows any more, of a table in which each is a row of its own.

    Raises:
        InvalidInputError: the SQL is none for the columns that there are.
    """
    if not table.expressions:
        return 0
    types = ColumnTypes.of(made)
    fit = ColumnFit.of(table, types, found, made.keys)
    with RowSql.of(table, fit, types.names) as sql:
        dropped = _compute_rows(sql, made, lookup)
        parts = [_computed_columns(sql, made, part) for part in made.projected]
    made.projected = [part for part, _ in parts if len(part.batch)]
    for name in table.only_read:
        made.types.pop(table.column_of(name), None)
        for row in made.rows:
            row.values.pop(table.column_of(name), None)
    made.types.learn({name: sql.kinds[name] for name in table.computed if name in sql.kinds}, "")
    return dropped + sum(gone for _, gone in parts)


# --- rows one by one -------------------------------------------------------------------------------------
def _compute_rows(sql: RowSql, made: ChangeRows, lookup: UnavailableValues | None) -> int:
    table, rows, past = sql.table, made.rows, set[int]()
    looks = lookup if table.sequence == "source" else None
    for row in rows:
        if row.lacks and row.op is Op.UPSERT and looks is not None:
            looks.fill(row, [name for name in row.lacks if name not in sql.only_read])

    def given(fit: ColumnFit, places: Any, text: str) -> tuple[Mapping[str, Any], Mapping[int, str]]:
        """The values of some rows; those that lack what is read are no matter where a later one takes their place."""
        some = [rows[place] for place in places.tolist()]
        arrays, misfits = _values_of([row.values for row in some], fit)
        lacking = {place: names for place, row in enumerate(some) if (names := sql.reads(row.lacks, text))}
        for row in (some[place] for place in lacking):
            if lookup is None or (looks is not None and looks.is_past(row, sql.reads(row.lacks))):
                past.add(id(row))
        why = f"{text!r} reads them, and {NOBODY_HAS}"
        return arrays, {**misfits, **{place: left_out(names, why) for place, names in lacking.items()}}

    deletes = np.array([row.change.op is Op.DELETE for row in rows], bool)
    written = np.array([row.op is Op.UPSERT for row in rows], bool)
    found = sql.evaluated(written, deletes, given)
    _put([row.values for row in rows], written, found, _kept_of(table, made.keys))
    gone, dropped = dict[int, DeadLetter](), set[int]()
    for place, row in enumerate(rows):
        row.lacks = tuple(name for name in row.lacks if name not in sql.only_read)
        if id(row) in past:
            row.lacks = (*row.lacks, *table.computed)
        elif place in found.dead:
            gone.setdefault(id(row.change), DeadLetter(row.change.record, found.dead[place], table.name))
        elif found.gone[place] and table.is_appended:
            dropped.add(id(row.change))
        elif found.gone[place]:  # a delete; of a changed key it stays the half that it is
            row.op, row.lacks, row.left = Op.DELETE, (), True
    made.dead += gone.values()
    made.rows = [row for row in rows if id(row.change) not in gone and id(row.change) not in dropped]
    return len(dropped - gone.keys())


def _values_of(
    rows: Sequence[Mapping[str, Any]], fit: ColumnFit
) -> tuple[Mapping[str, Any], Mapping[int, str]]:
    """The columns that a fit asks for, of rows that were made one by one, and what does not fit."""
    arrays, misfits, _ = fit.of_rows(rows, [()] * len(rows), np.ones(len(rows), bool))
    return arrays, misfits if arrays else {}  # an expression may read no column


def _put(rows: Sequence[dict[str, Any]], written: Any, found: Evaluated, kept: Collection[str]) -> None:
    """Put what is computed into rows; of those that do not pass only some columns stay."""
    for place in np.flatnonzero(found.gone).tolist():
        for name in rows[place].keys() - kept:
            del rows[place][name]
    places = np.flatnonzero(written & ~found.gone)
    for name, values in found.made.items():
        for place, value in zip(places.tolist(), values.take(pa.array(places)).to_pylist(), strict=True):
            rows[place][name] = value


def _kept_of(table: TargetTable, keys: Iterable[str]) -> frozenset[str]:
    """The columns that a row keeps which does not pass."""
    return frozenset({*keys, *table.own_columns, *(table.precombine_key or ())})


# --- rows as columns -------------------------------------------------------------------------------------
def _at(
    columns: Mapping[str, Any], fit: ColumnFit, places: Any, text: str
) -> tuple[Mapping[str, Any], Mapping[int, str]]:
    """The columns that a fit asks for, at some places, and what does not fit."""
    at = pa.array(places)
    given = {name: values.take(at) for name, values in columns.items() if name in fit.types}
    arrays, misfits, _ = fit.columns(given, np.ones(len(places), bool), len(places))
    return arrays, misfits if arrays else {}


def _without(columns: Mapping[str, Any], gone: Any, kept: Collection[str]) -> dict[str, Any]:
    """Columns without the values of rows that do not pass."""
    mask = pa.array(gone)
    return {
        name: values if name in kept else pc.if_else(mask, pa.scalar(None, values.type), values)
        for name, values in columns.items()
    }


def _computed_columns(sql: RowSql, made: ChangeRows, part: Projected) -> tuple[Projected, int]:
    """Changes that were projected as columns, filtered and with what is computed; and how many go."""
    table, length = sql.table, len(part.batch)
    written = pc.equal(part.operations, "u").to_numpy()
    deletes = pc.equal(part.batch.data.column(OP), "d").to_numpy()
    gone, computed, dead = sql.evaluated(written, deletes, partial(_at, part.columns))
    columns = {**part.columns, **computed}
    kept = np.ones(length, bool)
    kept[list(dead)] = False
    records, at_records = part.batch.records, part.batch.places()
    made.dead += [DeadLetter(records[int(at_records[at])], why, table.name) for at, why in dead.items()]
    dropped = 0
    if table.is_appended:
        dropped, kept = int(gone.sum()), kept & ~gone
    elif gone.any():
        columns = _without(columns, gone, _kept_of(table, made.keys))
    hidden = {table.column_of(name) for name in table.only_read}
    columns = {name: values.filter(pa.array(kept)) for name, values in columns.items() if name not in hidden}
    types = {name: kind for name, kind in part.types.items() if name not in hidden}
    left = None if table.is_appended else pa.array(gone[kept])
    return replace(part, batch=part.batch.where(kept), columns=columns, types=types, left=left), dropped


# --- rows of a chunk, in a task --------------------------------------------------------------------------
@dataclass(frozen=True)
class ChunkSql:
    """Filters a chunk of changes and computes its columns, in a task: no row lacks a value, and none is of a key that moved alone."""

    table: TargetTable
    fit: ColumnFit
    names: frozenset[str]
    """Columns that came without a schema."""
    keys: tuple[str, ...]

    @classmethod
    def of(
        cls, table: TargetTable, types: ColumnTypes, found: sw.Table | None, keys: tuple[str, ...]
    ) -> tuple[Self | None, ColumnTypes]:
        """What computes the chunks of a table, None where it has no SQL; and what the changes say of columns that land.

        Raises:
            InvalidInputError: the SQL is none for the columns that there are.
        """
        if not table.expressions:
            return None, types
        fit = ColumnFit.of(table, types, found, keys)
        with RowSql.of(table, fit, types.names) as sql:
            sql.learn()
        landing = types.without(sql.only_read)
        landing.of_schemas.learn(sql.kinds, "")
        return cls(table, fit, frozenset(types.names), keys), landing

    def columns(self, columns: Mapping[str, Any], operations: Any) -> tuple[Mapping[str, Any], Any]:
        """Changes that were read by columns, and what each does to its row.

        Raises:
            UnfitError: a row has no value, or DuckDB is not there.
        """
        found = self._evaluated(operations, partial(_at, columns))
        if found.gone.any():
            columns = _without(columns, found.gone, _kept_of(self.table, self.keys))
        return {**columns, **found.made}, _operations(operations, found.gone)

    def rows(self, rows: list[dict[str, Any]], operations: Any) -> Any:
        """The same of changes that were read one by one, in place; what each does to its row.

        Raises:
            UnfitError: as :meth:`columns`.
        """

        def given(fit: ColumnFit, places: Any, text: str) -> tuple[Mapping[str, Any], Mapping[int, str]]:
            return _values_of([rows[place] for place in places.tolist()], fit)

        found, written = self._evaluated(operations, given), pc.equal(operations, "u").to_numpy()
        _put(rows, written, found, _kept_of(self.table, self.keys))
        return _operations(operations, found.gone)

    def _evaluated(self, operations: Any, given: GivenValues) -> Evaluated:
        written = pc.equal(operations, "u").to_numpy()
        try:
            with RowSql.of(self.table, self.fit, self.names) as sql:
                found = sql.evaluated(written, ~written, given)
        except sw.SafewriteError as error:  # the driver says what it is
            raise UnfitError(str(error)) from error
        if found.dead:
            raise UnfitError(next(iter(found.dead.values())))
        return found


def _operations(operations: Any, gone: Any) -> Any:
    return pc.if_else(pa.array(gone), "d", operations) if gone.any() else operations
