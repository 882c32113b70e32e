"""Puts data files together in one snapshot that changes no row: groups of files that are still there become fewer files.

The plan is made on the snapshot that the new one follows.  A file of which others took rows meanwhile has other delete files, and so
another mark: its group is left out.  So all deletions up to that snapshot are applied, and later ones are newer than our files.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from safewrite.frames.parallel import Begun, windows
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.lineage import kept_columns
from safewrite.iceberg.data.reading import fetched, planned
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.file_changes import encoded_rows
from safewrite.iceberg.write.key_lookup import size_of
from safewrite.iceberg.write.position_deletes import rows_taken
from safewrite.iceberg.write.row_files import Mark, mark_of
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Delete, Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.regrouping import Regrouped, Regrouping
from safewrite.upkeep.groups import Inventory, StoredFile
from safewrite.upkeep.maintain import Compacted

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

IcebergRegrouping: TypeAlias = "Regrouping[DataFile, DataFile]"


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
    spec_id = table_of(head).metadata.default_spec_id
    files = [_stored(task, spec_id) for task in tasks]
    return Inventory(-1 if head.current is None else head.current, files, target, {}, listing=known)


def _count(head: TableVersion) -> int:
    """How many data files the newest snapshot says that there are."""
    snapshot = table_of(head).metadata.snapshot_by_id(head.current or 0)
    said = snapshot.summary["total-data-files"] if snapshot is not None and snapshot.summary else None
    return int(said) if said is not None and said.isdecimal() else 0


def _stored(task: FileScanTask, spec_id: int) -> StoredFile:
    file = task.file
    return StoredFile(
        mark_of(task),
        (file.spec_id, repr(file.partition)),
        file.file_size_in_bytes,
        file.record_count,
        sum(rows_taken(one, file.file_path) for one in task.delete_files),
        len(task.delete_files),
        "" if file.spec_id == spec_id else "it is of an older partition spec",
    )


# --- one commit -----------------------------------------------------------------------------------------
@dataclass
class CompactionPlan(AppendPlan):
    """Groups of files, each of which goes as a whole or not at all."""

    operation: str = "replace"
    work: IcebergRegrouping = field(kw_only=True)
    listing: KnownManifests = field(kw_only=True, repr=False)
    """What the inventory decoded, which may know no statistics of columns."""
    target_file_size: int = field(kw_only=True)

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Read the files of groups that are still there, and write them again; on a later base only see that they are.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
        """
        tasks = {
            mark_of(task): task for task in (yield from planned(head, EVERYTHING, self.listing, self.limits))
        }
        yield from self.work.make(tasks, partial(self._regrouped, head))
        self.change = replace(self.work.change(), rewritten=self.work.files)

    def _regrouped(
        self, head: TableVersion, number: int, tasks: Sequence[FileScanTask]
    ) -> Generator[Effect, Outcome, Regrouped[DataFile, DataFile]]:
        """The uploaded files of the live rows of a group, in its order, or in that of the table.

        Raises:
            UnsupportedTableError, WouldAlterError: a row cannot be written again without loss.
            StorageError: a file is gone, or the store gave no answer.
        """
        schema = kept_columns(table_of(head).metadata)
        parts: list[pa.Table] = []
        marks: dict[Mark, FileScanTask] = {mark_of(task): task for task in tasks}
        for some in windows([*marks], lambda mark: size_of(marks[mark])):
            reads = yield from fetched(
                head, {mark: marks[mark] for mark in some}, lambda _: None, schema, self.limits
            )
            parts += Begun([reads.pop(mark) for mark in some], alone=len(some) == 1).results()
        rows = pa.concat_tables(parts).combine_chunks()
        del parts
        staging, count = Staging(self.limits), rows.num_rows
        if count:
            name = f"{self.write_id}-r{number}"
            yield from staging.upload(encoded_rows(rows, head, schema, name, self.target_file_size))
            yield from staging.complete(())
        return Regrouped(tuple(task.file for task in tasks), tuple(staging.data_files), count)

    # --- how it ended -----------------------------------------------------------------------------
    def compacted(self, version: int | None, in_doubt: str | None = None) -> Compacted:
        """What the commit came to."""
        return self.work.compacted(version, in_doubt, lambda file: file.file_size_in_bytes)

    def never_named(self) -> list[Delete]:
        """The files of groups that were left out, which no commit can name any more once this one is known to stand."""
        return [Delete(file.file_path, name="compact.delete_lost") for file in self.work.lost]
