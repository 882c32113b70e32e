"""Checks the keys of rows that a caller looks for."""

from __future__ import annotations

import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.frames import as_frame, prepare


def checked_keys(keys: object, schema: pa.Schema) -> pa.Table:
    """The keys under the types of a table's columns.

    Raises:
        InvalidInputError: they cannot be read as a frame, have no columns, or have nested ones or floats.
        WouldAlterError: the table lacks a column of theirs, or a value does not fit its type.
    """
    named = set(as_frame(keys, target=schema).column_names)
    # Without metadata: what CHAR(n) and VARCHAR(n) forbid is a matter of writes, and such a key has no row.
    mine = pa.schema([field.with_nullable(True).remove_metadata() for field in schema if field.name in named])
    unfit = [one.name for one in mine if pa.types.is_nested(one.type) or pa.types.is_floating(one.type)]
    if unfit or not named:
        raise InvalidInputError(
            f"rows() takes a frame of key columns, and {unfit or 'a frame without columns'} cannot be keys: floats (NaN, -0.0) and "
            'nested values are not. Nothing was written. Give other columns, such as {"id": [1, 2]}.'
        )
    prepared = prepare(keys, mine, named=False)
    return pa.concat_tables([mine.empty_table(), *prepared.tables()])
