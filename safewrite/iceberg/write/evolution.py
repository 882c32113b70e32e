"""Adds the new columns that a write brings, and widens others, in the commit of its rows (schema_mode="merge", "widen")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyiceberg.types import IcebergType, LongType

from safewrite.errors import InvalidInputError
from safewrite.frames.prepare import refuse_untyped
from safewrite.iceberg.data.opaque import opaque_types
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema, iceberg_type
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate


Path: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True)
class Evolution:
    """A schema with new columns, and the updates that make it the table's."""

    schema: Schema
    schema_id: int
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def beyond(target: pa.Schema, found: pa.Schema) -> list[pa.Field]:
    """The fields that the target lacks.

    Raises:
        InvalidInputError: one of them has no type.
    """
    there = frozenset(target.names)
    new = [field for field in found if field.name not in there]
    refuse_untyped(new)
    return new


@opaque_types()
def evolve(head: TableVersion, added: Sequence[pa.Field], wider: Sequence[pa.Field] = ()) -> Evolution | None:
    """The table's schema with more columns, optional and at the end, and with wider ones; None if nothing changes.

    PyIceberg gives the ids.

    Raises:
        InvalidInputError: the table is partitioned by a column that is to be wider, and its values there would be others.
    """
    if not added and not wider:
        return None
    from pyiceberg.table import Transaction
    from pyiceberg.table.update import AddSchemaUpdate, update_table_metadata
    from pyiceberg.table.update.schema import UpdateSchema

    table = table_of(head)
    new = iceberg_schema(pa.schema([field.with_nullable(True) for field in added]))
    update = UpdateSchema(Transaction(table), name_mapping=table.metadata.name_mapping())
    if added:
        update.union_by_name(new)
    have = arrow_schema(table.schema())
    for path, kind, is_there in (
        one for field in wider for one in _changes((field.name,), have.field(field.name).type, field.type)
    ):
        if is_there:
            _check_partitions(table.metadata, path, kind)
            update.update_column(path, field_type=kind)
        else:
            update.add_column(path, field_type=kind)
    updates, requirements = update._commit()  # noqa: SLF001 - staged here, committed by us
    then = update_table_metadata(table.metadata, updates)
    assert any(isinstance(one, AddSchemaUpdate) for one in updates)
    return Evolution(then.schema(), then.current_schema_id, tuple(requirements), tuple(updates))


def evolved(head: TableVersion, evolution: Evolution | None) -> TableVersion:
    """The table version under the schema that a commit gives it: rows are read and written under that one before it is the table's."""
    if evolution is None:
        return head
    made, metadata = copy(table_of(head)), table_of(head).metadata
    made.metadata = metadata.model_copy(
        update={
            "schemas": [*metadata.schemas, evolution.schema],
            "current_schema_id": evolution.schema_id,
            "last_column_id": max(metadata.last_column_id, evolution.schema.highest_field_id),
        }
    )
    return replace(head, raw=made)


def _changes(path: Path, have: pa.DataType, want: pa.DataType) -> Iterator[tuple[Path, IcebergType, bool]]:
    """What of a column becomes wider, or is new in it: where, its type, and whether it is there."""
    if have == want:
        return
    if pa.types.is_struct(want):
        for field in want:
            at, inner = have.get_field_index(field.name), (*path, field.name)
            if at < 0:
                yield inner, iceberg_type(field), False
            else:
                yield from _changes(inner, have.field(at).type, field.type)
    elif pa.types.is_list(want):
        yield from _changes((*path, "element"), have.value_type, want.value_type)
    elif pa.types.is_map(want):
        yield from _changes((*path, "value"), have.item_type, want.item_type)
    else:
        yield path, iceberg_type(pa.field(path[-1], want)), True


def _check_partitions(metadata: TableMetadata, path: Path, kind: IcebergType) -> None:
    """Refuse to widen a column that divides the table, but for whole numbers: each value stays in its partition."""
    field = metadata.schema().find_field(".".join(path))
    divides = any(
        part.source_id == field.field_id for spec in metadata.specs().values() for part in spec.fields
    )
    if divides and not isinstance(kind, LongType):
        raise InvalidInputError(
            f"Column {'.'.join(path)!r} of type {field.field_type} cannot become {kind}: it is or was a partition column, and its values "
            "would be others there. Nothing was written. Make a table with the wider type, or keep the type."
        )
