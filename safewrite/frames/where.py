"""Parses ``where=``, SQL text or lists of tuples, to a predicate over a table's columns.

Values must fit the column's type exactly: a comparison that some engine would make by casting the column is
refused, because engines cast differently and rows depend on it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.frames.predicate import Both, Compare, Constant, Either, In, IsNull, Not, Predicate
from safewrite.frames.spans import Op
from safewrite.text.rendering import shown
from safewrite.text.strings import plain
from safewrite.values.decimals import storable
from safewrite.values.types import is_bytes

Condition: TypeAlias = tuple[str, str, Any]
Where: TypeAlias = str | Sequence[Condition] | Sequence[Sequence[Condition]]
"""SQL text; or conditions that must all hold; or lists of such, one of which must hold."""

DEPTH_MAX = 100
DIGITS_MAX = 400
"""A number with more digits before its point is greater than every float, and than every decimal."""

_FLIPPED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@reading("where=")
def parse(where: Where, schema: pa.Schema) -> Predicate:
    """The predicate that ``where`` means for a table of this schema.

    SQL is ANSI: ``'text'``, ``"column"``; comparisons of a column with a value, IN, BETWEEN, IS NULL,
    AND, OR, NOT.  Tuples are ``(column, op, value)`` with ``=``, ``==``, ``!=``, ``<``, ``<=``, ``>``,
    ``>=``, ``in``, ``not in``; ``=`` None asks for NULL.

    Raises:
        InvalidInputError: a column that is not there, a value of another type, or more than this.
        MissingExtraError: SQL text without sqlglot.
    """
    return _shallow(_from_sql(where, schema) if isinstance(where, str) else _from_tuples(where, schema))


def _shallow(predicate: Predicate) -> Predicate:
    """Refuse a condition nested so deeply that an engine could fail on it in the middle of a write."""
    level: list[Predicate] = [predicate]
    for _ in range(DEPTH_MAX):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return predicate
    raise InvalidInputError(
        f"where= is nested more than {DEPTH_MAX} levels deep, as are so many conditions joined by AND or OR. Nothing was "
        "written. Write IN for many values of a column, or give tuples."
    )


def _parts(predicate: Predicate) -> tuple[Predicate, ...]:
    match predicate:
        case Not(part=part):
            return (part,)
        case Both(parts=parts) | Either(parts=parts):
            return parts
    return ()


def _refused(where: object, why: str, way_out: str = "") -> InvalidInputError:
    return InvalidInputError(
        f"where={shown(where, 300)} cannot be used: {why}. Nothing was written. {way_out}".rstrip()
    )


def _joined(kind: type[Both] | type[Either], parts: Sequence[Predicate]) -> Predicate:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


# --- tuples -------------------------------------------------------------------------------------------
def _from_tuples(where: object, schema: pa.Schema) -> Predicate:
    if isinstance(where, list | tuple) and where:
        if all(_is_condition(one) for one in where):
            return _joined(Both, [_condition(one, schema) for one in where])
        if all(isinstance(one, list | tuple) and one and all(map(_is_condition, one)) for one in where):
            return _joined(
                Either, [_joined(Both, [_condition(one, schema) for one in some]) for some in where]
            )
    way_out = (
        "Give SQL, such as \"day = '2026-11-21'\", or a list of tuples, such as [('day', '=', '2026-11-21')]."
    )
    raise _refused(where, "it is neither SQL text nor a list of (column, op, value)", way_out)


def _is_condition(one: object) -> bool:
    return isinstance(one, tuple) and len(one) == 3 and isinstance(one[0], str) and isinstance(one[1], str)


def _condition(condition: Condition, schema: pa.Schema) -> Predicate:
    name, op, value = condition
    field = _field(name, schema)
    op = {"==": "=", "<>": "!="}.get(op, op)
    if op in ("in", "not in"):
        found = _in(condition, field, _values(value, condition))
        return Not(found) if op == "not in" else found
    if op not in get_args(Op):
        known = ", ".join([*get_args(Op), "in", "not in"])
        raise _refused(
            condition, f"{shown(op)} is no operator", f"Operators are {known}; = None asks for NULL."
        )
    if value is None:
        if op == "=":
            return IsNull(field.name)
        if op == "!=":
            return Not(IsNull(field.name))
        raise _refused(condition, "NULL is neither less nor greater than anything")
    return Compare(field.name, op, _value(value, field))  # type: ignore[arg-type]


def _values(given: Any, condition: Condition) -> list[Any]:
    """The values of IN: of a list, a set, or a column of numpy, pandas, polars or Arrow."""
    if hasattr(given, "to_pylist"):
        return list(given.to_pylist())
    flat = getattr(given, "ndim", None) == 1 or type(given).__module__.startswith("polars")
    if isinstance(given, str | bytes) or not (isinstance(given, Sequence | set | frozenset) or flat):
        raise _refused(condition, f"{condition[1]!r} needs a list of values")
    return list(given)


def _in(where: object, field: pa.Field[Any], values: Sequence[Any]) -> Predicate:
    if not values or any(value is None for value in values):
        raise _refused(where, "IN needs values, and none of them NULL")
    typed = tuple(_value(value, field) for value in values)
    return Compare(field.name, "=", typed[0]) if len(typed) == 1 else In(field.name, typed)


def _field(name: str, schema: pa.Schema) -> pa.Field[Any]:
    """The column of this name, else of this name in another case; Iceberg may have several."""
    found = [field for field in schema if field.name == name]
    found = found or [field for field in schema if field.name.casefold() == name.casefold()]
    if len(found) == 1:
        return found[0]
    raise InvalidInputError(
        f"where= names column {name!r}, and the columns are {schema.names}. Nothing was written. "
        "Text takes single quotes."
    )


# --- SQL ----------------------------------------------------------------------------------------------
def _from_sql(text: str, schema: pa.Schema) -> Predicate:
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise MissingExtraError(
            f"where= as SQL text needs sqlglot: {MissingExtraError.command('delta')}. Or pass tuples, such as "
            "where=[('day', '=', '2026-11-21')]. Nothing was written."
        ) from error
    try:
        trees = [tree for tree in sqlglot.parse(text) if tree is not None]
    except SqlglotError as error:
        way_out = "A column's name takes double quotes, not backticks." if "`" in text else ""
        raise _refused(text, f"it is no SQL condition ({str(error).splitlines()[0]})", way_out) from error
    if len(trees) != 1:
        raise _refused(text, "it is not one SQL condition")
    return Reader(text, schema).predicate(trees[0])


class Reader:
    """One SQL condition on its way to a predicate."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.text = text
        self.schema = schema

    def predicate(self, node: Any) -> Predicate:
        from sqlglot import exp

        match node:
            case exp.Paren():
                return self.predicate(node.this)
            case exp.Not():
                return Not(self.predicate(node.this))
            case exp.And():
                return Both((self.predicate(node.left), self.predicate(node.right)))
            case exp.Or():
                return Either((self.predicate(node.left), self.predicate(node.right)))
            case exp.Boolean():
                return Constant(bool(node.this))
            case exp.In() if not node.args.get("query") and not node.args.get("unnest"):
                return _in(self.text, self.column(node.this), [self.literal(n) for n in node.expressions])
            case exp.Between() if not node.args.get("symmetric"):
                field = self.column(node.this)
                low = Compare(field.name, ">=", self.value(node.args["low"], field))
                return Both((low, Compare(field.name, "<=", self.value(node.args["high"], field))))
            case exp.Is() if isinstance(node.expression, exp.Null):
                return IsNull(self.column(node.this).name)
            case exp.Column() if pa.types.is_boolean(self.column(node).type):
                return Compare(self.column(node).name, "=", True)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self.comparison(node)
        raise self.unsupported(node)

    def comparison(self, node: Any) -> Predicate:
        from sqlglot import exp

        operators: dict[type[Any], Op] = {
            exp.EQ: "=",
            exp.NEQ: "!=",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
        }
        op, left, right = operators[type(node)], node.this, node.expression
        if not isinstance(left, exp.Column):
            if not isinstance(right, exp.Column):
                raise self.unsupported(
                    right if isinstance(left, exp.Literal | exp.Neg | exp.Boolean) else left
                )
            op, left, right = _FLIPPED[op], right, left
        if isinstance(right, exp.Column):
            raise _refused(
                self.text,
                f"{node.sql()!r} compares two columns, and a condition compares a column with a value; a text takes "
                "single quotes",
            )
        field = self.column(left)
        return Compare(field.name, op, self.value(right, field))

    def column(self, node: Any) -> pa.Field[Any]:
        from sqlglot import exp

        if not isinstance(node, exp.Column) or node.table:
            raise self.unsupported(node)
        return _field(node.name, self.schema)

    def value(self, node: Any, field: pa.Field[Any]) -> Any:
        return _value(self.literal(node), field)

    def literal(self, node: Any) -> Any:
        from sqlglot import exp

        match node:
            case exp.Literal(is_string=True):
                return node.name
            case exp.Literal():
                return _number(node.name)
            case exp.Neg(this=exp.Literal(is_string=False)):
                return -_number(node.name)
            case exp.Boolean():
                return bool(node.this)
            case exp.Null():
                raise _refused(self.text, "a comparison with NULL is never true; write IS NULL")
            case exp.Cast(this=exp.Literal(is_string=True)):
                return self.typed(node)
        raise self.unsupported(node)

    def typed(self, node: Any) -> dt.date:
        """``DATE '...'`` and ``TIMESTAMP '...'``."""
        kind, text = node.to.this.name, node.this.name
        try:
            if kind == "DATE":
                return dt.date.fromisoformat(text)
            if kind in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATETIME"):
                return _moment(text)
        except ValueError as error:
            raise _refused(self.text, f"{text!r} is no {kind}") from error
        raise self.unsupported(node)

    def unsupported(self, node: Any) -> InvalidInputError:
        return _refused(
            self.text,
            f"{node.sql()!r} is more than a comparison of a column with a value, IN, BETWEEN, IS NULL, "
            "AND, OR and NOT",
            _way_out(node),
        )


_MOMENT = "Give the moment itself, as your code has it now: a repeat of the call must mean the same rows."


def _way_out(node: Any) -> str:
    """What to write instead of what a condition does not take."""
    from sqlglot import exp

    if node.find(exp.BitwiseAnd, exp.BitwiseOr) is not None:
        return "SQL says AND and OR; & and | are of pandas and polars."
    match node:
        case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.SimilarTo():
            return "A beginning is a range (name >= 'ab' AND name < 'ac'); for other patterns name the values with IN."
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.CurrentTime() | exp.CurrentDatetime():
            return _MOMENT
        case exp.Anonymous() if node.name.lower() in {"now", "today", "getdate", "sysdate"}:
            return _MOMENT
        case exp.Column():
            return "Text takes single quotes."
    return "Compute the value in your code and give it, or read the rows with an engine and name them by their keys with IN."


def _number(text: str) -> int | Decimal:
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else Decimal(text)


# --- values ---------------------------------------------------------------------------------------------
def _value(value: Any, field: pa.Field[Any]) -> Any:
    """``value`` as one of the column's own type, or an error: nothing is rounded and nothing guessed."""
    kind = field.type
    found: Any = None
    try:
        value = _plain(value)
        if pa.types.is_null(kind):  # equal to nothing, whatever it is compared with
            found = value
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            found = _text(value)
        elif pa.types.is_boolean(kind):
            found = value if isinstance(value, bool) else None
        elif isinstance(value, bool):
            found = None
        elif pa.types.is_integer(kind):
            found = _whole(value, kind)
        elif pa.types.is_floating(kind):
            found = _floating(value)
        elif pa.types.is_decimal(kind):
            found = _decimal(value, kind)
        elif pa.types.is_date(kind):
            found = _date(value)
        elif pa.types.is_timestamp(kind):
            found = _instant(value, aware=kind.tz is not None)
    except (ValueError, ArithmeticError, InvalidOperation, pa.ArrowException):
        found = None
    if found is None:
        raise _unlike(value, field)
    return found


def _unlike(value: Any, field: pa.Field[Any]) -> InvalidInputError:
    """The refusal of a value that is none of the column's."""
    kind, said = field.type, f"where= compares column {field.name!r}"
    if is_bytes(kind):
        return InvalidInputError(
            f"{said} of bytes with {shown(value)}: engines keep no bounds of bytes alike, so bytes are compared with NULL only. Nothing "
            "was written. Name the rows by another column."
        )
    if pa.types.is_time(kind) or pa.types.is_nested(kind):
        return InvalidInputError(
            f"{said} of type {kind} with {shown(value)}: such a column is compared with NULL only. Nothing was written. Name the rows by "
            "another column."
        )
    if pa.types.is_floating(kind) and isinstance(value, float) and math.isnan(value):
        return InvalidInputError(
            f"{said} with NaN, which engines order in different ways. Nothing was written. Name the rows by another column."
        )
    hint = ", with its offset from UTC (such as 2026-11-21T00:00:00Z)" if getattr(kind, "tz", None) else ""
    return InvalidInputError(
        f"{said} with {shown(value)}, which is no {kind}{hint}. Nothing was written. Give a value of the column's type."
    )


def _plain(value: Any) -> Any:
    """A scalar of numpy or pandas as Python's own; ValueError where that would round it."""
    if isinstance(value, np.datetime64):
        moment = value.astype("datetime64[us]").item()
        if not isinstance(moment, dt.datetime) or np.datetime64(moment, "us") != value:
            raise ValueError(value)
        return moment.date() if np.datetime_data(value.dtype)[0] == "D" else moment
    if isinstance(value, np.generic):
        plain = value.item()
        if isinstance(plain, np.generic):  # a wider float than Python's
            raise ValueError(value)
        return plain
    if isinstance(value, dt.datetime) and hasattr(value, "nanosecond"):
        if value.nanosecond:
            raise ValueError(value)
        return value.to_pydatetime()  # type: ignore[attr-defined]
    return value


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    value.encode()  # raises where it has half of a pair, which no column holds
    return plain(value)


def _whole(value: Any, kind: pa.DataType) -> int | None:
    if not isinstance(value, int | float | Decimal) or _is_vast(value) or value != int(value):
        return None
    pa.scalar(int(value), kind)  # raises where it does not fit
    return int(value)


def _floating(value: Any) -> float | None:
    if not isinstance(value, int | float | Decimal) or math.isnan(value):
        return None
    found = float(value)
    if isinstance(value, int) and int(found) != value:
        return None
    is_beyond = (found == 0 != value) or (math.isinf(found) and found != value)  # 1e-400 is no zero
    return None if is_beyond else found


def _is_vast(value: float | Decimal) -> bool:
    """Whether a decimal is far beyond every column; as a whole number, digit by digit, it would take for ever."""
    return isinstance(value, Decimal) and value.is_finite() and value.adjusted() > DIGITS_MAX


def _decimal(value: Any, kind: Any) -> Decimal | None:
    if not isinstance(value, int | float | Decimal):
        return None
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    pa.scalar(storable(exact), kind)  # raises where it does not fit, or has more digits than the column
    return exact


def _date(value: Any) -> dt.date | None:
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    return value if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None


def _instant(value: Any, *, aware: bool) -> dt.datetime | None:
    moment = _moment(value) if isinstance(value, str) else value
    if not isinstance(moment, dt.datetime) or (moment.utcoffset() is not None) is not aware:
        return None
    # In one zone, so that one instant is one condition: a repeat is known by the text of its condition.
    return moment.astimezone(dt.UTC) if aware else moment


def _moment(text: str) -> dt.datetime:
    if re.search(r"\.\d{7,}", text):
        raise ValueError(text)  # fromisoformat would cut it off
    return dt.datetime.fromisoformat(text)
