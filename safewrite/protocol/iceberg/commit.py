"""Commits to an Iceberg catalog by compare-and-set, and finds out whether the commit landed.

Each change carries a snapshot id that was drawn before it is asked for.  So the table's own metadata says
afterwards whether it landed, whatever the answer was:

==============  ==================================================================================
the metadata    what it means
==============  ==================================================================================
has the id      landed; acknowledged once the snapshot is seen to be an ancestor of the current one
has moved on    the change requires its base, so it has not landed and cannot land any more
is the base     nothing is known yet: a request may still be on its way (C2).  The same change is
                asked for again; it lands at most once, for each landing takes the base away
==============  ==================================================================================

A new attempt, on the new base, is made only from "has moved on".  Nothing is deleted on any other ground
(C1).  Sources: Iceberg spec, "Optimistic Concurrency" and "Commit Conflict Resolution and Retry";
apache/iceberg #2317, #3717, #7151.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from safewrite.errors import CommitUnknownError, RetriesExhaustedError, SafewriteError, TableNotFoundError
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits, Patience, ask, overdue, unanswered
from safewrite.protocol.contention import spread
from safewrite.protocol.effects import (
    Backoff,
    Effect,
    Exists,
    Failed,
    Missing,
    Ok,
    Outcome,
    Together,
    Unknown,
)
from safewrite.protocol.iceberg.change import (
    CreateTable,
    Creation,
    LoadTable,
    Plan,
    ReadMetadata,
    SwapTable,
    TableChange,
)
from safewrite.protocol.iceberg.failures import clobbered, gone, replaced, rolled_back, unaccounted, undecided
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.turn import CommitTurn
from safewrite.text.rendering import said

METADATA_READ_MAX = 100
"""How many earlier metadata files are read to account for expired snapshots."""


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


# --- one change ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SettledChange:
    """What became of one change, and the metadata that proves it."""

    landed: bool
    head: TableVersion
    closed: bool = False
    """Whether the closing effects were performed after the acceptance."""
    in_doubt: bool = False
    """Whether some answer was lost, so that a request may still be on its way."""


def settle(
    change: TableChange, limits: Limits, started_s: float, closing: tuple[Effect, ...] = ()
) -> Generator[Effect, Outcome, SettledChange]:
    """Ask for one compare-and-set until it is known whether it landed.

    ``closing`` is performed together with the look that follows an acceptance.

    Raises:
        CommitUnknownError: neither a clear answer nor the metadata decided it in time.
        ForeignWriterError: the catalog accepted the change, and it is not in the table.
        ConflictError, TableNotFoundError: the table is gone, and the change with it.
        StorageError: the catalog refused the request for another reason; nothing was committed.
    """
    try:
        return (yield from _settle(change, limits, started_s, closing))
    except SafewriteError:
        raise
    except Exception as error:
        raise CommitUnknownError(
            f"The commit onto {change.base.location} ended in {type(error).__name__}: {said(error)}. The rows may be, or "
            "become, part of the table. Call again with the same key, or resolve(key), to decide."
        ) from error


def _settle(
    change: TableChange, limits: Limits, started_s: float, closing: tuple[Effect, ...]
) -> Generator[Effect, Outcome, SettledChange]:
    swap = SwapTable(change, name="swap.commit")
    accepted = in_doubt = unseen = False
    outcome: Outcome = Unknown("never asked")
    patience = Patience(limits)
    while True:
        if not accepted:
            outcome = yield from _answer(swap)
            accepted = isinstance(outcome, Ok)
            in_doubt = in_doubt or isinstance(outcome, Unknown)
        looked = yield from _look(accepted, closing)
        closing = () if accepted else closing
        # A request that arrived twice is applied and then refused: only the base itself shows that it was not.
        unseen = unseen or isinstance(outcome, Exists)
        settled = yield from _judge(change, looked, accepted, in_doubt or unseen)
        if settled is not None:
            return replace(settled, closed=accepted, in_doubt=in_doubt)
        unseen = unseen and not _is_base(change, looked)
        if isinstance(outcome, Exists | Failed) and not (in_doubt or unseen) and isinstance(looked, Ok):
            assert isinstance(looked.value, TableVersion)
            if looked.value.location != change.base.location:
                # Not the base any more, though what the change requires holds: its format was upgraded, for one.
                return SettledChange(False, looked.value, in_doubt=True)
            if isinstance(outcome, Failed):
                raise unanswered(swap, outcome)
        if not (yield from patience.again(outcome, looked)) or (yield from overdue(limits, started_s)):
            break
        yield Backoff(patience.tries, name="swap.backoff")
    raise undecided(swap, outcome, accepted or in_doubt or unseen)


def _look(accepted: bool, closing: tuple[Effect, ...]) -> Generator[Effect, Outcome, Outcome]:
    look = LoadTable(name="swap.verify" if accepted else "swap.look")
    if not accepted or not closing:
        return (yield from _answer(look))
    answers = yield from _answer(Together((look, *closing), name="swap.verify_and_close"))
    if not isinstance(answers, Ok):
        return answers
    assert isinstance(answers.value, tuple)
    first: Outcome = answers.value[0]
    return first


def _answer(effect: Effect) -> Generator[Effect, Outcome, Outcome]:
    """The outcome of an effect; an exception of a library says nothing of it."""
    try:
        return (yield effect)
    except Exception as error:  # noqa: BLE001 - the next look decides
        return Unknown(f"{type(error).__name__}: {said(error)}")


def _is_base(change: TableChange, looked: Outcome) -> bool:
    """Whether an undecided look showed the base of the change."""
    return (
        isinstance(looked, Ok) and isinstance(looked.value, TableVersion) and change.may_land_on(looked.value)
    )


def _judge(
    change: TableChange, looked: Outcome, accepted: bool, in_doubt: bool
) -> Generator[Effect, Outcome, SettledChange | None]:
    """Judge the change by a look at the table; None if that does not decide."""
    if isinstance(looked, Missing):
        raise gone(accepted or in_doubt)
    if not isinstance(looked, Ok):
        return None
    head = looked.value
    assert isinstance(head, TableVersion)
    if head.table_id != change.base.table_id:
        raise replaced(in_doubt=accepted or in_doubt)
    if change.landed_in(head):
        if not change.stands_in(head):
            raise rolled_back()
        return SettledChange(True, head)
    if change.may_land_on(head):
        return None
    landed = yield from _landed_before(change, head)
    if landed is None:
        return None
    if landed:
        return SettledChange(True, head)
    if accepted:
        raise clobbered()
    return SettledChange(False, head)


def _landed_before(change: TableChange, head: TableVersion) -> Generator[Effect, Outcome, bool | None]:
    """Whether the change landed and was expired since; None if that is unknown."""
    if change.accounted_in(head):
        return False
    between = yield from _between(change.base, head)
    return None if between is None else any(change.landed_in(earlier) for earlier in between)


def _between(base: TableVersion, head: TableVersion) -> Generator[Effect, Outcome, list[TableVersion] | None]:
    """Every table version after ``base`` and before ``head``; None if one cannot be read any more."""
    if base.location not in head.previous:
        return None
    since = head.previous[head.previous.index(base.location) + 1 :]
    if len(since) > METADATA_READ_MAX:
        return None
    found = []
    for location in reversed(since):
        outcome = yield from _answer(ReadMetadata(location, name="swap.read_metadata"))
        if not isinstance(outcome, Ok):
            return None
        assert isinstance(outcome.value, TableVersion)
        found.append(outcome.value)
    return found


def settle_creation(
    creation: Creation, limits: Limits, started_s: float
) -> Generator[Effect, Outcome, SettledChange]:
    """Create a table, and find out whether it is ours; not landed means that another made it first (A20).

    Raises:
        StorageError: the catalog refused; nothing was made.
        CommitUnknownError: the table may have been made, or may still be.
    """
    create = CreateTable(creation, name="create.commit")
    in_doubt = False
    patience = Patience(limits)
    while True:
        outcome = yield from _answer(create)
        in_doubt = in_doubt or isinstance(outcome, Ok | Unknown)
        looked = yield from _answer(LoadTable(name="create.look"))
        if isinstance(looked, Ok):
            assert isinstance(looked.value, TableVersion)
            return SettledChange(creation.landed_in(looked.value), looked.value)
        if isinstance(outcome, Failed | Missing) and not in_doubt and isinstance(looked, Missing):
            raise unanswered(create, outcome)
        if not (yield from patience.again(outcome, looked)) or (yield from overdue(limits, started_s)):
            break
        yield Backoff(patience.tries, name="create.backoff")
    if in_doubt:
        raise CommitUnknownError(
            "The catalog did not say whether the table was made, and does not show it. It may appear later, "
            "empty or with the rows that were to come with it. Look for it before you try again."
        )
    raise unanswered(create, outcome)


# --- one plan --------------------------------------------------------------------------------------
def commit(
    plan: Plan,
    head: TableVersion,
    *,
    limits: Limits,
    lease_queue: bool = False,
    queue_first: bool = False,
) -> Generator[Effect, Outcome, Swapped]:
    """Commit a plan, on ``head`` first and then on the table versions that other writers made.

    ``head``, a table version, may be old: a change is examined against its base and lands only there, so
    nothing in between is passed over.  ``lease_queue`` says that there is a queue to wait in after a lost
    attempt; ``queue_first`` waits before the first.

    Raises:
        NotCommittedError: a subclass; nothing landed and nothing can land later.
        CommitUnknownError, ForeignWriterError: as for :func:`settle`.
    """
    state = CommitTurn(limits, lease_queue)
    try:
        return (
            yield from _commit(
                plan, Swapped(head, None, 0, already=False, contended=False), state, queue_first
            )
        )
    except Exception:
        yield from state.close()
        raise


def _commit(
    plan: Plan, done: Swapped, turn: CommitTurn, queue_first: bool
) -> Generator[Effect, Outcome, Swapped]:
    started_s = yield from ticket_queue.now()
    seen = tried = done.head
    if queue_first and (yield from turn.wait()):
        done.head = yield from load(turn.limits)
    while True:
        done.snapshot_id = yield from _examine(plan, seen, done.head)
        seen = done.head
        if done.snapshot_id is not None:
            done.already = True
            yield from turn.close()
            return done
        yield from _check_patience(done, turn.limits, started_s)
        done.attempts += 1
        began_s = yield from ticket_queue.now()
        yield from turn.hold()
        change = yield from plan.stage(done.head)
        settled = yield from settle(change, turn.limits, started_s, turn.closing())
        done.head = settled.head
        if settled.landed:
            done.change = change
            if not settled.closed:
                yield from turn.close()
            return done
        if not settled.in_doubt:
            done.lost.append(change)
        done.contended = True
        ended_s = yield from ticket_queue.now()
        turn.lost(ended_s - began_s)
        if not (yield from turn.wait()):
            left_s = min(started_s + turn.limits.timeout_s, turn.limits.until_s) - ended_s
            yield _spread(done, tried, ended_s - began_s, left_s=left_s)
        tried = seen
        done.head = yield from load(turn.limits)


def _spread(done: Swapped, tried: TableVersion, lost_s: float, *, left_s: float = math.inf) -> Backoff:
    rivals = sum(1 for _ in takewhile(lambda at: at != tried.current, done.head.ancestors()))
    return spread(done.attempts, rivals, lost_s, "swap.spread", left_s=left_s)


def _examine(plan: Plan, seen: TableVersion, head: TableVersion) -> Generator[Effect, Outcome, int | None]:
    """The snapshot that carries the write in a table version, or in any one since the last that was examined.

    Another attempt under the same key may have landed in between, and been expired.
    """
    found = plan.examine(head)
    if found is not None or head.accounts_since(seen):
        return found
    between = yield from _between(seen, head)
    if between is None:
        raise unaccounted()
    return next((at for earlier in between if (at := plan.examine(earlier)) is not None), None)


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
            "The catalog has no such table. Nothing was committed by this call. Create it with "
            "safewrite.create(), or open it with create=True."
        )
    if not isinstance(outcome, Ok):
        raise unanswered(effect, outcome)
    assert isinstance(outcome.value, TableVersion)
    return outcome.value


def _check_patience(done: Swapped, limits: Limits, started_s: float) -> Generator[Effect, Outcome, None]:
    """Give up only between attempts, when nothing is in doubt (C8, M28)."""
    if done.attempts >= limits.attempts or (yield from overdue(limits, started_s)):
        raise RetriesExhaustedError(
            f"Gave up after {done.attempts} attempts: other writers changed the table before each of them "
            "could land. Nothing was committed. Call again with the same key, raise the limits, or write "
            "less often; lock_table= lets writers take turns."
        )
