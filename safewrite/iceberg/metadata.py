"""Converts PyIceberg's table objects to the table versions that the protocol understands."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from safewrite.iceberg.branch_properties import MAIN, began_of, own_record, view
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

SOURCE = "source-snapshot-id"
"""Property of a cherry-picked snapshot's summary (Iceberg spec, "Snapshots", optional fields)."""
_NOTHING: dict[str, str] = {}


def head_of(table: Table, branch: str = MAIN) -> TableVersion:
    """The table version of a branch, from PyIceberg's table object."""
    metadata = table.metadata
    ref = metadata.refs.get(branch)
    record = None if branch == MAIN or ref is None else own_record(metadata, branch)
    summaries = {s.snapshot_id: _summary(s) for s in metadata.snapshots}
    return TableVersion(
        table_id=str(metadata.table_uuid),
        location=table.metadata_location,
        current=ref.snapshot_id if ref is not None else None,
        parents={s.snapshot_id: s.parent_snapshot_id for s in metadata.snapshots},
        sequences={s.snapshot_id: s.sequence_number or 0 for s in metadata.snapshots},
        summaries=summaries,
        properties=view(metadata, branch),
        last_sequence=getattr(metadata, "last_sequence_number", 0),  # v1 has none
        previous=tuple(entry.metadata_file for entry in metadata.metadata_log),
        picked={at: int(one[SOURCE]) for at, one in summaries.items() if one.get(SOURCE, "").isdecimal()},
        raw=table,
        branch_id="" if record is None else record.id,
        began=None if record is None else began_of(metadata, branch),
    )


def table_of(head: TableVersion) -> Table:
    """The table object that a table version was made from."""
    table: Table = head.raw  # type: ignore[assignment]
    assert table is not None
    return table


def as_of(head: TableVersion, snapshot_id: int) -> TableVersion | None:
    """A table version with the schema that a snapshot was written by; None where the snapshot was expired."""
    table = copy(table_of(head))
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return None
    table.metadata = table.metadata.model_copy(update={"current_schema_id": snapshot.schema_id})
    return replace(head, raw=table)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else _NOTHING


def newest_ms(metadata: TableMetadata) -> int:
    """The time before which no change of the table may be: Java's library reads none that is older, whatever clocks said."""
    return max(metadata.last_updated_ms, *(one.timestamp_ms for one in metadata.snapshot_log[-1:]), 0)
