"""Makes the change of a table that applies a batch of changes by key and sequence, on each base.

Copy-on-write: files that hold keys of the batch are rewritten without their old rows; where the table wants deletion vectors these
take the old rows away instead.  Data files never change, so only new ones are read: a file that others marked is the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.joined_changes import JoinedChanges, Planned, plan_with_others
from safewrite.changes.tasks.abc import MUCH_BYTES, AppliedBatch, BatchWork
from safewrite.changes.tasks.one_part import OnePart
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.row_ids import with_lasting
from safewrite.delta.data.rows import check_within, size_of
from safewrite.delta.data.spans import Bounded
from safewrite.delta.data.variants import with_variants
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, Commit, FileKey
from safewrite.delta.log.features import feeds_changes, marks_rows
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.moved_rows import moved_rows
from safewrite.delta.log.replay import LogReplay
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import Write
from safewrite.delta.write.change_feed import change_rows, rows_of_files, staged_changes
from safewrite.delta.write.file_changes import (
    NOTHING,
    DeltaChange,
    FileRewrite,
    FileVerdict,
    change_of,
    metrics_of,
)
from safewrite.delta.write.memory_file import APP_ID, MemoryFile
from safewrite.delta.write.row_files import RowRemoval, live_file
from safewrite.delta.write.staging import StagedFile
from safewrite.errors import InternalError
from safewrite.frames.predicate import columns, possible
from safewrite.frames.prepare import Prepared, prepare
from safewrite.frames.replace_where import NOWHERE
from safewrite.protocol.ask import Limits
from safewrite.protocol.contention import BaseMovedError
from safewrite.protocol.delta.claim import commit_path
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.member_queue import Steps


@dataclass
class BatchPlan:
    """A batch on its way into a table; what was read and made for one base serves the next."""

    spec: Spec
    work: BatchWork
    memory: MemoryFile
    vectors: Vectors
    known_files: KnownFiles
    now_ms: int
    limits: Limits
    joined: JoinedChanges[Write] | None = None
    """The changes as those that others may apply, and those of others; None where they are applied alone."""
    active: LogReplay | None = None
    """The live files that the last plan was made on."""
    applied: AppliedBatch | None = None
    change: DeltaChange = NOTHING
    """What becomes of the table's files, by the last plan."""
    is_stale: bool = False
    """Whether commits came since the plan that add or remove rows, or change what is remembered; or other members are to be carried."""
    plans: int = 0
    rests: Callable[[], Steps] | None = None
    """Writes files again by the last plan, where that is put off until the log was looked at: else others may have it done in vain."""
    breaks_off: bool = False
    """Whether a commit of others may break the plan off: where it is made for a try after one that was lost."""
    _holds: tuple[object, dict[str, bool]] = field(default=(None, {}), repr=False)
    """For the values of which keys, and whether a file, by its path, may have a row with one of these."""
    _removal: RowRemoval | None = field(default=None, repr=False)

    @property
    def given(self) -> AppliedBatch:
        """What became of the changes, by the last plan."""
        if self.applied is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        return self.applied

    @property
    def others(self) -> bool:
        """Whether changes of others are applied too."""
        return self.joined is not None and bool(self.joined.others)

    def upserts(self, state: Snapshot) -> Prepared:
        """The rows that are still to be written, of those that win."""
        rows = state.schema.empty_table() if self.given.come is None else self.given.come
        schema = with_lasting(state.schema, rows, state)
        return prepare(rows, schema, partition_by=state.partition_by, stored=True)

    def metrics(self, files: int, change: DeltaChange) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE; ``files`` are those of rows that come."""
        counts, there = self.given.outcome.settled.decision.counts, metrics_of(change)
        return {
            "numSourceRows": counts.changes,
            "numTargetRowsInserted": counts.inserted,
            "numTargetRowsUpdated": counts.updated,
            "numTargetRowsDeleted": counts.deleted,
            "numTargetFilesAdded": files + len(change.rewritten),
            "numTargetFilesRemoved": there.pop("numRemovedFiles"),
            **{f"numTarget{name.removeprefix('num')}": number for name, number in there.items()},
        }

    def begin_again(self, known: Container[str]) -> None:
        """Go on without the members of these keys, and make the next files as those of another commit."""
        assert isinstance(self.work, OnePart)
        self.work.leave_out(known)
        self._removal = None

    def follow(self, version: int, commit: Commit) -> None:
        """Take over what another's commit did to the files, and to what is remembered."""
        if commit.adds() or commit.removes() or any(txn["appId"] == APP_ID for txn in commit.txns):
            self.is_stale = True
        self.vectors.moved.update(moved_rows(commit))
        if self.active is not None:
            self.active = self.active.advance(version, commit)

    def know(self, state: Snapshot, commit: Commit) -> None:
        """The table after our commit: the handle's next write need not read the list of files that this one knows."""
        if self.active is not None and self.active.state.version == state.version - 1:
            self.known_files.keep(self.active.after(state, [commit]))

    def plan(self, state: Snapshot, commit_id: str, *, puts_off: bool = False) -> Planned:
        """Decide what becomes of the changes and of the table, with the members that joined and that no fault keeps out.

        With ``puts_off`` many bytes of files are written again by :meth:`finish` alone.

        Raises:
            UnsupportedTableError: a file that cannot be rewritten without loss.
            InvalidInputError: the batch must be refused; nothing was written.
            StorageError: no answer, or a file that is not what the log says.
        """
        once = partial(self._once, state, commit_id, puts_off=puts_off)
        return (yield from (once() if self.joined is None else plan_with_others(self.joined, once)))

    def finish(self) -> Steps:
        """Do what the last plan put off.  Raises as :meth:`plan`."""
        rests, self.rests = self.rests, None
        if rests is not None:
            yield from rests()

    def _once(self, state: Snapshot, commit_id: str, *, puts_off: bool) -> Planned:
        self.is_stale, self.plans, self.rests, self.breaks_off = False, self.plans + 1, None, not puts_off
        if self.active is None:
            self.active = yield from self.known_files.load(state, self.limits)
        memory = yield from self.memory.recall(state, self.spec, self.limits)
        live, refreshes = self.active.adds, self.spec.full_refresh
        looked = {} if refreshes else {key: live[key] for key in self._holding(live, state)}
        for add in looked.values():
            check_within(add)
        files = {(file := live_file(key, add)).name: (key, file) for key, add in looked.items()}
        applied = yield from self.work.apply(memory, [file for _, file in files.values()], self.now_ms)
        self.applied, outcome = applied, applied.outcome
        if outcome.faults:
            return outcome.faults  # the others are planned without them
        gone = applied.gone_rows(self.spec.sequence_by, {name: key for name, (key, _) in files.items()})
        rests = partial(
            self._changed, state, live, (applied, gone, memory), f"{commit_id}-changes{self.plans}"
        )
        if puts_off and writes_much(gone, live, state):
            self.rests = rests
        else:
            yield from rests()
        return {}

    def _changed(
        self,
        state: Snapshot,
        live: Mapping[FileKey, Action],
        decided: tuple[AppliedBatch, GoneRows[FileKey], Memory],
        name: str,
    ) -> Steps:
        """Make the change of the table of what was decided."""
        applied, gone, memory = decided
        outcome, refreshes = applied.outcome, self.spec.full_refresh
        change = yield from self._replaced(live, state, gone)
        if feeds_changes(state):
            change = replace(change, feed=(yield from self._fed(applied, change, state, name)))
        if not gone.is_cut and not refreshes:
            check_accounts(outcome.settled.decision, applied.rows + outcome.again, change.removed_rows)
        yield from self.memory.remember(state, memory, outcome.memory, self.limits, refreshes=refreshes)
        self.change = change
        if self.others:
            self.upserts(state)

    def _holding(self, live: Mapping[FileKey, Action], state: Snapshot) -> Iterable[FileKey]:
        """The live files that may have a row with a key of the batch; no file is asked about twice."""
        values, known = self.work.values, self._holds[1]
        if values is not self._holds[0]:
            known = {}
        new = {key: add for key, add in live.items() if key[0] not in known}
        found = {path for path, _ in holding(self.work, new, state)} if new else set()
        self._holds = values, {path: known.get(path, path in found) for path, _ in live}
        return (key for key in live if self._holds[1][key[0]])

    def _replaced(
        self, live: Mapping[FileKey, Action], state: Snapshot, gone: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, DeltaChange]:
        """Take rows out of the files that lose some, or let all files go; its feed is of rows that a truncate took."""
        if self.spec.full_refresh:
            return change_of((add, FileRewrite(FileVerdict.REMOVE)) for add in live.values())
        self._removal = self._removal or RowRemoval(state, self.work, self.vectors, self.limits)
        losing = {key: add for key, add in live.items() if gone.may_lose(key)}
        looks = self.breaks_off and isinstance(self.work, OnePart)
        look = partial(self._look, state.version) if looks else None
        made = yield from self._removal.take_out(losing, gone, look)
        fed = tuple(file for one in made.values() for file in one.changes)
        return change_of(((live[key], one) for key, one in made.items()), fed)

    def _look(self, version: int) -> Steps:
        """Break the plan off where another commit followed the version that it was made on: all of it may be in vain.

        Raises:
            BaseMovedError: one did.
        """
        if isinstance((yield Get(commit_path(version + 1), name="commit.look_between")), Ok):
            self.is_stale = True
            raise BaseMovedError

    def made(self) -> list[str]:
        """Where the files are that were written again, on any base."""
        return [] if self._removal is None else self._removal.paths()

    def _fed(
        self, applied: AppliedBatch, change: DeltaChange, state: Snapshot, name: str
    ) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
        """Upload change files, unless rows only come, or all go in files that a reader of the feed takes whole."""
        rows = with_variants(state).schema
        nothing, gone = rows.empty_table(), applied.gone
        if self.spec.full_refresh:
            loses_marked = any(add.get("deletionVector") for add in change.removed)
            read = change.removed if loses_marked else ()
            files = yield from rows_of_files(read, state, self.vectors, self.limits)
            gone = pa.concat_tables([nothing, *files.values()])
        if not (change.feed or applied.goes or (gone is not None and gone.num_rows)):
            return ()
        feed = (*applied.change_files, *change.feed)
        if gone is not None:  # tasks have written the files of rows that they told
            come = nothing if applied.come is None else applied.come.select(rows.names)
            told = change_rows(gone.select(rows.names), come, self.spec.keys)
            feed += yield from staged_changes(told, state, name, self.now_ms, self.limits)
        return feed


def writes_much(gone: GoneRows[FileKey], live: Mapping[FileKey, Action], state: Snapshot) -> bool:
    """Whether it takes long to write the files again that lose rows."""
    if marks_rows(state) and not gone.is_cut:
        return False
    return sum(size_of(add) for key, add in live.items() if gone.may_lose(key)) >= MUCH_BYTES


def holding(work: BatchWork, live: Mapping[FileKey, Action], state: Snapshot) -> list[FileKey]:
    """The live files that may have a row with a key of a batch."""
    bounds, values = work.bounds, work.values
    if bounds == NOWHERE:
        return []
    pruning = Pruning(values, state)
    found = [key for key, add in live.items() if pruning.may_hold(add)]
    if len(values) == len(columns(bounds)):
        return found
    bounded = Bounded.of(state.schema, columns(bounds))
    return [key for key in found if True in possible(bounds, bounded.spans(live[key]))]
