"""Applies changes of one key of an Iceberg table as writers that share snapshots, by safewrite's own code."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from safewrite.changes.members.joined_changes import Planned, plan_with_others
from safewrite.errors import InternalError, InvalidInputError, SafewriteError
from safewrite.iceberg.catalog.commit_request import CommitRequest
from safewrite.iceberg.write.steps import steps_of
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.waiting import fitting
from safewrite.iceberg.write.write import Ledgers
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import CHANGES, Offer, Terms
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.catalog_sharing import SharedRowPlan
from safewrite.testing.explorer.catalogs import Metadata, adding
from safewrite.testing.explorer.changes import ACTION, NOTHING, Change, State, applied, refuses
from safewrite.testing.explorer.shared_changes import UNEQUAL, Joining
from safewrite.testing.explorer.snapshots import LIMITS, RowPlan


def left_by(head: TableVersion) -> State:
    """The key under changes as a table version has it."""
    assert isinstance(head.raw, Metadata)
    made = {one.id: one.makes for one in head.raw.snapshots}
    return next((state for at in head.ancestors() if (state := made[at]) is not None), NOTHING)


@dataclass(slots=True)
class SharedChangePlan(SharedRowPlan):
    """A change that other writers may apply, and that applies theirs after its own.

    Which members it takes, which it leaves out, and how it takes back what is refused is the product's own code.
    """

    kind: str = CHANGES
    planned: TableVersion | None = None
    own: Change = NOTHING
    others: tuple[Joining, ...] = ()
    made: State = NOTHING
    """The key as the plan leaves it."""

    def plan_once(self) -> Planned:
        assert self.bound is not None
        self.made = left_by(self.bound)
        faults = dict[str, SafewriteError]()
        for key, change in self.changes_by_key().items():
            if refuses(self.made, change):
                faults[key] = InvalidInputError(UNEQUAL)
            else:
                self.made = applied(self.made, change)
        if faults and not self.others:
            raise faults[self.write.key]
        yield from ()
        return faults

    def changes_by_key(self) -> dict[str, Change]:
        """Our change and those that joined, by the keys of their writes."""
        return {self.write.key: self.own} | {one.write.key: one.change for one in self.others}

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, CommitRequest]:
        self.bound = head
        yield from plan_with_others(self, self.plan_once)
        return (yield from SharedRowPlan.stage(self, head))

    def member(self, base: int) -> bytes | None:
        body = SharedRowPlan.member(self, base)
        return None if body is None else json.dumps(json.loads(body) | {ACTION: self.own}).encode()

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        assert self.head is not None
        left = [offer for offer in offered if offer.path not in self.left_out]
        taken, refused = fitting(self.write, left, self.head, _read)
        if taken or self.others:  # another body is another attempt
            self.drawn += 1
            self.first = self.first or self.snapshot_id
            self.snapshot_id = self.first * 100 + self.drawn
        self.join(taken)
        return tuple(one.path for one in taken), refused

    def join(self, taken: Sequence[Joining]) -> bool:
        is_other = tuple(taken) != self.others
        self.others = tuple(taken)
        self.carried = tuple((one.write.key, one.write.offer) for one in taken)
        return is_other

    def adding(
        self, head: TableVersion, snapshot_id: int, key: str, attempt: str, path: str
    ) -> CommitRequest:
        said = tuple(self.changes_by_key().values()), self.made
        return adding(head, snapshot_id, key, attempt, path, said=said)

    def saying(self, write_id: str, said: object) -> RowPlan:
        """A plan that takes back what was offered of the change."""
        first = self.first or self.snapshot_id
        return _WithdrawalPlan(
            Write(self.write.key, self.write.fingerprint), first * 100 + 99, write_id, True
        )


@dataclass(slots=True)
class _WithdrawalPlan(RowPlan):
    """A snapshot without rows, after which no commit carries what was offered; it looks for the key in all before it."""

    def request(self, head: TableVersion, path: str) -> CommitRequest:
        return adding(head, self.snapshot_id, "", "", path, withdrawn=self.write.key)


def _read(offer: Offer) -> Joining:
    said = json.loads(offer.body)
    return Joining(
        offer.path, Write(said["key"], "1:0", 1, offer=said["offer"]), (said[ACTION][0], said[ACTION][1])
    )


def sharing_changes(
    key: str,
    change: Change,
    attempt: str,
    snapshot_id: int,
    seen: TableVersion | None,
    *,
    helpers: Ledgers,
    terms: Terms,
    queue_first: bool = True,
) -> Program:
    """One call of ``apply_changes`` by a table that was looked at long ago (``seen``) or is looked at now.

    Raises:
        InvalidInputError: the change is refused, and no one can apply it any more.
        InternalError: the counts of another member were answered, or a member was counted that the plan had left out.
    """
    head = (yield from load(LIMITS)) if seen is None else seen
    write = Write(key, "1:0", 1, changes={"sequence": change[0]})
    plan = SharedChangePlan(write, snapshot_id, attempt, ordered=True, own=change, planned=head)
    how = {"queue_first": queue_first, "terms": terms}
    done = yield from steps_of("apply_changes", plan, tuple, helpers=helpers, limits=LIMITS, **how)
    if done.led_by_us and not done.already and done.members != 1 + len(plan.others):
        raise InternalError(f"{key} was committed with {len(plan.others)} others, and tells {done.members}.")
    if done.changes is None or done.changes["sequence"] != change[0]:
        raise InternalError(f"{key} was answered with {done.changes}.")
    return done.version
