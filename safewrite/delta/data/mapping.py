"""Reads columns by the names or ids that files know them by (PROTOCOL.md, "Column Mapping")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.delta.log.column_names import FIELD_ID, ID
from safewrite.values.types import is_list

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot


def in_files(names: Sequence[str], state: Snapshot) -> Sequence[str] | None:
    """What files call these columns; None where only their ids tell."""
    return None if state.mapping == "id" else [state.physical[name] for name in names]


def in_file(file: pa.Schema, wanted: pa.Schema, state: Snapshot) -> dict[str, str]:
    """By display name what a file calls those of the wanted columns that it has."""
    places = {field.name: _place(list(file), field, state) for field in wanted}
    return {name: file.field(at).name for name, at in places.items() if at is not None}


def shown(column: pa.ChunkedArray, have: pa.Field, want: pa.Field, state: Snapshot) -> pa.ChunkedArray:
    """A column of a file with the display names of what is in it; dropped fields go, new ones are missing."""
    if not pa.types.is_nested(want.type):
        return column
    chunks = [_shown(chunk, have, want, state) for chunk in column.chunks]
    return pa.chunked_array(chunks) if chunks else pa.chunked_array([], want.type)


def _place(fields: list[pa.Field], want: pa.Field, state: Snapshot) -> int | None:
    """Where a field is among those of a file: by its id where the table is mapped so and the file has ids, else by physical name."""
    if state.mapping == "id":
        ids = [(field.metadata or {}).get(FIELD_ID) for field in fields]
        own = (want.metadata or {}).get(ID.encode())
        if any(ids) and own is not None:
            return ids.index(own) if own in ids else None
    names = [field.name for field in fields]
    name = state.physical_name(want)
    return names.index(name) if name in names else None


def _shown(values: pa.Array, have: pa.Field, want: pa.Field, state: Snapshot) -> pa.Array:
    if pa.types.is_struct(want.type) and pa.types.is_struct(have.type):
        return _struct(values, have, want, state)
    if is_list(want.type) and is_list(have.type):
        child = _shown(values.values, have.type.value_field, want.type.value_field, state)
        kind = pa.list_(have.type.value_field.with_type(child.type))
        return _around(values, kind, child)
    if pa.types.is_map(want.type) and pa.types.is_map(have.type):
        keys = _shown(values.keys, have.type.key_field, want.type.key_field, state)
        items = _shown(values.items, have.type.item_field, want.type.item_field, state)
        kind = pa.map_(keys.type, have.type.item_field.with_type(items.type))
        fields = [pa.field("key", keys.type, nullable=False), kind.item_field]
        return _around(values, kind, pa.StructArray.from_arrays([keys, items], fields=fields))
    return values


def _struct(values: pa.Array, have: pa.Field, want: pa.Field, state: Snapshot) -> pa.Array:
    there = [have.type.field(at) for at in range(have.type.num_fields)]
    children: list[pa.Array] = []
    fields: list[pa.Field] = []
    for field in (want.type.field(at) for at in range(want.type.num_fields)):
        at = _place(there, field, state)
        child = (
            pa.nulls(len(values), field.type)
            if at is None
            else _shown(values.field(at), there[at], field, state)
        )
        children.append(child)
        fields.append(pa.field(field.name, child.type))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _around(values: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """The same lists or maps of other contents."""
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[:2], values.null_count, values.offset, [child]
    )


def by_display_name(found: Mapping[str, object], state: Snapshot) -> Mapping[str, object]:
    """What is told by physical names, such as partition values, by the names that users know."""
    if not state.mapping:
        return found
    return {name: found[own] for name, own in state.physical.items() if own in found}
