"""Tells what came into an Iceberg table since a snapshot, by the ancestry of its branch; snapshot ids are random and order nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from safewrite.errors import HistoryGapError
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known import KnownManifests
from safewrite.iceberg.data.manifests import entries_of, live_manifests
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.added import AddedFile

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Snapshot

Gap = Callable[[str], HistoryGapError]
Brought = dict[int, tuple[AddedFile, ...]]
"""The files that snapshots brought, by id, oldest first; snapshots that brought none are left out."""


def added_since(
    position: int, head: TableVersion, known: KnownManifests, limits: Limits, gap: Gap
) -> Generator[Effect, Outcome, Brought]:
    """The files of the snapshots after one, up to the branch's newest.

    Raises:
        HistoryGapError: rows went since, or the snapshot is no ancestor of the newest that is still known.
        StorageError: no answer.
    """
    found: Brought = {}
    for at in _since(position, head, gap):
        files = yield from _brought(at, head, known, limits, gap)
        if files:
            found[at] = files
    return found


def added_by(
    at: int, head: TableVersion, known: KnownManifests, limits: Limits, gap: Gap
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    """The files of one snapshot, whether the branch has it or not.  Raises as :func:`added_since`."""
    if at not in head.parents:
        raise gap(f"snapshot {at} has expired")
    return (yield from _brought(at, head, known, limits, gap))


def everything(
    head: TableVersion, known: KnownManifests, limits: Limits
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    """All live files.  Raises as ``planned``."""
    tasks = yield from planned(head, EVERYTHING, known, limits)
    return tuple(map(_file, tasks))


def _since(position: int, head: TableVersion, gap: Gap) -> list[int]:
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
        raise gap(f"snapshot {position} was rolled back: it is no ancestor of the newest")
    raise gap(f"snapshot {position} has expired, and others since may have")


def _brought(
    at: int, head: TableVersion, known: KnownManifests, limits: Limits, gap: Gap
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    snapshot = table_of(head).metadata.snapshot_by_id(at)
    assert snapshot is not None
    operation = "unknown" if snapshot.summary is None else str(snapshot.summary.operation.value)
    added, deleted = (_count(head, at, name) for name in ("added-records", "deleted-records"))
    if operation == "replace" and added == deleted:
        return ()
    if operation != "append" or deleted or _count(head, at, "added-delete-files"):
        raise gap(f"version {at} removed rows ({operation})")
    return (yield from _added_files(snapshot, head, known, limits))


def _count(head: TableVersion, at: int, name: str) -> int:
    return int(head.summaries[at].get(name, 0))


def _added_files(
    snapshot: Snapshot, head: TableVersion, known: KnownManifests, limits: Limits
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    from pyiceberg.manifest import ManifestEntryStatus
    from pyiceberg.table import FileScanTask

    at, name = snapshot.snapshot_id, "read.get_manifest"
    get = Get(snapshot.manifest_list, name="read.get_manifest_list")
    outcome = yield from ask(get, limits)
    if not isinstance(outcome, Ok):
        raise unanswered(get, outcome)
    assert isinstance(outcome.value, bytes)
    manifests = live_manifests(outcome.value, snapshot.manifest_list)
    own = [one for one in manifests if one.added_snapshot_id == at]
    entries = yield from entries_of(head.table_id, own, known, limits, name)
    return tuple(
        _file(FileScanTask(data_file=one.data_file))
        for some in entries
        for one in some
        if one.status == ManifestEntryStatus.ADDED and one.snapshot_id in {None, at}
    )


def _file(task: FileScanTask) -> AddedFile:
    return AddedFile(task.file.file_size_in_bytes, task.file.record_count, task)
