"""Writes metadata of format version 3, which PyIceberg (0.12.0) reads and does not write.  It goes when PyIceberg does that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.typedef import IcebergBaseModel

from safewrite.protocol.iceberg.numbers import SnapshotNumbers, are_new

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

VERSION = 3
_OF_NO_ROWS = (
    SetSnapshotRefUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    RemovePropertiesUpdate,
)
_WRITTEN = 2
"""The newest format version of which PyIceberg makes tables."""


def dumped(metadata: TableMetadata) -> str:
    """The metadata as JSON."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata.model_dump_json()
    return IcebergBaseModel.model_dump_json(metadata)  # its own method refuses


def as_written(updates: Sequence[TableUpdate]) -> tuple[TableUpdate, ...]:
    """The updates that make a table, of a format version that PyIceberg makes; :func:`upgraded` does the rest."""
    return tuple(
        UpgradeFormatVersionUpdate.model_validate({"format-version": _WRITTEN}) if makes_v3((one,)) else one
        for one in updates
    )


def makes_v3(updates: Sequence[TableUpdate]) -> bool:
    """Whether the updates make a table of format version 3; nothing here upgrades one that is there."""
    return any(
        isinstance(one, UpgradeFormatVersionUpdate) and one.format_version == VERSION for one in updates
    )


def upgraded(metadata: TableMetadata) -> TableMetadataV3:
    """The metadata of a new table, of format version 3: its first row has id 0."""
    fields = metadata.model_dump(exclude={"format_version", "next_row_id"})
    return TableMetadataV3.model_validate({**fields, "format-version": VERSION, "next-row-id": 0})


def begun(metadata: TableMetadata) -> TableMetadata:
    """The metadata of a new table, as PyIceberg drafts it, with the row id that it gives first."""
    return metadata if metadata.format_version < VERSION else metadata.model_copy(update={"next_row_id": 0})


def check_numbers(base: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    """Refuse a snapshot whose numbers were taken meanwhile, on whatever branch: PyIceberg compares a part of them.

    Raises:
        CommitFailedException: a sequence number is not new, or a first row id is not the table's next.
    """
    if not isinstance(base, TableMetadataV3):
        return
    for update in updates:
        if not isinstance(update, AddSnapshotUpdate):
            continue
        made = update.snapshot
        numbers = SnapshotNumbers(made.sequence_number or 0, made.first_row_id)
        if not are_new(numbers, base.last_sequence_number, base.next_row_id):
            raise CommitFailedException(
                f"Requirement failed: the snapshot has sequence number {made.sequence_number} and first row id {made.first_row_id}, and "
                "another one took them meanwhile"
            )


def keeps_ids(updates: Sequence[TableUpdate]) -> bool:
    """Whether a change gives ids to rows and takes none away, or moves a branch or a tag, lets snapshots expire, or sets properties: all
    that is asked of such a table.

    What is staged for other changes of rows was made by rules that do not carry ids on.
    """
    snapshots = [one.snapshot for one in updates if isinstance(one, AddSnapshotUpdate)]
    if not snapshots:
        return all(isinstance(one, _OF_NO_ROWS) for one in updates)
    return all(one.first_row_id is not None for one in snapshots)
