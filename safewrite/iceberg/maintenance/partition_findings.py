"""Finds partition values that some engine misreads, or that nobody can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from safewrite.errors import UnsupportedTableError
from safewrite.findings import DANGER, EXAMPLES, WARNING, Finding, Findings
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.data import partitions
from safewrite.iceberg.history import engine
from safewrite.iceberg.maintenance.snapshot_files import Inventory
from safewrite.iceberg.write.members import is_ours
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField


def examine(
    connection: Connection, metadata: TableMetadata, head: TableVersion, found: Inventory | None
) -> Findings:
    """Judge each of the table's partition specs by its manifests in the current snapshot."""
    manifests = found.manifests if found is not None else []
    yield from _misread(connection, metadata, head, manifests)
    yield from _untyped(connection, metadata, manifests, found.garbled if found is not None else [])


# --- values that are read as others --------------------------------------------------------------------
def _misread(
    connection: Connection, metadata: TableMetadata, head: TableVersion, manifests: Iterable[ManifestFile]
) -> Findings:
    for field, source, why in partitions.misread_fields(metadata.specs().values(), metadata.schema()):
        specs = {number for number, spec in metadata.specs().items() if field.field_id in _ids(spec)}
        used = [m for m in manifests if m.partition_spec_id in specs]
        fixed = str(source.field_type).startswith("fixed")
        hurt = fixed and any(_without_java(head.summaries.get(m.added_snapshot_id or 0)) for m in used)
        yield Finding(
            DANGER if hurt else WARNING, "misread_partitions",
            f"The table is partitioned by the values of {field.name!r} ({source.field_type}), and {why}. "
            + ("Its current snapshot has such files. " if used else "Its current snapshot has no such files yet. ")
            + (_OF_FIXED if fixed else _OF_OTHERS)
            + " The data files themselves hold the right values; safewrite writes nothing to this table.",
            _cure(connection, field, fixed=fixed, used=bool(used)),
            {"field": field.name, "type": str(source.field_type), "manifests": len(used)},
        )  # fmt: skip


_OF_FIXED = (
    "Where PyIceberg (or safewrite before this release) wrote them, Spark, Trino and Flink show other bytes, filter by "
    "them, or cannot read the table; where Java wrote them, it reads them right."
)
_OF_OTHERS = (
    "Spark, Trino and Flink read and filter them right; PyIceberg's filters miss rows, and a manifest that PyIceberg "
    "rewrites keeps the other value."
)


def _cure(connection: Connection, field: PartitionField, *, fixed: bool, used: bool) -> str:
    anew = (
        f"a new table that is partitioned by bucket(16, {field.name}), or not by this column (the old partitioning would stay "
        "in this one's metadata)"
    )
    if not used:
        return f"Make {anew}, before anything is written."
    if fixed:
        return (
            f"Where PyIceberg wrote them, read the rows with PyIceberg (table.scan().to_arrow()) and write them into {anew}. "
            "Do not rewrite the table with Spark before: rewrite_data_files would write the other bytes for good."
        )
    return (
        f"Let Spark read the rows and write them into {anew}. Do not delete or overwrite here with PyIceberg before: "
        f"{connection.table_name} would keep the other values."
    )


def _ids(spec: PartitionSpec) -> set[int]:
    return {field.field_id for field in spec.fields}


def _without_java(summary: Mapping[str, str] | None) -> bool:
    """Whether safewrite or PyIceberg made a snapshot, as far as its summary tells."""
    return summary is not None and (is_ours(summary) or engine(summary) is None)


# --- values without a type -----------------------------------------------------------------------------
def _untyped(
    connection: Connection, metadata: TableMetadata, manifests: Iterable[ManifestFile], garbled: list[str]
) -> Findings:
    """Find manifests of a partition field whose column was dropped: without its type nobody can read them."""
    dropped = {number: names for number, names in _dropped(metadata).items() if names}
    broken = [m for m in manifests if m.manifest_path in garbled and m.partition_spec_id in dropped]
    if broken:
        names = sorted({name for m in broken for name in dropped[m.partition_spec_id]})
        yield Finding(
            DANGER, "untyped_partitions",
            f"{len(broken)} manifests cannot be read by any engine, and so the table cannot: they are of the partition field "
            f"{', '.join(map(repr, names))}, whose column was dropped, and were written without its type. safewrite did that "
            "before this release. Their data files are whole.",
            "Roll back to the last whole snapshot, which files_missing names, and write again what came later, under the same "
            "keys: the new manifests can be read.",
            _details(broken, names),
        )  # fmt: skip
    for number, names in dropped.items():
        try:
            partitions.typed(metadata.specs()[number], metadata)
        except UnsupportedTableError as error:
            yield Finding(
                WARNING, "lost_partition_type", error.message,
                f"With Spark: CALL <catalog>.system.rewrite_data_files('{connection.table_name}', options => "
                "map('rewrite-all', 'true')), which writes all files under the current partitioning.",
                {"fields": names, "spec": number},
            )  # fmt: skip


def _dropped(metadata: TableMetadata) -> dict[int, list[str]]:
    """Partition fields whose columns were dropped, by the number of their spec."""
    from pyiceberg.types import UnknownType

    def untyped(kinds: Iterable[NestedField]) -> list[str]:
        return [kind.name for kind in kinds if isinstance(kind.field_type, UnknownType)]

    schema = metadata.schema()
    return {number: untyped(spec.partition_type(schema).fields) for number, spec in metadata.specs().items()}


def _details(broken: list[ManifestFile], names: list[str]) -> dict[str, Any]:
    snapshots = sorted({m.added_snapshot_id for m in broken if m.added_snapshot_id is not None})
    return {
        "manifests": [m.manifest_path for m in broken][:EXAMPLES], "count": len(broken), "fields": names,
        "snapshots": snapshots[:EXAMPLES],
    }  # fmt: skip
