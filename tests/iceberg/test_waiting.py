"""How long writers wait for each other: the next in the queue hardly sleeps, and losers without a queue spread out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Now, Ok, Outcome, ReadQueue, Sleep, TakeTicket
from safewrite.protocol.iceberg import commit
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.values import Queue
from safewrite.stores.world import run


class Clock:
    """A queue that moves after so many seconds of a clock that only sleeping moves."""

    def __init__(self, turns_s: Sequence[float]) -> None:
        self.now_s = 0.0
        self.reads = 0
        self.served_s = tuple(itertools.accumulate(turns_s))
        self.ticket = len(self.served_s)

    def perform(self, effect: Effect) -> Outcome:
        match effect:
            case Now():
                return Ok(self.now_s)
            case Sleep(seconds):
                self.now_s += seconds
                return Ok()
            case TakeTicket():
                return Ok((self.ticket, self._queue()))
            case ReadQueue():
                self.reads += 1
                return Ok(self._queue())
        raise AssertionError(effect)

    def _queue(self) -> Queue:
        return Queue(serving=sum(end <= self.now_s for end in self.served_s), next=self.ticket + 1)


def wait(clock: Clock) -> float:
    """Seconds between the beginning of our turn and our knowing."""
    assert run(ticket_queue.wait_turn(Limits()), clock) == clock.ticket
    return clock.now_s - clock.served_s[-1]


@pytest.mark.parametrize(
    "turns_s",
    [(0.1,), (0.1,) * 12, (1.5, 0.1), (2.0, 0.1, 0.1), (0.3, 1.2) * 8, (1.2,) * 4 + (0.1,) * 2],
    ids=["next", "even", "slow, then quick", "one slow, two quick", "uneven", "ever quicker"],
)
def test_a_turn_is_not_overslept_by_a_guess_from_slower_turns(turns_s: tuple[float, ...]) -> None:
    assert wait(Clock(turns_s)) <= ticket_queue.NEXT_S_MAX


def test_whoever_is_far_back_sleeps_instead_of_asking() -> None:
    clock = Clock((0.5,) * 20)
    wait(clock)
    assert clock.reads < 3 * len(clock.served_s)


def head(snapshots: int) -> TableVersion:
    line = range(1, snapshots + 1)
    parents = {at: at - 1 or None for at in line}
    return TableVersion(
        "id",
        f"at-{snapshots}",
        snapshots or None,
        parents,
        {at: at for at in line},
        {at: {} for at in line},
        {},
    )


@pytest.mark.parametrize(("landed", "attempts", "ceiling_s"), [(1, 1, 1.0), (3, 1, 2.0), (2, 7, 4.0)])
def test_who_lost_waits_as_many_tries_as_there_are_rivals(
    landed: int, attempts: int, ceiling_s: float
) -> None:
    done = commit.Swapped(head(4 + landed), None, attempts, already=False, contended=True)
    assert commit._spread(done, head(4), 0.5).ceiling_s == ceiling_s


def test_who_lost_waits_no_longer_than_its_write_may_take() -> None:
    done = commit.Swapped(head(9), None, 1, already=False, contended=True)
    assert commit._spread(done, head(4), 2.0, left_s=1.5).ceiling_s == 1.5
    assert commit._spread(done, head(4), 2.0, left_s=-1.0).ceiling_s == 0.0
    assert commit._spread(done, head(4), 20.0).ceiling_s == 10.0


def test_rivals_on_a_table_that_was_empty_are_counted_too() -> None:
    done = commit.Swapped(head(3), None, 1, already=False, contended=True)
    assert commit._spread(done, head(0), 0.5).ceiling_s == 2.0
