"""Puts values where Parquet's writer wants some: below a struct that is NULL, in fields that must not be NULL.

pyarrow refuses NULL in a required field also where the struct around it is NULL.  What stands there is not written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from safewrite.frames.conform import entries_of
from safewrite.values import compute as pc
from safewrite.values.types import is_bytes, is_text, is_uuid


def has_required(kind: pa.DataType) -> bool:
    """Whether a struct, at any depth, has a field that must not be NULL."""
    if pa.types.is_struct(kind):
        return any(not one.nullable or has_required(one.type) for one in kind)
    if pa.types.is_map(kind):
        return has_required(kind.key_type) or has_required(kind.item_type)
    return bool(pa.types.is_list(kind)) and has_required(kind.value_type)


def without_gaps(values: pa.Array) -> pa.Array:
    """The same values, with something in each required field of a struct that is NULL."""
    kind = values.type
    if not has_required(kind):
        return values
    if pa.types.is_struct(kind):
        children = [_full(without_gaps(values.field(at)), one) for at, one in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(values))
    if pa.types.is_map(kind):
        entries = entries_of(values)
        keys, items = pc.list_flatten(entries).flatten()
        offsets = _offsets(entries)
        return pa.MapArray.from_arrays(
            offsets, without_gaps(keys), without_gaps(items), type=kind, mask=_mask(values)
        )
    inner = without_gaps(pc.list_flatten(values))
    return pa.ListArray.from_arrays(_offsets(values), inner, type=kind, mask=_mask(values))


def under(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns under a schema that differs only in which of them may be NULL; pyarrow casts no gap to itself."""
    return pa.Table.from_arrays(table.columns, schema=schema)


def _full(child: pa.Array, field: pa.Field) -> pa.Array:
    """A child without NULL where the field has none: the first value stands in for it, which nobody sees."""
    if field.nullable or not child.null_count:
        return child
    valid = np.asarray(pc.is_valid(child))
    if not valid.any():
        return pa.concat_arrays([_nothing(field.type)] * len(child))
    return child.take(pa.array(np.where(valid, np.arange(len(child)), int(valid.argmax()))))


def _nothing(kind: pa.DataType) -> pa.Array:
    """One value of a type."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_nothing(one.type) for one in kind], fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.array([[]], kind)
    if is_uuid(kind):
        return pa.ExtensionArray.from_storage(kind, _nothing(kind.storage_type))
    if is_text(kind):
        return pa.array([""], kind)
    if is_bytes(kind):
        return pa.array([bytes(kind.byte_width if pa.types.is_fixed_size_binary(kind) else 0)], kind)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(16))])


def _mask(values: pa.Array) -> pa.Array | None:
    return pc.is_null(values) if values.null_count else None


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
