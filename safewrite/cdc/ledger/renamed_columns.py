"""Knows columns that another engine renamed: by their field ids on Iceberg, by the names that files keep on Delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable

_IN_FILES = b"delta.columnMapping.physicalName"


def refuse_renamed(table: TargetTable, found: Any, fields: Sequence[pa.Field]) -> None:
    """A column that another engine renamed would be added again: its values would be in two columns, by when they came."""
    now = _by_ids(found.iceberg.metadata) if table.format == "iceberg" else _by_files(found.schema)
    for field in fields:
        name = now.get(field.name)
        if name is not None and field.name not in now.values():
            raise sw.InvalidInputError(
                f"Records of {table.name} have a column {field.name}, which another engine renamed to {name} in the table. It was not "
                f"added again. Rename it back, or rename it at the source too; or, if {field.name} is to be a column of its own "
                f"from now on, add it with that engine (ALTER TABLE ... ADD COLUMN {field.name}). Then replay these records."
            )


def _by_ids(metadata: Any) -> Mapping[str, str]:
    """What columns of an Iceberg table are called today, by each name that they had."""
    now = {one.field_id: one.name for one in metadata.schema().fields}
    once = {one.name: one.field_id for schema in metadata.schemas for one in schema.fields}
    return {name: now[number] for name, number in once.items() if number in now}


def _by_files(schema: pa.Schema) -> Mapping[str, str]:
    """What columns of a Delta table are called today, by the names that its files keep.

    A table of ours is mapped only once an engine is to rename a column: by then files have the names of before (Delta protocol, "Column
    Mapping").
    """
    return {(one.metadata or {}).get(_IN_FILES, one.name.encode()).decode(): one.name for one in schema}
