"""Words conditions for every engine, and computes in plain Python what they mean for a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as ds

from safewrite.testing.crosscheck.meaning import Meaning, meaning
from safewrite.testing.crosscheck.program import Where

Dialect = Literal["safewrite", "duckdb", "datafusion", "spark", "polars"]


def holds(where: Where, row: Mapping[str, Meaning]) -> bool | None:
    """Whether a row satisfies a condition, in the three values of SQL."""
    match where.op:
        case "and" | "or":
            found = [holds(part, row) for part in where.parts]
            decides = where.op == "or"
            return decides if decides in found else (None if None in found else not decides)
        case "not":
            inner = holds(where.parts[0], row)
            return None if inner is None else not inner
        case "is null":
            return row.get(where.column) is None
    value = row.get(where.column)
    if value is None:
        return None
    if where.op == "in":
        return any(value == meaning(one) for one in where.value)
    return _compare(where.op, value[1], meaning(where.value)[1])


def _compare(op: str, left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        left, right = left.encode(), right.encode()
    match op:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def columns_of(where: Where) -> set[str]:
    """The columns that a condition names."""
    return {where.column, *(name for part in where.parts for name in columns_of(part))} - {""}


def tuples(where: Where) -> list[Any] | None:
    """The condition as lists of tuples for safewrite; None where these cannot say it."""
    match where.op:
        case "and":
            inner = [tuples(part) for part in where.parts]
            flat = [
                one[0] for one in inner if one is not None and len(one) == 1 and not isinstance(one[0], list)
            ]
            return flat if len(flat) == len(inner) else None
        case "or":
            inner = [tuples(part) for part in where.parts]
            alternatives = [one for one in inner if one is not None and not isinstance(one[0], list)]
            return alternatives if len(alternatives) == len(inner) else None
        case "not":
            return None
        case "is null":
            return [(where.column, "=", None)]
    return [(where.column, where.op, list(where.value) if isinstance(where.value, tuple) else where.value)]


def sql(where: Where, dialect: Dialect, types: Mapping[str, pa.DataType]) -> str:
    """The condition as SQL text."""
    name = _quoted(where.column, dialect)
    match where.op:
        case "and" | "or":
            return f" {where.op.upper()} ".join(f"({sql(part, dialect, types)})" for part in where.parts)
        case "not":
            return f"NOT ({sql(where.parts[0], dialect, types)})"
        case "is null":
            return f"{name} IS NULL"
        case "in":
            listed = ", ".join(_literal(one, dialect, types[where.column]) for one in where.value)
            return f"{name} IN ({listed})"
    return f"{name} {where.op} {_literal(where.value, dialect, types[where.column])}"


def _quoted(name: str, dialect: Dialect) -> str:
    return f"`{name}`" if dialect == "spark" else f'"{name}"'


def _literal(value: Any, dialect: Dialect, kind: pa.DataType) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            text = value.replace("\\", "\\\\") if dialect == "spark" else value
            return "'" + text.replace("'", "\\'" if dialect == "spark" else "''") + "'"
        case dt.datetime():
            return _moment(value, dialect)
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case Decimal() if dialect != "safewrite":
            return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
        case Decimal():
            return f"{value:f}"
    return f"{value}"


def _moment(value: dt.datetime, dialect: Dialect) -> str:
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    if value.tzinfo is None and dialect == "datafusion":
        return f"arrow_cast('{text}', 'Timestamp(Microsecond, None)')"
    if value.tzinfo is None:
        name = "TIMESTAMP_NTZ" if dialect == "spark" else "TIMESTAMP"
        return f"{name} '{text}'"
    match dialect:
        case "spark":
            return f"TIMESTAMP_LTZ '{text} UTC'"
        case "duckdb":
            return f"TIMESTAMPTZ '{text}+00:00'"
        case "datafusion":
            return f"arrow_cast('{text}+00:00', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    return f"TIMESTAMP '{text}+00:00'"


def expression(where: Where, types: Mapping[str, pa.DataType]) -> ds.Expression:
    """The condition as one of Arrow's."""
    field = ds.field(where.column)
    match where.op:
        case "and" | "or":
            found = expression(where.parts[0], types)
            for part in where.parts[1:]:
                other = expression(part, types)
                found = found & other if where.op == "and" else found | other
            return found
        case "not":
            return ~expression(where.parts[0], types)
        case "is null":
            return field.is_null()
    kind = types[where.column]
    if where.op == "in":  # Arrow's own counts NULL as a value like others
        return expression(
            Where("or", parts=tuple(Where("=", where.column, one) for one in where.value)), types
        )
    value = pa.scalar(where.value, kind)
    operators = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    return getattr(field, operators[where.op])(value)


def iceberg(where: Where) -> Any:
    """The condition as one of PyIceberg's."""
    from pyiceberg import expressions

    ex: Any = expressions  # its types deny the arguments that its documentation gives
    match where.op:
        case "and":
            return ex.And(*(iceberg(part) for part in where.parts))
        case "or":
            return ex.Or(*(iceberg(part) for part in where.parts))
        case "not":
            return ex.Not(iceberg(where.parts[0]))
        case "is null":
            return ex.IsNull(where.column)
        case "in":
            return ex.In(where.column, {_iceberg_value(one) for one in where.value})
    kinds = {
        "=": ex.EqualTo,
        "!=": ex.NotEqualTo,
        "<": ex.LessThan,
        "<=": ex.LessThanOrEqual,
        ">": ex.GreaterThan,
        ">=": ex.GreaterThanOrEqual,
    }
    return kinds[where.op](where.column, _iceberg_value(where.value))


def _iceberg_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value
