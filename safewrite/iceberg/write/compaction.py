"""Puts data files together in one snapshot that changes no row: groups of files that are still there become fewer files.

The plan is made on the snapshot that the new one follows.  A file of which others deleted rows since it was read has other delete files:
these rows are deleted in ours, by delete files of the same snapshot.  So all deletions up to that snapshot are applied, and later ones are
newer than our files.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from safewrite.changes.meaning.positions import Flags
from safewrite.frames.parallel import Begun, windows
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.lineage import first_id, kept_columns
from safewrite.iceberg.data.reading import fetched, planned
from safewrite.iceberg.features import keeps_files, listed
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import position_deletes
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.delete_files import DeleteFiles
from safewrite.iceberg.write.key_lookup import size_of
from safewrite.iceberg.write.marked_rows import live_of, more_gone
from safewrite.iceberg.write.row_files import Mark, mark_of
from safewrite.iceberg.write.staging import UploadedFile, seen
from safewrite.iceberg.write.table_files import IcebergTableFiles
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.change import TableChange
from safewrite.table.regrouping import Regrouped, Regrouping
from safewrite.upkeep.groups import Inventory, StoredFile
from safewrite.upkeep.maintain import TAKEN, Compacted

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

IcebergRegrouping: TypeAlias = "Regrouping[FileScanTask, UploadedFile, DataFile]"
"""A mark is a delete file."""


# --- what the table has ---------------------------------------------------------------------------------
def inventory(
    head: TableVersion, known: KnownManifests, target: int, limits: Limits
) -> Generator[Effect, Outcome, Inventory]:
    """The live files of a version; which partitions are hot no snapshot tells.

    Raises:
        UnsupportedTableError: files or their deletes cannot be read.
        StorageError: no answer, or a manifest is gone.
    """
    tasks: Sequence[FileScanTask] = ()
    if head.current is not None:
        if _count(head) > known.files_max:
            known = KnownManifests(sys.maxsize, statistics=False)
        tasks = yield from planned(head, EVERYTHING, known, limits)
    metadata = table_of(head).metadata
    files = [_stored(task, metadata.default_spec_id, listed(keeps_files(metadata))) for task in tasks]
    return Inventory(-1 if head.current is None else head.current, files, target, {}, listing=known)


def _count(head: TableVersion) -> int:
    """How many data files the newest snapshot says that there are."""
    snapshot = table_of(head).metadata.snapshot_by_id(head.current or 0)
    said = snapshot.summary["total-data-files"] if snapshot is not None and snapshot.summary else None
    return int(said) if said is not None and said.isdecimal() else 0


def _stored(task: FileScanTask, spec_id: int, stays: str) -> StoredFile:
    file = task.file
    return StoredFile(
        file.file_path,
        (file.spec_id, repr(file.partition)),
        file.file_size_in_bytes,
        file.record_count,
        sum(position_deletes.rows_taken(one, file.file_path) for one in task.delete_files),
        len(task.delete_files),
        stays if file.spec_id == spec_id else "it is of an older partition spec",
    )


# --- one group ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GroupRewriter:
    """See :class:`safewrite.table.regrouping.GroupRewriter`."""

    files: IcebergTableFiles

    def put_together(
        self, tasks: Sequence[FileScanTask], at: str
    ) -> Generator[Effect, Outcome, Regrouped[FileScanTask, UploadedFile, DataFile]]:
        """See the class; rows are in the group's order, or in that of the table."""
        head, limits = self.files.head, self.files.limits
        schema = kept_columns(table_of(head).metadata)
        parts: list[pa.Table] = []
        marks: dict[Mark, FileScanTask] = {mark_of(task): task for task in tasks}
        for some in windows([*marks], lambda mark: size_of(marks[mark])):
            reads = yield from fetched(
                head, {mark: marks[mark] for mark in some}, lambda _: None, schema, limits
            )
            parts += Begun([reads.pop(mark) for mark in some], alone=len(some) == 1).results()
        counts = tuple(part.num_rows for part in parts)
        rows = pa.concat_tables(parts).combine_chunks()
        del parts
        made = self.files.encoded(rows, schema=schema, at=at) if rows.num_rows else ()
        files = yield from self.files.stored(made)
        return Regrouped((), files, counts, tuple(file.rows for file in files))


# --- one commit -----------------------------------------------------------------------------------------
@dataclass
class CompactionPlan(AppendPlan):
    """Groups of files, each of which goes as a whole or not at all."""

    operation: str = "replace"
    work: IcebergRegrouping = field(kw_only=True)
    listing: KnownManifests = field(kw_only=True, repr=False)
    """What the inventory decoded, which may know no statistics of columns."""
    _stored: list[DataFile] = field(default_factory=list, repr=False)
    """Delete files that were uploaded, for any base."""
    _planned_on: int | None = None
    """The snapshot that the last plan was made on."""

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Read the files of groups that are still there, and write them again; on a later base bring them to what others deleted.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
        """
        tasks = {
            task.file.file_path: task
            for task in (yield from planned(head, EVERYTHING, self.listing, self.limits))
        }
        self.rebased += self.attempt > 0 and self._planned_on != head.current
        self._planned_on = head.current
        self.work.make(tasks)
        yield from self._follow(head, tasks)
        self.work.check()
        files = yield from seen(self.work.files, self.limits)
        stand = self.work.standing.values()
        marks = tuple(mark for one in stand for mark in one.marks)
        used = {one.file_path for one in marks}
        self.change = TableChange(
            removed=tuple(task.file for one in stand for task in one.taken),
            rewritten=files,
            marks=marks,
            kept_rows=sum(one.rows + one.gone for one in stand),
            unused=(
                *(one.data_file for one in self.work.lost),
                *(one for one in self._stored if one.file_path not in used),
            ),
        )

    def _follow(
        self, head: TableVersion, tasks: Mapping[str, FileScanTask]
    ) -> Generator[Effect, Outcome, None]:
        """Delete the rows in new files that others deleted in old ones.

        Raises:
            StorageError: the store gave no answer.
        """
        from pyiceberg.table import FileScanTask

        found = yield from self.work.follow(tasks, mark_of, self._stay)
        is_sorted = not table_of(head).metadata.sort_order().is_unsorted
        deletes = DeleteFiles(f"{self.write_id}-{self.attempt}", self.limits)
        noted = {}
        for number, (group, places) in found.items():
            if places and is_sorted:
                self.work.dropped[number] = TAKEN
                continue
            files = [(FileScanTask(group.files[place].data_file), rows) for place, rows in places.items()]
            noted[number] = group, [deletes.note(head, file, rows, None) for file, rows in files]
        yield from deletes.upload(head)
        self._stored += deletes.made()
        for number, (group, named) in noted.items():
            self.work.followed[number] = replace(group, marks=tuple(deletes[one] for one in named))

    def _stay(
        self, files: Sequence[tuple[FileScanTask, FileScanTask]]
    ) -> Generator[Effect, Outcome, list[Flags | None]]:
        """Which of the rows of files that were read other delete files leave; None as ``more_gone``, or where rows have other ids."""
        found: list[Flags | None] = []
        for before, after in files:
            is_plain = position_deletes.is_plain(after) and first_id(before.file) == first_id(after.file)
            had = (yield from live_of(before, self.limits)) if is_plain else None
            now = None if had is None else (yield from more_gone(had, before, after, self.limits))
            found.append(None if had is None or now is None else now.flags()[had.flags()])
        return found

    # --- how it ended -----------------------------------------------------------------------------
    def compacted(self, version: int | None, in_doubt: str | None = None) -> Compacted:
        """What the commit came to."""
        return self.work.compacted(version, in_doubt, lambda file: int(file.mark.size))
