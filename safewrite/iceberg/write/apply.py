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
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows, Touched, wanted
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.decide import ChangeBatch, KnownRows
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import TableEffect
from safewrite.changes.members.member_batches import GroupOutcome as Decided
from safewrite.changes.members.member_batches import MemberChanges, alone, one_by_one, whole
from safewrite.errors import InternalError, Kind, StorageError
from safewrite.frames.predicate import Predicate
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg import branch_properties
from safewrite.iceberg.data.pruning import holding, within
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import MEMORY, MEMORY_OF, memory_of
from safewrite.iceberg.write import puffin
from safewrite.iceberg.write.row_files import Mark, RowFilesPlan
from safewrite.iceberg.write.summary import Write
from safewrite.protocol.ask import ask, unanswered
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome, Put, WallClock
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import MembersMetError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Operation

    from safewrite.iceberg.catalog.commit_request import CommitRequest

BLOB = "safewrite-changes-v1"


@dataclass
class ApplyPlan(RowFilesPlan):
    """Changes to be applied.  Files that were rewritten serve every attempt in which the same rows stay."""

    changes: Changes | None = None
    group: tuple[MemberChanges, ...] = ()
    """The changes of the members, where the write is a group."""
    spec: Spec | None = None
    _memory: puffin.Puffin | None = field(default=None, repr=False)
    _memory_location: str = ""
    _touched: Touched[Mark] | None = field(default=None, repr=False)
    _inserted: dict[bytes | None, Sequence[DataFile]] = field(default_factory=dict, repr=False)
    _known: tuple[str, Memory] | None = field(default=None, repr=False)
    """What a file of what is remembered says; none is ever changed."""

    @property
    def operation(self) -> Operation:
        """The snapshot's ``operation``."""
        from pyiceberg.table.snapshots import Operation

        return Operation.OVERWRITE

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide about every change on the files of the base that may hold its key."""
        if self.spec is None or (self.changes is None and not self.group):
            raise InternalError("Changes were committed before they were read. Please report it.")
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self._recalled(head, self.spec, schema)
        refreshes = self.spec.full_refresh
        values = wanted(self._batch())
        tasks = yield from self._tasks(head, EVERYTHING if refreshes else within(values))
        if not refreshes:
            left = holding([*tasks.values()], values, table_of(head).metadata)
            tasks = {mark_of(task): task for task in left}
        touched = self._touched = self._touched or Touched[Mark](self._batch(), schema)
        if not refreshes:
            yield from self._look(head, tasks, touched, memory)
        clock = yield WallClock()
        assert isinstance(clock, Ok)
        assert isinstance(clock.value, int)
        decided = self._decide(self.spec, touched.known(memory), memory, clock.value)
        if decided.faults:
            self.met |= decided.faults
            raise MembersMetError("Members of this group are at fault. Nothing of it was committed.")
        settled = decided.settled
        decision = settled.decision
        touched.decided(decision, memory)
        yield from self._take_out(head, tasks, touched, schema, refreshes=refreshes)
        yield from self._insert(head, settled, schema)
        if not touched.is_cut and not refreshes:
            check_accounts(decision, settled.rows.num_rows + decided.again, self._dropped_rows)
        yield from self._remember(head, memory, decided.memory)
        self.write = _described(self.write, decided, len(self._rewritten))

    def _take_out(
        self,
        head: TableVersion,
        tasks: dict[Mark, FileScanTask],
        touched: GoneRows[Mark],
        schema: pa.Schema,
        *,
        refreshes: bool,
    ) -> Generator[Effect, Outcome, None]:
        """Plan, from the start, the files that go and those that lose rows; ``tasks`` are those that were looked through."""
        if touched.is_cut and not refreshes:
            tasks = yield from self._tasks(head, EVERYTHING)
        self._removed, self._rewritten, self._deletes, self._dropped_rows, self._kept = [], [], [], 0, 0
        if refreshes:
            self._remove_all(tasks)
        else:
            yield from self._replace(head, tasks, touched, schema)

    def _batch(self) -> ChangeBatch:
        """The changes that are to be applied, of all members."""
        if self.group:
            return whole(self.group)
        assert self.changes is not None
        return self.changes.batch

    def _decide(self, spec: Spec, known: KnownRows, memory: Memory, now_ms: int) -> Decided:
        if self.group:
            return one_by_one(self.group, spec, known, memory, now_ms)
        assert self.changes is not None
        return alone(self.changes, spec, known, memory, now_ms)

    def without(self, known: Container[str], write_id: str) -> None:
        """Go on without the members of these keys, as another snapshot with other files."""
        super().without(known, write_id)
        self.group = tuple(member for member in self.group if member.key not in known)
        self._losses, self._inserted = {}, {}

    def _tasks(
        self, head: TableVersion, predicate: Predicate
    ) -> Generator[Effect, Outcome, dict[Mark, FileScanTask]]:
        tasks = yield from planned(head, predicate, self.known, self.limits)
        return {mark_of(task): task for task in tasks}

    def _insert(
        self, head: TableVersion, settled: TableEffect, schema: pa.Schema
    ) -> Generator[Effect, Outcome, None]:
        """Upload the rows that win; they serve every attempt in which the same changes win as they came."""
        rows = settled.rows
        if not rows.num_rows:
            return
        wins = settled.decision.upserts.tobytes() if settled.is_as_it_came else None
        if wins is None or wins not in self._inserted:
            files = yield from self._stored(head, rows, schema)
            self._inserted = {wins: files}
        self._rewritten += self._inserted[wins]

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


def _described(write: Write, decided: Decided, files: int) -> Write:
    """A write that says what became of its changes; of a group each member does, and rows count once."""
    rows = decided.settled.rows.num_rows
    if not write.members:
        return replace(write, rows=rows, files=files, changes=decided.settled.decision.counts.to_dict())
    members = [
        replace(one, rows=decided.rows[one.key], changes=decided.counts[one.key].to_dict())
        for one in write.members
    ]
    return replace(Write.group(write.key, members, files), rows=rows)


def mark_of(task: FileScanTask) -> Mark:
    """The file, and its delete files."""
    return (task.file.file_path, *sorted(one.file_path for one in task.delete_files))
