"""Carries variants through files that are written again: as the two texts of bytes that files have of each, which nobody looks into.

PROTOCOL.md, "Variant data in Parquet": a struct of ``value`` and ``metadata``.  A shredded one has its values in typed columns besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.errors import UnsupportedTableError
from safewrite.values.types import is_list

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot

Path = tuple[str, ...]
_MARK = "safewrite.variant"
_PARTS = ("value", "metadata")


def with_variants(state: Snapshot) -> Snapshot:
    """The table with its variants as files have them; the same one where it has none."""
    return state.derived(_with_variants) if state.unread else state


def variant_columns(state: Snapshot) -> pa.Schema:
    """The columns that are variants, or have some inside of them."""
    names = {*state.schema.names}
    return pa.schema([one for one in with_variants(state).schema if one.name not in names])


def _with_variants(state: Snapshot) -> Snapshot:
    schema = json.loads(state.schema_string)
    return replace(state, metadata={**state.metadata, "schemaString": json.dumps(_as_structs(schema))})


def _as_structs(kind: Any) -> Any:
    """A type of a Delta schema with a struct for each variant in it."""
    if kind == "variant":
        parts = [
            {"name": one, "type": "binary", "nullable": False, "metadata": {_MARK: "part"}} for one in _PARTS
        ]
        return {"type": "struct", "fields": parts}
    if not isinstance(kind, dict):
        return kind
    inner = {
        name: _as_structs(kind[name]) for name in ("elementType", "keyType", "valueType") if name in kind
    }
    if "fields" in kind:
        inner["fields"] = [{**field, "type": _as_structs(field["type"])} for field in kind["fields"]]
    return {**kind, **inner}


def is_variant(kind: pa.DataType) -> bool:
    """Whether a type of :func:`with_variants` stands for a variant."""
    return pa.types.is_struct(kind) and any(_MARK.encode() in (one.metadata or {}) for one in kind.fields)


def has_variants(kind: pa.DataType) -> bool:
    """Whether a type of :func:`with_variants` is or has a variant."""
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return is_variant(kind) or any(map(has_variants, inner))


def paths_of_variants(fields: Iterable[pa.Field], above: Path = ()) -> Iterator[Path]:
    """The paths of variants, by the fields of structs that they are in."""
    for field in fields:
        path = (*above, field.name)
        if is_variant(field.type):
            yield path
        elif pa.types.is_struct(field.type):
            yield from paths_of_variants(field.type.fields, path)


def check_whole(file: str, have: pa.Field, want: pa.Field) -> None:
    """Refuse a column of a file whose variants are not all in the two texts.

    Raises:
        UnsupportedTableError: it names the column and the file.
    """
    for kind in _kinds(have.type, want.type):
        names = [one.name for one in kind.fields] if pa.types.is_struct(kind) else []
        if sorted(names) != sorted(_PARTS):
            raise UnsupportedTableError(
                f"Variants of column {want.name!r} are shredded in data file {file} ({kind}), and safewrite carries only whole ones into other files. "
                "Nothing was written. Enable deletion vectors, by which rows go without a file that is written again; or let Spark write the "
                "files again: ALTER TABLE t SET TBLPROPERTIES ('delta.enableVariantShredding' = 'false'), then OPTIMIZE or an overwrite."
            )


def _kinds(have: pa.DataType, want: pa.DataType) -> Iterator[pa.DataType]:
    """What a file has for each variant of a type."""
    if is_variant(want):
        yield have
    elif pa.types.is_struct(want) and pa.types.is_struct(have):
        there = {one.name: one.type for one in have.fields}
        for field in want.fields:
            if field.name in there:
                yield from _kinds(there[field.name], field.type)
    elif is_list(want) and is_list(have):
        yield from _kinds(have.value_type, want.value_type)
    elif pa.types.is_map(want) and pa.types.is_map(have):
        yield from _kinds(have.item_type, want.item_type)
