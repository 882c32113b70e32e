"""Tells what columns are called today, by the names that files of a Delta table keep."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_IN_FILES = b"delta.columnMapping.physicalName"


def names_by_files(schema: pa.Schema) -> Mapping[str, str]:
    """What columns of a Delta table are called today, by the names that its files keep.

    A table of ours is mapped only once an engine is to rename a column: by then files have the names of before (Delta protocol, "Column
    Mapping").  In one that was mapped when it was made files have names that mean nothing, and nothing tells the names of before.
    """
    return {(one.metadata or {}).get(_IN_FILES, one.name.encode()).decode(): one.name for one in schema}
