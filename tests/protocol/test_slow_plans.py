"""A writer whose plan takes longer than a turn gets its commit through beside quick ones (C8)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.contention import BaseMovedError
from safewrite.protocol.delta.candidate import Anchor, Arbiter, Found
from safewrite.protocol.delta.claim import commit_path
from safewrite.protocol.delta.commit import Landed, commit
from safewrite.protocol.effects import (
    Backoff,
    Effect,
    Get,
    HoldTurn,
    Now,
    Ok,
    Outcome,
    PassTurn,
    PutIfAbsent,
    Sleep,
    Together,
)
from safewrite.protocol.held_version import held_s_of
from safewrite.protocol.iceberg.turn import CommitTurn
from safewrite.protocol.values import Queue
from safewrite.stores.memory import MemoryLedger, MemoryObjects, MemoryQueue
from safewrite.stores.world import World
from safewrite.table.writer import QUEUE_MEMORY
from tests.protocol.scripts import script

Steps = Generator[Effect, Outcome, Any]
LIMITS = Limits(lease_s=1.0, timeout_s=1e6, attempts=10_000)
PATIENT = Limits(timeout_s=1e6, long_s=0.25)
REQUEST_S = 0.02


@dataclass
class Planned:
    """A candidate that plans for ``plan_s`` after each commit of another."""

    name: str
    plan_s: float
    table_id: str | None = "t"
    accounted: int = -1
    rebases: bool = False
    rebased: int = 0
    anchor: Anchor | None = None
    is_stale: bool = False
    has_planned: bool = False
    looks: int = 1
    """In so many pieces it plans; it is broken off after one during which another committed."""
    known: int = -1
    held_s: float = 0.0
    """For how long the newest version that was examined holds the table."""
    holds_s: float = 0.0
    """For how long its own version does."""

    def holding(self, commit_id: str, held_s: float) -> Planned:
        return Planned(commit_id, 0.0, accounted=self.known, known=self.known, holds_s=held_s)

    def body(self, version: int) -> bytes:
        return f"{self.name} {version} {self.holds_s}".encode()

    def examine(self, version: int, body: bytes) -> Found | None:
        self.known, self.held_s = version, float(body.split()[-1])
        self.is_stale |= not self.held_s
        return None

    def summary(self, version: int) -> str | None:
        return None

    def suffices(self, summary: str) -> bool:
        return False

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        raise AssertionError("nobody gives a summary")

    def renew(self) -> Steps:
        if self.is_stale:
            self.rebased += self.rebases and self.has_planned
            self.has_planned = True
            for piece in range(self.looks):
                if piece and isinstance((yield Get(commit_path(self.known + 1))), Ok):
                    raise BaseMovedError
                yield Sleep(self.plan_s / self.looks)
            self.is_stale = False

    def recheck(self) -> Steps:
        yield from ()


@dataclass
class Race:
    """Writers on one table in memory, and a clock that their requests and pauses move."""

    queue: MemoryQueue = field(default_factory=MemoryQueue)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    now_s: float = 0.0
    passed_over: int = 0

    def __post_init__(self) -> None:
        self.world = World(MemoryObjects(), ledger=MemoryLedger(), queue=self.queue)

    def run(self, writers: list[Steps]) -> None:
        """Let all of them go on until each is done."""
        waiting: list[tuple[float, int, Outcome | None]] = [(0.0, n, None) for n in range(len(writers))]
        while waiting:
            self.now_s, number, outcome = heapq.heappop(waiting)
            try:
                effect = writers[number].send(outcome)  # type: ignore[arg-type]
            except StopIteration:
                continue
            outcome, cost_s = self._performed(effect)
            heapq.heappush(waiting, (self.now_s + cost_s, number, outcome))

    def _performed(self, effect: Effect) -> tuple[Outcome, float]:
        match effect:
            case Now():
                return Ok(self.now_s), 0.0
            case Sleep(seconds):
                return Ok(), seconds
            case Backoff(attempt, ceiling_s):
                return Ok(), self.rng.uniform(0, ceiling_s or 0.02 * 2**attempt)
            case Together(effects):
                return Ok(tuple(self._performed(one)[0] for one in effects)), REQUEST_S
        if isinstance(effect, PassTurn) and effect.name == "lease.pass_over":
            self.passed_over += 1
        return self.world.perform(effect), REQUEST_S

    def rebasing(
        self,
        plan_s: float,
        name: str,
        landed: list[tuple[str, Landed]],
        times: int,
        *,
        pause_s: float = 0.0,
        looks: int = 1,
        limits: Limits = PATIENT,
    ) -> Steps:
        """Commit plans that are brought to a newer base, so many times, where there is no queue."""
        seen = -1
        for number in range(times):
            how = {"accounted": seen, "known": seen, "looks": looks}
            candidate = Planned(f"{name}-{number}", plan_s, rebases=True, is_stale=True, **how)
            done = yield from commit(candidate, seen, arbiter=Arbiter(lock_table=False), limits=limits)
            seen = done.version
            landed.append((name, done))
            yield Sleep(pause_s)

    def writing(
        self,
        plan_s: float,
        name: str,
        landed: list[tuple[str, Landed]],
        times: int,
        *,
        queued: int = QUEUE_MEMORY,
    ) -> Steps:
        """Commit so many times, one after another; who did not meet others yet is not ``queued``, and plans before its first try."""
        seen = -1
        for number in range(times):
            candidate = Planned(f"{name}-{number}", plan_s, accounted=seen, is_stale=not queued)
            arbiter = Arbiter(lock_table=False, lease=True)
            done = yield from commit(candidate, seen, arbiter=arbiter, limits=LIMITS, queue_first=queued > 0)
            seen, queued = done.version, QUEUE_MEMORY if done.contended else max(0, queued - 1)
            landed.append((name, done))


def test_a_plan_longer_than_a_turn_is_not_starved_by_quick_writers() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    quick = [race.writing(0.0, f"quick-{number}", landed, 100) for number in range(8)]
    race.run([race.writing(4.0, "slow", landed, 3), *quick])
    slow = [done for name, done in landed if name == "slow"]
    assert sorted(done.version for _, done in landed) == list(range(803))
    assert [done.attempts <= 4 for done in slow] == [True] * 3
    assert slow[-1].version < 400, "not when the others have ended"


def test_a_plan_that_was_longer_than_a_turn_before_it_had_one_holds_its_first() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    quick = [race.writing(0.0, f"quick-{number}", landed, 40) for number in range(4)]
    race.run([race.writing(4.0, "slow", landed, 1, queued=0), *quick])
    assert [done.attempts for name, done in landed if name == "slow"] == [2]
    assert not race.passed_over


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_that_is_rebased_overtakes_a_writer_that_never_stops(seed: int) -> None:
    """It tries again right after the rival's commit; after a pause it lost again and again."""
    race, landed = Race(rng=random.Random(seed)), list[tuple[str, Landed]]()
    race.run([race.rebasing(1.0, "large", landed, 3), race.rebasing(0.9, "small", landed, 60, pause_s=0.3)])
    assert max(done.attempts for name, done in landed if name == "large") == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_that_is_broken_off_as_soon_as_a_rival_commits_takes_few_tries(seed: int) -> None:
    """It begins again right after the rival's commit, and so ends before the next one; without a look it takes 4 to 12 tries."""
    race, landed = Race(rng=random.Random(seed)), list[tuple[str, Landed]]()
    large = race.rebasing(1.0, "large", landed, 4, looks=8)
    race.run([large, race.rebasing(0.05, "small", landed, 60, pause_s=1.3 + seed / 10)])
    assert max(done.attempts for name, done in landed if name == "large") <= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_that_takes_longer_than_a_rival_leaves_holds_the_table_after_a_lost_try(seed: int) -> None:
    """The rival never loses a version, so it asks no queue; without this the plan lands when the rival ends."""
    race, landed = Race(rng=random.Random(seed)), list[tuple[str, Landed]]()
    large = race.rebasing(1.5, "large", landed, 3, looks=8)
    race.run([large, race.rebasing(0.5, "small", landed, 60, pause_s=0.1 + seed / 10)])
    tries = [done.attempts for name, done in landed if name == "large"]
    assert max(tries) == 2
    assert max(done.attempts for name, done in landed if name == "small") <= 3
    assert [name for name, _ in landed[-20:]] == ["small"] * 20


def test_who_holds_the_table_and_dies_is_waited_for_as_long_as_it_said_and_once() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    race.world.perform(PutIfAbsent(commit_path(0), b"dead 0 3.0"))
    race.run([race.rebasing(0.1, "small", landed, 2)])
    assert 3.0 <= race.now_s < 4.5
    assert [done.attempts for _, done in landed] == [1, 1]


def test_who_only_adds_rows_waits_for_nobody_that_holds_the_table() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    race.world.perform(PutIfAbsent(commit_path(0), b"dead 0 3.0"))
    race.run([race.writing(0.1, "adds", landed, 2)])
    assert race.now_s < 1.0


def test_who_has_less_time_than_a_dead_holder_asked_for_lands_all_the_same() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    race.world.perform(PutIfAbsent(commit_path(0), b"dead 0 50.0"))
    race.run([race.rebasing(0.1, "small", landed, 1, limits=Limits(timeout_s=2.0, long_s=0.25))])
    assert 1.0 <= race.now_s < 1.6
    assert [done.attempts for _, done in landed] == [1]


@pytest.mark.parametrize("said", ["soon", None, -1, float("nan"), float("inf"), [], {}])
def test_what_is_no_time_holds_no_table(said: object) -> None:
    assert not held_s_of(said)
    assert held_s_of(1e9) == ticket_queue.HOLD_S_MAX


@pytest.mark.parametrize("seed", range(5))
def test_a_crowd_without_a_queue_takes_few_tries(seed: int) -> None:
    race, landed = Race(rng=random.Random(seed)), list[tuple[str, Landed]]()
    race.run([race.rebasing(0.3, f"writer-{number}", landed, 4) for number in range(8)])
    assert len({done.version for _, done in landed}) == 32
    assert sum(done.attempts for _, done in landed) <= 2.3 * 32
    assert max(done.attempts for _, done in landed) == 2


def test_a_dead_holder_is_waited_for_as_long_as_it_asked_and_no_longer() -> None:
    race, landed = Race(), list[tuple[str, Landed]]()
    race.queue.take()
    race.queue.hold_turn(0, 5.0)
    race.run([ticket_queue.wait_turn(LIMITS)])
    assert 5.0 < race.now_s < 7.0
    assert race.passed_over == 1
    race.queue.hold_turn(1, 1e9)
    race.run([ticket_queue.wait_turn(LIMITS)])
    assert race.now_s < ticket_queue.HOLD_S_MAX + 2.0
    race.run([race.writing(0.0, "after", landed, 1)])
    assert landed[0][1].version == 0


def test_a_turn_is_asked_for_only_after_an_attempt_that_outlasted_one() -> None:
    for ticket, spent_s in ((4, 1.0), (None, 9.0)):
        script().run(ticket_queue.hold_turn(ticket, spent_s, LIMITS))
    asked = script(Ok())
    asked.run(ticket_queue.hold_turn(4, 1.5, LIMITS))
    assert asked.asked == [HoldTurn(4, 3.0, name="lease.hold")]
    longest = script(Ok())
    longest.run(ticket_queue.hold_turn(4, 900.0, LIMITS))
    assert longest.asked == [HoldTurn(4, 60.0, name="lease.hold")]


@pytest.mark.parametrize(("spent_s", "tickets"), [(0.5, [0]), (2.0, [0, 1])])
def test_an_iceberg_plan_that_outlasted_its_turn_waits_for_another(
    spent_s: float, tickets: list[int]
) -> None:
    race, turn, held = Race(), CommitTurn(LIMITS, lease_queue=True), list[int | None]()

    def attempts() -> Steps:
        for _ in range(2):
            yield from turn.wait()
            held.append(turn.ticket)
            yield from turn.hold()
            yield from turn.lost(spent_s)
        yield from turn.close()

    race.run([attempts()])
    assert list(dict.fromkeys(held)) == tickets
    assert race.queue.queue == Queue(len(tickets), len(tickets))
    assert not race.passed_over, "it ends its own turn before it waits for another"


def test_the_first_turn_after_a_try_without_one_is_held_for_as_long_as_that_took() -> None:
    race, turn = Race(), CommitTurn(LIMITS, lease_queue=True)

    def attempts() -> Steps:
        yield from turn.lost(2.0)
        yield from turn.wait()
        yield from turn.hold()

    race.run([attempts()])
    assert race.queue.queue == Queue(0, 1, hold_s=4.0)


def test_a_hold_ends_with_its_turn_and_is_nobody_elses() -> None:
    queue = MemoryQueue()
    queue.take()
    queue.take()
    assert isinstance(queue.hold_turn(0, 5.0), Ok)
    assert queue.read() == Ok(Queue(0, 2, 5.0))
    queue.pass_turn(0)
    assert queue.read() == Ok(Queue(1, 2))
    assert not isinstance(queue.hold_turn(0, 5.0), Ok)
