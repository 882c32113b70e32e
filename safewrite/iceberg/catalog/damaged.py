"""Says what is wrong with metadata that is not as the specification has it (Iceberg spec, "Table Metadata Fields").

PyIceberg (0.12.0) takes metadata that lacks required fields, by values of its own: sequence numbers would begin again, or a table have the
columns of before, or no rows.  Java's library refuses the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as PydanticError
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataV1

from safewrite.errors import UnsupportedTableError
from safewrite.iceberg.catalog.metadata_v3 import VERSION
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

SAFE = "Nothing was written, and it was left as it is."
_MODEL, _OF_STATISTICS = "TableMetadataWrapper", "blob-metadata"
_SHOWN = 3
_REQUIRED = (
    "table_uuid", "last_sequence_number", "last_updated_ms", "schemas", "current_schema_id", "partition_specs", "default_spec_id",
    "last_partition_id", "sort_orders", "default_sort_order_id",
)  # fmt: skip
"""What PyIceberg has a value for where a table of version 2 or later lacks it."""


def check_whole(metadata: TableMetadata, name: str) -> None:
    """Refuse metadata that was read and that no reader may take.

    Raises:
        UnsupportedTableError: it lacks a field that is required, or names a snapshot that it does not have.
    """
    if found := [*_faults(metadata)]:
        raise _refused(name, "; ".join(found[:_SHOWN]))


def _faults(metadata: TableMetadata) -> Iterator[str]:
    known = {one.snapshot_id: one.sequence_number or 0 for one in metadata.snapshots}
    if not isinstance(metadata, TableMetadataV1):
        for field in _REQUIRED:
            if field not in metadata.model_fields_set:
                yield f"{field.replace('_', '-')} is missing"
        if (newest := max(known.values(), default=0)) > metadata.last_sequence_number:
            yield f"last-sequence-number is {metadata.last_sequence_number}, and a snapshot has {newest}"
    current, main = metadata.current_snapshot_id, metadata.refs.get("main")
    for ref, to in metadata.refs.items():
        if to.snapshot_id not in known:
            yield f"{ref} is at snapshot {to.snapshot_id}, which is not in snapshots"
    if (None if main is None else main.snapshot_id) != current:
        yield f"current-snapshot-id is {current}, and branch main at {None if main is None else main.snapshot_id}"


def unread(error: Exception, name: str) -> UnsupportedTableError | None:
    """The refusal of metadata that is of a newer format version, or that PyIceberg could not take, if the error is that."""
    misfits = _misfits(error)
    newer = next((str(about["tag"]) for _, _, about in misfits if "tag" in about), None)
    if newer is not None:
        return UnsupportedTableError(
            f"{name} has format version {newer}, safewrite reads 1 to {VERSION}. {SAFE} Read and write it with the engine that made it, "
            "or take a newer version of PyIceberg and safewrite."
        )
    if not misfits and not isinstance(error, ValidationError):
        return None
    why = "; ".join(f"{where}: {what}" if where else what for where, what, _ in misfits[:_SHOWN])
    return _refused(name, why or said(error))


def is_of_statistics(error: Exception) -> bool:
    """Whether PyIceberg could not take metadata for kinds of statistics alone."""
    found = _misfits(error)
    return bool(found) and all(_OF_STATISTICS in where for where, *_ in found)


def _misfits(error: Exception) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The fields that PyIceberg could not take: their names, and what is wrong; nothing where the error is another."""
    found = error if isinstance(error, PydanticError) else error.__cause__
    if not isinstance(found, PydanticError):
        return []
    is_file = found.title == _MODEL  # else an answer of a REST catalog, which may have no metadata at all
    return [
        (".".join(map(str, one["loc"][1 if is_file else 2 :])), one["msg"], one.get("ctx", {}))
        for one in found.errors(include_url=False, include_input=False)
        if is_file
        or (one["loc"][:1] == ("metadata",) and one["loc"] != ("metadata",))
        or "tag" in one.get("ctx", {})
    ]


def _refused(name: str, why: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"The metadata of {name} is not as Iceberg's specification has it: {why.rstrip('.')}. {SAFE} A reader would have to guess: register "
        "the table again with an earlier metadata file, or let the engine that wrote this one mend it."
    )
