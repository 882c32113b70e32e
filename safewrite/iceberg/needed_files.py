"""Names the files that snapshots of an Iceberg table need, and says what of its folder is its own."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from safewrite.errors import ConflictError, Kind, StorageError, UnsupportedTableError
from safewrite.iceberg import ledger_place
from safewrite.iceberg.catalog.files import MemoryFile
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import entries_of
from safewrite.iceberg.data.manifests_v3 import read_list
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.values import Listed
from safewrite.upkeep.unused import NOTHING, Folder, Unused, name_of, remove

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.iceberg.connect import Connection
    from safewrite.upkeep.maintain import Settling

AT_ONCE = 64
"""So many manifests are in memory at once."""
_METADATA = re.compile(r"metadata/[^/]+(?:\.avro|\.metadata\.json|\.metadata\.json\.gz|\.puffin|\.stats)")
_DATA = re.compile(r"[^/]+(?:\.parquet|\.orc|\.avro|\.puffin)")
_DATA_FOLDERS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")


def unused_of(
    connection: Connection, head: TableVersion, asked: Settling, limits: Limits
) -> Generator[Effect, Outcome, Unused]:
    """Remove files that nothing needs, if that is asked for."""
    if not asked.remove_unused:
        return NOTHING
    return (yield from remove(folder_of(connection, head, limits), limits, dry_run=asked.dry_run))


def folder_of(connection: Connection, head: TableVersion, limits: Limits) -> Folder:
    """The folder of a table."""
    metadata = table_of(head).metadata
    root = _root(metadata)
    folders = _data_folders(metadata, root)
    return Folder(
        head.table_id,
        root,
        0,
        lambda listed, _: _named(head.table_id, limits, listed),
        lambda path: is_ours(path, folders),
        partial(_stands, head.table_id, limits),
        partial(_refuses, connection, head),
    )


def _root(metadata: TableMetadata) -> str:
    return f"{metadata.location.rstrip('/')}/"


def _data_folders(metadata: TableMetadata, root: str) -> tuple[str, ...]:
    """The folders within the root that the table's data files go to."""
    given = [str(metadata.properties[name]) for name in _DATA_FOLDERS if name in metadata.properties]
    inside = [f"{one.rstrip('/')}/".removeprefix(root) for one in given if f"{one}/".startswith(root)]
    return ("data/", *(one for one in inside if one))


def is_ours(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path is of a metadata, data or delete file, by its folder and its name."""
    return _METADATA.fullmatch(path) is not None or (
        path.startswith(folders) and _DATA.fullmatch(name_of(path)) is not None
    )


def _stands(table_id: str, limits: Limits) -> Generator[Effect, Outcome, bool]:
    return (yield from load(limits)).table_id == table_id


def _named(
    table_id: str, limits: Limits, listed: Sequence[Listed]
) -> Generator[Effect, Outcome, frozenset[str]]:
    """All that the newest metadata names, in whatever field, and all that its snapshots' manifests do; and the same of a second line.

    Raises:
        StorageError: no answer, or a manifest is gone.
        ConflictError: kind TABLE_REPLACED.
        UnsupportedTableError: the folder has metadata of another table.
    """
    head = yield from load(limits)
    if head.table_id != table_id:
        raise ConflictError(
            "The table was made again meanwhile. No file was removed.", kind=Kind.TABLE_REPLACED
        )
    table = table_of(head)
    names = {name_of(one) for one in _texts(json.loads(table.metadata.model_dump_json()))}
    names.add(name_of(table.metadata_location))
    lists = [one.manifest_list for one in table.metadata.snapshots]
    manifests = yield from _manifests(lists, limits)
    known = {one.snapshot_id for one in table.metadata.snapshots}
    second: list[str] = []
    for name, found in second_lines(head, (yield from _others_metadata(head, limits, listed))).items():
        names |= {name, *map(name_of, _texts(found))}
        second += [one["manifest-list"] for one in found["snapshots"] if one["snapshot-id"] not in known]
    more = yield from _manifests(sorted({*second}), limits, may_lack=True)
    there = dict(
        (yield from _bodies([path for path in more if path not in manifests], limits, may_lack=True))
    )
    manifests |= {path: one for path, one in more.items() if path in there}
    names |= {name_of(path) for path in (*manifests, *more)}
    left = [*manifests.values()]
    for start in range(0, len(left), AT_ONCE):
        some = left[start : start + AT_ONCE]
        for entries in (yield from entries_of(head, some, KnownManifests(), limits, "unused.get_manifest")):
            names |= {name_of(one.data_file.file_path) for one in entries}
    return frozenset(names)


def _manifests(
    lists: Sequence[str], limits: Limits, *, may_lack: bool = False
) -> Generator[Effect, Outcome, dict[str, ManifestFile]]:
    found: dict[str, ManifestFile] = {}
    for path, body in (yield from _bodies(lists, limits, may_lack=may_lack)):
        for manifest in read_list(MemoryFile(path, body).to_input_file()):
            found[manifest.manifest_path] = manifest
    return found


def second_lines(head: TableVersion, others: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of the table that did not lead to its newest: of commits that were lost, or of a catalog that the table was registered with.

    Nobody can tell these two apart by their files, and the second is somebody's table.
    """
    table = table_of(head)
    line, left = set[str](), [*(name_of(one.metadata_file) for one in table.metadata.metadata_log)]
    while left:
        name = left.pop()
        if name not in line:
            line.add(name)
            left += [name_of(one["metadata-file"]) for one in others.get(name, {}).get("metadata-log", ())]
    return {name: found for name, found in others.items() if name not in line}


def _texts(found: Any) -> Iterable[str]:
    """All texts of a JSON document."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for one in found.values() if isinstance(found, dict) else found:
            yield from _texts(one)


def _bodies(
    paths: Sequence[str], limits: Limits, *, may_lack: bool = False
) -> Generator[Effect, Outcome, list[tuple[str, bytes]]]:
    answers = yield from fetch(
        [Get(path, name="unused.get") for path in paths], limits, name="unused.get_all"
    )
    found = []
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, Ok) and isinstance(answer.value, bytes):
            found.append((path, answer.value))
        elif not may_lack:
            raise StorageError(
                f"{path} is gone, so nobody knows what the table's snapshots need. No file was removed."
            )
    return found


def _refuses(
    connection: Connection, head: TableVersion, listed: Sequence[Listed]
) -> Generator[Effect, Outcome, str]:
    """Why nothing in the folder may go."""
    yield from ()
    if table_of(head).metadata.properties.get("gc.enabled", "true").lower() == "false":
        return "gc.enabled is false"
    if ledger_place.in_s3_tables(connection.catalog):
        return "S3 Tables removes files by itself"
    if any(one.path.startswith("_delta_log/") for one in listed):
        return "a Delta table has its log in this folder"
    return ""


def _others_metadata(
    head: TableVersion, limits: Limits, listed: Sequence[Listed]
) -> Generator[Effect, Outcome, dict[str, Any]]:
    """Metadata files of the folder, by their names, that the newest metadata does not name; and the oldest that it does.

    Raises:
        UnsupportedTableError: one is of another table: of one before, or of one that got this table's place when it was renamed.
    """
    table, found = table_of(head), dict[str, Any]()
    own = {name_of(one.metadata_file) for one in table.metadata.metadata_log[1:]}
    own.add(name_of(table.metadata_location))
    root = _root(table.metadata)
    others = [
        root + one.path for one in listed
        if _METADATA.fullmatch(one.path) and ".metadata.json" in one.path and name_of(one.path) not in own
    ]  # fmt: skip
    for start in range(0, len(others), AT_ONCE):
        for path, body in (yield from _bodies(others[start : start + AT_ONCE], limits, may_lack=True)):
            try:
                one = json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
                table_id = one["table-uuid"]
            except (ValueError, OSError, TypeError, KeyError):
                continue  # torn, or too old to say: no catalog points at it
            if str(table_id) != head.table_id:
                raise UnsupportedTableError(
                    f"the folder has metadata of another table ({name_of(path)}, table-uuid {table_id})"
                )
            found[name_of(path)] = {"snapshots": [], **one}
    return found
