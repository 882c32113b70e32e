"""Translates predicates to Iceberg expressions that are safe for file pruning.

Iceberg judges a file by its counts and bounds, and by rules that are not SQL's: ``x != 1`` holds for
NULL, bounds leave out NaN, and a missing count counts as zero.  So one predicate becomes two
expressions: ``may_match`` for inclusive judgement (no file with a matching row is left out) and
``must_match`` for strict judgement (a file said to match whole does).  Neither judges rows: the predicate
itself does.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotNaN,
    NotNull,
    Or,
    Reference,
)
from pyiceberg.expressions import IsNull as IcebergIsNull

from safewrite.frames.predicate import Both, Compare, Constant, Either, In, IsNull, Not, Predicate
from safewrite.frames.spans import Op
from safewrite.frames.terms import Related

_LITERAL: Mapping[Op, type[LiteralPredicate]] = {
    "=": EqualTo,
    "!=": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
# Exact in three-valued logic, and for NaN too, which is greater than every number.
_OPPOSITE: Mapping[Op, Op] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NARROWER: Mapping[Op, Op] = {"<": "<", "<=": "<", ">": ">", ">=": ">"}
_WIDER: Mapping[Op, Op] = {"<": "<=", "<=": "<=", ">": ">=", ">=": ">="}
EXACT_MAX = 1_000
"""At most this many values of IN are compared with the bounds of each file one by one."""
RANGES_MAX = 200
_DIGITS = Context(prec=100)
_DAY = dt.timedelta(days=1)


def may_match(predicate: Predicate, schema: pa.Schema) -> BooleanExpression:
    """An expression that keeps every file and partition with a row for which the predicate is TRUE."""
    return _Translation(schema, wide=True).of(predicate)


def must_match(predicate: Predicate, schema: pa.Schema) -> BooleanExpression:
    """An expression that holds for all rows of a file only if the predicate is TRUE for all of them."""
    return _Translation(schema, wide=False).of(predicate)


@dataclass(frozen=True, slots=True)
class _Translation:
    """One predicate on its way to an expression that errs to one side: ``wide``, or narrow."""

    schema: pa.Schema
    wide: bool

    def of(self, predicate: Predicate, *, negated: bool = False) -> BooleanExpression:
        """Translate, and carry NOT down to the columns: Iceberg's own would turn a NULL into a match."""
        match predicate:
            case Constant(value=value):
                return AlwaysFalse() if value is negated else AlwaysTrue()
            case IsNull(column=name):
                return NotNull(term=Reference(name)) if negated else IcebergIsNull(term=Reference(name))
            case Compare(column=name, op=op, value=value):
                return self.compare(name, _OPPOSITE[op] if negated else op, value)
            case In():
                return self.of_many(predicate, negated=negated)
            case Related():  # nothing is known of it by statistics
                return AlwaysTrue() if self.wide else AlwaysFalse()
            case Not(part=part):
                return self.of(part, negated=not negated)
            case Both(parts=parts) | Either(parts=parts):
                found = [self.of(part, negated=negated) for part in parts]
                if len(found) == 1:
                    return found[0]
                return And(*found) if isinstance(predicate, Both) is not negated else Or(*found)

    def of_many(self, predicate: In, *, negated: bool) -> BooleanExpression:
        """IN as alternatives; of very many values as ranges that hold them, which say less and cost less."""
        name, values = predicate.column, predicate.values
        if len(values) <= EXACT_MAX:
            return self.of(Either(tuple(Compare(name, "=", value) for value in values)), negated=negated)
        if self.wide is negated:
            # Wide and NOT IN: every file may have another value.  Narrow and IN: no file has listed values alone.
            return self.unknown(name)
        ordered = sorted(predicate.members)
        size = -(-len(ordered) // RANGES_MAX)
        chunks = (ordered[at : at + size] for at in range(0, len(ordered), size))
        ranges = tuple(
            Both((Compare(name, ">=", chunk[0]), Compare(name, "<=", chunk[-1]))) for chunk in chunks
        )
        return self.of(Either(ranges), negated=negated)

    def compare(self, name: str, op: Op, value: Any) -> BooleanExpression:
        kind = self.schema.field(name).type
        found = self.of_numbers(name, op, value, kind)
        if not pa.types.is_floating(kind):
            return found
        if not self.wide and op not in (">", ">="):
            # Bounds tell nothing of NaN, so a count must show that there is none.
            found = And(NotNaN(term=Reference(name)), found)
        return Or(found, IsNaN(term=Reference(name))) if op in (">", ">=", "!=") else found

    def of_numbers(self, name: str, op: Op, value: Any, kind: pa.DataType) -> BooleanExpression:
        """The comparison for values that are not NaN."""
        if pa.types.is_float32(kind):
            single = _single(value)
            if math.isinf(single):
                return self.unknown(name)
            if single != value:
                return self.between_floats(name, op, single)
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            return self.unknown(name)  # PyIceberg compares no nanoseconds
        if isinstance(value, dt.date) and not _within_calendar(value, step=op not in ("=", "!=")):
            return self.unknown(name)
        if pa.types.is_decimal(kind):
            value = value.quantize(Decimal(1).scaleb(-kind.scale), context=_DIGITS)
        return self.checked(name, _LITERAL[op](name, value))

    def between_floats(self, name: str, op: Op, single: float) -> BooleanExpression:
        """A comparison with a number next to ``single``, where no value of the column can lie."""
        if op == "=":
            return AlwaysFalse()
        if op == "!=":
            return NotNull(term=Reference(name))
        return self.checked(name, _LITERAL[(_WIDER if self.wide else _NARROWER)[op]](name, single))

    def checked(self, name: str, found: BooleanExpression) -> BooleanExpression:
        """The comparison; where narrow, with a count that shows that no value is NULL."""
        return found if self.wide else And(NotNull(term=Reference(name)), found)

    def unknown(self, name: str) -> BooleanExpression:
        """The answer where Iceberg cannot judge."""
        return NotNull(term=Reference(name)) if self.wide else AlwaysFalse()


def _within_calendar(value: dt.date, *, step: bool) -> bool:
    """Whether Python has the UTC time, and with ``step`` its adjacent ones, to which PyIceberg goes for < and >."""
    try:
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        if step:
            _ = value - _DAY, value + _DAY
    except OverflowError:
        return False
    return True


def _single(value: float) -> float:
    """The float of 32 bits next to ``value``."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found
