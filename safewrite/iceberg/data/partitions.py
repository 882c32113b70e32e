"""Parses partition specs and sort orders from the texts that users write, such as ``bucket(16, id)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DoubleType, FixedType, IcebergType, NestedField, StructType, UnknownType, UUIDType

from safewrite.errors import InvalidInputError, UnsupportedTableError
from safewrite.iceberg.data.schema import struct_path
from safewrite.text.rendering import said, shown

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_WITH_NUMBER = re.compile(r"(\d+)\s*,\s*(.+)", re.DOTALL)
_SORT = re.compile(
    r"(?P<what>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.DOTALL | re.IGNORECASE
)
_PLAIN: dict[str, Callable[[], Transform[Any, Any]]] = {
    "identity": IdentityTransform,
    "void": VoidTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_NUMBERED: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_NUMBER_MAX = 2**31 - 1  # Java holds it in an int
_MISREAD: dict[type[IcebergType], str] = {
    # iceberg-python #3808; rewriting a manifest would store the rounded value
    DoubleType: "PyIceberg up to 0.12 reads such partition values rounded to 32 bits",
    UUIDType: "PyIceberg up to 0.12 finds no row by such a partition value",
    FixedType: "PyIceberg up to 0.12 stores such a partition value without its length, so that Java reads other bytes",
}
_FORMS = "a column, year(c), month(c), day(c), hour(c), bucket(16, c), truncate(4, c) or void(c)"


def spec(partition_by: Sequence[str] | PartitionSpec, schema: Schema) -> PartitionSpec:
    """The partition spec that ``partition_by`` means for ``schema``.

    A text is the name of a column (nested ones with dots) or a transform of one: ``day(ts)``,
    ``bucket(16, id)``, ``truncate(4, s)``, ``year(ts)``, ``month(ts)``, ``hour(ts)``, ``void(x)``.  Spark's
    plurals (``days(ts)``) work as well.  A spec is checked against the schema and returned as it is.  Raises
    InvalidInputError for anything else.
    """
    if isinstance(partition_by, PartitionSpec):
        _check(lambda: partition_by.check_compatible(schema), "The partition spec")
        for field, _, why in misread_fields([partition_by], schema):
            raise _invalid(
                f"partition_by has {field.name!r}, but {why}. Partition by another column or transform"
            )
        return partition_by
    if isinstance(partition_by, str):
        raise _invalid(f"partition_by is the text {shown(partition_by)}; it must be a list of texts")
    fields: list[PartitionField] = []
    for text in partition_by:
        source, transform = _parsed(text, schema, "partition_by")
        _refuse_redundant(text, source, transform, fields)
        misread = _misread(source, transform)
        if misread is not None:
            raise _invalid(
                f"partition_by holds {shown(text)}, but {misread}. Partition by another column or transform"
            )
        name = _free_name(_name(schema, source, transform), source, transform, schema, fields)
        number = PARTITION_FIELD_ID_START + len(fields)
        fields.append(PartitionField(source.field_id, number, transform, name))
    return PartitionSpec(*fields)


def check(specs: Iterable[PartitionSpec], schema: Schema) -> None:
    """Raise UnsupportedTableError for a table with partition values that are not read as they are."""
    for field, _, misread in misread_fields(specs, schema):
        raise UnsupportedTableError(
            f"The table is partitioned by the values of {field.name!r}, and {misread}. Nothing was "
            "written. Write this table with Spark, or partition it in another way."
        )


def misread_fields(
    specs: Iterable[PartitionSpec], schema: Schema
) -> Iterator[tuple[PartitionField, NestedField, str]]:
    """Partition fields whose values are not read as they are, each once, with its column and the reason."""
    seen: set[int] = set()
    for field in (field for one in specs for field in one.fields):
        source = _column(field.source_id, schema)
        misread = None if source is None else _misread(source, field.transform)
        if source is not None and misread is not None and field.field_id not in seen:
            seen.add(field.field_id)
            yield field, source, misread


class _TypedSpec(PartitionSpec):
    """A spec that knows the types of its fields, also of those whose columns were dropped."""

    _kinds: StructType = PrivateAttr()

    @classmethod
    def of(cls, found: PartitionSpec, kinds: Iterable[NestedField]) -> _TypedSpec:
        made = cls(*found.fields, spec_id=found.spec_id)  # type: ignore[call-arg]  # pydantic takes both names
        made._kinds = StructType(*kinds)
        return made

    def partition_type(self, schema: Schema) -> StructType:
        return self._kinds


def typed(found: PartitionSpec, metadata: TableMetadata) -> PartitionSpec:
    """The spec with the types that its fields had before their columns were dropped.

    PyIceberg (0.12.0) gives such a field the type "unknown", and writes a manifest of it that no engine can
    read: then the whole table is lost.  The table's earlier schemas know the types in its older manifests.

    Raises:
        UnsupportedTableError: no schema knows the column.
    """
    schema = metadata.schema()
    kinds = found.partition_type(schema).fields
    if not any(isinstance(kind.field_type, UnknownType) for kind in kinds):
        return found
    pairs = zip(found.fields, kinds, strict=True)
    return _TypedSpec.of(
        found,
        (
            _before(field, metadata) if isinstance(kind.field_type, UnknownType) else kind
            for field, kind in pairs
        ),
    )


def _before(field: PartitionField, metadata: TableMetadata) -> NestedField:
    for schema in sorted(metadata.schemas, key=lambda one: one.schema_id, reverse=True):
        source = _column(field.source_id, schema)
        if source is not None and source.field_type.is_primitive:
            kind = field.transform.result_type(source.field_type)
            return NestedField(field.field_id, field.name, kind, required=False)
    raise UnsupportedTableError(
        f"The table has files that are partitioned by {field.name!r}, whose column was dropped, and none of its schemas "
        "tells of what type that was: PyIceberg would write a manifest that no engine can read. Nothing was written. "
        "Write this table with Spark, or rewrite its files under the current partitioning."
    )


def _misread(source: NestedField, transform: Transform[Any, Any]) -> str | None:
    return _MISREAD.get(type(source.field_type)) if isinstance(transform, IdentityTransform) else None


def spelled(found: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """A spec as :func:`spec` reads it."""
    return tuple(
        call(field.transform, schema.find_column_name(field.source_id) or "") for field in found.fields
    )


def call(transform: Transform[Any, Any], column: str) -> str:
    """A transform of a column as texts of users spell it."""
    match transform:
        case IdentityTransform():
            return column
        case BucketTransform(num_buckets=buckets):
            return f"bucket({buckets}, {column})"
        case TruncateTransform(width=width):
            return f"truncate({width}, {column})"
        case _:
            return f"{transform}({column})"


def sort(sort_by: Sequence[str] | SortOrder, schema: Schema) -> SortOrder:
    """The sort order that ``sort_by`` means for ``schema``.

    A text is a column or a transform as in :func:`spec`, then maybe ``asc`` or ``desc``, and maybe ``nulls
    first`` or ``nulls last``.  NULL comes first going up and last going down unless said otherwise.  Raises
    InvalidInputError for anything else.
    """
    if isinstance(sort_by, SortOrder):
        _check(lambda: sort_by.check_compatible(schema), "The sort order")
        return sort_by
    if isinstance(sort_by, str):
        raise _invalid(f"sort_by is the text {shown(sort_by)}; it must be a list of texts")
    fields = [_sort_field(text, schema) for text in sort_by]
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def _sort_field(text: object, schema: Schema) -> SortField:
    match = _SORT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or _column(str(text), schema) is not None:
        source, transform = _parsed(text, schema, "sort_by")
        return SortField(source.field_id, transform)
    source, transform = _parsed(match["what"], schema, "sort_by")
    down = (match["way"] or "asc").lower() == "desc"
    last = down if match["nulls"] is None else match["nulls"].lower() == "last"
    return SortField(
        source.field_id,
        transform,
        SortDirection.DESC if down else SortDirection.ASC,
        NullOrder.NULLS_LAST if last else NullOrder.NULLS_FIRST,
    )


def _parsed(text: object, schema: Schema, where: str) -> tuple[NestedField, Transform[Any, Any]]:
    """The source column and the transform of one text."""
    if not isinstance(text, str):
        raise _invalid(f"{where} holds {shown(text)}; it must be a list of texts")
    transform: Transform[Any, Any] = IdentityTransform()
    source = _column(text, schema)  # a column may be named like a transform
    call = _CALL.fullmatch(text.strip())
    if source is None and call is not None:
        transform, column = _transform(call[1], call[2].strip(), text, where)
        source = _column(column, schema)
    if source is None:
        names = list(schema.column_names)
        raise _invalid(
            f"{where} holds {shown(text)}, which names no column (columns: {names}). Write {_FORMS}"
        )
    if not source.field_type.is_primitive or not transform.can_transform(source.field_type):
        raise _invalid(
            f"{where} holds {shown(text)}, but {transform} does not take the type {source.field_type}"
        )
    if struct_path(schema, source.field_id) is None:
        raise _invalid(
            f"{where} holds {shown(text)}, which is inside a list or a map and has no one value per row"
        )
    return source, transform


def _transform(name: str, arguments: str, text: str, where: str) -> tuple[Transform[Any, Any], str]:
    known = name.lower()
    known = known.removesuffix("s") if known.removesuffix("s") in _PLAIN else known
    if known in _PLAIN:
        return _PLAIN[known](), arguments
    numbered = _WITH_NUMBER.fullmatch(arguments)
    if known not in _NUMBERED or numbered is None:
        raise _invalid(f"{where} holds {shown(text)}, which is no transform. Write {_FORMS}")
    if not 1 <= int(numbered[1]) <= _NUMBER_MAX:
        raise _invalid(f"{where} holds {shown(text)}; the number must be from 1 to {_NUMBER_MAX}")
    return _NUMBERED[known](int(numbered[1])), numbered[2].strip()


def _column(name: str | int, schema: Schema) -> NestedField | None:
    try:
        return schema.find_field(name)
    except ValueError:
        return None


def _name(schema: Schema, source: NestedField, transform: Transform[Any, Any]) -> str:
    """The partition field's name, as PyIceberg names them."""
    column = schema.find_column_name(source.field_id) or source.name
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, BucketTransform):
        return f"{column}_bucket_{transform.num_buckets}"
    if isinstance(transform, TruncateTransform):
        return f"{column}_trunc_{transform.width}"
    if isinstance(transform, VoidTransform):
        return f"{column}_null"
    return f"{column}_{transform}"


def _free_name(
    name: str,
    source: NestedField,
    transform: Transform[Any, Any],
    schema: Schema,
    fields: Sequence[PartitionField],
) -> str:
    """``name``, made longer while another column or partition field has it."""
    taken = {field.name for field in fields}
    own = isinstance(transform, IdentityTransform) and schema.find_column_name(source.field_id) == name
    while name in taken or (not own and _column(name, schema) is not None):
        name += "_part"
        own = False
    return name


def _refuse_redundant(
    text: str, source: NestedField, transform: Transform[Any, Any], fields: Sequence[PartitionField]
) -> None:
    """Iceberg's own rule: no transform of a column twice, and one unit of time for each column."""
    for field in fields:
        if field.source_id == source.field_id and field.transform.dedup_name == transform.dedup_name:
            raise _invalid(
                f"partition_by holds {shown(text)} next to {field.name!r}, which already divides that column"
            )


def _check(check: Callable[[], None], what: str) -> None:
    try:
        check()
    except (ValidationError, ValueError) as error:
        raise _invalid(f"{what} does not fit the schema: {said(error)}") from error


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(f"{message}. Nothing was written.")
