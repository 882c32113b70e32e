"""Knows columns that another engine renamed by their field ids, which Iceberg keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable


def refuse_renamed(table: TargetTable, found: Any, fields: Sequence[pa.Field]) -> None:
    """A column that another engine renamed would be added again: its values would be in two columns, by when they came."""
    if table.format != "iceberg":
        return
    metadata = found.iceberg.metadata
    now = {one.field_id: one.name for one in metadata.schema().fields}
    once = {one.name: one.field_id for schema in metadata.schemas for one in schema.fields}
    for field in fields:
        name = now.get(once.get(field.name, -1))
        if name is not None and field.name not in now.values():
            raise sw.InvalidInputError(
                f"Records of {table.name} have a column {field.name}, which another engine renamed to {name} in the table. It was not "
                f"added again. Rename it back, or rename it at the source too; or, if {field.name} is to be a column of its own "
                f"from now on, add it with that engine (ALTER TABLE ... ADD COLUMN {field.name}). Then replay these records."
            )
