"""Tells what snapshots of an Iceberg table did to rows, by the files and delete files that live in each and in its parent.

Manifests that both have cannot differ, so where there are no delete files the others tell all.  Where there are, both snapshots are
planned: what a delete file takes away depends on all data files of its partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from safewrite.changes.meaning.reading import loose
from safewrite.errors import HistoryGapError, Kind, StorageError, UnsupportedTableError
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import entries_of, manifests_of
from safewrite.iceberg.data.reading import as_stored_in, planned
from safewrite.iceberg.data.schema import read_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.read.added_rows import (
    GET_LIST,
    Seen,
    added_files,
    file_of,
    only_adds,
    only_arranges,
    since,
)
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.added_rows import BEFORE_ALL, AddedFile, Followed
from safewrite.table.change_position import ChangePosition
from safewrite.table.row_changes import CommitChanges
from safewrite.values.limits import utc
from safewrite.values.unsupported import check_all_read

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Snapshot

T = TypeVar("T")
Steps = Generator[Effect, Outcome, T]


@dataclass(frozen=True, slots=True)
class _RowsBetween:
    """The rows of a file that live under the delete files of ``task``, and not under those of ``without``."""

    task: FileScanTask
    without: FileScanTask


@dataclass
class IcebergChanges:
    """See :class:`safewrite.table.row_changes.ChangeSource`; ``run`` performs what is asked of the catalog and the store."""

    head: TableVersion
    limits: Limits
    table: Followed
    run: Callable[[Steps[Any]], Any]
    keys: Callable[[], tuple[str, ...]]
    columns: tuple[str, ...] | None = None
    has_ordinals = True
    _known: KnownManifests = field(init=False, default_factory=KnownManifests)
    _lists: dict[int, list[ManifestFile]] = field(init=False, default_factory=dict)
    _plans: dict[int, tuple[FileScanTask, ...]] = field(init=False, default_factory=dict)

    @property
    def version(self) -> int:
        return BEFORE_ALL if self.head.current is None else self.head.current

    @property
    def table_id(self) -> str:
        return self.head.table_id

    @property
    def schema(self) -> pa.Schema:
        schema, unread = read_schema(table_of(self.head).metadata.schema())
        if self.columns is None:
            check_all_read(unread, schema.names)
        return loose(self._selected(schema))

    def _selected(self, schema: pa.Schema) -> pa.Schema:
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    def gap(self, why: str) -> HistoryGapError:
        return self.table.gap(why)

    # --- commits ------------------------------------------------------------------------------------
    def commits(self, since: ChangePosition | None) -> Iterator[CommitChanges]:
        """See :class:`safewrite.table.row_changes.ChangeSource`."""
        begin = self.version if since is None else since.version
        new = self._after(begin)
        if since is None or since.whole:
            yield self._known_by(begin, self._everything(begin), is_whole=True)
        elif since.rows:
            new = [begin, *new]
        for at in new:
            snapshot = self._snapshot(at)
            if snapshot is None:
                raise self.gap(f"it has no snapshot {at}: it has expired")
            yield self._known_by(at, self._changes(snapshot))

    def _known_by(self, at: int, steps: Steps[CommitChanges], *, is_whole: bool = False) -> CommitChanges:
        """What metadata says of a snapshot.  Raises HistoryGapError: some of it is gone."""
        try:
            told: CommitChanges = self.run(steps)
        except StorageError as error:
            if is_whole and at == self.version:
                raise
            raise self._unread(at, error) from error
        return told

    def _after(self, position: int) -> list[int]:
        return since(position, self.head, self.table)

    def _snapshot(self, at: int | None) -> Snapshot | None:
        return None if at is None else table_of(self.head).metadata.snapshot_by_id(at)

    def _everything(self, version: int) -> Steps[CommitChanges]:
        """All rows of a snapshot, file by file in an order that does not depend on how it was planned."""
        at = ChangePosition(version, self.table_id)
        ordinal = self.head.sequences.get(version, 0)
        if version == BEFORE_ALL:
            return CommitChanges(at, ordinal=ordinal, whole=True)
        if self._snapshot(version) is None:
            raise self.gap(f"it has no snapshot {version}: it has expired")
        tasks = yield from self._planned(version)
        files = sorted(tasks, key=lambda task: task.file.file_path)
        return CommitChanges(at, came=tuple(map(file_of, files)), ordinal=ordinal, whole=True)

    def _changes(self, snapshot: Snapshot) -> Steps[CommitChanges]:
        """What one snapshot did; of one that only brought rows, its own manifests tell.

        Raises:
            HistoryGapError: its parent has expired, and it removed rows.
            UnsupportedTableError: there are delete files that nothing here applies.
        """
        at = snapshot.snapshot_id
        made = CommitChanges(
            ChangePosition(at, self.table_id), utc(snapshot.timestamp_ms), ordinal=self.head.sequences[at]
        )
        if only_arranges(snapshot):
            return made
        parent_id, parent = self.head.parents[at], self._snapshot(self.head.parents[at])
        is_first = parent_id is None and self.head.sequences[at] == 1
        if only_adds(snapshot):
            came = yield from added_files(snapshot, Seen(self.head, self._known, self.limits))
            return replace(made, came=tuple(came))
        if parent is None and not is_first:  # some engines take the id away, too
            named = "" if parent_id is None else f" {parent_id}"
            raise self.gap(f"snapshot{named} before {at} has expired, which tells what {at} took away")
        before = yield from self._listed(parent)
        after = yield from self._listed(snapshot)
        self._lists = {at: after}  # the parent of the next
        if any(_deletes(one) for one in (*before, *after)):
            gone, came = yield from self._planned_changes(parent, snapshot)
        else:
            gone, came = yield from self._listed_changes(before, after)
        return replace(made, gone=tuple(gone), came=tuple(came))

    def _listed(self, snapshot: Snapshot | None) -> Steps[list[ManifestFile]]:
        if snapshot is None:
            return []
        known = self._lists.get(snapshot.snapshot_id)
        return (yield from manifests_of(snapshot, self.limits, GET_LIST)) if known is None else known

    def _listed_changes(
        self, before: Sequence[ManifestFile], after: Sequence[ManifestFile]
    ) -> Steps[tuple[list[AddedFile], list[AddedFile]]]:
        """Files that went and came, by the manifests that one of two snapshots has and the other has not."""
        from pyiceberg.table import FileScanTask

        names = [{one.manifest_path for one in some} for some in (before, after)]
        files: list[list[DataFile]] = []
        for some, others in ((before, names[1]), (after, names[0])):
            own = [one for one in some if one.manifest_path not in others]
            read = yield from entries_of(self.head, own, self._known, self.limits, "read.get_manifest")
            files.append([one.data_file for entries in read for one in entries])
        gone, came = _without(files[0], files[1]), _without(files[1], files[0])
        return [file_of(FileScanTask(one)) for one in gone], [file_of(FileScanTask(one)) for one in came]

    def _planned_changes(
        self, before: Snapshot | None, after: Snapshot
    ) -> Steps[tuple[list[AddedFile], list[AddedFile]]]:
        """Files that went and came, and those of which rows did, by the delete files of each."""
        old: dict[str, FileScanTask] = {}
        if before is not None:
            old = {one.file.file_path: one for one in (yield from self._planned(before.snapshot_id))}
        new = {one.file.file_path: one for one in (yield from self._planned(after.snapshot_id))}
        self._plans = {after.snapshot_id: tuple(new.values())}  # the parent of the next
        other = [path for path in old if path in new and _deletes_of(old[path]) != _deletes_of(new[path])]
        gone = [file_of(one) for path, one in old.items() if path not in new]
        gone += [_between(old[path], new[path]) for path in other]
        came = [file_of(one) for path, one in new.items() if path not in old]
        came += [_between(new[path], old[path]) for path in other]
        return gone, came

    def _planned(self, at: int) -> Steps[tuple[FileScanTask, ...]]:
        known = self._plans.get(at)
        if known is not None:
            return known
        return (yield from planned(self.head, EVERYTHING, self._known, self.limits, at=at))

    # --- rows ---------------------------------------------------------------------------------------
    def read(self, files: Sequence[AddedFile], commit: CommitChanges) -> pa.Table:
        """See :class:`safewrite.table.row_changes.ChangeSource`."""
        schema = self._selected(read_schema(table_of(self.head).metadata.schema())[0])
        effects = [self._effect(one.handle) for one in files]
        try:
            tables = self.run(as_stored_in(effects, schema, self.limits))
        except (StorageError, UnsupportedTableError) as error:
            if commit.whole and commit.position.version == self.version:
                raise
            raise self._unread(commit.position.version, error) from error
        return pa.concat_tables([loose(schema).empty_table(), *tables])

    def _effect(self, handle: FileScanTask | _RowsBetween) -> ReadRows:
        if isinstance(handle, _RowsBetween):
            return ReadRows(self.head, handle.task, self.columns, without=handle.without, name="read.rows")
        return ReadRows(self.head, handle, self.columns, name="read.rows")

    def _unread(self, version: int, error: StorageError | UnsupportedTableError) -> Exception:
        """The error for rows of a snapshot that cannot be read."""
        if isinstance(error, UnsupportedTableError):
            return self.gap(
                f"rows of snapshot {version} cannot be read, or do not fit the table of now ({error.message})"
            )
        if error.kind is not Kind.DATA_FILE_DAMAGED:
            return error
        return self.gap(
            f"a file of snapshot {version} is gone, as a clean-up of orphan files takes it ({error.message})"
        )


def _deletes(manifest: ManifestFile) -> bool:
    from pyiceberg.manifest import ManifestContent

    return manifest.content == ManifestContent.DELETES


def _deletes_of(task: FileScanTask) -> frozenset[tuple[str, int | None]]:
    """The delete files of a data file; a file may hold several vectors, each of which begins elsewhere."""
    return frozenset((one.file_path, getattr(one, "offset", None)) for one in task.delete_files)


def _between(task: FileScanTask, without: FileScanTask) -> AddedFile:
    return AddedFile(task.file.file_size_in_bytes, None, _RowsBetween(task, without))


def _without(files: Sequence[DataFile], others: Sequence[DataFile]) -> list[DataFile]:
    """The files that are no others, as often as they are there."""
    left = Counter(one.file_path for one in others)
    found = []
    for one in files:
        if left[one.file_path] > 0:
            left[one.file_path] -= 1
        else:
            found.append(one)
    return found
