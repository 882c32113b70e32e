"""Tells what came into an Iceberg table since a snapshot, by the ancestry of its branch; snapshot ids are random and order nothing."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import entries_of, manifests_of
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.members import is_ours
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.added_rows import AddedFile, AddedRows, Followed
from safewrite.values.limits import utc

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Snapshot

GET_LIST = "read.get_manifest_list"


@dataclass(frozen=True, slots=True)
class Seen:
    """The table version that is asked, and what is known of its manifests."""

    head: TableVersion
    known: KnownManifests
    limits: Limits


def added_since(position: int, seen: Seen, table: Followed) -> Generator[Effect, Outcome, list[AddedRows]]:
    """What the snapshots after one brought, up to the branch's newest, without those that brought nothing.

    Raises:
        HistoryGapError: rows went since, or the snapshot is no ancestor of the newest that is still known.
        StorageError: no answer.
    """
    found: list[AddedRows] = []
    for at in since(position, seen.head, table):
        one = yield from added_by(at, seen, table)
        found += [one] if one.files else []
    return found


def added_by(at: int, seen: Seen, table: Followed) -> Generator[Effect, Outcome, AddedRows]:
    """What one snapshot brought, whether the branch has it or not.  Raises as :func:`added_since`."""
    snapshot = table_of(seen.head).metadata.snapshot_by_id(at)
    if snapshot is None:
        raise table.gap(f"it has no snapshot {at}: it has expired, or never was")
    files: list[AddedFile] = []
    if not _only_arranges(snapshot, table):
        files = yield from added_files(snapshot, seen)
    return table.brought(at, utc(snapshot.timestamp_ms), files)


def everything(seen: Seen, table: Followed) -> Generator[Effect, Outcome, AddedRows]:
    """All live rows.  Raises as ``planned``."""
    tasks = yield from planned(seen.head, EVERYTHING, seen.known, seen.limits)
    current = seen.head.current
    return table.brought(-1 if current is None else current, None, map(file_of, tasks))


def since(position: int, head: TableVersion, table: Followed) -> list[int]:
    """The snapshots after one, oldest first; -1 is before a table's first, which alone has the sequence number 1."""
    new: list[int] = []
    if position == (-1 if head.current is None else head.current):
        return new
    for at in head.ancestors():
        new.append(at)
        is_first = head.parents[at] is None and head.sequences[at] == 1
        if is_first if position == -1 else head.parents[at] == position:
            return new[::-1]
    if position in head.parents:
        raise table.gap(f"snapshot {position} was rolled back: it is no ancestor of the newest")
    if position == -1:
        raise table.gap(
            "nothing shows that its oldest snapshot is its first: others expired, or its format version 1 does not number them"
        )
    raise table.gap(
        f"snapshot {position} has expired, and others since may have; or this object is older: refresh() it"
    )


def only_arranges(snapshot: Snapshot) -> bool:
    """Whether a snapshot brought and removed no rows: a compaction of as many, or of ours."""
    operation, counts = _told(snapshot)
    same = int(counts.get("added-records", 0)) == int(counts.get("deleted-records", 0))
    return operation == "replace" and (same or is_ours(counts))  # ours may have fewer: deleted before it


def only_adds(snapshot: Snapshot) -> bool:
    """Whether a snapshot removed no rows."""
    operation, counts = _told(snapshot)
    removed = any(int(counts.get(name, 0)) for name in ("deleted-records", "added-delete-files"))
    return operation == "append" and not removed


def _told(snapshot: Snapshot) -> tuple[str, Mapping[str, str]]:
    summary = snapshot.summary
    if summary is None:
        return "unknown", {}
    return str(summary.operation.value), summary.additional_properties


def _only_arranges(snapshot: Snapshot, table: Followed) -> bool:
    """Whether a snapshot brought and removed no rows.  Raises HistoryGapError if it removed some."""
    operation = _told(snapshot)[0]
    if only_arranges(snapshot):
        return True
    if not only_adds(snapshot):
        raise table.gap(f"version {snapshot.snapshot_id} removed rows ({operation})")
    return False


def added_files(snapshot: Snapshot, seen: Seen) -> Generator[Effect, Outcome, list[AddedFile]]:
    """The files that a snapshot added, as its own manifests tell."""
    from pyiceberg.manifest import ManifestEntryStatus
    from pyiceberg.table import FileScanTask

    at = snapshot.snapshot_id
    manifests = yield from manifests_of(snapshot, seen.limits, GET_LIST)
    own = [one for one in manifests if one.added_snapshot_id == at]
    entries = yield from entries_of(seen.head, own, seen.known, seen.limits, "read.get_manifest")
    return [
        file_of(FileScanTask(data_file=one.data_file))
        for some in entries
        for one in some
        if one.status == ManifestEntryStatus.ADDED and one.snapshot_id in {None, at}
    ]


def file_of(task: FileScanTask) -> AddedFile:
    """A data file that brought rows."""
    return AddedFile(task.file.file_size_in_bytes, task.file.record_count, task)
