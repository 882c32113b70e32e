"""Applies changes by key and sequence in one commit: rows, and what must be remembered of those that went.

After any commit in between that touches files the plan is brought to the new base before the next try, within the writer's turn
where there is one, so two writers never insert one key twice (C9).  Only keys whose rows or tombstones came or went are decided
again (decision 0068).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safewrite.changes.members.joined_changes import described
from safewrite.delta.log.actions import Action, Commit
from safewrite.delta.log.features import check_overwrite
from safewrite.delta.write.abc import Write
from safewrite.delta.write.batch_plan import BatchPlan
from safewrite.delta.write.file_changes import NOTHING, DeltaChange
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.staging import discard, stage
from safewrite.delta.write.transaction import OVERWRITE, Transaction
from safewrite.delta.write.waiting_changes import ChangesToShare
from safewrite.delta.write.withdrawal import taken_back
from safewrite.delta.write.write import write
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.contention import BaseMovedError
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.members import MembersMetError
from safewrite.table.withdrawal import or_withdrawn

if TYPE_CHECKING:
    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.frames.prepare import Prepared


@dataclass
class ApplyTransaction(Transaction):
    """Changes to be applied; the plan is made once no earlier call is known to have applied them."""

    operation: str = "MERGE"
    mode: str = OVERWRITE
    rebases: bool = True
    change: DeltaChange | None = None
    batch: BatchPlan = field(kw_only=True)
    encode: Callable[[Prepared, Snapshot | None, str], Iterable[DataFile]] = field(kw_only=True)
    """Makes files of rows for the table as the commit leaves it; its text makes their names unique."""
    plans_late: bool = False
    """Whether it is planned before its first try, not before it waits: another may commit it."""

    # --- what is written ------------------------------------------------------------------------
    def upserts(self) -> Prepared:
        """The rows that are still to be written, of those that win."""
        assert self.after is not None
        return self.batch.upserts(self.after)

    @property
    def sharer(self) -> ChangesToShare | None:
        """The changes as those that others may apply; None where the commit does more than that."""
        alone = self.metadata or self.protocol or self.positions or self.properties or self.state is None
        joined = self.batch.joined
        return None if alone or joined is None else ChangesToShare(self, joined)

    @property
    def whole(self) -> Write:
        """All that the commit carries."""
        joined = self.batch.joined
        return self.write if joined is None else joined.whole(self.write, self.batch.applied)

    def regrouped(self, files: int) -> Write:
        """See ``Transaction.regrouped``: it says what became of the changes."""
        return described(self.write, self.batch.given, files)

    def without(self, known: Container[str], commit_id: str) -> None:
        """Go on without the members of these keys, as another commit with other files."""
        super().without(known, commit_id)
        self.batch.begin_again(known)
        self.change = None

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them for MERGE."""
        on = " AND ".join(f"(target.{name} = source.{name})" for name in self.batch.spec.keys)
        return {"predicate": json.dumps([on], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE."""
        return self.batch.metrics(len(self.files), self.planned_change)

    def _txns(self, version: int) -> list[Action]:
        return super()._txns(version) + self.batch.memory.txns(self.timestamp_ms)

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
        self.plan_again()
        self.batch.active = None
        if self.plans_late:
            check_overwrite(self.state)
            return
        yield from super().prepare()
        check_overwrite(self.state)
        yield from self._plan(puts_off=True)

    def plan_again(self) -> None:
        """Make a plan before the next try."""
        self.batch.is_stale = True

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Bring the plan to the base that commits of others made, with the members that the next try carries: only new files are read.

        Raises:
            As :meth:`prepare`.
            MembersMetError: members were committed meanwhile, or are at fault now.
            BaseMovedError: others committed while files were written again; the plan is stale, and what was made serves the next.
        """
        if self.met:  # the body of a commit is not made while members were met
            return
        batch, is_stale, before = self.batch, self.batch.is_stale, self.batch.applied
        if not is_stale and batch.rests is not None:
            yield from batch.finish()
            self.change = batch.change
        if is_stale:
            with _another_plan(self):
                yield from self._plan()
            if self.met:
                raise MembersMetError("Members of this group are at fault. Nothing of it was committed.")
            self.rebased += batch.given.is_rebased
            if batch.given.come is not None and (before is None or not batch.given.comes_as(before)):
                made = self.encode(self.upserts(), self.after, f"{self.commit_id}-plan{batch.plans}")
                self.files = yield from stage(made, self.timestamp_ms, self.limits)
            self.write = self.regrouped(len(self.files))
        # Its list says what the new plan did; each try with others has a list of its own name.
        if (is_stale or batch.others) and (put := self.member_file) is not None:
            yield from staging.upload([put], self.limits)

    @property
    def looks_first(self) -> bool:
        """See ``Transaction.looks_first``: files are written again once it is known what others did meanwhile."""
        return self.batch.rests is not None

    def _plan(self, *, puts_off: bool = False) -> Generator[Effect, Outcome, None]:
        assert self.after is not None
        faults = yield from self.batch.plan(self.after, self.commit_id, puts_off=puts_off)
        self.met |= faults
        if not faults:
            self.change, given = self.batch.change, self.batch.given
            self.files = given.files if given.come is None else self.files
            self.write = self.regrouped(len(self.files))

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Note that a commit touches files, or what is remembered: then :meth:`renew` plans again.

        Raises:
            ConflictError: SCHEMA_CHANGED as for appends.
        """
        super().check_conflict(version, commit)
        self.batch.follow(version, commit)

    def advanced(self, version: int, commit: Commit) -> Snapshot:
        """See ``Transaction.advanced``."""
        state = super().advanced(version, commit)
        self.batch.know(state, commit)
        return state


@contextmanager
def _another_plan(plan: ApplyTransaction) -> Iterator[None]:
    """Note the files of the plan before; of one that others break off, the files that it made, and whether it was re-based."""
    plan.leave()
    try:
        yield
    except BaseMovedError:
        plan.leave(plan.batch.made())
        plan.rebased += plan.batch.given.is_rebased
        raise


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
    if plan.batch.joined is None:
        return (yield from steps)
    done = yield from or_withdrawn(steps, plan, lambda: taken_back(plan, **how))
    if not done.led_by_us and not done.attempts:
        change = plan.change or NOTHING  # no attempt has named its files
        yield from discard([*plan.files, *change.rewritten, *change.feed])
    return done
