"""Tells what files of a Delta table call its columns (PROTOCOL.md, "Column Mapping"), and what those are called today."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

PHYSICAL_NAME = "delta.columnMapping.physicalName"


def physical_name(field: pa.Field) -> str:
    """What files of a mapped table call a field at any depth."""
    own = (field.metadata or {}).get(PHYSICAL_NAME.encode())
    name: str = field.name if own is None else own.decode()
    return name


def names_by_files(schema: pa.Schema) -> Mapping[str, str]:
    """What columns of a Delta table are called today, by the names that its files keep.

    A table of ours is mapped only once an engine is to rename a column: by then files have the names of before.
    In one that was mapped when it was made files have names that mean nothing, and nothing tells the names of before.
    """
    return {physical_name(one): one.name for one in schema}
