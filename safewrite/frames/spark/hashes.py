"""Hashes a row of a Spark DataFrame in Spark: equal for equal values, whatever their width.

The rules are those of ``safewrite.frames.fingerprint``: integers of all widths are alike, -0.0 is 0.0, NaN
is NaN, NULL adds nothing, a map has no order.  All is written in Spark's SQL: a text is one call into Java, a
column built piece by piece a hundred.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from safewrite.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    Cell: TypeAlias = tuple[str, str, DataType]
    """Name, SQL and type of a value."""

_LONG_DIGITS = 18


def quoted(name: str) -> str:
    """A column's exact name in Spark's SQL, with its dots."""
    return "`" + name.replace("`", "``") + "`"


def row_hash(schema: StructType, volatile: Collection[str] = ()) -> str:
    """The hash of a row without its volatile columns, as a BIGINT in Spark's SQL.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared.
    """
    known_by = [field for field in schema.fields if field.name not in volatile]
    return _hash([(field.name, quoted(field.name), field.dataType) for field in known_by], 0)


def _hash(cells: Sequence[Cell], depth: int) -> str:
    """One hash over the values in the order of their names, and over the names of those that are not NULL.

    Spark's hash skips NULL together with its place, so the names tell the place.
    """
    ordered = sorted(cells, key=lambda cell: cell[0])
    marks = [f"IF({values} IS NULL, 0L, {_mark(name, kind)}L)" for name, values, kind in ordered]
    parts = [part for _, values, kind in ordered for part in _plain(values, kind, depth)]
    return f"xxhash64({', '.join([tree(marks, '^'), *parts])})"


def tree(values: Sequence[str], operator: str) -> str:
    """All values under an operator, as a tree of little depth: Spark asks each node about all that are below it, again and again."""
    if len(values) < 3:
        return f" {operator} ".join(values) or "0L"
    half = len(values) // 2
    return f"({tree(values[:half], operator)}) {operator} ({tree(values[half:], operator)})"


def _mark(name: str, kind: DataType) -> int:
    """A number for a column's name and what its values mean, whatever their width."""
    digest = hashlib.blake2b(f"{_meaning(kind)}\x1f{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _meaning(kind: DataType) -> str:
    from pyspark.sql import types as t

    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return "integer"
        case t.FloatType() | t.DoubleType():
            return "double"
        case t.DecimalType():
            return f"decimal{kind.scale}"
        case (
            t.StringType()
            | t.BinaryType()
            | t.BooleanType()
            | t.DateType()
            | t.TimestampType()
            | t.TimestampNTZType()
            | t.StructType()
            | t.ArrayType()
            | t.MapType()
            | t.NullType()
        ):
            return kind.typeName()
    raise InvalidInputError(
        f"Values of Spark's type {kind.simpleString()} cannot be compared, so a repeat could not be told from other "
        "rows. Nothing was written. Cast the column to a type that tables have."
    )


def _plain(values: str, kind: DataType, depth: int) -> Sequence[str]:
    """The expressions that stand for a value: equal for equal values of any width; all NULL for NULL."""
    from pyspark.sql import types as t

    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType():
            return (f"CAST({values} AS BIGINT)",)
        case t.FloatType():
            return (f"CAST({values} AS DOUBLE)",)  # Spark's hash knows one zero and one NaN
        case t.DecimalType():
            return _digits(values, kind)
        case t.StringType() if kind.simpleString() != "string":
            return (f"CAST({values} AS BINARY)",)  # a collation must not make texts equal
        case t.StructType():
            fields = [(one.name, f"{values}.{quoted(one.name)}", one.dataType) for one in kind.fields]
            return (f"IF({values} IS NULL, NULL, {_hash(fields, depth)})",)
        case t.ArrayType():
            return _listed(values, f"transform({values}, {_each(kind.elementType, depth)})")
        case t.MapType():
            hashes = f"transform(map_entries({values}), {_entry(kind, depth)})"
            return _listed(values, f"array_sort({hashes})")
        case t.NullType():
            return ()
    return (values,)


def _digits(values: str, kind: Any) -> Sequence[str]:
    """Spark hashes a decimal of up to 18 digits as a long; a wider one is hashed so too where it fits."""
    if kind.precision <= _LONG_DIGITS:
        return (values,)
    wide = f"CAST({values} AS DECIMAL(38, {kind.scale}))"
    if kind.scale > _LONG_DIGITS:
        return (wide,)
    short = f"try_cast({values} AS DECIMAL({_LONG_DIGITS}, {kind.scale}))"
    return short, f"IF({short} IS NULL, {wide}, NULL)"


def _listed(values: str, hashes: str) -> Sequence[str]:
    return f"IF({values} IS NULL, NULL, size({values}))", hashes


def _each(kind: DataType, depth: int) -> str:
    """The hash of an element; each depth has a name of its own, for an element may be an array."""
    return f"e{depth} -> {_hash([('', f'e{depth}', kind)], depth + 1)}"


def _entry(kind: Any, depth: int) -> str:
    """The hash of a map's entry; entries are sorted by their hashes."""
    cells = [("key", f"e{depth}.key", kind.keyType), ("value", f"e{depth}.value", kind.valueType)]
    return f"e{depth} -> {_hash(cells, depth + 1)}"
