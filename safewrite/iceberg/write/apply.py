"""Applies changes by key and sequence in one snapshot: rows, and what must be remembered of those that went.

The plan is made on the snapshot that the new one follows, so two writers never insert one key twice (C9).  Copy-on-write:
files that hold keys of the batch are rewritten without their old rows; where the table is merge-on-read their old rows
are marked as gone in position delete files instead.  The memory of deleted keys is a Puffin file; a
table property, set in the same commit, names it.  A tag keeps the snapshot that registers the file as its statistics, so
that neither expiry of snapshots nor removal of orphan files, by whatever engine, takes it away.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.lookup.table_files import LiveFile
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.joined_changes import JoinedChanges, Planned, described, plan_with_others
from safewrite.changes.tasks.one_part import AppliedBatch, BatchWork, OnePart
from safewrite.errors import InternalError, Kind, StorageError
from safewrite.frames.predicate import Predicate
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg import branch_properties
from safewrite.iceberg.data.pruning import holding
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import MEMORY, MEMORY_OF, memory_of
from safewrite.iceberg.write import puffin
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.overwrite import ReplacePlan
from safewrite.iceberg.write.row_files import Mark, RowRemoval, live_file, mark_of
from safewrite.iceberg.write.staging import Staging, seen
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.table_files import PlannedTable
from safewrite.iceberg.write.waiting import folder_of
from safewrite.iceberg.write.waiting_changes import ChangesToShare
from safewrite.iceberg.write.withdrawal import WithdrawnWrite
from safewrite.protocol.ask import ask, unanswered
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome, Put, WallClock
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import MembersMetError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Operation

    from safewrite.iceberg.catalog.commit_request import CommitRequest

BLOB = "safewrite-changes-v1"


@dataclass
class ApplyPlan(ReplacePlan):
    """Changes to be applied.  Files that were rewritten serve every attempt in which the same rows stay."""

    work: BatchWork | None = None
    spec: Spec | None = None
    joined: JoinedChanges[Write] | None = None
    """The changes as those that others may apply, and those of others; None where they are applied alone."""
    applied: AppliedBatch | None = None
    planned_table: PlannedTable = field(default_factory=PlannedTable, repr=False)
    """What the work is told of this plan."""
    _memory: puffin.Puffin | None = field(default=None, repr=False)
    _memory_location: str = ""
    _removal: RowRemoval | None = field(default=None, repr=False)
    _inserted: tuple[AppliedBatch, Sequence[DataFile]] | None = field(default=None, repr=False)
    _stores: int = 0
    _known: tuple[str, Memory] | None = field(default=None, repr=False)
    """What a file of what is remembered says; none is ever changed."""
    _deletes: list[DataFile] = field(default_factory=list, repr=False)
    """Delete files that the snapshot adds."""
    _dropped_rows: int | None = 0
    _copied_bytes: int | None = None

    @property
    def operation(self) -> Operation:
        """The snapshot's ``operation``."""
        from pyiceberg.table.snapshots import Operation

        return Operation.OVERWRITE

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

    def withdrawal(self, write_id: str) -> AppendPlan:
        """A plan that takes back what was offered of the changes; it looks for their key in all snapshots before its own."""
        new_id = table_of(self.planned).metadata.new_snapshot_id()
        write = WithdrawnWrite(self.write.key, self.write.fingerprint)
        how: dict[str, Any] = {"branch": self.branch, "known": self.known, "ledger_in": self.ledger_in}
        return AppendPlan(write, new_id, write_id, self.planned, Staging(self.limits), self.limits, **how)

    def removed_rows(self) -> int | None:
        """How many rows the snapshot removes; None where a file that goes whole has delete files."""
        return self._dropped_rows

    def copied_bytes(self) -> int | None:
        """The bytes of new files that hold rows of replaced ones."""
        return self._copied_bytes

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
        self.planned_table.version = head
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self._recalled(head, spec, schema)
        tasks: dict[Mark, FileScanTask] = {}
        looked: dict[Mark, LiveFile] = {}
        if spec.full_refresh:
            tasks = yield from self._tasks(head, EVERYTHING)
        elif work.bounds != EVERYTHING:  # else there are truncates alone
            tasks = yield from self._tasks(head, work.bounds)
            held = holding([*tasks.values()], work.values, table_of(head).metadata)
            looked = {mark_of(task): live_file(mark_of(task), task) for task in held}
        clock = yield WallClock()
        assert isinstance(clock, Ok)
        assert isinstance(clock.value, int)
        applied = yield from work.apply(memory, [*looked.values()], clock.value)
        outcome, self.applied = applied.outcome, applied
        if outcome.faults:
            return outcome.faults
        self.rebased += applied.is_rebased
        gone = applied.gone_rows(spec.sequence_by, {file.name: mark for mark, file in looked.items()})
        yield from self._take_out(head, tasks, gone)
        self._rewritten += yield from self._insert(head, applied, schema)
        if not gone.is_cut and not spec.full_refresh:
            check_accounts(outcome.settled.decision, applied.rows + outcome.again, self._dropped_rows)
        yield from self._remember(head, memory, outcome.memory)
        self.write = described(self.write, applied, len(self._rewritten))
        return {}

    def _parts(self) -> tuple[BatchWork, Spec]:
        if self.work is None or self.spec is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.work, self.spec

    def _take_out(
        self, head: TableVersion, tasks: dict[Mark, FileScanTask], gone: GoneRows[Mark]
    ) -> Generator[Effect, Outcome, None]:
        """Plan, from the start, the files that go and those that lose rows; ``tasks`` are those that may have the keys."""
        work, spec = self._parts()
        if gone.is_cut and not spec.full_refresh:
            tasks = yield from self._tasks(head, EVERYTHING)
        self._removed, self._rewritten, self._deletes, self._kept, self._copied_bytes = [], [], [], 0, 0
        if spec.full_refresh:  # all files go, with their rows unread
            self._removed, self._copied_bytes = [task.file for task in tasks.values()], None
            unsure = any(task.delete_files for task in tasks.values())
            self._dropped_rows = None if unsure else sum(file.record_count for file in self._removed)
            return
        losing = {file: task for file, task in tasks.items() if gone.may_lose(file)}
        live = self.planned_table.live
        self._removal = self._removal or RowRemoval(work, self.write_id, self.limits, live)
        losses = yield from self._removal.take_out(head, losing, gone)
        self._dropped_rows = sum(loss.rows for loss in losses.values())
        for file, loss in losses.items():
            self._copied_bytes += sum(one.file_size_in_bytes for one in loss.rest)
            self._rewritten += loss.rest
            self._kept += loss.kept
            self._deletes += loss.deletes
            if loss.removes:
                self._removed.append(tasks[file].file)

    def without(self, known: Container[str], write_id: str) -> None:
        """Go on without the members of these keys, as another snapshot with other files."""
        super().without(known, write_id)
        assert isinstance(self.work, OnePart)
        self.work.leave_out(known)
        self._removal = self._inserted = None

    def _tasks(
        self, head: TableVersion, predicate: Predicate
    ) -> Generator[Effect, Outcome, dict[Mark, FileScanTask]]:
        tasks = yield from planned(head, predicate, self.known, self.limits)
        return {mark_of(task): task for task in tasks}

    def _insert(
        self, head: TableVersion, applied: AppliedBatch, schema: pa.Schema
    ) -> Generator[Effect, Outcome, Sequence[DataFile]]:
        """The files of the rows that win; they serve every attempt in which the same changes win as they came."""
        if applied.come is None:
            return (yield from seen(applied.files, self.limits))
        if not applied.rows:
            return ()
        if self._inserted is None or not applied.comes_as(self._inserted[0]):
            self._stores += 1
            staging = Staging(self.limits)
            yield from staging.upload(self.encoded(applied.come, head, schema, self._stores))
            yield from staging.complete(())
            self._inserted = applied, tuple(staging.data_files)
        return self._inserted[1]

    # --- manifests ------------------------------------------------------------------------------------
    @property
    def counted(self) -> Sequence[DataFile]:
        """Every file that the summary counts as added."""
        return [*self.added, *self._deletes]

    def new_manifests(
        self, head: TableVersion
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """The manifests of the snapshot on this base, those of delete files last."""
        from safewrite.iceberg.write import position_deletes

        manifests, puts = yield from super().new_manifests(head)
        for spec_id in sorted({one.spec_id for one in self._deletes}):
            location = self.new_location(head, f"{self.write_id}-{self.attempt}-d{spec_id}.avro")
            files = [one for one in self._deletes if one.spec_id == spec_id]
            made, body = position_deletes.manifest(
                table_of(head).metadata, self.schema, self.snapshot_id, files, location
            )
            manifests.append(made)
            puts = (*puts, Put(location, body, name="stage.put_manifest"))
        return manifests, puts

    # --- what is remembered ---------------------------------------------------------------------------
    def _recalled(
        self, head: TableVersion, spec: Spec, schema: pa.Schema
    ) -> Generator[Effect, Outcome, Memory]:
        metadata = table_of(head).metadata
        ids = {column.name: column.field_id for column in metadata.schema().fields}
        nothing = Memory.empty(spec.keys, spec.sequence_by, schema, ids=ids)
        location = memory_of(head)
        if location is None or spec.full_refresh:
            return nothing
        if self._known is not None and self._known[0] == location:
            return self._known[1]
        get = Get(location, name="apply.get_memory")
        outcome = yield from ask(get, self.limits)
        if isinstance(outcome, Missing):
            raise _forgotten(location, "it is gone")
        if not isinstance(outcome, Ok):
            raise unanswered(get, outcome)
        assert isinstance(outcome.value, bytes)
        try:
            body = puffin.decoded(outcome.value)
        except (ValueError, KeyError) as error:
            raise _forgotten(location, str(error)) from error
        self._known = location, nothing.decode(body, location, _ids_of_then(metadata, location, self.branch))
        return self._known[1]

    def _remember(
        self, head: TableVersion, before: Memory, after: Memory
    ) -> Generator[Effect, Outcome, None]:
        self._memory = None
        refreshes = self.spec is not None and self.spec.full_refresh
        same = not refreshes and before.has_ids and after.says_the_same(before)
        if memory_of(head) is not None and same:
            return
        sequence = table_of(head).metadata.next_sequence_number()
        self._memory = puffin.encoded(after.encode(), BLOB, self.snapshot_id, sequence)
        self._memory_location = self.new_location(
            head, f"safewrite-changes-{self.write_id}-{self.attempt}.puffin"
        )
        put = Put(self._memory_location, self._memory.body, name="apply.put_memory")
        outcome = yield from ask(put, self.limits)
        if not isinstance(outcome, Ok):
            raise unanswered(put, outcome)

    def _table_properties(self, head: TableVersion) -> dict[str, str]:
        own = super()._table_properties(head)
        return (
            own if self._memory is None else own | {MEMORY: self._memory_location, MEMORY_OF: head.table_id}
        )

    def _change(self, head: TableVersion, location: str, now_ms: int) -> CommitRequest:
        request = super()._change(head, location, now_ms)
        if self._memory is None:
            return request
        from pyiceberg.table.statistics import StatisticsFile
        from pyiceberg.table.update import SetStatisticsUpdate

        statistics = StatisticsFile.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "statistics-path": self._memory_location,
                "file-size-in-bytes": len(self._memory.body),
                "file-footer-size-in-bytes": self._memory.footer_bytes,
                "blob-metadata": [],
            }
        )
        more = (
            branch_properties.tag(self.branch, self.snapshot_id),
            SetStatisticsUpdate.model_validate({"statistics": statistics}),
        )
        return replace(
            request,
            updates=(*request.updates, *more),
            written=(*request.written, self._memory_location),
        )


def _ids_of_then(metadata: TableMetadata, location: str, branch: str) -> Mapping[str, int]:
    """The ids of the table's columns when a file of what is remembered was written: its snapshot says under which schema.

    Where another engine took the snapshot away, names tell that only ever one column had.
    """
    tagged = metadata.refs.get(branch_properties.tag_of(branch))
    of_file = [one.snapshot_id for one in metadata.statistics if one.statistics_path == location]
    for at in (*of_file, *([tagged.snapshot_id] if tagged else [])):
        snapshot = metadata.snapshot_by_id(at)
        for schema in metadata.schemas:
            if snapshot is not None and schema.schema_id == snapshot.schema_id:
                return {column.name: column.field_id for column in schema.fields}
    ever: dict[str, set[int]] = {}
    for schema in metadata.schemas:
        for column in schema.fields:
            ever.setdefault(column.name, set()).add(column.field_id)
    return {name: ids.pop() for name, ids in ever.items() if len(ids) == 1}


def _forgotten(location: str, why: str) -> StorageError:
    return StorageError(
        f"{location}, which remembers the deleted keys of the table, cannot be read: {why}. Nothing was committed. Restore the "
        "file, or the table could not tell late changes from new ones.",
        kind=Kind.DATA_FILE_DAMAGED,
    )
