"""Evaluates values of a table's columns, and tests of them, as Spark's SQL does: over Arrow, in three-valued logic.

Only what is the same in every session of Spark: with ANSI mode and without it, but for the zone of a session, which is UTC here.  A value
that Spark refuses to compute in ANSI mode (an overflow) raises.  NaN is equal to itself and greater than every number, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Values: TypeAlias = Any
"""An Arrow array, a chunked one, or a scalar for all rows."""
Relation: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "<=>", "IS NULL", "LIKE"]

_PLAIN: Mapping[str, str] = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@dataclass(frozen=True, slots=True)
class ColumnTerm:
    """The values of a column."""

    name: str
    type: pa.DataType

    def __str__(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class ValueTerm:
    """One value for all rows, not NULL."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Computed:
    """What a function makes of other values; ``extra`` are its settings."""

    function: str
    parts: tuple[Term, ...]
    type: pa.DataType
    extra: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, (*self.parts, *self.extra)))})"


Term: TypeAlias = ColumnTerm | ValueTerm | Computed


@dataclass(frozen=True, slots=True)
class Related:
    """A relation of values: TRUE, FALSE or NULL for each row."""

    relation: Relation
    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return f" {self.relation} ".join(f"({term})" for term in self.terms)


def names_of(term: Term) -> frozenset[str]:
    """Names of the columns in a term."""
    match term:
        case ColumnTerm(name=name):
            return frozenset({name})
        case Computed(parts=parts):
            return frozenset[str]().union(*map(names_of, parts))
    return frozenset()


# --- values -----------------------------------------------------------------------------------------
def values(term: Term, table: pa.Table) -> Values:
    """The values of a term.

    Raises:
        pa.ArrowInvalid: a number that its type does not hold, in some row.
    """
    match term:
        case ColumnTerm(name=name):
            return table.column(name)
        case ValueTerm(value=value, type=kind):
            return pa.scalar(value, kind)
        case Computed():
            return _FUNCTIONS[term.function](term, [values(part, table) for part in term.parts])


def whole(found: Values, rows: int) -> pa.ChunkedArray:
    """Values as a column of so many rows."""
    if isinstance(found, pa.Scalar):
        found = pa.repeat(found, rows)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _cast(term: Computed, parts: list[Values]) -> Values:
    # A float nearest to a whole number, as Java has it; every other cast that a reader asks for is exact.
    return pc.cast(parts[0], term.type, safe=not pa.types.is_floating(term.type))


def _remainder(term: Computed, parts: list[Values]) -> Values:
    one, other = parts
    return pc.subtract(one, pc.multiply(pc.divide(one, other), other))


def _local(given: Values) -> Values:
    """A time as clocks show it in UTC."""
    return pc.cast(given, pa.timestamp("us")) if pa.types.is_timestamp(given.type) else given


def _field(name: str) -> Callable[[Computed, list[Values]], Values]:
    def found(term: Computed, parts: list[Values]) -> Values:
        return pc.cast(pc.call_function(name, [_local(parts[0])]), term.type)

    return found


def _plain(name: str) -> Callable[[Computed, list[Values]], Values]:
    return lambda term, parts: pc.call_function(name, parts)


def _part_of_text(term: Computed, parts: list[Values]) -> Values:
    start, *length = term.extra
    stop = start + length[0] if length else None
    return pc.utf8_slice_codeunits(parts[0], start=start, stop=stop)


_FUNCTIONS: Mapping[str, Callable[[Computed, list[Values]], Values]] = {
    "cast": _cast,
    "+": _plain("add_checked"),
    "-": _plain("subtract_checked"),
    "*": _plain("multiply_checked"),
    "/": _plain("divide"),
    "%": _remainder,
    "negative": _plain("negate_checked"),
    "length": _plain("utf8_length"),
    "substring": _part_of_text,
    "date": lambda term, parts: pc.cast(pc.floor_temporal(_local(parts[0]), unit="day"), pa.date32()),
    "year": _field("year"),
    "month": _field("month"),
    "day": _field("day"),
    "hour": _field("hour"),
    "minute": _field("minute"),
}
"""What a :class:`Computed` may name."""


# --- tests ------------------------------------------------------------------------------------------
def tested(test: Related, table: pa.Table) -> pa.ChunkedArray:
    """TRUE, FALSE or NULL for each row.

    Raises:
        pa.ArrowInvalid: as :func:`values`.
    """
    found = [values(term, table) for term in test.terms]
    return whole(_related(test.relation, found), table.num_rows)


def _related(relation: Relation, found: list[Values]) -> Values:
    if relation == "IS NULL":
        return pc.is_null(found[0])
    if relation == "LIKE":
        return pc.match_substring_regex(found[0], pattern=found[1].as_py())
    one, other = found
    if relation != "<=>":
        return _compared(relation, one, other)
    nulls = pc.is_null(one), pc.is_null(other)
    return pc.if_else(
        pc.or_(*nulls), pc.and_(*nulls), pc.coalesce(_compared("=", one, other), pa.scalar(False))
    )


def _compared(relation: str, one: Values, other: Values) -> Values:
    if not pa.types.is_floating(one.type):
        return pc.call_function(_PLAIN[relation], [one, other])
    match relation:
        case "=":
            both = pc.and_kleene(pc.is_nan(one), pc.is_nan(other))
            return pc.or_kleene(pc.equal(one, other), both)
        case "<":
            last = pc.and_kleene(pc.invert(pc.is_nan(one)), pc.is_nan(other))
            return pc.or_kleene(pc.less(one, other), last)
        case ">":
            return _compared("<", other, one)
        case "!=":
            return pc.invert(_compared("=", one, other))
        case "<=":
            return pc.invert(_compared("<", other, one))
    return pc.invert(_compared("<", one, other))
