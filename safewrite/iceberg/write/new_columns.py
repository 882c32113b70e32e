"""Says which columns changes bring to an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.meaning.new_columns import brought
from safewrite.changes.meaning.reading import NewColumns
from safewrite.iceberg.data.defaults import fills_of
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.evolution import Evolution, beyond, evolve
from safewrite.values.widening import wider_fields

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.protocol.iceberg.head import TableVersion


def asked(
    spec: Spec, head: TableVersion, found: Callable[[], pa.Schema], earlier: NewColumns | None = None
) -> tuple[Spec, NewColumns]:
    """The columns that data with those ``found`` brings besides ``earlier`` ones of its commit, and the declaration to read it by.

    Raises:
        InvalidInputError: a type that the table cannot have.
    """
    earlier = earlier or NewColumns()
    if spec.schema_mode is None:
        return spec, earlier
    metadata = table_of(head).metadata
    target = arrow_schema(metadata.schema())
    mine = brought(found(), spec, target)
    wider = wider_fields(target, mine, "iceberg") if spec.schema_mode == "widen" else []
    added = beyond(pa.schema([*target, *earlier.added]), mine)
    computed = tuple(one.name for one in fills_of(metadata))
    return replace(spec, computed=computed), NewColumns((*earlier.added, *added), tuple(wider))


def evolution_of(head: TableVersion, columns: NewColumns) -> Evolution | None:
    """The schema with these columns; None where there are none."""
    return evolve(head, columns.added, columns.wider)
