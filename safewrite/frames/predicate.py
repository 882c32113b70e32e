"""Evaluates row predicates in SQL's three-valued logic, over partition values or over rows.

A predicate is TRUE, FALSE or NULL (unknown) for a row; a row is replaced only where it is TRUE.
NaN is greater than every number, as in Spark and DuckDB.  ``safewrite.frames.where`` makes predicates
from SQL text and from lists of tuples; their values are already of the columns' types.  ``safewrite.frames.expressions`` makes
them from Spark's SQL, which relates more than a column and a value.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InvalidInputError
from safewrite.frames.spans import BOTH, Op, Span, Truth
from safewrite.frames.terms import Related, names_of, tested

ANYTHING: frozenset[Truth] = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class Compare:
    """``column op value``; NULL where the column is."""

    column: str
    op: Op
    value: Any

    def __str__(self) -> str:
        return f"{_name(self.column)} {self.op} {_literal(self.value)}"


@dataclass(frozen=True)
class In:
    """``column IN values``, which are at least two, and none of them NULL; NULL where the column is."""

    column: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        # A repeat is known by the text of its condition, and this is the text that lists always had.
        return " OR ".join(f"({Compare(self.column, '=', value)})" for value in self.values)

    @cached_property
    def members(self) -> frozenset[Any]:
        """The values, to look one up in."""
        return frozenset(self.values)


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``; never NULL itself."""

    column: str

    def __str__(self) -> str:
        return f"{_name(self.column)} IS NULL"


@dataclass(frozen=True, slots=True)
class Constant:
    """``TRUE`` or ``FALSE``."""

    value: bool

    def __str__(self) -> str:
        return str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT part``."""

    part: Predicate

    def __str__(self) -> str:
        return f"NOT ({self.part})"


@dataclass(frozen=True, slots=True)
class Both:
    """All of ``parts`` (AND)."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True, slots=True)
class Either:
    """Any of ``parts`` (OR)."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" for part in self.parts)


Predicate: TypeAlias = Compare | In | IsNull | Related | Constant | Not | Both | Either


def within(values: Mapping[str, pa.Array]) -> Predicate:
    """A condition that rows with such values in each of these columns satisfy, by the least and the greatest of each; none does without a value."""
    parts: list[Predicate] = []
    for name, some in values.items():
        if len(some):
            ends = pc.min_max(some)
            parts += [Compare(name, ">=", ends["min"].as_py()), Compare(name, "<=", ends["max"].as_py())]
    return Both(tuple(parts)) if parts else Constant(not values)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return f"DATE '{value.isoformat()}'" if isinstance(value, dt.date) else str(value)


def columns(predicate: Predicate) -> frozenset[str]:
    """Names of the columns in a predicate."""
    match predicate:
        case Compare(column=name) | In(column=name) | IsNull(column=name):
            return frozenset({name})
        case Related(terms=terms):
            return frozenset[str]().union(*map(names_of, terms))
        case Not(part=part):
            return columns(part)
        case Both(parts=parts) | Either(parts=parts):
            return frozenset().union(*map(columns, parts))
        case _:
            return frozenset()


# --- over the values that are known of all rows of a file -----------------------------------------------
def possible(predicate: Predicate, known: Mapping[str, Any]) -> frozenset[Truth]:
    """The possible outcomes for rows where only the columns in ``known`` are known: by their value or their ``Span``.

    Too many outcomes only cost the reading of a file; none is ever left out.
    """
    match predicate:
        case Constant(value=value):
            return frozenset({value})
        case IsNull(column=name):
            return _is_null(known[name]) if name in known else BOTH
        case Compare(column=name) | In(column=name) if isinstance(known.get(name), Span):
            return _between(known[name], predicate)
        case Compare(column=name):
            return frozenset({_compare(known[name], predicate)}) if name in known else ANYTHING
        case In(column=name, members=members) if name in known:
            return frozenset({None if known[name] is None else known[name] in members})
        case In() | Related():
            return ANYTHING
        case Not(part=part):
            return frozenset(None if truth is None else not truth for truth in possible(part, known))
        case Both(parts=parts):
            return _combined(_both, (possible(part, known) for part in parts))
        case Either(parts=parts):
            return _combined(_either, (possible(part, known) for part in parts))


def _between(span: Span, predicate: Compare | In) -> frozenset[Truth]:
    if isinstance(predicate, Compare):
        return span.compared(predicate.op, predicate.value)
    return ANYTHING if any(map(span.may_be, predicate.values)) else frozenset({False, None})


def _is_null(known: Any) -> frozenset[Truth]:
    if not isinstance(known, Span):
        return frozenset({known is None})
    return frozenset({True}) if known.is_empty else BOTH if known.has_nulls else frozenset({False})


def _combined(
    join: Callable[[Truth, Truth], Truth], outcomes: Iterable[frozenset[Truth]]
) -> frozenset[Truth]:
    first, *rest = outcomes
    for other in rest:
        first = frozenset(itertools.starmap(join, itertools.product(first, other)))
    return first


def _both(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _either(one: Truth, other: Truth) -> Truth:
    if one is True or other is True:
        return True
    return None if one is None or other is None else False


_PYTHON: Mapping[Op, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(value: Any, predicate: Compare) -> Truth:
    if value is None:
        return None
    if isinstance(value, float) and math.isnan(value):
        return predicate.op in {"!=", ">", ">="}
    return bool(_PYTHON[predicate.op](value, predicate.value))


# --- over rows ----------------------------------------------------------------------------------------
_ARROW: Mapping[Op, str] = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def truths(predicate: Predicate, table: pa.Table) -> pa.ChunkedArray[Any]:
    """TRUE, FALSE or NULL for each row of ``table``, which has the predicate's columns."""
    match predicate:
        case Constant(value=value):
            return pa.chunked_array([pa.array([value] * table.num_rows, pa.bool_())])
        case IsNull(column=name):
            return pc.is_null(table.column(name))
        case Compare(column=name):
            return _compare_rows(table.column(name), predicate)
        case In(column=name, values=values):
            return _in_rows(table.column(name), values)
        case Related():
            return tested(predicate, table)
        case Not(part=part):
            return pc.invert(truths(part, table))
        case Both(parts=parts):
            return _folded("and_kleene", (truths(part, table) for part in parts))
        case Either(parts=parts):
            return _folded("or_kleene", (truths(part, table) for part in parts))


def _folded(function: str, results: Iterable[pa.ChunkedArray[Any]]) -> pa.ChunkedArray[Any]:
    first, *rest = results
    for other in rest:
        first = pc.call_function(function, [first, other])
    return first


def _compare_rows(column: pa.ChunkedArray[Any], predicate: Compare) -> pa.ChunkedArray[Any]:
    if pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    number = pa.types.is_floating(column.type)
    if number:
        column = column.cast(pa.float64())  # exact, and what SQL compares a decimal literal with
    result = pc.call_function(_ARROW[predicate.op], [column, pa.scalar(predicate.value, column.type)])
    if number and predicate.op in {">", ">="}:
        result = pc.call_function("or_kleene", [result, pc.is_nan(column)])
    return result


def _in_rows(column: pa.ChunkedArray[Any], values: tuple[Any, ...]) -> pa.ChunkedArray[Any]:
    """Look each row up among the values: one hash of each, however many they are."""
    if pa.types.is_null(column.type):
        return column.cast(pa.bool_())
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())  # as for comparisons
        if 0.0 in values:
            values = (*values, -0.0, 0.0)  # they are equal, and have different bits
    found = pc.is_in(column, value_set=pa.array(values, column.type))
    return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))


# --- partition values -----------------------------------------------------------------------------------
def partition_value(text: str | None, field: pa.Field[Any]) -> Any:
    """A partition value of the log as a Python value of the column's type; '' is NULL.

    Source: PROTOCOL.md, "Partition Value Serialization".

    Raises:
        InvalidInputError: the text is ambiguous or means nothing.
    """
    if text is None or text == "":
        return None
    kind = field.type
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return text
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_floating(kind):
            return pa.scalar(float(text), kind).as_py()
        if pa.types.is_decimal(kind):
            return Decimal(text)
        if pa.types.is_date(kind):
            return dt.date.fromisoformat(text)
        if pa.types.is_timestamp(kind):
            return _moment(text, utc=kind.tz is not None)
    except (ValueError, KeyError, ArithmeticError):
        pass
    raise InvalidInputError(
        f"Partition value {text!r} of column {field.name!r} ({kind}) cannot be compared. Nothing was written. "
        "Leave this column out of where=."
    )


def _moment(text: str, *, utc: bool) -> dt.datetime:
    """A time; an instant without an offset is in UTC, as deltalake writes it and every reader but Spark reads it.

    Our own reads by Spark are in UTC too, so whatever rewrites a file keeps the value that its readers saw.
    """
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is not None and not utc:
        raise ValueError(text)
    return moment if moment.tzinfo is not None or not utc else moment.replace(tzinfo=dt.UTC)
