"""Applies changes of one call together with those of other processes that wait, in one commit.

Who leads applies its own batch, and then each of the others, one after another in memory: what one call after another would do.
Where others are met, no plan is made before it is known who leads and whom it carries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from safewrite.changes.meaning.member_batches import MemberChanges
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.tasks.one_part import OnePart
from safewrite.delta.log.features import check_overwrite
from safewrite.delta.write.apply import ApplyTransaction
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.staging import StagedFile, discard, stage
from safewrite.delta.write.waiting_changes import BATCH_BYTES_MAX, ChangesToShare, WaitingChanges
from safewrite.delta.write.withdrawal import withdrawn
from safewrite.delta.write.write import write
from safewrite.errors import CommitUnknownError
from safewrite.protocol import staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.operation import keyed_until_landed

if TYPE_CHECKING:
    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.write.transaction import Transaction, Write

log = logging.getLogger("safewrite")
Steps = Generator[Effect, Outcome, None]
ROUNDS_MAX = 4
"""Members that are at fault are left out at most this many times; then all are."""


@dataclass
class SharedApplyTransaction(ApplyTransaction):
    """Changes of one call, with those of others that its commit applies after them."""

    changes: Changes | None = None
    joined: tuple[WaitingChanges, ...] = ()
    left_out: frozenset[str] = frozenset()
    """Paths of members that no plan can be made with."""
    plans_late: bool = False
    """Whether it is planned before its first try, not before it waits."""

    # --- who is in the commit -------------------------------------------------------------------
    @property
    def sharer(self) -> ChangesToShare | None:
        """The changes as those that others may apply; None where the call asks for more than to apply a small batch."""
        spec, changes = self.spec, self.changes
        if spec is None or changes is None or self.state is None or self.write.members:
            return None
        alone = self.metadata or self.protocol or self.positions or self.properties
        plain = spec.check is None and not spec.full_refresh
        small = changes.batch.table.nbytes <= BATCH_BYTES_MAX
        return ChangesToShare(self) if plain and small and not alone else None

    def join(self, taken: Sequence[WaitingChanges]) -> None:
        """Apply the changes of these members too, after our own."""
        if [one.path for one in taken] == [one.path for one in self.joined]:
            return
        assert self.changes is not None
        assert isinstance(self.work, OnePart)
        own = MemberChanges(self.write.key, self.changes)
        self.joined = tuple(taken)
        self.work.join((own, *(one.changes for one in taken)) if taken else ())
        self.is_stale = True

    @property
    def whole(self) -> Write:
        """All that the commit carries: each with what became of its own changes, and rows count once."""
        if not self.joined:
            return super().whole
        others = [self._described(one.write, self.write.files) for one in self.joined]
        return replace(self.write.carrying(others), rows=self._given().rows)

    def regrouped(self, files: int) -> Write:
        """See ``Transaction.regrouped``: our own write."""
        return self._described(self.write, files)

    def _described(self, one: Write, files: int) -> Write:
        decided = self._given().outcome
        counts = decided.counts[one.key].to_dict()
        return replace(one, rows=decided.rows[one.key], changes=counts, files=files)

    # --- the plan -------------------------------------------------------------------------------
    def prepare(self) -> Steps:
        """See ``ApplyTransaction.prepare``; put off where it waits first, for another may commit it."""
        if not self.plans_late:
            yield from super().prepare()
            return
        assert self.state is not None
        check_overwrite(self.state)
        self.is_stale = True

    def renew(self) -> Steps:
        """Plan, or plan again, with the members that the next try carries."""
        if self.applied is None:
            yield from self._first_plan()
        elif self.is_stale:  # a plan that is made again uploads its list
            yield from super().renew()
            return
        if (
            self.joined and (put := self.member_file) is not None
        ):  # each try with others has a list of its own name
            yield from staging.upload([put], self.limits)

    def _first_plan(self) -> Steps:
        assert self.state is not None
        self.active = yield from self.known_files.load(self.state, self.limits)
        yield from self._plan()
        files = self.encoded_rows()
        self.files = yield from stage(files, self.timestamp_ms, self.limits, leaves_last=True)
        self.write = replace(self.write, files=len(self.files))
        yield from self.recheck()

    def _plan(self) -> Steps:
        yield from planned(self)

    def plan_alone(self) -> Steps:
        """See ``Joins``."""
        yield from super()._plan()

    def plan_together(self) -> Generator[Effect, Outcome, set[str]]:
        """See ``Joins``."""
        every = {one.write.key for one in self.joined}
        try:
            yield from super()._plan()
            self.upserts()
        except Exception:
            log.info("changes of others could not be planned with ours: each goes alone", exc_info=True)
            return every
        finally:
            faults, self.met = set(self.met), {}
        return every if self.write.key in faults else faults

    def unnamed(self) -> list[StagedFile]:
        """Files of a plan that no attempt has named yet."""
        return [*self.files, *self.rewritten, *self.change_files]


class Joins(Protocol):
    """Changes that are applied together with those of other writers, each of which has a path and a write."""

    joined: tuple[Any, ...]
    left_out: frozenset[str]

    def join(self, taken: Sequence[Any]) -> None:
        """Apply the changes of these members too, after our own."""

    def plan_together(self) -> Generator[Effect, Outcome, set[str]]:
        """Plan with all members; returns the keys of those that it cannot be done with."""

    def plan_alone(self) -> Steps:
        """Plan without any."""


def planned(plan: Joins) -> Steps:
    """Plan with the members that no fault keeps out: these are left out, and meet their own error."""
    for _ in range(ROUNDS_MAX):
        if not plan.joined:
            break
        at_fault = yield from plan.plan_together()
        if not at_fault:
            return
        leave_out(plan, at_fault)
    else:
        leave_out(plan, {one.write.key for one in plan.joined})
    yield from plan.plan_alone()


def leave_out(plan: Joins, keys: set[str]) -> None:
    """Go on without the members of these keys."""
    plan.left_out |= {one.path for one in plan.joined if one.write.key in keys}
    plan.join([one for one in plan.joined if one.write.key not in keys])


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
    steps = write(plan, encode, queue_first=queue_first, fresh=fresh, **how)
    if not isinstance(plan, SharedApplyTransaction):
        return (yield from steps)
    plan.plans_late = queue_first and arbiter.shares > 0 and plan.sharer is not None
    done = yield from or_withdrawn(steps, plan, **how)
    if not done.led_by_us and not done.attempts:
        yield from discard(plan.unnamed())
    return done


def or_withdrawn(
    steps: Generator[Effect, Outcome, DeltaDone], plan: Transaction, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, DeltaDone]:
    """Write, and take back what is refused while others may hold it."""
    try:
        return (yield from steps)
    except CommitUnknownError as error:
        return (yield from keyed_until_landed(withdrawn(plan, error, arbiter, limits), plan))
