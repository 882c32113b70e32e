"""Asks for one change of a table's metadata until it is known whether it landed.

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

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from safewrite.errors import CommitUnknownError, SafewriteError
from safewrite.protocol.ask import Limits, Patience, overdue, unanswered
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
    ReadMetadata,
    SwapTable,
    TableChange,
)
from safewrite.protocol.iceberg.failures import clobbered, gone, replaced, rolled_back, undecided
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.text.rendering import said

METADATA_READ_MAX = 100
"""How many earlier metadata files are read to account for expired snapshots."""


@dataclass(frozen=True, slots=True)
class SettledChange:
    """What became of one change, and the metadata that proves it."""

    landed: bool
    head: TableVersion
    closed: bool = False
    """Whether the closing effects were performed after the acceptance."""
    answers: tuple[Outcome, ...] = ()
    """The answers to these."""
    in_doubt: bool = False
    """Whether some answer was lost, so that a request may still be on its way."""


def settle(
    change: TableChange, limits: Limits, started_s: float, closing: Callable[[], tuple[Effect, ...]] = tuple
) -> Generator[Effect, Outcome, SettledChange]:
    """Ask for one compare-and-set until it is known whether it landed.

    ``closing`` gives what is performed together with the look that follows an acceptance.

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
    change: TableChange, limits: Limits, started_s: float, closing: Callable[[], tuple[Effect, ...]]
) -> Generator[Effect, Outcome, SettledChange]:
    swap = SwapTable(change, name="swap.commit")
    accepted = in_doubt = unseen = False
    outcome: Outcome = Unknown("never asked")
    patience = Patience(limits)
    answers: tuple[Outcome, ...] = ()
    while True:
        due: tuple[Effect, ...] = ()
        if not accepted:
            outcome = yield from _answer(swap)
            accepted = isinstance(outcome, Ok)
            in_doubt = in_doubt or isinstance(outcome, Unknown)
            due = closing() if accepted else ()
        looked, *closed = yield from _look(accepted, due)
        answers = answers or tuple(closed)
        # A request that arrived twice is applied and then refused: only the base itself shows that it was not.
        unseen = unseen or isinstance(outcome, Exists)
        settled = yield from _judge(change, looked, accepted, in_doubt or unseen)
        if settled is not None:
            return replace(settled, closed=accepted, answers=answers, in_doubt=in_doubt)
        unseen = unseen and not _is_base(change, looked)
        if isinstance(outcome, Exists | Failed) and not (in_doubt or unseen) and isinstance(looked, Ok):
            assert isinstance(looked.value, TableVersion)
            if looked.value.location != change.base.location:
                # Not the base any more, though what the change requires holds: its format was upgraded, for one.
                return SettledChange(False, looked.value, in_doubt=True)
            if isinstance(outcome, Failed):
                raise unanswered(swap, outcome)
        if isinstance(outcome, Failed) and outcome.unsupported and not (in_doubt or unseen):
            raise unanswered(swap, outcome)  # of our own, before any request: the table cannot be looked at
        if not (yield from patience.again(outcome, looked)) or (yield from overdue(limits, started_s)):
            break
        yield Backoff(patience.tries, name="swap.backoff")
    raise undecided(swap, outcome, accepted or in_doubt or unseen)


def _look(accepted: bool, closing: tuple[Effect, ...]) -> Generator[Effect, Outcome, tuple[Outcome, ...]]:
    """Look at the table, and close if that is due: the answers to both."""
    look = LoadTable(name="swap.verify" if accepted else "swap.look")
    if not closing:
        return ((yield from _answer(look)),)
    answers = yield from _answer(Together((look, *closing), name="swap.verify_and_close"))
    if not isinstance(answers, Ok):
        return (answers,)
    assert isinstance(answers.value, tuple)
    return answers.value


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
    if isinstance(looked, Failed) and looked.unsupported and not (accepted or in_doubt):
        raise unanswered(LoadTable(name="swap.look"), looked)
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
    since = yield from between(change.base, head)
    return None if since is None else any(change.landed_in(earlier) for earlier in since)


def between(base: TableVersion, head: TableVersion) -> Generator[Effect, Outcome, list[TableVersion] | None]:
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
        if isinstance(looked, Failed) and looked.unsupported and not in_doubt:
            raise unanswered(create, looked)
        if not (yield from patience.again(outcome, looked)) or (yield from overdue(limits, started_s)):
            break
        yield Backoff(patience.tries, name="create.backoff")
    if in_doubt:
        detail = getattr(outcome, "detail", "") or type(outcome).__name__
        raise CommitUnknownError(
            f"The catalog did not say whether the table was made, and does not show it: {detail.rstrip('.')}. It may appear later, "
            "empty or with the rows that were to come with it. Look for it before you try again."
        )
    raise unanswered(create, outcome)
