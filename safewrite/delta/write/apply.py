"""Applies changes by key and sequence in one commit: rows, and what must be remembered of those that went.

Copy-on-write: files that hold keys of the batch are rewritten without their old rows, and the new rows go into files of
their own; where the table wants deletion vectors these take the old rows away instead.  After any commit in between that
touches files the plan is brought to the new base before the next try, within the writer's turn where there is one, so two
writers never insert one key twice (C9).  Data files never change, so only new ones are read: a file that others marked is the
same file.  Only keys whose rows or tombstones came or went are decided again (decision 0068).
The memory of deleted keys is an immutable file that a ``txn`` action names: checkpoints keep it, and no reader or
writer needs a table feature for it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.joined_changes import JoinedChanges, Planned, described, plan_with_others
from safewrite.changes.tasks.one_part import AppliedBatch, BatchWork, OnePart
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.rows import check_within, damaged
from safewrite.delta.data.spans import Bounded
from safewrite.delta.data.vector_files import marked
from safewrite.delta.log import column_names
from safewrite.delta.log.actions import Action, Commit, FileKey
from safewrite.delta.log.features import check_overwrite, feeds_changes
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.write.change_feed import change_rows, staged_changes
from safewrite.delta.write.conflicts import check_moved
from safewrite.delta.write.overwrite import FileVerdict, OverwriteTransaction
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.row_files import MadeOfFile, RowRemoval, live_file
from safewrite.delta.write.staging import StagedFile, discard, stage
from safewrite.delta.write.transaction import Write
from safewrite.delta.write.waiting_changes import ChangesToShare
from safewrite.delta.write.withdrawal import taken_back
from safewrite.delta.write.write import write
from safewrite.errors import InternalError
from safewrite.frames import Prepared, prepare
from safewrite.frames.predicate import columns, possible
from safewrite.frames.replace_where import EVERYTHING
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.effects import Effect, Get, Missing, NewId, Ok, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.keys import MEMORY_APP
from safewrite.protocol.members import MembersMetError
from safewrite.table.withdrawal import or_withdrawn

if TYPE_CHECKING:
    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.log.snapshot import Snapshot

APP_ID = MEMORY_APP
"""App id of the ``txn`` whose version names the file that remembers deleted keys."""
_FOLDER = "_safewrite/changes"


_KNOWN_BYTES = 1 << 18


def memory_path(number: int) -> str:
    """The file that a ``txn`` of :data:`APP_ID` names."""
    return f"{_FOLDER}/{number:016x}.parquet"


@dataclass
class ApplyTransaction(OverwriteTransaction):
    """Changes to be applied; the plan is made once no earlier call is known to have applied them."""

    operation: str = "MERGE"
    work: BatchWork | None = None
    spec: Spec | None = None
    joined: JoinedChanges[Write] | None = None
    """The changes as those that others may apply, and those of others; None where they are applied alone."""
    plans_late: bool = False
    """Whether it is planned before its first try, not before it waits: another may commit it."""
    memory_number: int = -1
    """Names the file of what is to be remembered after this commit; drawn at random."""
    known_files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    known_memory: dict[str, bytes] = field(default_factory=dict, repr=False)
    applied: AppliedBatch | None = None
    remembers: bool = False
    """Whether this commit changes what is remembered."""
    encode: Callable[[Prepared, str], Iterable[DataFile]] | None = None
    """Makes files of rows; its text makes their names unique."""
    is_stale: bool = False
    """Whether commits came since the plan that add or remove rows, or change what is remembered."""
    plans: int = 0
    _holds: tuple[object, dict[str, bool]] = field(default=(None, {}), repr=False)
    """For the values of which keys, and whether a file, by its path, may have a row with one of these."""
    _removal: RowRemoval | None = field(default=None, repr=False)
    _memory: Memory | None = field(default=None, repr=False)
    _memory_of: int | None = None
    """Which file ``_memory`` is of."""
    _remembered: Memory | None = field(default=None, repr=False)
    """What the file says that ``memory_number`` names, once it is there."""

    # --- what is written ------------------------------------------------------------------------
    def upserts(self) -> Prepared:
        """The rows that are still to be written, of those that win."""
        assert self.state is not None
        come = self._given().come
        rows = self.state.schema.empty_table() if come is None else come
        return prepare(rows, self.state.schema, partition_by=self.state.partition_by, stored=True)

    @property
    def sharer(self) -> ChangesToShare | None:
        """The changes as those that others may apply; None where the commit does more than that."""
        alone = self.metadata or self.protocol or self.positions or self.properties or self.state is None
        return None if alone or self.joined is None else ChangesToShare(self, self.joined)

    @property
    def whole(self) -> Write:
        """All that the commit carries."""
        return self.write if self.joined is None else self.joined.whole(self.write, self.applied)

    def regrouped(self, files: int) -> Write:
        """See ``Transaction.regrouped``: it says what became of the changes."""
        return described(self.write, self._given(), files)

    def without(self, known: Container[str], commit_id: str) -> None:
        """Go on without the members of these keys, as another commit with other files."""
        super().without(known, commit_id)
        assert isinstance(self.work, OnePart)
        self.work.leave_out(known)
        self._removal, self.rewritten = None, ()

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them for MERGE."""
        assert self.spec is not None
        on = " AND ".join(f"(target.{name} = source.{name})" for name in self.spec.keys)
        return {"predicate": json.dumps([on], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE."""
        counts, files = self._given().outcome.settled.decision.counts, self.file_metrics()
        return {
            "numSourceRows": counts.changes,
            "numTargetRowsInserted": counts.inserted,
            "numTargetRowsUpdated": counts.updated,
            "numTargetRowsDeleted": counts.deleted,
            "numTargetFilesAdded": len(self.files) + len(self.rewritten),
            "numTargetFilesRemoved": files.pop("numRemovedFiles"),
            **{f"numTarget{name.removeprefix('num')}": number for name, number in files.items()},
        }

    def _txns(self, version: int) -> list[Action]:
        mine = super()._txns(version)
        if self.remembers:
            mine.append({"appId": APP_ID, "version": self.memory_number, "lastUpdated": self.timestamp_ms})
        return mine

    @property
    def refreshes(self) -> bool:
        """Whether the batch takes the place of all rows and of all that is remembered."""
        return self.spec is not None and self.spec.full_refresh

    def _given(self) -> AppliedBatch:
        if self.applied is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        return self.applied

    # --- the plan ---------------------------------------------------------------------------------
    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Decide about every change on the files that may hold its key; rewrite those that do, unless that is put off.

        Only now: on a table that has these changes already they would be late, and refused as such.

        Raises:
            UnsupportedTableError: append-only, or a file that cannot be rewritten without loss.
            InvalidInputError: the batch must be refused; nothing was written.
            StorageError: no answer, or a file that is not what the log says.
        """
        assert self.state is not None
        self.is_stale, self.active = True, None
        if self.plans_late:
            check_overwrite(self.state)
            return
        if self.refreshes:
            self.check_positions()  # rows that a RESTORE took away are none of this batch
        else:
            yield from super().prepare()
        check_overwrite(self.state)
        yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Bring the plan to the base that commits of others made, with the members that the next try carries: only new files are read.

        Raises:
            As :meth:`prepare`.
            MembersMetError: members were committed meanwhile, or are at fault now.
        """
        if self.met:  # the body of a commit is not made while members were met
            return
        is_stale, before = self.is_stale, self.applied
        if is_stale:
            yield from self._plan()
            if self.met:
                raise MembersMetError("Members of this group are at fault. Nothing of it was committed.")
            applied = self._given()
            self.rebased += applied.is_rebased
            if before is None or not applied.comes_as(before):
                self.files = yield from stage(self.encoded_rows(), self.timestamp_ms, self.limits)
            self.write = self.regrouped(len(self.files))
        # Its list says what the new plan did; each try with others has a list of its own name.
        has_others = self.joined is not None and self.joined.others
        if (is_stale or has_others) and (put := self.member_file) is not None:
            yield from staging.upload([put], self.limits)

    def unnamed(self) -> list[StagedFile]:
        """Files of a plan that no attempt has named yet."""
        return [*self.files, *self.rewritten, *self.change_files]

    def encoded_rows(self) -> Iterable[DataFile]:
        """The files of the rows of this plan."""
        if self.encode is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        return self.encode(self.upserts(), f"{self.commit_id}-plan{self.plans}")

    def _plan(self) -> Generator[Effect, Outcome, None]:
        joined = self.joined
        self.met |= yield from (
            self._plan_once() if joined is None else plan_with_others(joined, self._plan_once)
        )

    def _plan_once(self) -> Planned:
        work, state, spec = self._parts()
        self.is_stale, self.plans = False, self.plans + 1
        if self.active is None:
            self.active = yield from self.known_files.load(state, self.limits)
        memory = yield from self._recall_memory()
        live = self.active.adds
        looked = {} if self.refreshes else {key: live[key] for key in self._holding(work, live, state)}
        for add in looked.values():
            check_within(add)
        files = {(file := live_file(key, add)).name: (key, file) for key, add in looked.items()}
        applied = yield from work.apply(memory, [file for _, file in files.values()], self.timestamp_ms)
        self.applied, decision = applied, applied.outcome.settled.decision
        if applied.outcome.faults:
            return applied.outcome.faults  # the others are planned without them
        gone = applied.gone_rows(spec.sequence_by, {name: key for name, (key, _) in files.items()})
        fed = yield from self._replace(work, state, gone)
        if applied.come is None:
            self.files = applied.files
        self.change_files = ()
        if feeds_changes(state):
            yield from self._feed_changes(applied, fed)
        if not gone.is_cut and not self.refreshes:
            check_accounts(decision, applied.rows + applied.outcome.again, self.removed_rows())
        yield from self._remember(memory, applied.outcome.memory)
        self.write = self.regrouped(len(self.files))
        if self.joined is not None and self.joined.others:
            self.upserts()
        return {}

    def _holding(self, work: BatchWork, live: Mapping[FileKey, Action], state: Snapshot) -> Iterable[FileKey]:
        """The live files that may have a row with a key of the batch; no file is asked about twice."""
        values, known = work.values, self._holds[1]
        if values is not self._holds[0]:
            known = {}
        new = {key: add for key, add in live.items() if key[0] not in known}
        found = {path for path, _ in holding(work, new, state)} if new else set()
        self._holds = values, {path: known.get(path, path in found) for path, _ in live}
        return (key for key in live if self._holds[1][key[0]])

    def _parts(self) -> tuple[BatchWork, Snapshot, Spec]:
        if self.work is None or self.state is None or self.spec is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.work, self.state, self.spec

    def _recall_memory(self) -> Generator[Effect, Outcome, Memory]:
        assert self.state is not None
        assert self.spec is not None
        columns = self.spec.keys, self.spec.sequence_by, self.state.schema
        ids, then = column_names.ids(self.state.mapped)
        nothing = Memory.empty(*columns, table_id=self.state.table_id, ids=ids)
        number = self.state.txns.get(APP_ID)
        if number is None or self.refreshes:
            return nothing
        if number == self._memory_of and self._memory is not None:
            return self._memory
        path = memory_path(number)
        body = self.known_memory.get(path)
        if body is None:
            answer = yield from fetch_one(Get(path, name="apply.get_memory"), self.limits)
            if isinstance(answer, Missing):
                raise damaged(path, "it remembers the deleted keys of the table, and is gone")
            assert isinstance(answer.value, bytes)
            body = answer.value
            self._know(path, body)
        self._memory, self._memory_of = nothing.decode(body, path, then), number
        return self._memory

    def _know(self, path: str, body: bytes) -> None:
        """Keep an immutable file for the next call, and no other."""
        self.known_memory.clear()
        if len(body) <= _KNOWN_BYTES:
            self.known_memory[path] = body

    def _remember(self, before: Memory, after: Memory) -> Generator[Effect, Outcome, None]:
        assert self.state is not None
        same = not self.refreshes and after.says_the_same(before)
        self.remembers = APP_ID not in self.state.txns or not same
        is_there = self._remembered is not None and after.says_the_same(self._remembered)
        if self.remembers and not is_there:
            if self.plans > 1:  # an immutable file may not be written twice
                drawn = yield NewId(name="apply.id")
                assert isinstance(drawn, Ok)
                self.memory_number = uuid.UUID(str(drawn.value)).int >> 65
            path, body = memory_path(self.memory_number), after.encode()
            yield from staging.upload([staging.of_data(path, body)], self.limits)
            self._know(path, body)
            self._remembered = after

    # --- what goes --------------------------------------------------------------------------------
    def _replace(
        self, work: BatchWork, state: Snapshot, gone: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, list[StagedFile]]:
        """Take rows out of the files that lose some, or let all files go; returns change files of rows that a truncate took."""
        live = self.planned().adds
        made = dict[FileKey, MadeOfFile]()
        self.verdicts = dict.fromkeys(live, FileVerdict.REMOVE if self.refreshes else FileVerdict.KEEP)
        if not self.refreshes:
            self._removal = self._removal or RowRemoval(state, work, self.vectors, self.limits)
            losing = {key: add for key, add in live.items() if gone.may_lose(key)}
            made = yield from self._removal.take_out(losing, gone)
        self.verdicts |= {key: one.verdict for key, one in made.items()}
        self.kept = {key: one.rows for key, one in made.items()}
        self.rewritten = tuple(file for one in made.values() for file in one.files)
        self.marked = {
            key: marked(live[key], one.vector) for key, one in made.items() if one.vector is not None
        }
        return [file for one in made.values() for file in one.changes]

    def _feed_changes(
        self, applied: AppliedBatch, fed: Sequence[StagedFile]
    ) -> Generator[Effect, Outcome, None]:
        """Upload change files, unless rows only come, or all go in files that a reader of the feed takes whole.

        ``fed`` are those of rows that a truncate took.
        """
        _, state, spec = self._parts()
        nothing = state.schema.empty_table()
        gone = applied.gone
        if self.refreshes:
            files = (yield from self.rows_of_files(self.replaced())) if self.loses_marked() else {}
            gone = pa.concat_tables([nothing, *files.values()])
        if not (fed or applied.goes or (gone is not None and gone.num_rows)):
            return
        self.change_files = (*applied.change_files, *fed)
        if gone is not None:  # tasks have written the files of rows that they told
            rows = change_rows(gone, nothing if applied.come is None else applied.come, spec.keys)
            name = f"{self.commit_id}-changes{self.plans}"
            self.change_files += yield from staged_changes(rows, state, name, self.timestamp_ms, self.limits)

    # --- what others wrote --------------------------------------------------------------------------
    def _check_moved(self, version: int, commit: Commit) -> None:
        if not self.refreshes:
            super()._check_moved(version, commit)
        elif version > self.accounted:
            check_moved(self.positions, self.table_id, commit, self.write.key)

    def check_conflict(self, version: int, commit: Commit) -> None:
        """Note that a commit touches files, or what is remembered: then :meth:`renew` plans again.

        Raises:
            ConflictError: SCHEMA_CHANGED as for appends.
        """
        super(OverwriteTransaction, self).check_conflict(version, commit)
        if commit.adds() or commit.removes() or any(txn["appId"] == APP_ID for txn in commit.txns):
            self.is_stale = True
        if self.active is not None:
            self.active = self.active.advance(version, commit)

    def advanced(self, version: int, commit: Commit) -> Snapshot:
        """See ``Transaction.advanced``; the handle's next write need not read the list of files that this one knows."""
        state = super().advanced(version, commit)
        if self.active is not None and self.active.state.version == version - 1:
            self.known_files.keep(self.active.after(state, [commit]))
        return state


def holding(work: BatchWork, live: Mapping[FileKey, Action], state: Snapshot) -> list[FileKey]:
    """The live files that may have a row with a key of a batch."""
    bounds, values = work.bounds, work.values
    if bounds == EVERYTHING:  # truncates alone
        return []
    pruning = Pruning(values, state)
    found = [key for key, add in live.items() if pruning.may_hold(add)]
    if len(values) == len(columns(bounds)):
        return found
    bounded = Bounded.of(state.schema, columns(bounds))
    return [key for key in found if True in possible(bounds, bounded.spans(live[key]))]


def apply(
    plan: ApplyTransaction,
    encode: Callable[[], Iterable[DataFile]],
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool,
    fresh: bool,
) -> Generator[Effect, Outcome, DeltaDone]:
    """Apply changes once, as ``safewrite.delta.write.write.write`` writes.

    Raises:
        As ``write`` does; a refusal only once no other writer can apply the changes any more.
    """
    how: dict[str, Any] = {"arbiter": arbiter, "limits": limits}
    plan.plans_late = queue_first and arbiter.shares > 0 and plan.sharer is not None
    steps = write(plan, encode, queue_first=queue_first, fresh=fresh, **how)
    if plan.joined is None:
        return (yield from steps)
    done = yield from or_withdrawn(steps, plan, lambda: taken_back(plan, **how))
    if not done.led_by_us and not done.attempts:
        yield from discard(plan.unnamed())
    return done
