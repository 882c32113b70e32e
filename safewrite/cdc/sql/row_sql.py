"""Evaluates SQL of a row over columns, by DuckDB: a value for each row, or why a row has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit
from safewrite.cdc.config.sql import PLACE, names_read
from safewrite.cdc.config.table_config import TargetTable
from safewrite.intake.duck import kept_duckdb
from safewrite.values.limits import DECIMAL_DIGITS_MAX, YEARS, outside_calendar

GivenValues = Callable[[ColumnFit, Any, str], tuple[Mapping[str, Any], Mapping[int, str]]]
"""Gives the columns that a fit asks for, at some places, for an expression; and which of these have no values that fit, and why."""
_BOUND_MAX = 10_000
_bound: dict[tuple[str, pa.Schema], tuple[pa.DataType, str]] = {}
"""The types that expressions give, of Arrow and of DuckDB, by the columns that there are."""
_PARTS = 16
"""Rows of which one cannot be computed are looked through in this many parts."""
_LARGEST = Decimal(10**DECIMAL_DIGITS_MAX - 1)
_ALTERED = frozenset({"UHUGEINT", "TIME WITH TIME ZONE", "BIT"})
"""Types whose values are others in Arrow: negative numbers, times without their zone, bytes of DuckDB's own."""


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
    with _duckdb() as connection:
        kinds = {name: _kind_of(lambda: connection, table, name, inputs, schema.names) for name in names}
    return {name: kind for name, kind in kinds.items() if name is not None}


class Evaluated(NamedTuple):
    """What the expressions of a table give for rows: which do not pass, what is computed, and why some rows have no value."""

    gone: Any
    made: dict[str, Any]
    dead: dict[int, str]


@dataclass
class RowSql:
    """The expressions of a table over the columns that its rows have."""

    table: TargetTable
    fit: ColumnFit
    untyped: frozenset[str]
    """Columns of which nothing tells the type yet: NULL in all rows."""
    connect: Callable[[], Any]

    @classmethod
    @contextmanager
    def of(cls, table: TargetTable, fit: ColumnFit, names: Iterable[str]) -> Iterator[Self]:
        """The expressions, with a connection that is made for the first of them that is evaluated.

        Args:
            names: columns that came without a schema; those that the fit does not have are NULL in all rows.
        """
        untyped = frozenset({*names, *map(table.column_of, table.only_read)} - {*fit.types})
        with ExitStack() as stack:
            yield cls(table, fit, untyped, lambda: stack.enter_context(_duckdb()))

    def __post_init__(self) -> None:
        table = self.table
        self.texts: list[tuple[str | None, str]] = [(None, table.filter)] if table.filter is not None else []
        self.texts += table.computed.items()
        self.only_read = frozenset(table.column_of(name) for name in table.only_read)
        self.kinds: dict[str, pa.DataType] = {}
        """The types of computed columns, as far as rows were computed."""
        self._opened: Any = None

    def _connection(self) -> Any:
        self._opened = self._opened or self.connect()
        return self._opened

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
        return replace(self.fit, types=types, nulls=nulls, rules=self.fit.rules.of_values())

    def evaluated(self, rows: Any, deletes: Any, given: GivenValues) -> Evaluated:
        """All expressions over rows: the filter first, and columns of those that pass.

        Args:
            rows: which changes are rows; booleans of NumPy.
            deletes: which of them pass whatever the filter says.
        """
        found = Evaluated(np.zeros(len(rows), bool), {}, {})
        for name, text in self.texts:
            places = np.flatnonzero(rows & ~found.gone & ~(deletes if name is None else False))
            places = places[~np.isin(places, list(found.dead))]
            if not len(places):
                continue
            arrays, misfits = given(self.fit_of(text), places, text)
            results, failed = self.values(name, arrays, len(places), misfits)
            found.dead.update({int(places[place]): why for place, why in failed.items()})
            if name is None:
                found.gone[places[~np.asarray(pc.fill_null(results, False).to_numpy(), bool)]] = True
            else:
                index = np.full(len(rows), -1)
                index[places] = np.arange(len(places))
                found.made[name] = results.take(pa.array(index, mask=index < 0))
        found.gone[list(found.dead)] = False
        return found

    def learn(self) -> None:
        """Learn the types of all computed columns, before any row is computed.

        Raises:
            InvalidInputError: the SQL is none for the columns that there are.
        """
        for name, text in self.texts:
            self._learn(name, self._inputs(text, pa.schema([*self.fit_of(text).types.items()]).empty_table()))

    def _inputs(self, text: str, rows: pa.Table) -> pa.Table:
        """Rows with the columns of no type that an expression reads."""
        for name in self.reads(sorted(self.untyped), text):
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows

    def _learn(self, name: str | None, inputs: pa.Table) -> pa.DataType:
        """The type of an expression; of one that reads a column of no type it is not that of a new column."""
        is_sure = self.untyped.isdisjoint(inputs.column_names)
        kind = _kind_of(self._connection, self.table, name, inputs, [*self.fit.types], is_sure=is_sure)
        if name is None:
            return kind
        kind = self.table.declared.get(name) or (kind if is_sure else self.fit.types.get(name, kind))
        if is_sure or name in self.table.declared:
            self.kinds[name] = kind
        return kind

    def values(
        self, name: str | None, arrays: Mapping[str, Any], length: int, misfits: Mapping[int, str]
    ) -> tuple[Any, dict[int, str]]:
        """What an expression gives for each row, and why it gives nothing for some."""
        text = _text_of(self.table, name)
        inputs = self._inputs(text, pa.table({**arrays, PLACE: pa.array(np.arange(length))}))
        kind = self._learn(name, inputs.slice(0, 0))
        failed = dict(misfits)
        sure = inputs if not failed else inputs.filter(pa.array(~np.isin(np.arange(length), list(failed))))
        found: list[Any] = []
        for part, values, why in _evaluated(self._connection(), text, sure, kind) if sure.num_rows else ():
            places = part.column(PLACE).to_pylist()
            if why is None:
                found.append((places, values))
            else:
                failed |= dict.fromkeys(places, f"{_titled(name)} {text!r}: {why}")
        self._refuse_untyped(name, inputs.column_names, [values for _, values in found])
        at = [place for places, _ in found for place in places]
        index = np.full(length, -1)
        index[at] = np.arange(len(at))
        whole = (
            pa.chunked_array([chunk for _, values in found for chunk in values.chunks], found[0][1].type)
            if found
            else pa.chunked_array([pa.nulls(0, kind)])
        )
        return whole.take(pa.array(index, mask=index < 0)), failed

    def _refuse_untyped(self, name: str | None, read: Iterable[str], found: Iterable[Any]) -> None:
        """Refuse values for a new column that an expression makes of columns whose types are not known."""
        untyped = sorted(self.untyped.intersection(read))
        if name is None or not untyped or name in self.kinds or name in self.fit.types:
            return
        if any(values.null_count < len(values) for values in found):
            raise sw.InvalidInputError(
                f"computed {name} of {self.table.name} reads {', '.join(untyped)}, which is NULL in all rows so far, and gives values, whose type "
                "would be another one later: declare what it reads in column_types. Nothing of the batch was committed."
            )


def _kind_of(
    connect: Callable[[], Any],
    table: TargetTable,
    name: str | None,
    inputs: pa.Table,
    known: Sequence[str],
    *,
    is_sure: bool = True,
) -> pa.DataType:
    """The type that the filter (None) gives, or the SQL of a computed column; ``known`` are all columns that there are.

    Where that is not sure, for a column that it reads has no type, it may be NULL.
    """
    import duckdb

    key = _text_of(table, name), inputs.schema
    try:
        if key not in _bound:
            if len(_bound) >= _BOUND_MAX:
                _bound.clear()
            asked = _relation(connect(), key[0], inputs)
            _bound[key] = asked.to_arrow_table().column(0).type, str(asked.types[0])
        given, duck_type = _bound[key]
    except duckdb.Error as error:
        raise sw.InvalidInputError(
            f"{_titled(name)} of {table.name} cannot be applied: {_first_line(error)}. The columns that it may read are {', '.join(known)}, "
            "by the table's names; where no schema names the type of one, declare it in column_types. Nothing of the batch was committed."
        ) from error
    if pa.types.is_null(given) and not is_sure:
        return pa.string() if name else pa.bool_()
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


def _duckdb() -> AbstractContextManager[Any]:
    return kept_duckdb("SQL of a row is computed", "sql", "the table", name=PLACE)


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


def _evaluated(
    connection: Any, text: str, rows: pa.Table, kind: pa.DataType
) -> Iterator[tuple[pa.Table, Any, str | None]]:
    """Rows in parts with what an expression gives for them, or why it gives nothing for a part of one row."""
    import duckdb

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
            yield from _evaluated(connection, text, rows.slice(start, step), kind)
        return
    if pa.types.is_null(values.type):
        values = values.cast(kind)
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
