"""A Spark DataFrame computed once, with the number of its rows and a fingerprint that no order changes.

A plan that is run again may give other rows (``rand()``, a source that changed), so what is counted must
be what is written (E5).  The rows are kept with their lineage cut: where an executor takes some of them
with it, the write fails and is repeated, and nothing is computed anew unnoticed.

The fingerprint goes by the rules of ``safewrite.frames.fingerprint``: integers of all widths are alike,
-0.0 is 0.0, NaN is NaN, NULL adds nothing, a map has no order.  Its hash is Spark's own, so it cannot be
compared with that of a pandas or Arrow frame, and says so by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from safewrite.errors import InvalidInputError, SafewriteError
from safewrite.frames.fingerprint import Fingerprint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

KIND = "spark1"
_LANES = ("a", "b")
_LOW_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class Check:
    """A condition, in Spark's SQL, that no row may satisfy; ``refusal`` is told how many of how many do."""

    condition: str
    refusal: Callable[[int, int], SafewriteError]


@dataclass(frozen=True)
class Batch:
    """Rows that are computed, checked and kept."""

    frame: DataFrame
    rows: int
    fingerprint: Fingerprint


@contextmanager
def computed(frame: DataFrame, checks: Sequence[Check] = ()) -> Iterator[Batch]:
    """Compute ``frame`` once and keep it until the end of the block.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared.
        SafewriteError: the refusal of a check.
    """
    kept = frame.localCheckpoint(eager=False)
    try:
        yield _counted(kept, checks)
    finally:
        # Freed now: Spark itself would wait until the collectors of both languages have come round.
        kept._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001 - PySpark has no other way


def quoted(name: str) -> str:
    """A column's very name in Spark's SQL, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def _counted(frame: DataFrame, checks: Sequence[Check]) -> Batch:
    """One pass over the rows.  Sums are made of 32-bit halves: they stay exact for two billion rows."""
    import pyspark.sql.functions as f

    hashes = [_row_hash(frame, lane).alias(lane) for lane in _LANES]
    flags = [f.expr(check.condition).alias(f"bad_{number}") for number, check in enumerate(checks)]
    halves = [
        f.sum(half)
        for lane in _LANES
        for half in (f.shiftrightunsigned(f.col(lane), 32), f.col(lane).bitwiseAND(f.lit(_LOW_BITS)))
    ]
    counts = [f.count_if(f.col(f"bad_{number}")) for number in range(len(checks))]
    found = frame.select(*hashes, *flags).agg(f.count(f.lit(1)), *halves, *counts).collect()[0]
    rows = int(found[0])
    for check, count in zip(checks, found[5:], strict=True):
        if count:
            raise check.refusal(count, rows)
    high_a, low_a, high_b, low_b = (int(half or 0) for half in found[1:5])
    sums = ((high << 32) + low for high, low in ((high_a, low_a), (high_b, low_b)))
    return Batch(frame, rows, Fingerprint(rows, "".join(f"{one % 2**64:016x}" for one in sums), KIND))


# --- hashes -----------------------------------------------------------------------------------------
def _row_hash(frame: DataFrame, lane: str) -> Column:
    """Cells are hashed with their columns' names, so their order does not matter."""
    import pyspark.sql.functions as f

    cells = [
        _cell(f.col(quoted(field.name)), field.dataType, f"{lane}\x1f{field.name}")
        for field in frame.schema.fields
    ]
    return f.xxhash64(f.lit(lane), reduce(lambda one, other: one.bitwiseXOR(other), cells))


def _cell(values: Column, kind: DataType, seed: str) -> Column:
    """The hash of a value; 0 for NULL, which Spark's own hash passes over together with its place."""
    import pyspark.sql.functions as f

    return f.when(values.isNull(), f.lit(0).cast("long")).otherwise(
        f.xxhash64(f.lit(seed), *_plain(values, kind, seed))
    )


def _plain(values: Column, kind: DataType, seed: str) -> Sequence[Column]:
    """What stands for a value that is not NULL: equal for equal values, of whatever width."""
    import pyspark.sql.functions as f
    from pyspark.sql import types as t

    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return (values.cast("long"),)
        case t.FloatType() | t.DoubleType():
            number = values.cast("double") + f.lit(0.0)  # -0.0 + 0.0 is 0.0
            return (f.when(f.isnan(number), f.lit(float("nan"))).otherwise(number),)
        case t.DecimalType():
            return (f.lit(f"d{kind.scale}"), values.cast(t.DecimalType(38, kind.scale)))
        case t.StringType():
            return (f.lit("s"), values.cast("binary"))  # a collation must not make texts equal
        case t.BinaryType():
            return (f.lit("x"), values)
        case t.BooleanType() | t.DateType() | t.TimestampType() | t.TimestampNTZType():
            return (f.lit(kind.typeName()), values)
        case t.StructType():
            return [
                _cell(values.getField(one.name), one.dataType, f"{seed}\x1f{one.name}") for one in kind.fields
            ]
        case t.ArrayType():
            return f.size(values), f.transform(values, lambda one: _cell(one, kind.elementType, seed))
        case t.MapType():
            return f.size(values), f.array_sort(f.transform(f.map_entries(values), _entry(kind, seed)))
        case t.NullType():
            return (f.lit(0),)
    raise InvalidInputError(
        f"Values of Spark's type {kind.simpleString()} cannot be compared, so a repeat could not be told from other "
        "rows. Nothing was written. Cast the column to a type that tables have."
    )


def _entry(kind: Any, seed: str) -> Any:
    """The hash of a map's entry; entries are sorted by their hashes."""
    import pyspark.sql.functions as f

    def hashed(entry: Column) -> Column:
        key = _cell(entry.getField("key"), kind.keyType, f"{seed}\x1fkey")
        return f.xxhash64(key, _cell(entry.getField("value"), kind.valueType, f"{seed}\x1fvalue"))

    return hashed
