"""Tells what columns get that a frame lacks: their ``write-default`` (Iceberg spec, "Default values"), which no library applies by itself.

A NULL that a frame brings stays NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.schema import index_by_id

from safewrite.errors import UnsupportedTableError
from safewrite.frames.source import as_frame
from safewrite.iceberg.data.manifests_v3 import VERSION
from safewrite.iceberg.data.schema import arrow_type, is_nested, stored, unread_columns
from safewrite.values.unsupported import check_brought

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.frames.fills import ColumnFill
    from safewrite.frames.row_rules import TableRules


def fills_of(metadata: TableMetadata) -> tuple[ColumnFill, ...]:
    """What whole columns get."""
    if metadata.format_version < VERSION:
        return ()
    given = [field for field in metadata.schema().fields if field.write_default is not None]
    if not given:
        return ()
    from safewrite.frames.fills import ColumnFill
    from safewrite.frames.terms import ValueTerm

    return tuple(
        ColumnFill(
            field.name,
            _as_sql(field.write_default),
            ValueTerm(stored(field.write_default), arrow_type(field.field_type, field.name)),
        )
        for field in given
    )


def rules_of(metadata: TableMetadata, uri: str) -> TableRules:
    """What jobs go by.

    Raises:
        UnsupportedTableError: fields inside of columns have defaults, which jobs do not fill.
    """
    from safewrite.frames.row_rules import TableRules

    if inner := nested_defaults(metadata):
        raise UnsupportedTableError(
            f"A job does not write to {uri}: {', '.join(inner)} would have to be filled inside of a column where a record lacks it "
            "(write-default). Nothing was written. Drop the default there, or write the rows by append() or apply_changes()."
        )
    return TableRules(fills=fills_of(metadata))


def filled_data(data: Any, metadata: TableMetadata, schema: pa.Schema) -> Any:
    """The data with the columns that it lacks and that have a default; it may have none that cannot be written.

    ``schema`` has the columns that can be.

    Raises:
        InvalidInputError: names one that it has.
    """
    check_brought(unread_columns(metadata.schema()), lambda: as_frame(data, target=schema).column_names)
    fills = fills_of(metadata)
    if not fills:
        return data
    from safewrite.frames.fills import filled

    return filled(data, fills, schema)


def nested_defaults(metadata: TableMetadata) -> list[str]:
    """The fields inside of columns that have a default, by their names."""
    if metadata.format_version < VERSION:
        return []
    schema = metadata.schema()
    if not any(map(is_nested, schema.fields)):
        return []
    tops = {field.field_id for field in schema.fields}
    found = [number for number, field in index_by_id(schema).items() if field.write_default is not None]
    return [schema.find_column_name(number) or str(number) for number in found if number not in tops]


def _as_sql(value: Any) -> str:
    """The value in Spark's SQL: a text that is cast to the column's type, or bytes."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
