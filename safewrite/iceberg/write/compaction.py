"""Puts data files together in one snapshot that changes no row: groups of files that are still there become fewer files.

The plan is made on the snapshot that the new one follows.  A file of which others took rows meanwhile has other delete files, and so
another mark: its group is left out.  So all deletions up to that snapshot are applied, and later ones are newer than our files.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.errors import (
    ConflictError,
    DataFileError,
    InvalidInputError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.frames.parallel import Begun, windows
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.reading import fetched, planned
from safewrite.iceberg.data.schema import arrow_schema
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
from safewrite.table.change import TableChange
from safewrite.upkeep.groups import Group, Inventory, StoredFile
from safewrite.upkeep.maintain import TAKEN, Compacted, left_out

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask


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
        tasks = yield from planned(head, EVERYTHING, known, limits)
    spec_id = table_of(head).metadata.default_spec_id
    files = [_stored(task, spec_id) for task in tasks]
    return Inventory(-1 if head.current is None else head.current, files, target, {})


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
@dataclass(frozen=True)
class _Regrouped:
    """The files that take the place of others, and how many rows they have."""

    taken: tuple[DataFile, ...]
    files: tuple[DataFile, ...]
    rows: int


@dataclass
class CompactionPlan(AppendPlan):
    """Groups of files, each of which goes as a whole or not at all."""

    operation: str = "replace"
    groups: Sequence[Group] = ()
    target_file_size: int = 0
    dropped: dict[int, str] = field(default_factory=dict)
    """Why groups are left out, by their number."""
    _made: dict[int, _Regrouped] = field(default_factory=dict, repr=False)

    @property
    def keeps_ids(self) -> bool:
        """See ``AppendPlan.keeps_ids``."""
        return False

    def standing(self) -> list[int]:
        """The groups that are not left out."""
        return [number for number in self._made if number not in self.dropped]

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Read the files of groups that are still there, and write them again; on a later base only see that they are.

        Raises:
            ConflictError: kind CONFLICT; no group is left.
        """
        tasks = {
            mark_of(task): task for task in (yield from planned(head, EVERYTHING, self.known, self.limits))
        }
        for number, group in enumerate(self.groups):
            if number in self.dropped:
                continue
            there = [tasks[file.name] for file in group.files if file.name in tasks]
            if len(there) < len(group.files):
                self.dropped[number] = TAKEN
            elif number not in self._made:
                try:
                    self._made[number] = yield from self._regrouped(head, there, number)
                except (DataFileError, UnsupportedTableError, WouldAlterError, InvalidInputError) as error:
                    self.dropped[number] = error.message
        if not self.standing():
            raise ConflictError("No group of files is left to be put together. Nothing was committed.")
        made = [self._made[number] for number in self.standing()]
        self.change = TableChange(
            removed=tuple(file for one in made for file in one.taken),
            rewritten=tuple(file for one in made for file in one.files),
            kept_rows=sum(one.rows for one in made),
        )

    def _regrouped(
        self, head: TableVersion, tasks: Sequence[FileScanTask], number: int
    ) -> Generator[Effect, Outcome, _Regrouped]:
        """The uploaded files of the live rows of a group, in its order, or in that of the table.

        Raises:
            UnsupportedTableError, WouldAlterError: a row cannot be written again without loss.
            StorageError: a file is gone, or the store gave no answer.
        """
        schema = arrow_schema(table_of(head).metadata.schema())
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
        return _Regrouped(tuple(task.file for task in tasks), tuple(staging.data_files), count)

    # --- how it ended -----------------------------------------------------------------------------
    def compacted(self, version: int | None, in_doubt: str | None = None) -> Compacted:
        """What the commit came to."""
        if version is None:
            return left_out(self.groups, self.dropped, in_doubt)
        done = tuple(self.groups[number] for number in self.standing())
        made, dropped = self.change.rewritten, tuple(self.dropped.values())
        size = sum(file.file_size_in_bytes for file in made)
        return Compacted(version, done, dropped, len(made), size, self.change.kept_rows or 0)

    def never_named(self) -> list[Delete]:
        """The files of groups that were left out, which no commit can name any more once this one is known to stand."""
        made = [one for number, one in self._made.items() if number in self.dropped]
        return [Delete(file.file_path, name="compact.delete_lost") for one in made for file in one.files]
