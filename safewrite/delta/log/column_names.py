"""Says what files call a table's columns, where that is not what users call them (PROTOCOL.md, "Column Mapping").

Data files, their statistics and their partition values have physical names, and data files have ids too; the schema, the
partition columns and the properties have the names that users know.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from safewrite.frames.required import without_gaps
from safewrite.values.column_names import PHYSICAL_NAME, physical_name
from safewrite.values.types import is_list

MODE, HIGHEST = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ID = "delta.columnMapping.id"
NESTED_IDS = "delta.columnMapping.nested.ids"
"""Ids of what is in lists and maps, by paths that begin with what files call the field around them (PROTOCOL.md, "Iceberg Compatibility V2")."""
FIELD_ID = b"PARQUET:field_id"
MODES = ("name", "id")

Path = tuple[str, ...]


def mode(properties: Mapping[str, str]) -> str:
    """How files name columns otherwise than users do: ``name``, ``id``, or '' where they do not."""
    text = str(properties.get(MODE, "none")).strip().lower()
    return "" if text == "none" else text


def ids(mapped: pa.Schema | None) -> tuple[dict[str, int], dict[str, int]]:
    """The id of each column of a mapped table, by the names of today and by those that columns had before it was mapped.

    A column keeps its id when it is renamed, and none is given again. Files keep the first names. Both are {} for other tables.
    """
    every = [(field, int(_id_of(field))) for field in mapped or ()]
    return {one.name: number for one, number in every}, {physical_name(one): number for one, number in every}


def in_files(fields: Iterable[pa.Field], table: pa.Schema) -> pa.Schema:
    """Fields as the files of a mapped table have them, with their ids; those that ``table`` lacks stay as they are."""
    known = {field.name: field for field in table}
    return pa.schema([_in_file(one, known[one.name]) if one.name in known else one for one in fields])


def _in_file(field: pa.Field, known: pa.Field) -> pa.Field:
    own = (known.metadata or {}).get(ID.encode())  # the parts of a variant have none
    metadata, name = None if own is None else {FIELD_ID: own}, physical_name(known)
    nested = (known.metadata or {}).get(NESTED_IDS.encode())
    ids: Mapping[str, int] = {} if nested is None else json.loads(nested)
    return pa.field(name, _kind(field.type, known.type, ids, name), field.nullable, metadata)


def _kind(kind: pa.DataType, known: pa.DataType, ids: Mapping[str, int], path: str) -> pa.DataType:
    """A type as files have it; ``ids`` are those of what is in lists and maps."""

    def inner(name: str, have: pa.Field, want: pa.DataType) -> pa.Field:
        at = f"{path}.{name}"
        made = have.with_type(_kind(have.type, want, ids, at))
        return made.with_metadata({FIELD_ID: str(ids[at])}) if at in ids else made

    if pa.types.is_struct(kind):
        return pa.struct([_in_file(one, known.field(known.get_field_index(one.name))) for one in kind])
    if is_list(kind):
        return pa.list_(inner("element", kind.value_field, known.value_type))
    if pa.types.is_map(kind):
        key = inner("key", kind.key_field, known.key_type)
        return pa.map_(key, inner("value", kind.item_field, known.item_type))
    return kind


def _id_of(field: pa.Field) -> str:
    own: bytes = (field.metadata or {})[ID.encode()]
    return own.decode()


def renamed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values under other names of the fields in them."""
    if not pa.types.is_nested(kind):
        return column
    return pa.chunked_array([without_gaps(chunk).view(kind) for chunk in column.chunks], kind)


def paths_in_files(paths: Iterable[Path], table: pa.Schema) -> Iterator[Path]:
    """Paths of columns as files name them, upper and lower case being one; those that the table lacks are left out."""
    for path in paths:
        fields, found = [*table], list[str]()
        for part in path:
            field = next((one for one in fields if one.name.lower() == part.lower()), None)
            if field is None:
                break
            found.append(physical_name(field))
            fields = [*field.type] if pa.types.is_struct(field.type) else []
        else:
            yield tuple(found)


def unnamed(schema: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The fields of a mapped table, each with its metadata, that have no id or no name in files: readers could not find them."""
    return [
        path
        for path, metadata in schema
        if type(metadata.get(ID)) is not int or not isinstance(metadata.get(PHYSICAL_NAME), str)
    ]


def with_names(schema_string: str, table_id: str, highest: int, *, nested: bool = False) -> tuple[str, int]:
    """A mapped table's schema with an id and a name for each new field, and the highest id then.

    No id is given twice in a table, so a name that is made of both is in no other file of it; every plan on one version makes
    the same names.  ``nested``: what is in lists and maps gets ids too.
    """
    schema = json.loads(schema_string)
    for field in every_field(schema):
        metadata = field.setdefault("metadata", {})
        if ID not in metadata:
            highest += 1
            metadata[ID], metadata[PHYSICAL_NAME] = (
                highest,
                f"col-{uuid.uuid5(_SPACE, f'{table_id}/{highest}')}",
            )
            inside = nested_paths(field) if nested else []
            if inside:
                metadata[NESTED_IDS] = {path: highest + number for number, path in enumerate(inside, 1)}
                highest += len(inside)
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")), highest


def every_id(schema_string: str) -> Iterator[int]:
    """The ids of all fields of a schema at any depth, and of what is in lists and maps."""
    for field in every_field(json.loads(schema_string)):
        metadata = field.get("metadata") or {}
        found = [metadata.get(ID), *(metadata.get(NESTED_IDS) or {}).values()]
        yield from (one for one in found if type(one) is int)


def nested_paths(field: Mapping[str, Any]) -> list[str]:
    """The paths of what is in lists and maps of a field, but for the fields of structs in them: those have ids of their own."""
    return [*_nested(field["type"], str((field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"])))]


def _nested(kind: Any, path: str) -> Iterator[str]:
    names = {"elementType": "element", "keyType": "key", "valueType": "value"}
    for key, name in names.items():
        if isinstance(kind, dict) and key in kind:
            yield f"{path}.{name}"
            yield from _nested(kind[key], f"{path}.{name}")


_SPACE = uuid.UUID("0f4c1f7e-64e5-4c0e-9d3b-6b6b1c0a7d55")
"""Makes ids of names that are made nowhere else."""


def every_field(kind: Any) -> Iterator[dict[str, Any]]:
    """Every field of a schema in JSON at any depth."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        yield field
        yield from every_field(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from every_field(kind.get(inner))
