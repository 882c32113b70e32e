"""Spells how an Iceberg table is laid out: its partitions, its sort order, its location."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from safewrite.errors import InvalidInputError
from safewrite.iceberg.data import partitions
from safewrite.table.new_table import Layout

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata


def of(metadata: TableMetadata) -> Layout:
    """The layout of a table; new files go by its current partition spec and sort order."""
    schema = metadata.schema()
    order = next(
        (one for one in metadata.sort_orders if one.order_id == metadata.default_sort_order_id), SortOrder()
    )
    return Layout(
        partitions.spelled(metadata.spec(), schema), _order_spelled(order, schema), _plain(metadata.location)
    )


def spelled(given: Layout, schema: Schema) -> Layout:
    """A layout as arguments give it (texts, or PyIceberg's own objects), spelled as :func:`of` spells a table's."""
    spec: Any = given.partition_by
    order: Any = given.sort_by
    partition_by: tuple[str, ...] = ("of columns that the table lacks",)
    sort_by = partition_by
    with suppress(InvalidInputError):
        partition_by = partitions.spelled(_spec(spec, schema), schema)
    with suppress(InvalidInputError):
        sort_by = _order_spelled(partitions.sort(_listed(order), schema), schema)
    return Layout(partition_by, sort_by, _plain(given.location))


def _spec(given: Any, schema: Schema) -> PartitionSpec:
    return partitions.spec(_listed(given), schema)


def _listed(given: Any) -> Any:
    return given if hasattr(given, "fields") else list(given)


def _order_spelled(order: SortOrder, schema: Schema) -> tuple[str, ...]:
    texts = []
    for field in order.fields:
        column = schema.find_column_name(field.source_id) or ""
        what = partitions.call(field.transform, column)
        down = field.direction is SortDirection.DESC
        usual = NullOrder.NULLS_LAST if down else NullOrder.NULLS_FIRST
        nulls = "" if field.null_order is usual else f" {field.null_order.value.replace('-', ' ')}"
        texts.append(f"{what}{' desc' if down else ''}{nulls}")
    return tuple(texts)


def _plain(location: str) -> str:
    """A location by which two spellings of one place are equal."""
    scheme, separator, rest = location.rstrip("/").partition("://")
    if not separator:
        return unquote(location.rstrip("/").removeprefix("file:"))
    if scheme == "file":
        return unquote(rest)
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else f"{scheme}://{rest}"
