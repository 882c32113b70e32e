"""Makes tables of format version 3, as other engines make them: upgraded in place, with deletion vectors and defaults.

PyIceberg (0.12.0) writes no such table; what it lacks is here (Iceberg spec, version 3; Puffin spec).
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pyiceberg.manifest as avro
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import Record
from pyroaring import BitMap, BitMap64
from sqlalchemy import text

from safewrite.iceberg.data.opaque import opaque_types

NAME = "db.t"


def lake(folder: Path) -> dict[str, str]:
    """The properties of a SQL catalog with a namespace."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": folder.as_uri()}
    catalog = SqlCatalog("default", **properties)
    catalog.create_namespace_if_not_exists("db")
    catalog.close()
    return properties


def edit(
    properties: dict[str, str], change: Callable[[dict[str, Any]], object], name: str = NAME
) -> dict[str, Any]:
    """Commit a change of a table's metadata, as another engine does; the metadata of before is what it is given."""
    catalog = SqlCatalog("default", **properties)
    before = _location(catalog, name)
    metadata: dict[str, Any] = json.loads(_local(before).read_text())
    change(metadata)
    number = int(Path(before).name[:5]) + 1
    after = f"{before.rpartition('/')[0]}/{number:05}-{uuid.uuid4()}.metadata.json"
    _local(after).write_text(json.dumps(metadata))
    with catalog.engine.begin() as connection:
        namespace, table = name.split(".")
        done = connection.execute(
            text(
                "UPDATE iceberg_tables SET metadata_location = :after, previous_metadata_location = :before "
                "WHERE table_namespace = :namespace AND table_name = :table AND metadata_location = :before"
            ),
            {"after": after, "before": before, "namespace": namespace, "table": table},
        )
    assert done.rowcount == 1
    catalog.close()
    return metadata


def _loaded(catalog: SqlCatalog, name: str) -> Any:
    with opaque_types():
        return catalog.load_table(name)


def _location(catalog: SqlCatalog, name: str) -> str:
    with catalog.engine.begin() as connection:
        namespace, table = name.split(".")
        found = connection.execute(
            text(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = :n AND table_name = :t"
            ),
            {"n": namespace, "t": table},
        ).scalar_one()
    return str(found)


def upgrade(properties: dict[str, str], name: str = NAME) -> None:
    """Make a table one of format version 3, as ``ALTER TABLE t SET TBLPROPERTIES ('format-version' = '3')`` does: no snapshot comes."""
    edit(properties, lambda metadata: metadata.update({"format-version": 3, "next-row-id": 0}), name)


def add_column(
    properties: dict[str, str], kind: str, name: str = NAME, *, column: str = "x", **more: Any
) -> None:
    """Add a column of a type, with a default if one is given."""
    edit(properties, lambda metadata: widen(metadata, kind, column, **more), name)


def widen(metadata: dict[str, Any], kind: str, column: str = "x", **more: Any) -> None:
    """Give metadata a schema with one more column, which is the current one."""
    latest = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    number = metadata["last-column-id"] + 1
    field = {"id": number, "name": column, "required": False, "type": kind, **more}
    fresh = max(one["schema-id"] for one in metadata["schemas"]) + 1
    metadata["schemas"].append({**latest, "schema-id": fresh, "fields": [*latest["fields"], field]})
    metadata.update({"current-schema-id": fresh, "last-column-id": number})


# --- deletion vectors --------------------------------------------------------------------------------
def blob(positions: Sequence[int]) -> bytes:
    """One vector: its length and checksum big-endian, all else little-endian."""
    body = bytes.fromhex("D1D33964") + struct.pack("<qi", 1, 0) + BitMap(positions).serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin(vectors: Sequence[tuple[str, Sequence[int]]]) -> tuple[bytes, list[tuple[int, int]]]:
    """A Puffin file of vectors, each of a data file, and where each is."""
    parts, places = [b"PFA1"], []
    for _, positions in vectors:
        one = blob(positions)
        places.append((sum(map(len, parts)), len(one)))
        parts.append(one)
    foot = json.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1, "offset": at,
                    "length": size, "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
                }
                for (path, positions), (at, size) in zip(vectors, places, strict=True)
            ]
        }
    ).encode()  # fmt: skip
    return b"".join([*parts, b"PFA1", foot, struct.pack("<i", len(foot)), bytes(4), b"PFA1"]), places


def mark(
    properties: dict[str, str],
    gone: Mapping[str, Sequence[int]],
    *,
    spare: Mapping[str, Sequence[int]] | None = None,
    told: Callable[[dict[str, Any]], object] = lambda entry: None,
    garble: Callable[[bytes], bytes] = lambda body: body,
    partition: Sequence[Any] = (),
    name: str = NAME,
) -> None:
    """Delete rows by deletion vectors, in one Puffin file and one commit.

    ``spare``: vectors that stand in the file too and that no entry names, as older ones do; ``told``, ``garble``: what becomes of an
    entry's fields and of the file.
    """
    catalog = SqlCatalog("default", **properties)
    table = _loaded(catalog, name)
    stale = list((spare or {}).items())
    body, places = puffin([*gone.items(), *stale])
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.puffin"
    _local(path).write_bytes(garble(body))
    entries = []
    for (file, positions), (at, size) in zip(gone.items(), places[: len(gone)], strict=True):
        fields = {
            "referenced_data_file": file,
            "content_offset": at,
            "content_size_in_bytes": size,
            "record_count": len(positions),
        }
        told(fields)
        made = avro.DataFile.from_args(
            _table_format_version=3, content=avro.DataFileContent.POSITION_DELETES, file_path=path, file_format=avro.FileFormat.PUFFIN,
            partition=Record(*partition), file_size_in_bytes=len(body), column_sizes=None, split_offsets=None, **fields,
        )  # fmt: skip
        entries.append(made)
    catalog.close()
    commit_deletes(properties, entries, name)


def commit_deletes(properties: dict[str, str], files: Sequence[avro.DataFile], name: str = NAME) -> None:
    """Add delete files in one snapshot, as another engine does."""
    catalog = SqlCatalog("default", **properties)
    table = _loaded(catalog, name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    version, number = table.metadata.format_version, uuid.uuid4().int >> 66
    sequence = table.metadata.last_sequence_number + 1
    entries = [
        avro.ManifestEntry.from_args(
            _table_format_version=version, status=avro.ManifestEntryStatus.ADDED, snapshot_id=number, sequence_number=None,
            file_sequence_number=None, data_file=one,
        )
        for one in files
    ]  # fmt: skip
    base = f"{table.location()}/metadata"
    manifest = table.io.new_output(f"{base}/{uuid.uuid4()}-m0.avro")
    kind = _Deletes3 if version > 2 else _Deletes
    with _as_written(version), kind(table.spec(), table.schema(), manifest, number, "null") as deletes:
        for entry in entries:
            deletes.add(entry)
    first = getattr(table.metadata, "next_row_id", None) or 0
    made_list = f"{base}/snap-{number}.avro"
    listed: list[Any] = []
    rows = 0
    for one in (deletes.to_manifest_file(), *_listed(table, snapshot)):
        args = {field.name: one[at] for at, field in enumerate(avro.MANIFEST_LIST_FILE_SCHEMAS[2].fields)}
        known = one._data[15] if len(one._data) > 15 else None
        args |= {"first_row_id": known} if version > 2 else {}
        if one.content == avro.ManifestContent.DATA:
            if version > 2 and known is None:
                args |= {"first_row_id": first + rows}
                rows += (one.added_rows_count or 0) + (one.existing_rows_count or 0)
        else:
            args |= {"sequence_number": args["sequence_number"] if args["sequence_number"] > 0 else sequence}
            args |= {"min_sequence_number": args["sequence_number"]}
        listed.append(avro.ManifestFile.from_args(_table_format_version=version, **args))
    writer = avro.ManifestListWriterV2(
        table.io.new_output(made_list), number, snapshot.snapshot_id, sequence, "null"
    )
    if version > 2:
        writer._format_version = 3
        writer._meta |= {"format-version": "3", "first-row-id": str(first)}
    with _as_written(version), writer:
        writer.add_manifests(listed)
    catalog.close()

    def change(metadata: dict[str, Any]) -> None:
        at = metadata["last-updated-ms"] + 1
        lineage = {"first-row-id": first, "added-rows": rows} if version > 2 else {}
        metadata["snapshots"].append(
            {
                "snapshot-id": number, "parent-snapshot-id": snapshot.snapshot_id, "sequence-number": sequence, "timestamp-ms": at,
                "manifest-list": made_list, "summary": {"operation": "delete", "added-delete-files": str(len(files))},
                "schema-id": metadata["current-schema-id"], **lineage,
            }
        )  # fmt: skip
        metadata["refs"]["main"]["snapshot-id"] = number
        metadata["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": at})
        metadata.update(
            {"current-snapshot-id": number, "last-sequence-number": sequence, "last-updated-ms": at}
        )
        metadata.update({"next-row-id": first + rows} if version > 2 else {})

    edit(properties, change, name)


def _as_written(version: int) -> Any:
    """Lets PyIceberg's writers keep the fields of version 3, which they drop as its readers do."""
    return mock.patch.object(avro, "DEFAULT_READ_VERSION", version)


class _Deletes(avro.ManifestWriterV2):
    """PyIceberg's writer of manifests, of delete files."""

    def content(self) -> avro.ManifestContent:
        return avro.ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**avro.ManifestWriter._meta.fget(self), "content": "deletes"}  # type: ignore[attr-defined]


class _Deletes3(_Deletes):
    @property
    def version(self) -> Any:
        return 3


def data_files(properties: dict[str, str], name: str = NAME) -> list[str]:
    """The paths of the live data files, oldest first."""
    catalog = SqlCatalog("default", **properties)
    table = _loaded(catalog, name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [
        entry
        for one in snapshot.manifests(table.io)
        if one.content == avro.ManifestContent.DATA
        for entry in one.fetch_manifest_entry(table.io)
    ]
    catalog.close()
    return [one.data_file.file_path for one in sorted(entries, key=lambda one: one.sequence_number or 0)]


# --- ids of rows -------------------------------------------------------------------------------------
def listed(table: Any, at: int | None = None) -> list[Any]:
    """The manifests of a snapshot, as the specification has them: the last field is the first row id."""
    metadata: Any = table.refresh().iceberg.metadata
    snapshot = metadata.current_snapshot() if at is None else metadata.snapshot_by_id(at)
    assert snapshot is not None
    return _listed(table.iceberg, snapshot)


def _listed(table: Any, snapshot: Any) -> list[Any]:
    with AvroFile[Any](
        table.io.new_input(snapshot.manifest_list), avro.MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: avro.ManifestFile, 508: avro.PartitionFieldSummary}, read_enums={517: avro.ManifestContent},
    ) as reader:  # fmt: skip
        return list(reader)


def entries(table: Any, at: int | None = None) -> list[tuple[Any, Any]]:
    """The live entries of a snapshot with their manifests, deletes first, with all fields of version 3 and as they are written."""
    found = []
    for manifest in sorted(listed(table, at), key=lambda one: -int(one.content)):
        with AvroFile[Any](
            table.iceberg.io.new_input(manifest.manifest_path), avro.MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: avro.ManifestEntry, 2: avro.DataFile},
            read_enums={0: avro.ManifestEntryStatus, 101: avro.FileFormat, 134: avro.DataFileContent},
        ) as reader:  # fmt: skip
            found += [(manifest, one) for one in reader if one.status != avro.ManifestEntryStatus.DELETED]
    return found


def lineage(table: Any, at: int | None = None) -> dict[int, tuple[int | None, int]]:
    """The row id and the sequence number of each live row by its ``id``, which is unique."""
    rows = lineages(table, at)
    found = {number: (row, updated) for number, row, updated in rows}
    assert len(found) == len(rows)
    return found


def lineages(table: Any, at: int | None = None) -> list[tuple[int, int | None, int]]:
    """The ``id``, the row id and the sequence number of each live row, from the files and by the rules of the specification."""
    found: list[tuple[int, int | None, int]] = []
    gone: dict[str, set[int]] = {}
    nexts: dict[str, int | None] = {}
    for manifest, entry in entries(table, at):
        file = entry._data[-1]
        sequence = manifest.sequence_number if entry._data[2] is None else entry._data[2]
        if manifest.content == avro.ManifestContent.DELETES:
            assert manifest._data[15] is None
            if file.file_format == avro.FileFormat.PUFFIN:
                of, offset, size = file._data[17:20]
                body = _local(file.file_path).read_bytes()[offset : offset + size]
                assert body[4:8].hex().upper() == "D1D33964"
                assert of not in gone, "one vector a data file"
                gone[of] = {*BitMap64.deserialize(body[8:-4])}
                assert len(gone[of]) == file.record_count
                continue
            for row in pq.read_table(_local(file.file_path)).to_pylist():
                gone.setdefault(row["file_path"], set()).add(row["pos"])
            continue
        first = file._data[16]
        if first is None:
            first = nexts.setdefault(manifest.manifest_path, manifest._data[15])
            if first is not None:
                nexts[manifest.manifest_path] = first + file.record_count
        rows = pq.read_table(_local(file.file_path), partitioning=None)
        columns = {
            field.metadata[b"PARQUET:field_id"]: rows[at].to_pylist() for at, field in enumerate(rows.schema)
        }
        empty = [None] * rows.num_rows
        own, updated = (columns.get(name, empty) for name in (b"2147483540", b"2147483539"))
        for place, number in enumerate(rows["id"].to_pylist()):
            if place in gone.get(file.file_path, ()):
                continue
            row = own[place]
            if row is None and first is not None:
                row = first + place
            found.append((number, row, sequence if updated[place] is None else updated[place]))
    return found


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))
