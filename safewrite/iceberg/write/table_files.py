"""Reads and writes the data files of an Iceberg table, where a plan is made or in a task."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import Before, KeySearch, staying
from safewrite.changes.lookup.table_files import (
    FileRemainder,
    Followed,
    Gathered,
    LiveFile,
    RowsThatCame,
    SmallReads,
)
from safewrite.changes.meaning.positions import Numbers
from safewrite.errors import InternalError
from safewrite.iceberg.catalog.addresses import TableAddress
from safewrite.iceberg.data.datafiles import StagedFile
from safewrite.iceberg.data.lineage import as_written, first_id, kept_columns
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.evolution import Evolution, evolved
from safewrite.iceberg.write.file_changes import encoded_rows
from safewrite.iceberg.write.key_lookup import Looking, marks
from safewrite.iceberg.write.marked_rows import KnownMarks, live_of, more_gone
from safewrite.iceberg.write.row_files import Remaking
from safewrite.iceberg.write.staging import UploadedFile, secured, uploaded
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.stores.world import run

if TYPE_CHECKING:
    from safewrite.iceberg.write.position_deletes import UnmarkedRows

T = TypeVar("T")


@dataclass
class PlannedTable:
    """The version that a plan is made on, and what look-ups found out of files.

    ``live`` says, by file, which rows are live where some are marked as gone; None where that is not known.
    """

    version: TableVersion | None = None
    live: dict[str, UnmarkedRows | None] = field(default_factory=dict)
    known: KnownMarks = field(default_factory=KnownMarks)
    """The same of earlier plans, and of earlier writes where these are told of it."""


@dataclass(frozen=True)
class IcebergTableFiles:
    """See :class:`safewrite.changes.lookup.table_files.TableFiles`; files are ``UploadedFile``, handles are ``FileScanTask``.

    ``table`` is how tasks reach the files; None where a plan does.
    """

    write_id: str
    target_file_size: int
    limits: Limits
    table: TableAddress | None = None
    planned: PlannedTable = field(default_factory=PlannedTable, repr=False, compare=False)
    evolution: Evolution | None = None
    """What the plan's commit makes of the schema, for tasks."""
    small: SmallReads = field(default_factory=SmallReads, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"planned": PlannedTable()}

    @property
    def head(self) -> TableVersion:
        """The version of the table: a plan's own, or that which a task was told."""
        if self.table is not None:
            return evolved(self.table.open().head, self.evolution)
        if self.planned.version is None:
            raise InternalError("Changes were applied before they were planned. Please report it.")
        return self.planned.version

    def named(self, write_id: str) -> IcebergTableFiles:
        """See the class."""
        return replace(self, write_id=write_id)

    def run(self, steps: Generator[Effect, Outcome, T]) -> T:
        """See the class."""
        if self.table is None:
            raise InternalError(
                "A task does not know where its table is. Nothing was committed. Please report it."
            )
        return run(steps, self.table.open().world)

    def look_up(self, files: Sequence[LiveFile], sought: KeySearch) -> Generator[Effect, Outcome, None]:
        """See the class."""
        is_plan = self.table is None
        looking = Looking(
            self.head,
            self.limits,
            self.planned.live if is_plan else {},
            self.planned.known if is_plan else None,
        )
        yield from looking.look({file.name: file.handle for file in files}, sought)
        self.small.keep(sought)

    def followed(
        self, before: Sequence[LiveFile], after: Sequence[LiveFile]
    ) -> Generator[Effect, Outcome, Sequence[Followed]]:
        """See the class: those that have more position delete files now, which alone are read.

        A file of an upgraded table whose rows got ids meanwhile is another one: what was found in it had none.
        The version of the table is the plan's, whoever looked through the files.
        """
        head = self.planned.version
        assert head is not None
        found, old = list[Followed](), {file.handle.file.file_path: file for file in before}
        for now in after:
            file = old.get(now.handle.file.file_path)
            if file is None or not (marks(head, file.handle) and marks(head, now.handle)):
                continue
            if first_id(file.handle.file) != first_id(now.handle.file):
                continue
            had = yield from self._known_live(file)
            has = None if had is None else (yield from more_gone(had, file.handle, now.handle, self.limits))
            if had is not None and has is not None:
                self.planned.live[now.name] = has
                self.planned.known.keep(head.table_id, now.handle, has)
                found.append((file.name, now.name, has.flags()[had.flags()]))
        return found

    def gathered(self, after: Sequence[LiveFile]) -> Sequence[Gathered]:
        """See the class: no compaction says it."""
        return ()

    def _known_live(self, file: LiveFile) -> Generator[Effect, Outcome, UnmarkedRows | None]:
        """Which rows of a file were live that was looked through; None where that is not known."""
        from safewrite.iceberg.write.position_deletes import UnmarkedRows

        if file.handle.delete_files:
            if file.name not in self.planned.live:  # tasks looked through it
                self.planned.live[file.name] = yield from live_of(file.handle, self.limits)
            return self.planned.live[file.name]
        return UnmarkedRows(file.handle.file.record_count, np.zeros(0, np.int64))

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> Generator[Effect, Outcome, RowsThatCame]:
        """See the class."""
        rows, schema = as_written(come, table_of(self.head).metadata)
        files = self.encoded(rows, schema=schema, at=at) if come.num_rows else ()
        return RowsThatCame(come.num_rows, (yield from self.stored(files)))

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """See the class.  From format version 3 on rows keep the ids that they have."""
        gone, schema = (
            {file.name: places for file, places in work},
            kept_columns(table_of(self.head).metadata),
        )
        remaking = Remaking(
            self.head,
            schema,
            self.limits,
            (partial(self.encoded, schema=schema, at=f"{at}-kept{number}") for number in range(len(work))),
            self.stored,
        )
        return (
            yield from remaking.made(
                {file.name: file.handle for file, _ in work},
                lambda name, rows: staying(rows, gone[name], before),
                self.small.pop,
            )
        )

    def stored(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, tuple[UploadedFile, ...]]:
        """Upload files; those of a plan are looked at at once, and those of a task by the plan that gets its report."""
        return (yield from (secured if self.table is None else uploaded)(files, self.limits))

    def encoded(self, rows: pa.Table, *, schema: pa.Schema, at: str) -> Iterable[StagedFile]:
        """Files of rows, made one by one as they are asked for."""
        return encoded_rows(rows, self.head, schema, f"{self.write_id}-{at}", self.target_file_size)
