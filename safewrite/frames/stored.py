"""Brings rows of a table's own files under its schema for those who only read them."""

from __future__ import annotations

import pyarrow as pa

from safewrite.frames.conform import conform


def as_stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of ``schema``, each of which may be NULL; columns that they lack are.

    What safewrite itself never writes is read as it is, such as a year before 1: nothing is written.

    Raises:
        WouldAlterError: a column has got another type since, and a value does not fit it.
    """
    there = frozenset(table.column_names)
    fields = [field.with_nullable(True).remove_metadata() for field in schema]
    columns = []
    for field in fields:
        if field.name not in there:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table.column(field.name)
        if column.type != field.type:
            changed = conform(pa.table({field.name: column}), pa.schema([field]), allow_missing=True)
            column = changed.column(0)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
