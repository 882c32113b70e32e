"""Filters the rows of a table's changes and computes columns of them, by the SQL of the configuration.

A row that the filter does not let pass is a delete from here on: the row before it may have passed.  Deletes and truncates pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.config.sql import PLACE, names_read
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.landing.column_fit import ColumnFit, ColumnTypes
from safewrite.cdc.landing.project_columns import Projected
from safewrite.cdc.landing.rows import ChangeRow, ChangeRows
from safewrite.cdc.landing.unavailable_values import UnavailableValues
from safewrite.cdc.records.change import DeadLetter, Op
from safewrite.cdc.records.change_set import OP
from safewrite.intake.duck import closed_duckdb
from safewrite.values.limits import DECIMAL_DIGITS_MAX, YEARS, outside_calendar

_PARTS = 16
"""Rows of which one cannot be computed are looked through in so many parts."""
_LARGEST = Decimal(10**DECIMAL_DIGITS_MAX - 1)
_ALTERED = frozenset({"UHUGEINT", "TIME WITH TIME ZONE", "BIT"})
"""Types whose values are others in Arrow: negative numbers, times without their zone, bytes of DuckDB's own."""


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
    with ExitStack() as stack:
        fit = ColumnFit.of(table, ColumnTypes.of(made), found, made.keys)
        sql = _Sql(
            table,
            fit,
            lambda: stack.enter_context(closed_duckdb("SQL of a row is computed", "sql", "the table")),
        )
        dropped = _compute_rows(sql, made, lookup)
        parts = [_computed_columns(sql, made, part) for part in made.projected]
    made.projected = [part for part, _ in parts if len(part.batch)]
    for name in table.only_read:
        made.types.pop(table.column_of(name), None)
        for row in made.rows:
            row.values.pop(table.column_of(name), None)
    made.learn({name: sql.kinds[name] for name in table.computed if name in sql.kinds})
    return dropped + sum(gone for _, gone in parts)


def names_missing(table: TargetTable, names: Collection[str]) -> list[str]:
    """What the SQL of a table reads besides these columns; the names of a lambda are among it."""
    read = frozenset[str]().union(*map(names_read, table.expressions))
    return sorted(read - {name.lower() for name in names})


def types_computed(table: TargetTable, schema: pa.Schema) -> Mapping[str, pa.DataType]:
    """The types that computed columns have by a table's columns.

    Raises:
        InvalidInputError: the SQL is none for these columns.
    """
    inputs = pa.Table.from_batches([], schema)
    names = [*([None] if table.filter is not None else []), *table.computed]
    with closed_duckdb("SQL of a row is computed", "sql", "the table") as connection:
        kinds = {name: _kind_of(connection, table, name, inputs, schema.names) for name in names}
    return {name: kind for name, kind in kinds.items() if name is not None}


# --- rows one by one -------------------------------------------------------------------------------------
def _compute_rows(sql: _Sql, made: ChangeRows, lookup: UnavailableValues | None) -> int:
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


def _is_past(sql: _Sql, row: ChangeRow) -> bool:
    """Whether a row is not looked at any more, for a later one takes its place."""
    return not {*sql.table.computed}.isdisjoint(row.lacks)


def _is_whole(
    sql: _Sql, row: ChangeRow, text: str, lookup: UnavailableValues | None, gone: dict[int, DeadLetter]
) -> bool:
    """Whether a row has all values that an expression reads; else it is a dead letter, or no matter."""
    if not row.lacks or not (missing := sql.reads(row.lacks, text)):
        return True
    if lookup is None or (sql.table.sequence == "source" and lookup.is_past(row, sql.reads(row.lacks))):
        row.lacks = (*row.lacks, *sql.table.computed)
        return False
    why = (
        f"the source left out {', '.join(missing)} because they did not change, {text!r} reads them, and neither the table nor this "
        "batch has them; have the source send the row whole (a snapshot of it, or REPLICA IDENTITY FULL)"
    )
    gone.setdefault(id(row.change), DeadLetter(row.change.record, why, sql.table.name))
    return False


def _of_rows(
    sql: _Sql,
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
    """Make a delete of a row."""
    kept = {*keys, *table.own_columns, *(table.precombine_key or ())}
    row.op, row.lacks, row.other = Op.DELETE, (), None
    row.values = {name: value for name, value in row.values.items() if name in kept}


# --- rows as columns -------------------------------------------------------------------------------------
def _computed_columns(sql: _Sql, made: ChangeRows, part: Projected) -> tuple[Projected, int]:
    """Changes that were projected as columns, filtered and with what is computed; and how many go."""
    table, length = sql.table, len(part.batch)
    written = pc.equal(part.operations, "u").to_numpy()
    deletes = pc.equal(part.batch.data.column(OP), "d").to_numpy()
    dead: dict[int, str] = {}
    gone, columns = np.zeros(length, bool), dict(part.columns)
    for name, text in sql.texts:
        places = np.flatnonzero(written & ~gone & ~(deletes if name is None else False))
        places = places[~np.isin(places, list(dead))]
        if not len(places):
            continue
        fit, at = sql.fit_of(text), pa.array(places)
        given = {one: values.take(at) for one, values in columns.items() if one in fit.types}
        arrays, misfits, _ = fit.columns(given, np.ones(len(places), bool), len(places))
        results, failed = sql.values(name, arrays, len(places), misfits)
        dead |= {int(places[place]): why for place, why in failed.items()}
        if name is None:
            gone[places[~np.asarray(pc.fill_null(results, False).to_numpy(), bool)]] = True
        else:
            index = np.full(length, -1)
            index[places] = np.arange(len(places))
            columns[name] = results.take(pa.array(index, mask=index < 0))
    gone[list(dead)] = False
    kept = np.ones(length, bool)
    kept[list(dead)] = False
    records, at_records = part.batch.records, part.batch.places()
    made.dead += [DeadLetter(records[int(at_records[at])], why, table.name) for at, why in dead.items()]
    dropped = 0
    if table.is_appended:
        dropped, kept = int(gone.sum()), kept & ~gone
    elif gone.any():
        stay = {*made.keys, *table.own_columns, *(table.precombine_key or ())}
        mask = pa.array(gone)
        columns = {
            name: values if name in stay else pc.if_else(mask, pa.scalar(None, values.type), values)
            for name, values in columns.items()
        }
    hidden = {table.column_of(name) for name in table.only_read}
    columns = {name: values.filter(pa.array(kept)) for name, values in columns.items() if name not in hidden}
    types = {name: kind for name, kind in part.types.items() if name not in hidden}
    left = None if table.is_appended else pa.array(gone[kept])
    return replace(part, batch=part.batch.where(kept), columns=columns, types=types, left=left), dropped


# --- SQL -------------------------------------------------------------------------------------------------
@dataclass
class _Sql:
    """The expressions of a table over the columns that its rows have."""

    table: TargetTable
    fit: ColumnFit
    connect: Callable[[], Any]

    def __post_init__(self) -> None:
        table = self.table
        self.texts: list[tuple[str | None, str]] = [(None, table.filter)] if table.filter is not None else []
        self.texts += table.computed.items()
        self.only_read = frozenset(table.column_of(name) for name in table.only_read)
        self.kinds: dict[str, pa.DataType] = {}
        """The types of computed columns, as far as rows were computed."""
        self._connection: Any = None

    def reads(self, names: Sequence[str], text: str | None = None) -> list[str]:
        """Those of some columns that an expression reads; any of all expressions."""
        read = [names_read(one) for one in (self.table.expressions if text is None else (text,))]
        return [name for name in names if any(name.lower() in one for one in read)]

    def fit_of(self, text: str) -> ColumnFit:
        """What the columns fit that an expression reads."""
        names = self.reads(list(self.fit.types), text)
        nulls = frozenset(self.fit.nulls) - self.only_read
        wider = {name: one.type for name, one in self.fit.wider.items()}
        types = {name: wider.get(name, self.fit.types[name]) for name in names}
        return replace(self.fit, types=types, nulls=nulls)

    def values(
        self, name: str | None, arrays: Mapping[str, Any], length: int, misfits: Mapping[int, str]
    ) -> tuple[Any, dict[int, str]]:
        """What an expression gives for each row, and why it gives nothing for some."""
        self._connection = self._connection or self.connect()
        inputs = pa.table({**arrays, PLACE: pa.array(np.arange(length))})
        text = _text_of(self.table, name)
        kind = _kind_of(self._connection, self.table, name, inputs.slice(0, 0), [*self.fit.types])
        if name is not None:
            kind = self.table.declared.get(name) or kind
            self.kinds[name] = kind
        failed = dict(misfits) if arrays else {}  # an expression may read no column
        sure = inputs if not failed else inputs.filter(pa.array(~np.isin(np.arange(length), list(failed))))
        found: list[Any] = []
        for part, values, why in _evaluated(self._connection, text, sure):
            places = part.column(PLACE).to_pylist()
            if why is None:
                found.append((places, values))
            else:
                failed |= dict.fromkeys(places, f"{_titled(name)} {text!r}: {why}")
        at = [place for places, _ in found for place in places]
        index = np.full(length, -1)
        index[at] = np.arange(len(at))
        whole = (
            pa.chunked_array([chunk for _, values in found for chunk in values.chunks], found[0][1].type)
            if found
            else pa.chunked_array([pa.nulls(0, kind)])
        )
        return whole.take(pa.array(index, mask=index < 0)), failed


def _kind_of(
    connection: Any, table: TargetTable, name: str | None, inputs: pa.Table, known: Sequence[str]
) -> pa.DataType:
    """The type that the filter (None) gives, or the SQL of a computed column; ``known`` are all columns that there are."""
    import duckdb

    try:
        asked = _relation(connection, _text_of(table, name), inputs)
        given = asked.to_arrow_table().column(0).type
    except duckdb.Error as error:
        raise sw.InvalidInputError(
            f"{_titled(name)} of {table.name} cannot be applied: {_first_line(error)}. The columns that it may read are {', '.join(known)}, "
            "by the table's names; where no schema names the type of one, declare it in column_types. Nothing of the batch was committed."
        ) from error
    duck_type = str(asked.types[0])
    kind = None if duck_type in _ALTERED else _storable(given)
    if kind is None or (name is None and not pa.types.is_boolean(given)):
        wanted = (
            "a number, a text, bytes, true or false, a date or a time: cast it" if name else "true or false"
        )
        raise sw.InvalidInputError(
            f"{_titled(name)} of {table.name} gives {duck_type if duck_type in _ALTERED else given}, and not {wanted}. Nothing of the batch was "
            "committed."
        )
    return kind


def _text_of(table: TargetTable, name: str | None) -> str:
    return (table.filter or "") if name is None else table.computed[name]


def _titled(name: str | None) -> str:
    return "filter" if name is None else f"computed {name}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The type of a column for values of a type; None where none is."""
    types = pa.types
    if types.is_integer(kind):
        small = kind.bit_width < 32 or kind == pa.int32()
        return pa.int32() if small else pa.decimal128(20) if kind == pa.uint64() else pa.int64()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    plain = (
        types.is_boolean,
        types.is_floating,
        types.is_decimal,
        types.is_string,
        types.is_binary,
        types.is_date32,
        types.is_time64,
    )
    return kind if any(is_kind(kind) for is_kind in plain) else None


def _evaluated(connection: Any, text: str, rows: pa.Table) -> Iterator[tuple[pa.Table, Any, str | None]]:
    """Rows in parts with what an expression gives for them, or why it gives nothing for a part of one row."""
    import duckdb

    if not rows.num_rows:
        return
    try:
        values = _asked(connection, text, rows)
    except duckdb.OutOfMemoryException as error:
        raise sw.StorageError(f"{text!r} takes more memory than SQL of a row may have: {error}") from error
    except duckdb.Error as error:
        if rows.num_rows == 1:
            yield rows, None, _first_line(error)
            return
        step = -(-rows.num_rows // _PARTS)
        for start in range(0, rows.num_rows, step):
            yield from _evaluated(connection, text, rows.slice(start, step))
        return
    if unfit := _unfit(values):
        for place, why in unfit.items():
            yield rows.slice(place, 1), None, why
        fits = pa.array(~np.isin(np.arange(rows.num_rows), list(unfit)))
        rows, values = rows.filter(fits), values.filter(fits)
    yield rows, values, None


def _unfit(values: Any) -> dict[int, str]:
    """What no column of a table holds, by its place: why."""
    kind = values.type
    if kind == pa.decimal128(DECIMAL_DIGITS_MAX):  # so DuckDB gives a HUGEINT, of up to 39 digits
        outside = pc.or_(
            pc.greater(values, pa.scalar(_LARGEST, kind)),
            pc.less(values, pa.scalar(_LARGEST.copy_negate(), kind)),
        )
        places = np.flatnonzero(pc.fill_null(outside, False))
        return dict.fromkeys(places.tolist(), f"a number of more than {DECIMAL_DIGITS_MAX} digits")
    found = dict.fromkeys(np.flatnonzero(outside_calendar(values)).tolist(), f"a time outside of {YEARS}")
    if getattr(kind, "unit", None) == "ns":
        finer = np.asarray(pc.fill_null(pc.cast(values, pa.int64()), 0)) % 1_000
        found |= dict.fromkeys(np.flatnonzero(finer).tolist(), "a time finer than a microsecond")
    return found


def _asked(connection: Any, text: str, rows: pa.Table) -> Any:
    return _relation(connection, text, rows).to_arrow_table().column(0)


def _relation(connection: Any, text: str, rows: pa.Table) -> Any:
    connection.register(PLACE, rows)
    # As a comment could swallow the bracket, the expression stands on a line of its own.
    return connection.sql(f'SELECT (\n{text}\n) AS "value" FROM "{PLACE}"')
