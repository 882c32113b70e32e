"""Holds the file actions of a checkpoint as Arrow columns, and applies later commits to them.

A table of many files has a checkpoint every few commits, and hardly any of its files changes in between:
making a Python object of each would take the writer longer than its own write.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.log import actions, ranges
from safewrite.delta.log.actions import FileKey


class NotPlainError(Exception):
    """The columns are of a form that must be read action by action."""


def kept(
    parts: Sequence[bytes], root: str, kind: pa.StructType, touched: Collection[FileKey]
) -> pa.StructArray:
    """All actions called ``root`` in the parts of a checkpoint, without those of the files in ``touched``.

    Raises:
        NotPlainError: the columns cannot be taken over whole.
    """
    try:
        rows = pa.concat_arrays([_column(part, root, kind) for part in parts])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise NotPlainError(str(error)) from error
    return _without(rows, touched)


def since(rows: pa.StructArray, field: str, oldest_ms: float) -> pa.StructArray:
    """Actions whose time is not before ``oldest_ms``, or that have none."""
    times = rows.field(field)
    stays = pc.or_kleene(pc.is_null(times), pc.fill_null(pc.greater_equal(times, oldest_ms), False))
    return rows.filter(stays)


def _column(part: bytes, root: str, kind: pa.StructType) -> pa.StructArray:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(part), page_checksum_verification=True)
    if root not in file.schema_arrow.names:
        return pa.array([], kind)
    there = file.schema_arrow.field(root).type
    wanted = [f"{root}.{there.field(i).name}" for i in range(there.num_fields)]
    known = [name for name in wanted if kind.get_field_index(name.partition(".")[2]) >= 0]
    found = file.read(columns=known).column(root).combine_chunks().drop_null()
    in_types = f"{root}.{ranges.STATS_PARSED}" in wanted and kind.get_field_index(ranges.STATS_PARSED) < 0
    if in_types and (f"{root}.stats" not in known or found.field("stats").null_count):
        raise NotPlainError("some statistics are in the table's own types only")
    return as_type(found, kind)


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values in the checkpoint's own type: fields by name, absent ones NULL."""
    if not pa.types.is_struct(kind):
        return values if values.type.equals(kind) else values.cast(kind)
    children = values.flatten()
    arrays = []
    for field in (kind.field(i) for i in range(kind.num_fields)):
        at = values.type.get_field_index(field.name)
        child = as_type(children[at] if at >= 0 else pa.nulls(len(values), field.type), field.type)
        if not field.nullable and child.null_count > values.null_count:
            raise NotPlainError(f"{field.name} is NULL somewhere")
        if not field.nullable and child.null_count:  # in what is absent: there may be no NULL even there
            child = pc.fill_null(child, "" if pa.types.is_string(field.type) else 0)
        arrays.append(child)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _without(rows: pa.StructArray, touched: Collection[FileKey]) -> pa.StructArray:
    if not touched or not len(rows):
        return rows
    paths = _decoded(rows.field("path"))
    names = pa.array({path for path, _ in touched}, pa.string())
    candidates = np.flatnonzero(pc.is_in(paths, value_set=names).to_numpy(zero_copy_only=False))
    stays = np.ones(len(rows), bool)
    for at in candidates:
        action: dict[str, Any] = {"path": rows.field("path")[at].as_py()}
        action["deletionVector"] = rows.field("deletionVector")[at].as_py()
        stays[at] = actions.file_key(action) not in touched
    return rows.filter(pa.array(stays))


def _decoded(paths: pa.Array) -> pa.Array:
    """Paths as names of files: engines escape one and the same name differently."""
    escaped = np.flatnonzero(pc.match_substring(paths, "%").to_numpy(zero_copy_only=False))
    if not len(escaped):
        return paths
    names = paths.to_pylist()
    for at in escaped:
        names[at] = unquote(names[at])
    return pa.array(names, pa.string())


def constant(rows: pa.StructArray, values: Mapping[str, Any]) -> pa.StructArray:
    """The rows with the same values in some fields."""
    fields = [rows.type.field(i) for i in range(rows.type.num_fields)]
    arrays = [
        pa.repeat(pa.scalar(values[field.name], field.type), len(rows))
        if field.name in values
        else rows.field(i)
        for i, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields)
