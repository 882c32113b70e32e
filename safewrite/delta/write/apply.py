"""Applies changes by key and sequence in one commit: rows, and what must be remembered of those that went.

Copy-on-write: files that hold keys of the batch are rewritten without their old rows, and the new rows go into files of
their own; where the table wants deletion vectors these take the old rows away instead.  After any commit in between that
touches files the plan is made anew before the next try, within the writer's turn where there is one, so two writers never
insert one key twice (C9).  Data files never change, so only new ones are read: a file that others marked is the same file.
The memory of deleted keys is an immutable file that a ``txn`` action names: checkpoints keep it, and no reader or
writer needs a table feature for it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows, Touched, wanted
from safewrite.changes.meaning.accounting import check_accounts
from safewrite.changes.meaning.decide import ChangeBatch
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import TableEffect
from safewrite.changes.members.member_batches import GroupOutcome as Decided
from safewrite.changes.members.member_batches import MemberChanges, alone, one_by_one, whole
from safewrite.delta.data.key_lookup import look_through
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.rows import check_within, damaged
from safewrite.delta.log.actions import Action, Commit, FileKey
from safewrite.delta.log.features import check_overwrite, feeds_changes
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.write.change_feed import change_rows, staged_changes
from safewrite.delta.write.conflicts import check_moved
from safewrite.delta.write.overwrite import (
    FileVerdict,
    OverwriteTransaction,
)
from safewrite.delta.write.row_files import RowFilesTransaction
from safewrite.delta.write.staging import stage
from safewrite.delta.write.transaction import Write
from safewrite.errors import InternalError
from safewrite.frames import Prepared, prepare
from safewrite.protocol import staging
from safewrite.protocol.effects import Effect, Get, Missing, NewId, Ok, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.keys import MEMORY_APP
from safewrite.protocol.members import MembersMetError

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
class ApplyTransaction(RowFilesTransaction):
    """Changes to be applied; the plan is made once no earlier call is known to have applied them."""

    operation: str = "MERGE"
    changes: Changes | None = None
    group: tuple[MemberChanges, ...] = ()
    """The changes of the members, where the write is a group."""
    spec: Spec | None = None
    memory_number: int = -1
    """Names the file of what is to be remembered after this commit; drawn at random."""
    known_files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    known_memory: dict[str, bytes] = field(default_factory=dict, repr=False)
    settled: TableEffect | None = None
    decided: Decided | None = None
    remembers: bool = False
    """Whether this commit changes what is remembered."""
    encode: Callable[[Prepared, str], Iterable[DataFile]] | None = None
    """Makes files of rows; its text makes their names unique."""
    is_stale: bool = False
    """Whether commits came since the plan that add or remove rows, or change what is remembered."""
    plans: int = 0
    _touched: Touched[FileKey] | None = field(default=None, repr=False)
    _seen_as: dict[FileKey, Action] = field(default_factory=dict, repr=False)
    """The files that were looked through, as the log named them then."""
    _memory: Memory | None = field(default=None, repr=False)
    _memory_of: int | None = None
    """Which file ``_memory`` is of."""

    # --- what is written ------------------------------------------------------------------------
    def upserts(self) -> Prepared:
        """The rows that are written: those that win."""
        assert self.state is not None
        return prepare(
            self._given().rows, self.state.schema, partition_by=self.state.partition_by, stored=True
        )

    def regrouped(self, files: int) -> Write:
        """See ``Transaction.regrouped``: its members say what became of their changes, and rows count once."""
        assert self.decided is not None
        return described_members(self.write, self.decided, files)

    def without(self, known: Container[str], commit_id: str) -> None:
        """Go on without the members of these keys, as another commit with other files."""
        super().without(known, commit_id)
        self.group = tuple(member for member in self.group if member.key not in known)
        self._made, self.rewritten = {}, ()

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them for MERGE."""
        assert self.spec is not None
        on = " AND ".join(f"(target.{name} = source.{name})" for name in self.spec.keys)
        return {"predicate": json.dumps([on], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE."""
        assert self.settled is not None
        counts, files = self.settled.decision.counts, self.file_metrics()
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

    def _given(self) -> TableEffect:
        if self.settled is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        return self.settled

    def _batch(self) -> ChangeBatch:
        """The changes that are to be applied, of all members."""
        if self.group:
            return whole(self.group)
        assert self.changes is not None
        return self.changes.batch

    def _decide(self, touched: Touched[FileKey], memory: Memory) -> Decided:
        assert self.spec is not None
        known = touched.known(memory)
        if self.group:
            return one_by_one(self.group, self.spec, known, memory, self.timestamp_ms)
        assert self.changes is not None
        return alone(self.changes, self.spec, known, memory, self.timestamp_ms)

    # --- the plan ---------------------------------------------------------------------------------
    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Decide about every change on the files that may hold its key; rewrite those that do.

        Only now: on a table that has these changes already they would be late, and refused as such.

        Raises:
            UnsupportedTableError: append-only, or a file that cannot be rewritten without loss.
            InvalidInputError: the batch must be refused; nothing was written.
            StorageError: no answer, or a file that is not what the log says.
        """
        assert self.state is not None
        if self.refreshes:
            self.check_positions()  # rows that a RESTORE took away are none of this batch
        else:
            yield from super().prepare()
        check_overwrite(self.state)
        self.active = yield from self.known_files.load(self.state, self.limits)
        yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Plan again after commits of others: only files that are new since the last plan are read.

        Raises:
            As :meth:`prepare`.
            MembersMetError: members were committed meanwhile, or are at fault now.
        """
        if not self.is_stale or self.met:  # the body of a commit is not made while members were met
            return
        before = self.settled
        yield from self._plan()
        if self.met:
            raise MembersMetError("Members of this group are at fault. Nothing of it was committed.")
        settled = self._given()
        if before is None or self.encode is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        if not settled.has_rows_of(before):
            files = self.encode(self.upserts(), f"{self.commit_id}-plan{self.plans}")
            self.files = yield from stage(files, self.timestamp_ms, self.limits)
            count = len(self.files)
            self.write = self.regrouped(count) if self.group else replace(self.write, files=count)
        if (put := self.member_file) is not None:  # its list says what the new plan did
            yield from staging.upload([put], self.limits)

    def _plan(self) -> Generator[Effect, Outcome, None]:
        assert self.state is not None
        self.is_stale, self.plans = False, self.plans + 1
        memory = yield from self._recall_memory()
        feeds = feeds_changes(self.state)
        touched = self._touched or Touched[FileKey](self._batch(), self.state.schema, needs_whole=feeds)
        self._touched = touched
        if not self.refreshes:
            yield from self._look(touched, memory)
        self.decided = decided = self._decide(touched, memory)
        if decided.faults:
            self.met |= decided.faults
            return  # the others are planned without them
        self.settled = settled = decided.settled
        decision = settled.decision
        touched.decided(decision, memory)
        if self.refreshes:
            self._remove_all()
        else:
            yield from self._replace(touched)
        self.change_files = ()
        if feeds:
            yield from self._feed_changes(touched, settled)
        if not touched.is_cut and not self.refreshes:
            check_accounts(decision, settled.rows.num_rows + decided.again, self.removed_rows())
        yield from self._remember(memory, decided.memory)
        if self.group:
            self.write = self.regrouped(self.write.files)
        else:
            self.write = replace(self.write, rows=settled.rows.num_rows, changes=decision.counts.to_dict())

    def _recall_memory(self) -> Generator[Effect, Outcome, Memory]:
        assert self.state is not None
        assert self.spec is not None
        columns = self.spec.keys, self.spec.sequence_by, self.state.schema
        nothing = Memory.empty(*columns, table_id=self.state.table_id)
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
        self._memory, self._memory_of = nothing.decode(body, path), number
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
        if self.remembers:
            if self.plans > 1:  # an immutable file may not be written twice
                drawn = yield NewId(name="apply.id")
                assert isinstance(drawn, Ok)
                self.memory_number = uuid.UUID(str(drawn.value)).int >> 65
            path, body = memory_path(self.memory_number), after.encode()
            yield from staging.upload([staging.of_data(path, body)], self.limits)
            self._know(path, body)

    # --- rows that are there ----------------------------------------------------------------------
    def _look(self, touched: Touched[FileKey], memory: Memory) -> Generator[Effect, Outcome, None]:
        """Read the files that may have keys of the batch."""
        assert self.state is not None
        keys, live = wanted(self._batch()), self.planned().adds
        pruning = Pruning(keys, self.state)
        yield from self._follow(touched)
        new = [key for key in touched.unseen(live, memory) if pruning.may_hold(live[key])]
        for key in new:
            check_within(live[key])
        yield from self.vectors.fetch([live[key] for key in new], self.limits)
        files = {key: live[key] for key in new}
        yield from look_through(files, touched, self.state, self.vectors, self.limits)
        self._seen_as |= files

    def _follow(self, touched: Touched[FileKey]) -> Generator[Effect, Outcome, None]:
        """Take what was found in files over to their next deletion vectors: the data are the same, and are not read again.

        Rows that the next vector takes away are found no more, so none is marked twice; our vector holds both parts.
        """
        live = self.planned().adds
        before = {path: (path, vector) for path, vector in self._seen_as if (path, vector) not in live}
        after = [key for key in live if key[0] in before and not touched.found_in(key)]
        yield from self.vectors.fetch([live[key] for key in after], self.limits)
        for key in after:
            old = before[key[0]]
            stays = self.vectors.stays(self._seen_as[old], live[key]) if touched.found_in(old) else None
            if stays is not None:
                touched.follow(old, key, stays)
                self._seen_as[key] = live[key]
        self._seen_as = {key: add for key, add in self._seen_as.items() if key in live}

    # --- what goes --------------------------------------------------------------------------------
    def _replace(self, touched: GoneRows[FileKey]) -> Generator[Effect, Outcome, None]:
        """Take rows out of the files that lose some."""
        assert self.state is not None
        live = self.planned().adds
        self.verdicts = dict.fromkeys(live, FileVerdict.KEEP)
        losing = [key for key in live if touched.may_lose(key)]
        if losing:
            check_overwrite(self.state)
        for key in losing:
            check_within(live[key])
        yield from self.vectors.fetch([live[key] for key in losing], self.limits)
        yield from self._take_out(losing, touched)

    def _feed_changes(
        self, touched: Touched[FileKey], settled: TableEffect
    ) -> Generator[Effect, Outcome, None]:
        """Upload change files, unless rows only come, or all go in files that a reader of the feed takes whole."""
        assert self.state is not None
        assert self.spec is not None
        if self.refreshes and not self.loses_marked():
            return
        if self.refreshes:
            files = yield from self.rows_of_files(self.replaced())
            gone = pa.concat_tables(files.values())
        else:
            gone = self._gone_rows(touched)
        if gone.num_rows:
            rows = change_rows(gone, settled.rows, self.spec.keys)
            name = f"{self.commit_id}-changes{self.plans}"
            self.change_files = yield from staged_changes(
                rows, self.state, name, self.timestamp_ms, self.limits
            )

    def _remove_all(self) -> None:
        """Let all live files go, with their rows unread."""
        self.verdicts = dict.fromkeys(self.planned().adds, FileVerdict.REMOVE)
        self.rewritten, self.kept, self.marked = (), {}, {}

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


def described_members(group: Write, decided: Decided, files: int) -> Write:
    """A group whose members say what became of their changes; rows that a later member replaced are not its own."""
    members = [
        replace(one, rows=decided.rows[one.key], changes=decided.counts[one.key].to_dict())
        for one in group.members
    ]
    return replace(Write.group(group.key, members, files), rows=decided.settled.rows.num_rows)
