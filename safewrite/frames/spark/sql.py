"""Writes row predicates in Spark's SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.predicate import Both, Compare, Constant, Either, In, IsNull, Not, Predicate
from safewrite.frames.spark.batch import Check
from safewrite.frames.spark.hashes import quoted
from safewrite.frames.terms import Related
from safewrite.text.rendering import shortened

ALTERNATIVES_MAX = 1_000
"""A longer chain of OR is too deep for Spark's parser."""


def to_sql(predicate: Predicate) -> str:
    """The predicate as a condition that Spark and Delta's ``replaceWhere`` understand."""
    match predicate:
        case Compare(column=name, op=op, value=value):
            return f"{quoted(name)} {op} {literal(value)}"
        case In(column=name, values=values) if len(values) > ALTERNATIVES_MAX and not isinstance(
            values[0], float
        ):
            return f"{quoted(name)} IN ({', '.join(map(literal, values))})"
        case In(column=name, values=values):
            # Spark looks many floats up by their bits, and 0.0 and -0.0 are equal.
            return " OR ".join(f"({quoted(name)} = {literal(value)})" for value in values)
        case IsNull(column=name):
            return f"{quoted(name)} IS NULL"
        case Constant(value=value):
            return str(value).upper()
        case Not(part=part):
            return f"NOT ({to_sql(part)})"
        case Both(parts=parts):
            return " AND ".join(f"({to_sql(part)})" for part in parts)
        case Either(parts=parts):
            return " OR ".join(f"({to_sql(part)})" for part in parts)
        case Related():  # a rule's, whose own text Spark is given
            raise InternalError(
                "A condition of a rule was to be written in SQL. Nothing was written. Please report it."
            )


def inside(predicate: Predicate) -> Check:
    """A check that the overwrite would replace every row; see ``safewrite.frames.replace_where.check_rows``."""

    def refusal(outside: int, rows: int) -> InvalidInputError:
        return InvalidInputError(
            f"{outside} of {rows} rows do not satisfy where= ({shortened(str(predicate), 300)}), so a repeat would not replace them. "
            "Nothing was written. Filter the rows, or widen where=."
        )

    return Check(f"NOT coalesce({to_sql(predicate)}, FALSE)", refusal)


def literal(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str() if "'" in value or "\\" in value:
            # The session decides how a quoted one is read (spark.sql.parser.escapedStringLiterals).
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case str():
            return f"'{value}'"
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
