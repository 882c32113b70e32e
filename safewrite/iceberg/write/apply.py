"""Applies changes by key and sequence in one snapshot: rows, and what must be remembered of those that went.

The plan is made on the snapshot that the new one follows, so two writers never insert one key twice (C9).  Copy-on-write:
files that hold keys of the batch are rewritten without their old rows; where the table is merge-on-read their old rows
are marked as gone in position delete files instead.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.lookup.table_files import LiveFile
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.joined_changes import JoinedChanges, Planned, described, plan_with_others
from safewrite.changes.tasks.abc import MUCH_BYTES, AppliedBatch, BatchWork
from safewrite.changes.tasks.one_part import OnePart
from safewrite.errors import InternalError
from safewrite.frames.predicate import Predicate
from safewrite.frames.replace_where import EVERYTHING, NOWHERE
from safewrite.iceberg.data.pruning import SoughtValues
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.evolution import evolved
from safewrite.iceberg.write.file_changes import IcebergChange
from safewrite.iceberg.write.inserted_rows import InsertedRows
from safewrite.iceberg.write.key_lookup import marks
from safewrite.iceberg.write.memory_file import MemoryFile
from safewrite.iceberg.write.row_files import Mark, RowRemoval, change_of, live_file, mark_of
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.table_files import PlannedTable
from safewrite.iceberg.write.waiting import folder_of
from safewrite.iceberg.write.waiting_changes import ChangesToShare
from safewrite.protocol.ask import wall_ms
from safewrite.protocol.contention import BaseMovedError
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import MembersMetError
from safewrite.table.change import TableChange

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.catalog.commit_request import CommitRequest

BLOB = "safewrite-changes-v1"


@dataclass
class ApplyPlan(AppendPlan):
    """Changes to be applied.  Files that were rewritten serve every attempt in which the same rows stay."""

    operation: str = "overwrite"
    rebases: bool = True
    target_file_size: int = 0
    memory: MemoryFile = field(default_factory=MemoryFile, repr=False)
    work: BatchWork | None = None
    spec: Spec | None = None
    joined: JoinedChanges[Write] | None = None
    """The changes as those that others may apply, and those of others; None where they are applied alone."""
    applied: AppliedBatch | None = None
    planned_table: PlannedTable = field(default_factory=PlannedTable, repr=False)
    """What the work is told of this plan."""
    _removal: RowRemoval | None = field(default=None, repr=False)
    _has_looked: bool = False
    _sought: SoughtValues | None = field(default=None, repr=False)
    _rows: InsertedRows | None = field(default=None, repr=False)

    @property
    def sharer(self) -> ChangesToShare | None:
        """The changes as those that others may apply; None where the commit does more than that."""
        joined = self.joined
        return None if joined is None or not self.may_share else ChangesToShare(self, self.planned, joined)

    @property
    def serves_others(self) -> bool:
        """See ``AppendPlan.serves_others``."""
        return self.joined is not None and bool(self.joined.others)

    @property
    def whole(self) -> Write:
        """All that the snapshot carries."""
        return self.write if self.joined is None else self.joined.whole(self.write, self.applied)

    @property
    def folder(self) -> str:
        """Where the changes wait."""
        return folder_of(self.planned)

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Plan with the members that joined.

        Raises:
            MembersMetError: members of a group are at fault.
        """
        once, joined = partial(self._plan_once, head), self.joined
        faults = yield from (once() if joined is None else plan_with_others(joined, once))
        if faults:
            self.met |= faults
            raise MembersMetError("Members of this group are at fault. Nothing of it was committed.")

    def _plan_once(self, head: TableVersion) -> Planned:
        """Decide about every change on the files of the base that may hold its key."""
        work, spec = self._parts()
        head = self.planned_table.version = evolved(head, self.evolution)
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self.memory.recall(head, spec, schema, self.limits)
        tasks: dict[Mark, FileScanTask] = {}
        looked: dict[Mark, LiveFile] = {}
        if spec.full_refresh:
            tasks = yield from self._tasks(head, EVERYTHING)
        elif work.bounds != NOWHERE:
            tasks = yield from self._tasks(head, work.bounds)
            if self._sought is None or self._sought.of is not work.values:
                self._sought = SoughtValues(work.values)
            held = self._sought.holding([*tasks.values()], table_of(head).metadata)
            looked = {mark_of(task): live_file(mark_of(task), task) for task in held}
        applied = yield from work.apply(memory, [*looked.values()], (yield from wall_ms()))
        outcome, self.applied = applied.outcome, applied
        if outcome.faults:
            return outcome.faults
        self.rebased += applied.is_rebased
        gone = applied.gone_rows(spec.sequence_by, {file.name: mark for mark, file in looked.items()})
        yield from self._look_before(head, tasks, gone)
        change = yield from self._replaced(head, tasks, gone)
        self._rows = self._rows or InsertedRows(self.write_id, self.target_file_size, self.limits)
        added = yield from self._rows.files(head, applied)
        unused = (*change.unused, *(file for file in self._rows.stored if file not in added))
        self.change = change = replace(change, added=added, unused=unused)
        if not gone.is_cut and not spec.full_refresh:
            check_accounts(outcome.settled.decision, applied.rows + outcome.again, change.removed_rows)
        yield from self.memory.remember(
            head,
            memory,
            outcome.memory,
            self.limits,
            snapshot_id=self.snapshot_id,
            location=self.new_location(head, f"safewrite-changes-{self.write_id}-{self.attempt}.puffin"),
            refreshes=spec.full_refresh,
        )
        self.write = described(self.write, applied, len(change.rewritten) + len(change.added))
        return {}

    def _look_before(
        self, head: TableVersion, tasks: dict[Mark, FileScanTask], gone: GoneRows[Mark]
    ) -> Generator[Effect, Outcome, None]:
        """Look at the table once before many bytes of files are written again: what others did meanwhile is taken over first.

        Raises:
            BaseMovedError: they did something.
        """
        again = (task.file for mark, task in tasks.items() if gone.may_lose(mark) and not marks(head, task))
        is_little = gone.is_cut or sum(one.file_size_in_bytes for one in again) < MUCH_BYTES
        if is_little or self.serves_others or self._has_looked:
            return
        self._has_looked = True  # a plan that never tried would never wait for its turn
        yield from self._look(head)

    def _look(self, head: TableVersion, *, is_try: bool = False) -> Generator[Effect, Outcome, None]:
        """Break the plan off where others changed the table.

        Raises:
            BaseMovedError: they did.
        """
        if (yield from load(self.limits)).current != head.current:
            raise BaseMovedError(is_try=is_try)

    def _parts(self) -> tuple[BatchWork, Spec]:
        if self.work is None or self.spec is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.work, self.spec

    def _replaced(
        self, head: TableVersion, tasks: dict[Mark, FileScanTask], gone: GoneRows[Mark]
    ) -> Generator[Effect, Outcome, IcebergChange]:
        """Take rows out of the files that lose some, or let all files go; ``tasks`` are those that may have the keys."""
        work, spec = self._parts()
        if spec.full_refresh:  # all files go, with their rows unread
            files = tuple(task.file for task in tasks.values())
            unsure = any(task.delete_files for task in tasks.values())
            dropped = None if unsure else sum(file.record_count for file in files)
            return TableChange(removed=files, removed_rows=dropped)
        if gone.is_cut:
            tasks = yield from self._tasks(head, EVERYTHING)
        losing = {file: task for file, task in tasks.items() if gone.may_lose(file)}
        live = self.planned_table.live
        self._removal = self._removal or RowRemoval(work, self.write_id, self.limits, live)
        looks = self.attempt > 0 and isinstance(work, OnePart)  # a try was lost
        look = partial(self._look, head, is_try=True) if looks else None
        losses = yield from self._removal.take_out(head, losing, gone, look)
        return change_of(((tasks[mark].file, loss) for mark, loss in losses.items()), self._removal.made())

    def without(self, known: Container[str], write_id: str) -> None:
        """Go on without the members of these keys, as another snapshot with other files."""
        super().without(known, write_id)
        assert isinstance(self.work, OnePart)
        self.work.leave_out(known)
        self._removal = self._rows = None

    def _tasks(
        self, head: TableVersion, predicate: Predicate
    ) -> Generator[Effect, Outcome, dict[Mark, FileScanTask]]:
        tasks = yield from planned(head, predicate, self.known, self.limits)
        return {mark_of(task): task for task in tasks}

    # --- what is remembered ---------------------------------------------------------------------------
    def _table_properties(self, head: TableVersion) -> dict[str, str]:
        return super()._table_properties(head) | self.memory.table_properties(head)

    def _change(
        self, head: TableVersion, location: str, now_ms: int, lineage: Mapping[str, int]
    ) -> CommitRequest:
        request = super()._change(head, location, now_ms, lineage)
        return self.memory.registered(request, self.snapshot_id)
