"""Carries the ids of rows into other files (Iceberg spec, "Row Lineage"): what moves a row writes down what it inherited.

From format version 3 on each row has an id for life, and the sequence number of the commit that changed it last.  A new row has
NULL for both, and inherits them of its file; so a file of new rows alone needs no such columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.data.manifests_v3 import VERSION, NumberedFile
from safewrite.iceberg.data.schema import arrow_schema, read_schema
from safewrite.values.unsupported import ADVICE

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
NAMES = (ROW_ID.name, UPDATED.name)


def kept_schema(metadata: TableMetadata) -> Schema:
    """The schema of rows that move into other files: the table's, and from format version 3 on the ids that go with them."""
    schema = metadata.schema()
    return with_ids(schema) if metadata.format_version >= VERSION else schema


def kept_columns(metadata: TableMetadata) -> pa.Schema:
    """As :func:`kept_schema`, of Arrow.

    Raises:
        UnsupportedTableError: names a column whose values cannot be carried into other files.
    """
    schema, unread = read_schema(kept_schema(metadata))
    for why in unread.values():
        raise UnsupportedTableError(
            f"{why}; nor can rows that have such values be written again. Nothing was committed. {ADVICE}"
        )
    return schema


def with_ids(schema: Schema) -> Schema:
    """The schema with the columns of row ids."""
    return Schema(*schema.fields, ROW_ID, UPDATED, schema_id=schema.schema_id)


def has_ids(schema: pa.Schema, metadata: TableMetadata) -> bool:
    """Whether rows of a schema come with their ids; before format version 3 such columns are a user's."""
    return metadata.format_version >= VERSION and {*NAMES} <= {*schema.names}


def id_column(metadata: TableMetadata) -> str | None:
    """The column in which rows that are changed keep their ids; None where they have none."""
    return ROW_ID.name if metadata.format_version >= VERSION else None


def id_columns(metadata: TableMetadata) -> pa.Schema:
    """The same as a schema, which has no column where they have none."""
    name = id_column(metadata)
    return pa.schema([] if name is None else [pa.field(name, pa.int64())])


def first_id(file: DataFile) -> int | None:
    """The id of the first row of a file; None where it has none, or its plan does not say."""
    return file.first_row_id if isinstance(file, NumberedFile) else None


def as_written(come: pa.Table, metadata: TableMetadata) -> tuple[pa.Table, pa.Schema]:
    """Rows that come, as files have them: those that take the place of others with the row ids of these.

    They were changed by this commit, whose sequence number they inherit; a row whose key is new inherits its id, too.  Where all
    are new, their files say no ids.
    """
    name = id_column(metadata)
    if name is None or come[name].null_count == come.num_rows:
        schema = arrow_schema(metadata.schema())
        return come.select(schema.names), schema
    return come.append_column(UPDATED.name, pa.nulls(come.num_rows, pa.int64())), kept_columns(metadata)


def inherited(rows: pa.Table, file: DataFile) -> pa.Table:
    """All rows of a data file in their order, with ids that are NULL replaced by what the file gives them.

    Raises:
        ValueError: nothing says what that is.
    """
    if not isinstance(file, NumberedFile):
        raise ValueError(
            f"nothing says which ids the rows of {file.file_path} have: its plan was made by the catalog, or by a PyIceberg before 0.12"
        )
    first = file.first_row_id
    numbers = pa.nulls(rows.num_rows, pa.int64())
    if first is not None:
        numbers = pa.array(np.arange(first, first + rows.num_rows))
    ids = pc.coalesce(rows[ROW_ID.name], numbers)
    updated = pc.fill_null(rows[UPDATED.name], file.sequence)
    for name, column in zip(NAMES, (ids, updated), strict=True):
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows
