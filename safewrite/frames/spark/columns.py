"""Conforms a Spark DataFrame to a table's schema: by name, by casts that cannot lose, or not at all (H1 to H4).

Spark itself matches by position in some places, casts in others, and notices values when half of the files
are written.  Names are checked by the rules, and with the messages, of pandas and Arrow frames; types by
themselves: a cast that may lose some value is refused before any value is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.arguments.reading import SchemaMode
from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.prepare import HIVE_NULL, Prepared, prepare
from safewrite.frames.spark.batch import Check
from safewrite.frames.spark.hashes import quoted
from safewrite.text.rendering import said
from safewrite.values.text_limits import TextLimit, limit_of
from safewrite.values.types import canonical_schema, canonical_type
from safewrite.values.unsupported import is_opaque

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from safewrite.frames.fills import ColumnFill
    from safewrite.frames.row_rules import RowRule, RowRules

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_INTEGERS = tuple(_DIGITS)
_EXACT_IN = {
    pa.float32(): (pa.int8(), pa.int16()),
    pa.float64(): (pa.int8(), pa.int16(), pa.int32(), pa.float32()),
}


@dataclass(frozen=True)
class Conformed:
    """A frame with exactly the table's columns, then those that the table does not have yet."""

    frame: DataFrame
    nothing: Prepared
    """What the checks of names and types found: the schema, its new columns, and no rows."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.nothing.schema

    @property
    def added(self) -> tuple[pa.Field, ...]:
        """The columns that the table does not have yet."""
        return self.nothing.added

    def checks(self, partition_by: Sequence[str] = ()) -> list[Check]:
        """The checks of its rows: for NULL, and for partition values that some reader misreads (H5)."""
        may_be_null = {field.name for field in self.frame.schema.fields if field.nullable}
        found = [
            _null(field.name) for field in self.schema if not field.nullable and field.name in may_be_null
        ]
        kinds = {name: self.schema.field(name).type for name in partition_by}
        limits = ((field.name, limit_of(field)) for field in self.schema)
        found += [_blank(name) for name, kind in kinds.items() if pa.types.is_string(kind)]
        found += [
            _fraction(name) for name, kind in kinds.items() if pa.types.is_decimal(kind) and kind.scale > 0
        ]
        return found + [_length(name, limit) for name, limit in limits if limit is not None]


def conformed(
    frame: DataFrame,
    target: pa.Schema | None,
    *,
    partition_by: Sequence[str] = (),
    schema_mode: SchemaMode | None = None,
) -> Conformed:
    """``frame`` as the table ``target`` wants it; None takes it as it is.

    Raises:
        WouldAlterError: a column or a value would be lost or changed.
        InvalidInputError: names or types that no table has.
    """
    from pyspark.sql.pandas.types import from_arrow_type

    found = arrow_schema(frame.schema)
    # An empty frame of these types goes through all checks of names, NULL and meaning.
    prepared = prepare(found.empty_table(), target, partition_by=tuple(partition_by), schema_mode=schema_mode)
    check_types(found, prepared.schema)
    present = {field.name: field.dataType for field in frame.schema.fields}
    wanted = {field.name: from_arrow_type(field.type, prefer_timestamp_ntz=True) for field in prepared.schema}
    if list(wanted) != list(present) or not all(_same(present[name], kind) for name, kind in wanted.items()):
        frame = frame.select(*(_column(name, kind, present.get(name)) for name, kind in wanted.items()))
    return Conformed(frame, prepared)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's types in Arrow.

    Raises:
        InvalidInputError: a type that no table has.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        _check_kind(field.dataType, field.name, field.name)
    try:
        # From PySpark 4.2 on it must be told the zone that it took by itself before.
        zone: dict[str, Any] = (
            {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        )
        return to_arrow_schema(schema, **zone)
    except PySparkException as error:
        raise InvalidInputError(
            f"A column has a type that cannot be a table column: {said(error)}. Nothing was written. Cast it."
        ) from error


def _check_kind(kind: DataType, path: str, column: str) -> None:
    """Refuse types that Arrow knows by the parts that Spark keeps their values in, such as VARIANT: a cast of them gives NULL."""
    from pyspark.sql import types as t

    inner: list[tuple[str, DataType]] = []
    match kind:
        case t.ArrayType(elementType=t.NullType(), containsNull=False) | t.MapType(keyType=t.NullType()):
            raise InvalidInputError(
                f"Column {path!r} has Spark's type {kind.simpleString()}, as an empty array() or map() has it: that is no type of a "
                f"table's column. Nothing was written. Cast it to the type that you mean, such as CAST({quoted(column)} AS "
                f"{'array<string>' if isinstance(kind, t.ArrayType) else 'map<string,string>'})."
            )
        case t.StructType():
            inner = [(f"{path}.{one.name}", one.dataType) for one in kind.fields]
        case t.ArrayType():
            inner = [(f"{path}.element", kind.elementType)]
        case t.MapType():
            inner = [(f"{path}.key", kind.keyType), (f"{path}.value", kind.valueType)]
        case t.AtomicType() if is_opaque(kind.typeName()):
            raise _opaque(kind, path, column)
        case t.UserDefinedType():
            raise _opaque(kind, path, column)
    for name, one in inner:
        _check_kind(one, name, column)


def _opaque(kind: DataType, path: str, column: str) -> InvalidInputError:
    name = kind.simpleString()
    cure = (
        f"write it as text, to_json({quoted(column)})"
        if name == "variant"
        else "cast it to a type that tables have"
    )
    return InvalidInputError(
        f"Column {path!r} has Spark's type {name}, whose values safewrite cannot write. Nothing was written. Leave the column "
        f"out, {cure}, or write the table by Spark itself."
    )


def new_schema(frame: DataFrame) -> pa.Schema:
    """The schema of a table that is made for this frame; NULL is allowed everywhere, as in tables that Spark makes.

    Raises:
        InvalidInputError: names or types that no table has.
    """
    return canonical_schema(arrow_schema(_nullable(frame.schema)))


def _column(name: str, kind: DataType, present: DataType | None) -> Column:
    import pyspark.sql.functions as f

    if present is None:  # schema_mode="merge" means NULL
        return f.lit(None).cast(kind).alias(name)
    values = f.col(quoted(name))
    return (values if _same(present, kind) else values.cast(_nullable(kind))).alias(name)


def _same(present: DataType, kind: DataType) -> bool:
    """Whether two types are one, whether or not they allow NULL."""
    return present.simpleString() == kind.simpleString()


def _nullable(kind: Any) -> Any:
    """The type with NULL allowed at every depth: Spark has no cast that forbids it."""
    from pyspark.sql import types as t

    match kind:
        case t.StructType():
            return t.StructType([t.StructField(one.name, _nullable(one.dataType)) for one in kind.fields])
        case t.ArrayType():
            return t.ArrayType(_nullable(kind.elementType))
        case t.MapType():
            return t.MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def _null(name: str) -> Check:
    why = "in a column that must not be NULL"
    return _refused(name, f"{quoted(name)} IS NULL", "NULL", why, "Fill or drop the rows.")


def _blank(name: str) -> Check:
    condition = f"{quoted(name)} IN ('', '{HIVE_NULL}')"
    return _no_partition(name, condition, f"'' or {HIVE_NULL!r}", "would be read back as NULL")


def _fraction(name: str) -> Check:
    condition = f"{quoted(name)} < 0 AND {quoted(name)} % 1 <> 0"
    return _no_partition(
        name, condition, "a negative decimal with a fraction", "cannot be read back by deltalake"
    )


def _no_partition(name: str, condition: str, values: str, why: str) -> Check:
    cure = "Write NULL or another value, or do not partition by this column."
    return _refused(name, condition, values, f"which as a partition value {why}", cure)


def _refused(name: str, condition: str, values: str, why: str, cure: str) -> Check:
    """Refuse rows for which a condition of Spark's SQL is true."""

    def refusal(count: int, rows: int) -> WouldAlterError:
        return WouldAlterError(
            f"Column {name!r}: {values} in {count} of {rows} rows, {why}. Nothing was written. {cure}"
        )

    return Check(condition, refusal)


def _length(name: str, limit: TextLimit) -> Check:
    def refusal(count: int, rows: int) -> WouldAlterError:
        return WouldAlterError(
            f"Column {name!r}: {count} of {rows} rows have a text that would be cut off or padded for {limit}, as which "
            "the table declares the column. Nothing was written. Correct the values."
        )

    return Check(f"length({quoted(name)}) {'<>' if limit.padded else '>'} {limit.length}", refusal)


def keeping(rules: RowRules | None) -> list[Check]:
    """The checks of rows by a table's rules, which Spark evaluates itself here, in a session of UTC."""
    return [] if rules is None else [_kept(rule) for rule in rules.rules]


def _kept(rule: RowRule) -> Check:
    def refusal(count: int, rows: int) -> WouldAlterError:
        return WouldAlterError(
            f"{count} of {rows} rows break {rule}. {rule.must} Nothing was written. Correct or drop the rows."
        )

    condition = f"{quoted(rule.column)} <=> ({rule.text})" if rule.column else rule.text
    return Check(f"NOT coalesce(({condition}), false)", refusal)


def filled(frame: DataFrame, fills: Sequence[ColumnFill], schema: pa.Schema) -> DataFrame:
    """The frame with the columns that it lacks and its table computes."""
    import pyspark.sql.functions as f
    from pyspark.sql.pandas.types import from_arrow_type

    there = frozenset(frame.columns)
    for one in fills:
        if one.name not in there:
            kind = from_arrow_type(schema.field(one.name).type, prefer_timestamp_ntz=True)
            frame = frame.withColumn(one.name, f.expr(one.text).cast(kind))
    return frame


# --- types ------------------------------------------------------------------------------------------
def check_types(found: pa.Schema, target: pa.Schema) -> None:
    """Refuse columns whose types hold values that the table's do not, all of them at once.

    Raises:
        WouldAlterError: names each such column.
    """
    errors: list[WouldAlterError] = []
    there = frozenset(found.names)
    for field in target:
        if field.name not in there:
            continue
        try:
            _check(found.field(field.name).type, field.type, field.name)
        except WouldAlterError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        told = [str(error).partition(" Nothing was written.")[0] for error in errors]
        raise WouldAlterError(
            "\n  ".join([f"The frame does not fit the table in {len(errors)} columns:", *told])
            + "\nNothing was written. Cast these columns yourself, so that what is lost is lost by your leave, or change the "
            "types of the table's columns."
        )


def _check(source: pa.DataType, target: pa.DataType, path: str) -> None:
    if pa.types.is_null(source):
        return
    if not pa.types.is_nested(
        source
    ):  # else untyped array() and map() have no type for a table, and yet fit one
        source = canonical_type(source, path)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        for number in range(target.num_fields):
            inner = target.field(number)
            if source.get_field_index(inner.name) != number:
                raise WouldAlterError(
                    f"The fields of the struct {path!r} are not in the table's order, and Spark goes by position. "
                    "Nothing was written. Put them into the order of the table."
                )
            _check(source.field(number).type, inner.type, f"{path}.{inner.name}")
    elif pa.types.is_list(source) and pa.types.is_list(target):
        _check(source.value_type, target.value_type, f"{path}.element")
    elif pa.types.is_map(source) and pa.types.is_map(target):
        _check(source.key_type, target.key_type, f"{path}.key")
        _check(source.item_type, target.item_type, f"{path}.value")
    elif not _holds(target, source):
        raise WouldAlterError(
            f"Column {path!r} has type {source}, the table has {target}, which does not hold every value of it. "
            "Nothing was written. Cast the column yourself, so that what is lost is lost by your leave, or change "
            "the type of the table's column."
        )


def _holds(target: pa.DataType, source: pa.DataType) -> bool:
    """Whether every value of ``source`` is exactly one of ``target``."""
    if target == source:
        return True
    if pa.types.is_decimal(target):
        if pa.types.is_decimal(source):
            whole = source.precision - source.scale
            return bool(target.scale >= source.scale and target.precision - target.scale >= whole)
        return source in _DIGITS and bool(target.precision - target.scale >= _DIGITS[source])
    if source in _INTEGERS and target in _INTEGERS:
        return _INTEGERS.index(target) >= _INTEGERS.index(source)
    return source in _EXACT_IN.get(target, ())
