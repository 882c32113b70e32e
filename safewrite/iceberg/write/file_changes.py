"""Puts what a write does to files into the manifests of the next snapshot."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from safewrite.frames.prepare import prepare
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import entries_of, entry, manifest_of
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.change import TableChange

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema

    from safewrite.iceberg.data.datafiles import StagedFile

IcebergChange: TypeAlias = "TableChange[DataFile, DataFile, DataFile]"
"""A mark is a delete file."""
NOTHING: IcebergChange = TableChange()
Manifests: TypeAlias = "tuple[list[ManifestFile], tuple[Put, ...]]"
"""Manifests of a snapshot, and the uploads that they still need."""


def without_files(
    head: TableVersion,
    manifests: list[ManifestFile],
    removed: Sequence[DataFile],
    marks: Sequence[DataFile] = (),
    *,
    snapshot_id: int,
    schema: Schema,
    known: KnownManifests,
    limits: Limits,
    new_location: Callable[[int], str],
) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...], Sequence[DataFile]]]:
    """The base's manifests, those with removed files rewritten, and a record of what was removed; and the deletes that go with these.

    Where most files of a manifest go, their record has one of its own, shared by all of the partition spec: the next snapshot leaves it
    out, so that no reader passes over what went.

    From format version 3 on a delete file of one data file goes with it, and where one of the ``marks``, a vector, takes its place.

    Raises:
        StorageError: a manifest cannot be read.
    """
    from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus

    from safewrite.iceberg.data.manifests_v3 import VERSION
    from safewrite.iceberg.write.position_deletes import file_of

    gone, metadata = {file.file_path for file in removed}, table_of(head).metadata
    version = metadata.format_version
    unmarked = gone | {one for one in map(file_of, marks) if one is not None} if version >= VERSION else gone
    if not unmarked:
        return manifests, (), ()

    def goes_with(one: ManifestEntry) -> bool:
        file = one.data_file
        return file.file_path in gone if file.content == DataFileContent.DATA else file_of(file) in unmarked

    def restated(one: ManifestEntry) -> ManifestEntry:
        """An entry of an older manifest in a new one; a removal names the snapshot that makes it."""
        goes = goes_with(one)
        status = ManifestEntryStatus.DELETED if goes else ManifestEntryStatus.EXISTING
        signed = snapshot_id if goes else one.snapshot_id
        return entry(status, signed, one.data_file, one.sequence_number, one.file_sequence_number)

    puts: list[Put] = []

    def written(like: ManifestFile, some: Iterable[ManifestEntry]) -> ManifestFile:
        """A manifest of entries of one content and partition spec."""
        location = new_location(len(puts) + 1)
        made, body = manifest_of(
            metadata,
            schema,
            map(restated, some),
            spec=metadata.specs()[like.partition_spec_id],
            snapshot_id=snapshot_id,
            location=location,
            content=like.content,
        )
        puts.append(Put(location, body, name="stage.put_manifest"))
        return made

    asked = {ManifestContent.DATA} if gone else set()
    asked |= {ManifestContent.DELETES} if version >= VERSION else set()
    kept = [one for one in manifests if one.content not in asked]
    looked = [one for one in manifests if one.content in asked]
    entries = yield from entries_of(head, looked, known, limits, "replace.get_manifest")
    records: dict[tuple[ManifestContent, int], tuple[ManifestFile, list[ManifestEntry]]] = {}
    deletes: list[DataFile] = []
    for manifest, found in zip(looked, entries, strict=True):
        going = [one for one in found if goes_with(one)]
        if not going:
            kept.append(manifest)
            continue
        if manifest.content == ManifestContent.DELETES:
            deletes += [one.data_file for one in going]
        rest = [one for one in found if not goes_with(one)]
        if len(going) <= len(rest):
            kept.append(written(manifest, found))
            continue
        records.setdefault((manifest.content, manifest.partition_spec_id), (manifest, []))[1].extend(going)
        kept += [written(manifest, rest)] if rest else []
    kept += [written(*one) for one in records.values()]
    return kept, tuple(puts), deletes


def delete_manifests(
    head: TableVersion,
    deletes: Sequence[DataFile],
    *,
    snapshot_id: int,
    schema: Schema,
    new_location: Callable[[int], str],
) -> Manifests:
    """Manifests that add delete files, one for each partition spec."""
    made: list[ManifestFile] = []
    puts: list[Put] = []
    for spec_id in sorted({one.spec_id for one in deletes}):
        from safewrite.iceberg.write import position_deletes

        files, location = [one for one in deletes if one.spec_id == spec_id], new_location(spec_id)
        manifest, body = position_deletes.manifest(
            table_of(head).metadata, schema, snapshot_id, files, location
        )
        made.append(manifest)
        puts.append(Put(location, body, name="stage.put_manifest"))
    return made, tuple(puts)


def encoded_rows(
    rows: pa.Table, head: TableVersion, schema: pa.Schema, write_id: str, target_file_size: int
) -> Iterable[StagedFile]:
    """Files of rows that a plan itself writes, with the ids of these where the schema has columns of them."""
    from safewrite.iceberg.data import lineage
    from safewrite.iceberg.data.datafiles import encode

    table = table_of(head)
    return encode(
        prepare(rows, schema, stored=True),
        metadata=table.metadata,
        schema=lineage.with_ids(table.schema()) if lineage.has_ids(schema, table.metadata) else None,
        location=table.location_provider(),
        write_id=write_id,
        target_file_size=target_file_size,
    )
