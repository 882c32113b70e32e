"""Commits to an Iceberg catalog by compare-and-set, on the table versions that other writers made.

A new attempt, on a new base, is made only where the last change is known not to have landed
(``safewrite.protocol.iceberg.settle``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from safewrite.errors import RetriesExhaustedError, TableNotFoundError
from safewrite.protocol import held_version, sharing, ticket_queue
from safewrite.protocol.ask import Limits, ask, overdue, unanswered
from safewrite.protocol.contention import BaseMovedError, spread
from safewrite.protocol.effects import Backoff, Effect, Get, Missing, Ok, Outcome, Together
from safewrite.protocol.held_version import Holds
from safewrite.protocol.iceberg.change import CatalogSharer, LoadTable, Plan, TableChange
from safewrite.protocol.iceberg.failures import unaccounted
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import between, settle
from safewrite.protocol.iceberg.turn import CommitTurn
from safewrite.protocol.member_queue import ALONE, Share, Steps, Terms
from safewrite.protocol.members import Found


@dataclass(slots=True)
class Swapped:
    """Where the plan's rows are.

    ``lost`` are changes that the catalog refused clearly.  A change without an answer is not among them.  It
    cannot land on the table as it is, but a request on its way could, if the table were rolled back to its
    base: so its files stay.
    """

    head: TableVersion
    snapshot_id: int | None
    attempts: int
    already: bool
    contended: bool
    change: TableChange | None = None
    lost: list[TableChange] = field(default_factory=list)
    broken_off: int = 0
    """How many attempts asked for no change, since others had overtaken them."""
    members: int = 1
    """How many writes the snapshot carries."""
    waited_s: float = 0.0
    """How long the write waited for another writer to commit it, or for its turn to lead."""
    may_share: bool | None = None
    """Whether the queue of members can be used with these permissions; None if that was not seen."""
    rebased: int = 0
    """How many of the attempts after the first were staged again for what the commits of others changed alone."""


@dataclass(slots=True)
class CatalogTry:
    """The state of one commit, also as ``safewrite.protocol.sharing.SharedTry``.

    What counts versions there are sequence numbers: they grow with each snapshot of a table, and no catalog takes one that is not new.
    """

    plan: Plan
    done: Swapped
    turn: CommitTurn
    examined: TableVersion
    """The table version that was examined last."""
    share: Share[CatalogSharer] | None = None
    """What this write knows of the queue of members; None if it shares no commit."""
    started_s: float = 0.0
    holds: Holds = field(default_factory=Holds)
    last_acts: tuple[Effect, ...] = ()
    """What is performed once the catalog has accepted a change."""

    @property
    def limits(self) -> Limits:
        return self.turn.limits

    @property
    def ticket(self) -> int | None:
        return self.turn.ticket

    @property
    def seen(self) -> int:
        return self.examined.last_sequence

    @property
    def has_turns(self) -> bool:
        return self.turn.lease_queue

    def wait_ticket(self) -> Generator[Effect, Outcome, bool]:
        return (yield from self.turn.wait())

    def leave_tickets(self) -> Steps:
        yield from self.turn.leave()

    def catch_up(self) -> Generator[Effect, Outcome, Found | None]:
        self.done.head = yield from load(self.limits)
        return (yield from self.examine(self.done.head))

    def examine(self, head: TableVersion) -> Generator[Effect, Outcome, Found | None]:
        """Look for the write in a table version, and in those since the last that was examined."""
        at = yield from _examine(self.plan, self.examined, head)
        self.examined = head
        if self.share is not None:
            self.share.sharer.see(head)
        return None if at is None else Found(at, own=False)

    def poll(self) -> Generator[Effect, Outcome, tuple[bool, Found | None]]:
        """Ask the catalog once our member is gone: whoever commits it removes it, and an object is cheaper to ask for than a table."""
        assert self.share is not None
        assert self.share.path is not None
        got = yield Get(self.share.path, name="share.poll")
        return (True, (yield from self.catch_up())) if isinstance(got, Missing) else (False, None)

    def read_known(self, versions: Sequence[int]) -> Steps:
        """Snapshots that are not in the metadata any more are not to be had."""
        yield from ()

    def closing(self) -> tuple[Effect, ...]:
        """What ends our turn, and takes the members of a commit that stands out of the queue."""
        self.last_acts = (*self.turn.closing(), *sharing.closing(self.share))
        return self.last_acts

    def close(self) -> Steps:
        """The same, where no answer of the catalog came to do it with; it takes no commit back."""
        yield from self.turn.close()
        if self.share is not None and (acts := sharing.closing(self.share)):
            try:
                yield Together(acts, name="share.close")
            except Exception:  # noqa: BLE001 - a library's: who comes next takes them out
                return

    def ended(self) -> Swapped:
        """What the write came to."""
        done, share = self.done, self.share
        if share is not None:
            done.members += len(share.carried) if not done.already else 0
            done.waited_s, done.may_share = share.waited_s, share.usable
            done.contended |= share.meets
        return done


def commit(
    plan: Plan,
    head: TableVersion,
    *,
    limits: Limits,
    lease_queue: bool = False,
    queue_first: bool = False,
    sharer: CatalogSharer | None = None,
    terms: Terms = ALONE,
    doubting: Callable[[int], Generator[Effect, Outcome, bool]] | None = None,
) -> Generator[Effect, Outcome, Swapped]:
    """Commit a plan, on ``head`` first and then on the table versions that other writers made.

    ``head``, a table version, may be old: a change is examined against its base and lands only there, so
    nothing in between is passed over.  ``lease_queue`` says that there is a queue to wait in after a lost
    attempt; ``queue_first`` waits before the first.  ``sharer`` is the plan, where it may share a commit with other writers
    that wait, by these ``terms``.  ``doubting`` records the sequence number up to which they may commit it, and says whether it could.

    Raises:
        NotCommittedError: a subclass; nothing landed and nothing can land later.
        CommitUnknownError, ForeignWriterError: as for ``safewrite.protocol.iceberg.settle.settle``.
    """
    done = Swapped(head, None, 0, already=False, contended=False)
    state = CatalogTry(plan, done, CommitTurn(limits, lease_queue), head)
    if sharer is not None and terms.shares:
        state.share = Share(sharer, terms, sharer.folder, "sequence number")
    try:
        yield from _commit(state, queue_first)
    except Exception as error:
        yield from state.turn.close()
        share = state.share
        barred = share is not None and share.sharer.is_barred(state.done.head)
        ended = sharing.in_doubt(share, state.seen, error, is_barred=barred)
        # A member leaves the queue once its doubt is recorded alone, for ``resolve`` believes one of the two.
        if share is None or ended is error or doubting is None or (yield from doubting(share.through)):
            yield from sharing.leave(share)
        if ended is error:
            raise
        raise ended from error
    return state.ended()


def _commit(state: CatalogTry, queue_first: bool) -> Steps:
    done, turn, share = state.done, state.turn, state.share
    state.started_s = yield from ticket_queue.now()
    tried, waits = done.head, queue_first and share is not None
    looks = queue_first and not waits and (yield from turn.wait())
    while True:
        if looks:
            found = yield from sharing.examine(state)
        elif (found := (yield from state.examine(done.head))) is not None:
            yield from sharing.leave(share)
        looks = True
        if found is None and waits and share is not None:
            waits = False
            yield from share.sharer.secure()
            waited = yield from sharing.wait_turn(state)
            if waited is True:
                continue
            found = waited or None
        if found is not None:
            done.snapshot_id, done.already = found.version, True
            yield from turn.close()
            return
        yield from _check_patience(done, turn.limits, state.started_s)
        began_s, attempts = (yield from ticket_queue.now()), done.attempts
        change = yield from _staged(state)
        if done.attempts == attempts:
            continue
        if change is not None and (yield from _landed(state, change)):
            return
        done.contended = True
        ended_s = yield from ticket_queue.now()
        yield from turn.lost(ended_s - began_s)
        state.holds.lost(ended_s - began_s, turn.limits)
        waits = share is not None
        looks = not waits or sharing.leads(share)  # who waits is to look when it is its turn
        waits_alone = sharing.leads(share) if waits else not (yield from turn.wait())
        if waits_alone and change is not None and not (state.plan.rebases and state.holds.wants):
            # else a rival has just committed: overtaken at once, or never
            left_s = min(state.started_s + turn.limits.timeout_s, turn.limits.until_s) - ended_s
            yield _spread(done, tried, ended_s - began_s, rebases=state.plan.rebases, left_s=left_s)
        tried = state.examined


def _staged(state: CatalogTry) -> Generator[Effect, Outcome, TableChange | None]:
    """The change of the next try; None where the plan is to go on from what the table is now.

    That counts as a try where much was done for it.
    """
    yield from state.turn.hold()
    if state.plan.rebases and (yield from _made_room(state)):
        return None
    yield from sharing.gather(state)
    before, change = state.plan.rebased, None
    try:
        change = yield from state.plan.stage(state.done.head)
    except BaseMovedError as moved:
        if not moved.is_try:
            return None
        state.done.broken_off += 1
    # What was taken over before any try, or twice before one, made no more of them vain.
    state.done.rebased += state.done.attempts > 0 and state.plan.rebased > before
    state.done.attempts += 1
    if state.share is not None:
        state.share.leave_out()
    return change


def _made_room(state: CatalogTry) -> Generator[Effect, Outcome, bool]:
    """See :func:`safewrite.protocol.held_version.made_room`."""
    head = state.done.head

    def hold(write_id: str, held_s: float) -> Generator[Effect, Outcome, int | None]:
        holder = state.plan.holding(write_id, held_s)
        swapped = yield from commit(holder, head, limits=replace(state.limits, attempts=1))
        return None if swapped.already else swapped.head.current

    return held_version.made_room(
        state,
        held_s=head.held_s,
        newest=head.current,
        attempts=state.done.attempts,
        has_moved=partial(_has_moved, head),
        hold=hold,
    )


def let_pass(head: TableVersion, limits: Limits) -> Steps:
    """See :func:`safewrite.protocol.held_version.let_pass`."""
    yield from held_version.let_pass(head.held_s, partial(_has_moved, head), limits)


def _has_moved(head: TableVersion) -> Generator[Effect, Outcome, bool]:
    there = yield LoadTable(name="held.look")
    value = there.value if isinstance(there, Ok) else None
    return isinstance(value, TableVersion) and value.current != head.current


def _landed(state: CatalogTry, change: TableChange) -> Generator[Effect, Outcome, bool]:
    """Whether the catalog takes a change."""
    done, share = state.done, state.share
    settled = yield from settle(change, state.limits, state.started_s, state.closing)
    done.head = settled.head
    if settled.landed:
        done.change = change
        sharing.closed(share, dict(zip(state.last_acts, settled.answers, strict=False)))
        if not settled.closed:
            yield from state.close()
    elif not settled.in_doubt:
        done.lost.append(change)
    return settled.landed


def _spread(
    done: Swapped, tried: TableVersion, lost_s: float, *, rebases: bool = False, left_s: float = math.inf
) -> Backoff:
    rivals = sum(1 for _ in takewhile(lambda at: at != tried.current, done.head.ancestors()))
    return spread(done.attempts, rivals, lost_s, "swap.spread", rebases=rebases, left_s=left_s)


def _examine(plan: Plan, seen: TableVersion, head: TableVersion) -> Generator[Effect, Outcome, int | None]:
    """The snapshot that carries the write in a table version, or in any one since the last that was examined.

    Another attempt under the same key may have landed in between, and been expired.
    """
    found = plan.examine(head)
    if found is not None or head.accounts_since(seen):
        return found
    since = yield from between(seen, head)
    if since is None:
        raise unaccounted()
    return next((at for earlier in since if (at := plan.examine(earlier)) is not None), None)


def load(limits: Limits) -> Generator[Effect, Outcome, TableVersion]:
    """The table as it is now.

    Raises:
        TableNotFoundError: there is none.
        StorageError: the catalog gave no answer.
    """
    effect = LoadTable(name="swap.load")
    outcome = yield from ask(effect, limits)
    if isinstance(outcome, Missing):
        raise TableNotFoundError(
            f"There is no Iceberg table {outcome.detail or 'of this name in the catalog'}. Nothing was committed by this call. Check both "
            "names; or create the table with safewrite.create(), or open it with create=True."
        )
    if not isinstance(outcome, Ok):
        raise unanswered(effect, outcome)
    assert isinstance(outcome.value, TableVersion)
    return outcome.value


def _check_patience(done: Swapped, limits: Limits, started_s: float) -> Generator[Effect, Outcome, None]:
    """Give up only between attempts, when nothing is in doubt (C8)."""
    if done.attempts - done.rebased >= limits.attempts or (yield from overdue(limits, started_s)):
        raise RetriesExhaustedError(
            f"Gave up after {done.attempts} attempts: other writers changed the table before each of them "
            "could land. Nothing was committed. Call again with the same key, raise the limits, or write "
            "less often; lock_table= lets writers take turns."
        )
