"""Adds the new columns that a write brings, in the commit of its rows (schema_mode="merge")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.iceberg.data.schema import iceberg_schema
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.update import TableRequirement, TableUpdate


@dataclass(frozen=True)
class Evolution:
    """A schema with new columns, and the updates that make it the table's."""

    schema: Schema
    schema_id: int
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


def evolve(head: TableVersion, added: Sequence[pa.Field]) -> Evolution | None:
    """The table's schema with more columns, optional and at the end; None if there are none.

    PyIceberg's ``union_by_name`` gives the ids.
    """
    if not added:
        return None
    from pyiceberg.table import Transaction
    from pyiceberg.table.update import AddSchemaUpdate, update_table_metadata
    from pyiceberg.table.update.schema import UpdateSchema

    table = table_of(head)
    new = iceberg_schema(pa.schema([field.with_nullable(True) for field in added]))
    update = UpdateSchema(Transaction(table), name_mapping=table.metadata.name_mapping())
    updates, requirements = update.union_by_name(new)._commit()  # noqa: SLF001 - staged here, committed by us
    then = update_table_metadata(table.metadata, updates)
    assert any(isinstance(one, AddSchemaUpdate) for one in updates)
    return Evolution(then.schema(), then.current_schema_id, tuple(requirements), tuple(updates))
