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
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows
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
    table, gone, dropped = sql.table, dict[int, DeadLetter](), set[int]()
    asked = [row for row in made.rows if row.op is Op.UPSERT]
    if lookup is not None and table.sequence == "source":
        for row in asked:
            if row.lacks:
                lookup.fill(row, [name for name in row.lacks if name not in sql.only_read])
    for name, text in sql.texts:
        is_filter = name is None
        judged = [row for row in asked if not (is_filter and row.change.op is Op.DELETE)]
        judged = [row for row in judged if _is_whole(sql, row, text, lookup, gone)]
        results = _of_rows(sql, name, text, judged, gone)
        for row, value in zip(judged, results, strict=True):
            if name is not None:
                row.values[name] = value
            elif not value and table.is_appended:
                dropped.add(id(row.change))
            elif not value:
                _delete(table, made.keys, row)
        left = {*gone, *dropped}
        asked = [
            row
            for row in asked
            if row.op is Op.UPSERT and id(row.change) not in left and not _is_past(sql, row)
        ]
    made.dead += gone.values()
    dropped -= gone.keys()
    made.rows = [row for row in made.rows if id(row.change) not in gone and id(row.change) not in dropped]
    for row in made.rows:
        row.lacks = tuple(name for name in row.lacks if name not in sql.only_read)
    return len(dropped)


def _is_past(sql: RowSql, row: ChangeRow) -> bool:
    """Whether a row is not looked at any more, for a later one takes its place."""
    return not {*sql.table.computed}.isdisjoint(row.lacks)


def _is_whole(
    sql: RowSql, row: ChangeRow, text: str, lookup: UnavailableValues | None, gone: dict[int, DeadLetter]
) -> bool:
    """Whether a row has all values that an expression reads; else it is a dead letter, or no matter."""
    if not row.lacks or not (missing := sql.reads(row.lacks, text)):
        return True
    if lookup is None or (sql.table.sequence == "source" and lookup.is_past(row, sql.reads(row.lacks))):
        row.lacks = (*row.lacks, *sql.table.computed)
        return False
    why = left_out(missing, f"{text!r} reads them, and {NOBODY_HAS}")
    gone.setdefault(id(row.change), DeadLetter(row.change.record, why, sql.table.name))
    return False


def _of_rows(
    sql: RowSql,
    name: str | None,
    text: str,
    rows: Sequence[ChangeRow],
    gone: dict[int, DeadLetter],
) -> list[Any]:
    if not rows:
        return []
    fit, every = sql.fit_of(text), np.ones(len(rows), bool)
    arrays, misfits, _ = fit.of_rows([row.values for row in rows], [()] * len(rows), every)
    results, failed = sql.values(name, arrays, len(rows), misfits)
    for place, why in failed.items():
        gone.setdefault(id(rows[place].change), DeadLetter(rows[place].change.record, why, sql.table.name))
    return list(results.to_pylist())


def _delete(table: TargetTable, keys: Collection[str], row: ChangeRow) -> None:
    """Make a delete of a row; of a changed key it stays the half that it is."""
    kept = _kept_of(table, keys)
    row.op, row.lacks, row.left = Op.DELETE, (), True
    row.values = {name: value for name, value in row.values.items() if name in kept}


def _kept_of(table: TargetTable, keys: Iterable[str]) -> frozenset[str]:
    """The columns that a row keeps which does not pass."""
    return frozenset({*keys, *table.own_columns, *(table.precombine_key or ())})


# --- rows as columns -------------------------------------------------------------------------------------
def _at(
    columns: Mapping[str, Any], fit: ColumnFit, places: Any
) -> tuple[Mapping[str, Any], Mapping[int, str]]:
    """The columns that a fit asks for, at some places, and what does not fit."""
    at = pa.array(places)
    given = {name: values.take(at) for name, values in columns.items() if name in fit.types}
    return fit.columns(given, np.ones(len(places), bool), len(places))[:2]


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

        def given(fit: ColumnFit, places: Any) -> tuple[Mapping[str, Any], Mapping[int, str]]:
            some = [rows[place] for place in places.tolist()]
            return fit.of_rows(some, [()] * len(some), np.ones(len(some), bool))[:2]

        found = self._evaluated(operations, given)
        kept = _kept_of(self.table, self.keys)
        for place in np.flatnonzero(found.gone).tolist():
            rows[place] = {name: value for name, value in rows[place].items() if name in kept}
        for name, values in found.made.items():
            for row, value in zip(rows, values.to_pylist(), strict=True):
                row[name] = value
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
