"""Parses Spark's SQL expressions, as a table's rules have them, to predicates and terms over its columns.

Taken is what every session of Spark computes alike, with ANSI mode and without it; a zone is UTC.  All else is refused by its name:
functions that depend on a locale or a version, comparisons that cast by settings, numbers that would be rounded, and what
sqlglot reads by another precedence than Spark.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.errors import MissingExtraError, NotCommittedError
from safewrite.frames.conform import conform
from safewrite.frames.fills import ColumnFill
from safewrite.frames.predicate import Both, Either, Not, Predicate
from safewrite.frames.terms import ColumnTerm, Computed, Related, Relation, Term, ValueTerm, values, whole
from safewrite.frames.where import DIGITS_MAX, Reader
from safewrite.values.limits import DECIMAL_DIGITS_MAX
from safewrite.values.text_limits import limit_of

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""How many digits Spark gives the decimal that a whole number becomes."""
_FLOAT_EXACT_MAX = 2**24
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")


class NotEvaluatedError(Exception):
    """An expression that is not evaluated here, with the reason."""


def condition(text: str, schema: pa.Schema) -> Predicate:
    """The predicate that a condition of Spark's SQL means for rows of this schema.

    Raises:
        NotEvaluatedError: it has something that is not evaluated as Spark does.
    """
    found: Predicate = _read(text, schema, lambda reader, tree: reader.predicate(tree))
    return found


def term(text: str, schema: pa.Schema) -> Term:
    """The value that an expression of Spark's SQL has in rows of this schema.

    Raises:
        NotEvaluatedError: as :func:`condition`.
    """
    found: Term = _read(text, schema, lambda reader, tree: reader.term(tree))
    return found


def generated(column: str, text: str, schema: pa.Schema) -> tuple[ColumnFill, Predicate]:
    """What a generated column gets, and what its values must be (``value <=> expression``).

    Raises:
        NotEvaluatedError: as :func:`condition`; or the expression is of another type than the column.
    """
    kind = schema.field(column).type
    found = term(text, schema)
    if found.type in _INTEGERS and kind in _INTEGERS and _INTEGERS.index(kind) > _INTEGERS.index(found.type):
        found = _as(found, kind)
    if found.type != kind:
        raise NotEvaluatedError(f"it is of type {found.type}, and the column of {kind}")
    return ColumnFill(column, text, found), Related("<=>", (ColumnTerm(column, kind), found))


def default(column: str, text: str, schema: pa.Schema) -> ColumnFill | None:
    """What a column with a default gets; None where the default is NULL.

    Raises:
        NotEvaluatedError: it is no plain value that the column holds; the time of a write would be another at each repeat.
    """
    if text.strip().upper() == "NULL":
        return None
    kind = schema.field(column).type
    found = term(text, pa.schema([]))
    if not isinstance(found, ValueTerm):
        raise NotEvaluatedError("it is no plain value")
    made: Term = found
    if pa.types.is_floating(kind) and (found.type in _INTEGERS or pa.types.is_decimal(found.type)):
        made = ValueTerm(float(found.value), pa.float64())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        made = _from_text(found, kind)
    try:
        conform(pa.table({column: whole(values(made, pa.table({})), 1)}), pa.schema([schema.field(column)]))
    except NotCommittedError as error:
        raise NotEvaluatedError(f"the column of {kind} does not hold it unchanged") from error
    return ColumnFill(column, text, made)


def _read(text: str, schema: pa.Schema, read: Any) -> Any:
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise NotEvaluatedError(f"to read it needs sqlglot ({MissingExtraError.command('delta')})") from error
    if '"' in text:
        raise NotEvaluatedError("engines read double quotes differently")
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
        if len(trees) != 1:
            raise NotEvaluatedError("it is not one expression")
        return read(_SparkReader(text, schema), trees[0])
    except (SqlglotError, RecursionError) as error:
        raise NotEvaluatedError("it cannot be read") from error


@dataclass(frozen=True)
class _Args:
    """What a node of the tree may have: another thing means something else than what is known here."""

    known: tuple[str, ...] = ("this", "expression")
    ignored: tuple[str, ...] = ()


_ARGS: Mapping[str, _Args] = {
    "In": _Args(("this", "expressions")),
    "Between": _Args(("this", "low", "high")),
    "Like": _Args(("this", "expression", "negate")),
    "Cast": _Args(("this", "to"), ("_type",)),
    "TryCast": _Args(("this", "to"), ("_type",)),
    "Div": _Args(ignored=("typed", "safe")),
    "Substring": _Args(("this", "start", "length")),
    "Literal": _Args(("this", "is_string")),
    "Column": _Args(("this",)),
    "TsOrDsToDate": _Args(("this",), ("safe",)),
}


class _SparkReader(Reader):
    """One expression of Spark's SQL on its way."""

    def predicate(self, node: Any) -> Predicate:
        from sqlglot import exp

        self.known(node)
        match node:
            case exp.Paren() | exp.Not() | exp.And() | exp.Or() | exp.Boolean():
                return super().predicate(node)
            case exp.In():
                one = self.term(node.this)
                each = [self.related("=", one, self.term(value)) for value in node.expressions]
                return each[0] if len(each) == 1 else Either(tuple(each))
            case exp.Between():
                one = self.term(node.this)
                low = self.related(">=", one, self.term(node.args["low"]))
                return Both((low, self.related("<=", one, self.term(node.args["high"]))))
            case exp.Is(expression=exp.Null()):
                return Related("IS NULL", (self.term(node.this),))
            case exp.Is(expression=exp.Boolean()):
                return self.related("<=>", self.term(node.this), self.term(node.expression))
            case exp.Like():
                return self.like(node)
            case exp.NullSafeEQ():
                return self.related("<=>", self.term(node.this), self.term(node.expression))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                relation: Relation = _RELATIONS[type(node).__name__]
                return self.related(relation, self.term(node.this), self.term(node.expression))
            case exp.Column():
                found = self.term(node)
                if pa.types.is_boolean(found.type):
                    return Related("=", (found, ValueTerm(True, pa.bool_())))
        raise self.unsupported(node)

    def known(self, node: Any) -> None:
        """Refuse a node that has what is not known here, such as a part that a newer sqlglot keeps."""
        args = _ARGS.get(type(node).__name__, _Args())
        there = {name for name, value in node.args.items() if value not in (None, False, [])}
        if there - {*args.known, *args.ignored}:
            raise self.unsupported(node)

    def column(self, node: Any) -> pa.Field[Any]:
        name = str(node.name).lower()
        found = [field for field in self.schema if field.name.lower() == name]
        if len(found) != 1:
            raise NotEvaluatedError(f"it names {node.name!r}, which is no column of its own")
        return found[0]

    def related(self, relation: Relation, one: Term, other: Term) -> Predicate:
        return Related(relation, aligned(one, other))

    def like(self, node: Any) -> Predicate:
        from sqlglot import exp

        one, pattern = self.term(node.this), node.expression
        if not pa.types.is_string(one.type) or not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self.unsupported(node)
        named = "".join({"%": ".*", "_": "."}.get(sign) or re.escape(sign) for sign in self.text_of(pattern))
        found: Predicate = Related("LIKE", (one, ValueTerm(f"(?s)^(?:{named})$", pa.string())))
        return Not(found) if node.args.get("negate") else found

    def text_of(self, node: Any) -> str:
        text: str = node.this
        if "\\" in self.text:
            raise NotEvaluatedError("settings of a session say what a backslash means")
        return text

    # --- terms ----------------------------------------------------------------------------------------
    def term(self, node: Any) -> Term:
        from sqlglot import exp

        self.known(node)
        match node:
            case exp.Paren():
                return self.term(node.this)
            case exp.Column():
                return self.column_term(node)
            case exp.Literal(is_string=True):
                return ValueTerm(self.text_of(node), pa.string())
            case exp.Literal():
                return self.number(node.this)
            case exp.Neg(this=exp.Literal(is_string=False)):
                return self.number("-" + node.this.this)
            case exp.Boolean():
                return ValueTerm(bool(node.this), pa.bool_())
        return self.computed(node)

    def column_term(self, node: Any) -> Term:
        field = self.column(node)
        limit = limit_of(field)
        if pa.types.is_nested(field.type) or pa.types.is_null(field.type) or (limit and limit.padded):
            raise NotEvaluatedError(f"column {field.name!r} is of type {limit or field.type}")
        return ColumnTerm(field.name, field.type)

    def computed(self, node: Any) -> Term:
        from sqlglot import exp

        match node:
            case exp.Neg():
                found = self.term(node.this)
                if found.type in _INTEGERS or pa.types.is_decimal(found.type):
                    return Computed("negative", (found,), found.type)
            case exp.Add() | exp.Sub() | exp.Mul():
                sign = {"Add": "+", "Sub": "-", "Mul": "*"}[type(node).__name__]
                return arithmetic(sign, self.term(node.this), self.term(node.expression))
            case exp.Div() | exp.Mod():
                sign = "/" if isinstance(node, exp.Div) else "%"
                return divided(sign, self.term(node.this), self.term(node.expression))
            case exp.Cast() | exp.TryCast():
                return self.cast(node)
            case exp.TsOrDsToDate():
                return self.day(node, self.term(node.this))
            case exp.Year() | exp.Month() | exp.Day() | exp.DayOfMonth() | exp.Hour() | exp.Minute():
                return self.part_of_time(node)
            case exp.Length():
                found = self.term(node.this)
                if pa.types.is_string(found.type):
                    return Computed("length", (found,), pa.int32())
            case exp.Substring():
                return self.substring(node)
        raise self.unsupported(node)

    def number(self, text: str) -> Term:
        """A number as Spark's parser types it."""
        if len(text) > DIGITS_MAX:
            raise NotEvaluatedError("it has a number of very many digits")
        if re.fullmatch(r"-?\d+", text):
            whole = int(text)
            for kind in (pa.int32(), pa.int64()):
                if -(2 ** (kind.bit_width - 1)) <= whole < 2 ** (kind.bit_width - 1):
                    return ValueTerm(whole, kind)
        elif not re.fullmatch(r"-?(\d+\.\d*|\.\d+)", text):
            raise NotEvaluatedError(f"the number {text} is of a type of its own")
        exact = Decimal(text)
        _, digits, exponent = exact.as_tuple()
        scale = max(-int(exponent), 0)
        return ValueTerm(exact, _decimal(max(len(digits), scale), scale))

    def cast(self, node: Any) -> Term:
        from sqlglot import exp

        kind, given = node.to.this.name, node.this
        if isinstance(given, exp.Literal):
            if given.is_string:
                return self.moment(kind, self.text_of(given))
            whole = {"BIGINT": pa.int64(), "INT": pa.int32()}.get(kind)
            if whole is not None and re.fullmatch(r"\d{1,9}", given.this):
                return ValueTerm(int(given.this), whole)
            raise self.unsupported(node)
        found = self.term(given)
        wanted = {"BIGINT": pa.int64(), "INT": pa.int32(), "SMALLINT": pa.int16()}.get(kind)
        if wanted is not None and found.type in _INTEGERS:
            if _INTEGERS.index(wanted) >= _INTEGERS.index(found.type):
                return _as(found, wanted)
        elif kind == "DATE":
            return self.day(node, found)
        raise self.unsupported(node)

    def moment(self, kind: str, text: str) -> Term:
        """A literal of a day or a time; without a zone of its own it is of UTC."""
        if kind == "DATE":
            return _day(text)
        zones = {"TIMESTAMPTZ": pa.timestamp("us", "UTC"), "TIMESTAMPNTZ": pa.timestamp("us")}
        if kind not in zones:
            raise NotEvaluatedError(f"{text!r} is cast to {kind}")
        return _moment(text, zones[kind])

    def part_of_time(self, node: Any) -> Term:
        from sqlglot import exp

        inner = node.this
        if isinstance(inner, exp.TsOrDsToDate):  # as sqlglot writes year(x)
            self.known(inner)
            inner = inner.this
        found, name = self.term(inner), type(node).__name__.lower()
        is_date = pa.types.is_date(found.type)
        if not (is_date or pa.types.is_timestamp(found.type)) or (is_date and name in {"hour", "minute"}):
            raise self.unsupported(node)
        return Computed("day" if name == "dayofmonth" else name, (found,), pa.int32())

    def day(self, node: Any, found: Term) -> Term:
        if pa.types.is_date(found.type):
            return found
        if not pa.types.is_timestamp(found.type):
            raise self.unsupported(node)
        return Computed("date", (found,), pa.date32())

    def substring(self, node: Any) -> Term:
        found = self.term(node.this)
        places = [self.term(node.args[name]) for name in ("start", "length") if node.args.get(name)]
        plain = all(isinstance(one, ValueTerm) and one.type == pa.int32() for one in places)
        numbers = [one.value for one in places if isinstance(one, ValueTerm)]
        if not pa.types.is_string(found.type) or not plain or numbers[0] < 1 or min(numbers) < 0:
            raise self.unsupported(node)
        return Computed("substring", (found,), pa.string(), (numbers[0] - 1, *numbers[1:]))

    def unsupported(self, node: Any) -> Any:
        return NotEvaluatedError(f"{node.sql('spark')!r} is not evaluated here")


_RELATIONS: Mapping[str, Relation] = {
    "EQ": "=",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
}


# --- types ------------------------------------------------------------------------------------------
def aligned(one: Term, other: Term) -> tuple[Term, Term]:
    """Two values as the one type under which Spark compares them, in every session alike.

    Raises:
        NotEvaluatedError: there is none.
    """
    if one.type == other.type:
        return one, other
    if pa.types.is_string(one.type) or pa.types.is_string(other.type):
        return _from_text(one, other.type), _from_text(other, one.type)
    if pa.types.is_date(one.type) and pa.types.is_timestamp(other.type):
        return _as(one, other.type), other
    if pa.types.is_timestamp(one.type) and pa.types.is_date(other.type):
        return one, _as(other, one.type)
    kind = _number_type(one, other)
    return _as(one, kind), _as(other, kind)


def arithmetic(sign: str, one: Term, other: Term) -> Term:
    """A sum, a difference or a product."""
    if pa.types.is_float32(one.type) and pa.types.is_float32(other.type):
        raise NotEvaluatedError("it computes with numbers of type float")
    kind = one.type if one.type == other.type else _number_type(one, other)
    if not pa.types.is_decimal(kind):
        if kind not in (*_INTEGERS, pa.float64()):
            raise NotEvaluatedError(f"{sign!r} of {one.type} and {other.type} is not evaluated here")
        return Computed(sign, (_as(one, kind), _as(other, kind)), kind)
    parts = tuple(_as(part, _decimal_of(part.type)) for part in (one, other))
    (p1, s1), (p2, s2) = ((part.type.precision, part.type.scale) for part in parts)
    scale = s1 + s2 if sign == "*" else max(s1, s2)
    digits = p1 + p2 + 1 if sign == "*" else max(p1 - s1, p2 - s2) + scale + 1
    return Computed(sign, parts, _decimal(digits, scale))


def divided(sign: str, one: Term, other: Term) -> Term:
    """A quotient or a remainder, by a number that is not zero."""
    if not isinstance(other, ValueTerm) or other.value in (0, -1) or pa.types.is_decimal(one.type):
        raise NotEvaluatedError(
            f"{sign!r} is evaluated with plain numbers only, after it with one that is neither 0 nor -1"
        )
    if sign == "%" and one.type in _INTEGERS and other.type in _INTEGERS:
        kind = _number_type(one, other)
        return Computed(sign, (_as(one, kind), _as(other, kind)), kind)
    plain = (*_INTEGERS, pa.float64())
    if sign == "/" and one.type in plain and other.type in plain:
        return Computed(sign, (_as(one, pa.float64()), _as(other, pa.float64())), pa.float64())
    raise NotEvaluatedError(f"{sign!r} of {one.type} and {other.type} is not evaluated here")


def _number_type(one: Term, other: Term) -> pa.DataType:
    kinds = one.type, other.type
    if all(kind in _INTEGERS for kind in kinds):
        return max(kinds, key=_INTEGERS.index)
    if all(kind in _INTEGERS or pa.types.is_decimal(kind) for kind in kinds):
        exact = [_decimal_of(kind) for kind in kinds]
        scale = max(kind.scale for kind in exact)
        return _decimal(max(kind.precision - kind.scale for kind in exact) + scale, scale)
    floats = [kind for kind in kinds if pa.types.is_floating(kind)]
    if floats and all(_goes_to_double(part, floats) for part in (one, other)):
        return pa.float64()
    raise NotEvaluatedError(f"{kinds[0]} and {kinds[1]} are not compared here")


def _goes_to_double(part: Term, floats: Sequence[pa.DataType]) -> bool:
    """Whether Spark brings a number to a double, or to a float of the same value, whatever the session says."""
    if pa.types.is_float64(part.type) or pa.types.is_float32(part.type):
        return True
    if isinstance(part, ValueTerm):
        return pa.types.is_decimal(part.type) or pa.float64() in floats or abs(part.value) <= _FLOAT_EXACT_MAX
    narrow = (pa.int8(), pa.int16())
    return part.type in (_INTEGERS if pa.float64() in floats else narrow)


def _decimal_of(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_decimal(kind) else pa.decimal128(_DIGITS[kind], 0)


def _decimal(digits: int, scale: int) -> pa.DataType:
    if digits > DECIMAL_DIGITS_MAX:
        raise NotEvaluatedError("Spark would round its numbers")
    return pa.decimal128(digits, scale)


def _as(part: Term, kind: pa.DataType) -> Term:
    if part.type == kind:
        return part
    if isinstance(part, ValueTerm):
        if pa.types.is_decimal(kind):
            return ValueTerm(Decimal(part.value), kind)
        if pa.types.is_floating(kind):
            return ValueTerm(float(part.value), kind)
        if not pa.types.is_timestamp(kind):
            return ValueTerm(part.value, kind)
    return Computed("cast", (part,), kind)


def _from_text(part: Term, kind: pa.DataType) -> Term:
    """A literal text as a day or a time, as Spark casts it where it is compared with one."""
    if part.type == kind or not pa.types.is_string(part.type):
        return part
    if isinstance(part, ValueTerm):
        if pa.types.is_date(kind):
            return _day(part.value)
        if pa.types.is_timestamp(kind):
            return _moment(part.value, kind)
    raise NotEvaluatedError(f"text and {kind} are not compared here")


def _day(text: str) -> Term:
    if not _DATE.fullmatch(text):
        raise NotEvaluatedError(f"{text!r} is no plain date")
    try:
        return ValueTerm(dt.date.fromisoformat(text), pa.date32())
    except ValueError as error:
        raise NotEvaluatedError(f"{text!r} is no date") from error


def _moment(text: str, kind: pa.DataType) -> Term:
    if not _TIME.fullmatch(text):
        raise NotEvaluatedError(f"{text!r} is no plain time")
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise NotEvaluatedError(f"{text!r} is no time") from error
    return ValueTerm(found if kind.tz is None else found.replace(tzinfo=dt.UTC), kind)
