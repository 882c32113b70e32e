"""Row predicates in Spark's SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from safewrite.frames.predicate import Both, Compare, Constant, Either, IsNull, Not, Predicate


def to_sql(predicate: Predicate) -> str:
    """The predicate as a condition that Spark and Delta's ``replaceWhere`` understand."""
    match predicate:
        case Compare(column=name, op=op, value=value):
            return f"{_name(name)} {op} {_literal(value)}"
        case IsNull(column=name):
            return f"{_name(name)} IS NULL"
        case Constant(value=value):
            return str(value).upper()
        case Not(part=part):
            return f"NOT ({to_sql(part)})"
        case Both(parts=parts):
            return " AND ".join(f"({to_sql(part)})" for part in parts)
        case Either(parts=parts):
            return " OR ".join(f"({to_sql(part)})" for part in parts)


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes():
            return f"X'{value.hex()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"  # nan and inf too
        case Decimal():
            return f"{value:f}BD"
        case dt.datetime(tzinfo=None):
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case dt.datetime():
            return f"TIMESTAMP_LTZ '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')} UTC'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
    return str(value)
