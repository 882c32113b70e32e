"""Says which columns changes bring to a Delta table, and how their commit leaves the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.meaning.new_columns import brought
from safewrite.changes.meaning.reading import NewColumns
from safewrite.delta.log.row_rules import fills_of, rules_of
from safewrite.delta.write.creation import check_added
from safewrite.frames.prepare import Prepared, added_fields
from safewrite.values.widening import wider_fields, with_fields

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.delta.log.snapshot import Snapshot


def asked(
    spec: Spec, state: Snapshot, found: Callable[[], pa.Schema], earlier: NewColumns | None = None
) -> tuple[Spec, NewColumns]:
    """The columns that data with those ``found`` brings besides ``earlier`` ones of its commit, and the declaration to read it by.

    Raises:
        InvalidInputError: a name or a type that the table cannot have, or a column would get wider by which a rule goes.
    """
    earlier = earlier or NewColumns()
    if spec.schema_mode is None:
        return spec, earlier
    mine, wider = brought(found(), spec, state.schema), list[pa.Field]()
    if spec.schema_mode == "widen":
        wider = wider_fields(state.schema, mine, "delta")
        if (rules := rules_of(state)) is not None:
            rules.check_wider([one.name for one in wider])
    added = added_fields(mine, pa.schema([*state.schema, *earlier.added]))
    check_added(state, added)
    computed = tuple(one.name for one in fills_of(state))
    return replace(spec, computed=computed), NewColumns((*earlier.added, *added), tuple(wider))


def schema_with(state: Snapshot, columns: NewColumns) -> pa.Schema:
    """The schema that the table has with these columns."""
    return pa.schema([*with_fields(state.schema, columns.wider), *columns.added])


def nothing(state: Snapshot, columns: NewColumns) -> Prepared:
    """No rows, under the schema that the table has with these columns."""
    empty = Prepared.kept(pa.Table.from_batches([], schema_with(state, columns)), state.partition_by)
    return replace(empty, added=columns.added, wider=columns.wider)


def left(common: dict[str, Any]) -> Snapshot:
    """The table as a transaction of these settings leaves it, but for its files."""
    state: Snapshot = common["state"]
    if not (common["metadata"] or common["protocol"]):
        return state  # with what was derived of it
    metadata, protocol = common["metadata"] or state.metadata, common["protocol"] or state.protocol
    return replace(state, metadata=metadata, protocol=protocol)
