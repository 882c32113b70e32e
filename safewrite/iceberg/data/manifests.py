"""Makes and reads a commit's manifests, manifest list and snapshot (Iceberg spec, "Manifests", "Snapshots").

PyIceberg writes the Avro; what goes into a snapshot is decided here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from safewrite.errors import DataFileError
from safewrite.iceberg.catalog.files import MemoryFile, MemoryIO
from safewrite.iceberg.data.partitions import typed
from safewrite.iceberg.metadata import newest_ms, table_of
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome
from safewrite.protocol.iceberg.numbers import given
from safewrite.protocol.staging import perform_all

if TYPE_CHECKING:
    from pyiceberg.manifest import (
        DataFile,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestFile,
        ManifestWriter,
    )
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Operation as SnapshotOperation
    from pyiceberg.table.snapshots import Snapshot

    from safewrite.iceberg.data.known_manifests import KnownManifests
    from safewrite.protocol.iceberg.head import TableVersion

READ_AT_ONCE = 64
"""At most this many manifests are asked for together."""


def added_manifest(
    metadata: TableMetadata, schema: Schema, snapshot_id: int, files: Sequence[DataFile], location: str
) -> tuple[ManifestFile, bytes]:
    """A manifest that adds data files, and its bytes.

    It names no sequence number (v2 inherits it from the manifest list), so it serves every attempt of
    one write.
    """
    from pyiceberg.manifest import ManifestEntryStatus

    entries = [entry(ManifestEntryStatus.ADDED, snapshot_id, file) for file in files]
    return manifest_of(
        metadata, schema, entries, spec=metadata.spec(), snapshot_id=snapshot_id, location=location
    )


def files_in(body: bytes) -> list[DataFile]:
    """The data files that a manifest adds, whose bytes are at hand."""
    from pyiceberg.manifest import ManifestContent, ManifestFile

    read = ManifestFile.from_args(
        manifest_path="manifest.avro", manifest_length=len(body), partition_spec_id=0, content=ManifestContent.DATA,
        sequence_number=0, min_sequence_number=0, added_snapshot_id=0,
    )  # fmt: skip
    return [one.data_file for one in read.fetch_manifest_entry(MemoryIO(body))]


def manifest_of(
    metadata: TableMetadata,
    schema: Schema,
    entries: Iterable[ManifestEntry],
    *,
    spec: PartitionSpec,
    snapshot_id: int,
    location: str,
    content: ManifestContent | None = None,
) -> tuple[ManifestFile, bytes]:
    """A manifest of these entries, and its bytes; ``content``: of data files, or of delete files."""
    from pyiceberg.manifest import ManifestContent, write_manifest

    file = MemoryFile(location)
    how = typed(spec, metadata), schema, file, snapshot_id, compression(metadata)
    made: ManifestWriter
    if content == ManifestContent.DELETES:
        from safewrite.iceberg.data.delete_manifests import DeleteManifestWriterV2, DeleteManifestWriterV3

        made = (DeleteManifestWriterV2 if metadata.format_version < 3 else DeleteManifestWriterV3)(*how)
    elif metadata.format_version < 3:
        made = write_manifest(metadata.format_version, *how)
    else:
        from safewrite.iceberg.data.manifests_v3 import ManifestWriterV3

        made = ManifestWriterV3(*how)
    with made as writer:
        for one in entries:
            writer.add_entry(one)
    return writer.to_manifest_file(), file.body


def entry(
    status: ManifestEntryStatus,
    snapshot_id: int | None,
    file: DataFile,
    sequence_number: int | None = None,
    file_sequence_number: int | None = None,
) -> ManifestEntry:
    """One entry of a manifest; without sequence numbers it inherits them."""
    from pyiceberg.manifest import ManifestEntry

    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        file_sequence_number=file_sequence_number,
        data_file=file,
    )


def manifest_list(
    metadata: TableMetadata,
    snapshot_id: int,
    parent_id: int | None,
    manifests: Sequence[ManifestFile],
    location: str,
    *,
    header: Mapping[str, str] | None = None,
) -> tuple[bytes, tuple[ManifestFile, ...], Mapping[str, int]]:
    """The bytes of a manifest list, what it says, and what its snapshot says of row ids (from format version 3 on).

    ``header`` is what its Avro header says besides.
    """
    from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestFile, read_manifest_list, write_manifest_list

    from safewrite.iceberg.data import manifests_v3 as v3

    file, version = MemoryFile(location), metadata.format_version
    first = v3.next_row_id(metadata) if version >= v3.VERSION else None
    numbers = given(getattr(metadata, "last_sequence_number", -1), first)  # those of version 1 are all 0
    how = file, snapshot_id, parent_id, numbers.sequence, compression(metadata)
    lineage: Mapping[str, int] = {}
    if numbers.first_row_id is None:
        made = write_manifest_list(version, *how)
        # PyIceberg (0.12.0) writes this list's sequence number into the manifests that it is given, so that the next
        # attempt would keep it: rows would be older than deletes that came before them.
        listed = [ManifestFile(*one._data) for one in manifests]  # noqa: SLF001 - its copy() shares the data
    else:
        first = numbers.first_row_id
        made = v3.ManifestListWriterV3(*how, first_row_id=first)
        listed, rows = v3.numbered(manifests, first)  # copies, so that the next attempt gives ids of its own
        lineage = {"first-row-id": first, "added-rows": rows}
    made._meta |= header or {}  # noqa: SLF001 - PyIceberg has no argument for it
    with made as writer:
        writer.add_manifests(listed)
    if any(UNASSIGNED_SEQ in (one.sequence_number, one.min_sequence_number) for one in listed):  # v1 has none
        listed = list(read_manifest_list(file.to_input_file()))
    return file.body, tuple(listed), lineage


def manifests_of(
    snapshot: Snapshot, limits: Limits, name: str
) -> Generator[Effect, Outcome, list[ManifestFile]]:
    """The manifests of a snapshot that hold files.

    Raises:
        DataFileError: the list is gone.
        StorageError: no answer.
    """
    get = Get(snapshot.manifest_list, name=name)
    outcome = yield from ask(get, limits)
    if not isinstance(outcome, Ok):
        raise unreadable(get, outcome)
    assert isinstance(outcome.value, bytes)
    return list(live_manifests(outcome.value, snapshot.manifest_list))


def unreadable(effect: Effect, outcome: Outcome) -> Exception:
    """The error for a file of the table's metadata that could not be read."""
    return gone(effect, outcome.detail) if isinstance(outcome, Missing) else unanswered(effect, outcome)


def gone(effect: Effect, which: str = "") -> DataFileError:
    """The error for a file that is gone and that the table names."""
    return DataFileError(
        f"{effect} failed: a file that the table names is gone{f' ({which})' if which else ''}. Nothing was committed. A clean-up of "
        "orphan files or a lifecycle rule may have removed it: restore it from a versioned copy, or roll the table back to a snapshot "
        "without it."
    )


def live_manifests(body: bytes, location: str) -> Iterator[ManifestFile]:
    """Manifests of a list that still hold files; one that only records deletions ends with its snapshot."""
    from safewrite.iceberg.data.manifests_v3 import read_list

    for manifest in read_list(MemoryFile(location, body).to_input_file()):
        if manifest.has_added_files() or manifest.has_existing_files():
            yield manifest


def entries_of(
    head: TableVersion, manifests: Sequence[ManifestFile], known: KnownManifests, limits: Limits, name: str
) -> Generator[Effect, Outcome, list[Sequence[ManifestEntry]]]:
    """The live entries of manifests; those that no plan has decoded are read.

    Raises:
        DataFileError: one is gone.
        StorageError: no answer.
    """
    from safewrite.iceberg.data.manifests_v3 import VERSION, live_entries

    assert known.statistics
    has_ids = table_of(head).metadata.format_version >= VERSION
    there = [known.get(head.table_id, one, with_ids=has_ids) for one in manifests]
    unread = [one for one, kept in zip(manifests, there, strict=True) if kept is None]
    read: list[Sequence[ManifestEntry]] = []
    for start in range(0, len(unread), READ_AT_ONCE):
        part = unread[start : start + READ_AT_ONCE]
        gets = tuple(Get(one.manifest_path, name=name) for one in part)
        answers = yield from perform_all(gets, limits, f"{name}s")
        for manifest, get, outcome in zip(part, gets, answers, strict=True):
            if not isinstance(outcome, Ok):
                raise unreadable(get, outcome)
            assert isinstance(outcome.value, bytes)
            file_io = MemoryIO(outcome.value)
            read.append(
                live_entries(manifest, file_io) if has_ids else manifest.fetch_manifest_entry(file_io)
            )
    rest = iter(read)
    return [next(rest) if kept is None else kept.entries for kept in there]


def snapshot(
    metadata: TableMetadata,
    operation: SnapshotOperation,
    *,
    snapshot_id: int,
    parent_id: int | None,
    schema: Schema,
    schema_id: int,
    added: Sequence[DataFile],
    removed: Sequence[DataFile] = (),
    list_location: str,
    properties: Mapping[str, str],
    now_ms: int,
    lineage: Mapping[str, int] | None = None,
) -> Snapshot:
    """A snapshot with the summary that readers expect; ``lineage`` is what it says of row ids.

    Its time is never before the table's last: Java readers refuse a table whose log goes back by more
    than a minute, so one writer with a wrong clock would make the table unreadable (A10).
    """
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table.snapshots import (
        Operation,
        Snapshot,
        SnapshotSummaryCollector,
        Summary,
        update_snapshot_summaries,
    )

    from safewrite.iceberg.data.vectors import as_counted, counted

    collector = SnapshotSummaryCollector()
    specs = {number: typed(spec, metadata) for number, spec in metadata.specs().items()}
    for file in added:
        # New data files are of the table's spec, and carry none themselves; delete files are of their data file's.
        spec_id = metadata.default_spec_id if file.content == DataFileContent.DATA else file.spec_id
        collector.add_file(as_counted(file), partition_spec=specs[spec_id], schema=schema)
    for file in removed:
        collector.remove_file(as_counted(file), partition_spec=specs[file.spec_id], schema=schema)
    parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
    summed = update_snapshot_summaries(  # PyIceberg (0.12.0) sums up no REPLACE, whose sums are those of an OVERWRITE
        summary=Summary(
            operation=Operation.OVERWRITE, **counted(collector.build(), added, removed), **properties
        ),
        previous_summary=parent.summary if parent is not None else None,
    )
    summary = Summary(operation=operation, **summed.additional_properties)
    return Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent_id,
            "manifest-list": list_location,
            "sequence-number": metadata.next_sequence_number(),
            "timestamp-ms": max(now_ms, newest_ms(metadata)),
            "summary": summary,
            "schema-id": schema_id,
            **(lineage or {}),
        }
    )


def compression(metadata: TableMetadata) -> Any:
    """The codec of the table's Avro files."""
    from pyiceberg.table import TableProperties

    return metadata.properties.get(
        TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    )
