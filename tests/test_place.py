"""A commit of another engine is placed at exactly its version, or is told that the version is another's; in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from safewrite.errors import CommitUnknownError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.claim import commit_path
from safewrite.protocol.delta.place import Placed, place, settle
from safewrite.protocol.effects import Effect, Outcome, PutIfAbsent, Unknown
from safewrite.protocol.values import Entry, Queue
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLocks, MemoryObjects, MemoryQueue
from safewrite.stores.world import World, run

LIMITS = Limits(asks=2, attempts=3, lease_s=0.0)
LEASED = Arbiter(True, lease=True)


@dataclass
class Table:
    """Stores of one table, with versions 0 and on made by somebody."""

    objects: MemoryObjects = field(default_factory=MemoryObjects)
    locks: MemoryLocks = field(default_factory=MemoryLocks)
    queue: MemoryQueue = field(default_factory=MemoryQueue)

    def __post_init__(self) -> None:
        ledger = ObjectLedger(self.objects)
        self.world = World(
            self.objects, locks=self.locks, queue=self.queue, ledger=ledger, threads=1, sleep=lambda _: None
        )

    def put(self, version: int, body: bytes) -> None:
        self.objects.put(commit_path(version), body)

    def body(self, version: int) -> bytes | None:
        return self.objects.blobs.get(commit_path(version))

    def place(
        self, body: bytes, version: int, *, arbiter: Arbiter = LEASED, ticket: int | None = None
    ) -> Placed:
        steps = place(body, version, "id", arbiter=arbiter, limits=LIMITS, ticket=ticket)
        return run(steps, self.world)


@pytest.fixture
def table() -> Table:
    made = Table()
    made.put(0, b"first")
    return made


@pytest.mark.parametrize("arbiter", [LEASED, Arbiter(False)], ids=["lock table", "object store"])
def test_a_free_version_is_taken_with_the_very_bytes(table: Table, arbiter: Arbiter) -> None:
    assert table.place(b"ours", 1, arbiter=arbiter).landed
    assert table.body(1) == b"ours"
    assert all(entry.settled and entry.table_id == "id" for entry in table.locks.entries.values())
    assert len(table.locks.entries) == (1 if arbiter.lock_table else 0)


def test_version_0_is_a_version_like_any_other() -> None:
    made = Table()
    assert made.place(b"ours", 0).landed
    assert not made.place(b"theirs", 0).landed
    assert made.body(0) == b"ours"


def test_another_commit_at_the_version_is_left_and_no_later_version_is_tried(table: Table) -> None:
    table.put(1, b"theirs")
    assert not table.place(b"ours", 1).landed
    assert table.body(1) == b"theirs"
    assert table.body(2) is None


def test_a_claim_that_another_left_is_finished_so_that_the_engine_can_read_it(table: Table) -> None:
    """A5: else Spark would be told "exists" and find nothing."""
    table.objects.put("_delta_log/.tmp/t", b"theirs")
    table.locks.put_entry_if_absent(Entry(f"{1:020d}.json", ".tmp/t"))
    assert not table.place(b"ours", 1).landed
    assert table.body(1) == b"theirs"


def test_who_is_outrun_keeps_a_turn_and_gives_it_back_by_landing(table: Table) -> None:
    table.put(1, b"theirs")
    lost = table.place(b"ours", 1)
    assert lost.ticket == 0
    assert table.queue.queue == Queue(serving=0, next=1)
    assert table.place(b"ours again", 2, ticket=lost.ticket).landed
    assert table.queue.queue == Queue(serving=1, next=1)


def test_who_is_outrun_in_its_own_turn_takes_another(table: Table) -> None:
    table.put(1, b"theirs")
    first = table.place(b"ours", 1)
    table.put(2, b"theirs too")
    second = table.place(b"ours", 2, ticket=first.ticket)
    assert (second.landed, second.ticket) == (False, 1)
    assert table.queue.queue == Queue(serving=1, next=2)


class _Mute:
    """Performs the commit's create, or does not, and never says which; reads of commits fail."""

    def __init__(self, world: World, *, performs: bool) -> None:
        self.world, self.performs = world, performs

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, PutIfAbsent):
            if self.performs:
                self.world.perform(effect)
            return Unknown("no answer")
        if effect.name == "commit.read_back":
            return Unknown("no answer")
        return self.world.perform(effect)


@pytest.mark.parametrize("performs", [True, False])
def test_a_version_in_doubt_is_an_error_and_never_anothers(table: Table, performs: bool) -> None:
    steps = place(b"ours", 1, "id", arbiter=LEASED, limits=LIMITS)
    with pytest.raises(CommitUnknownError, match="version 1"):
        run(steps, _Mute(table.world, performs=performs))
    assert (table.body(1) == b"ours") == performs
    # The claim stands, so whoever looks finishes it.
    assert run(settle(1, b"ours".__eq__, arbiter=LEASED, limits=LIMITS), table.world) is True
    assert table.body(1) == b"ours"


def test_a_version_that_nobody_has_is_undecided_and_then_anothers(table: Table) -> None:
    def ask() -> bool | None:
        return run(settle(1, b"ours".__eq__, arbiter=Arbiter(False), limits=LIMITS), table.world)

    assert ask() is None
    table.put(1, b"theirs")
    assert ask() is False


def test_a_turn_is_given_back_when_the_outcome_is_an_error(table: Table) -> None:
    table.put(1, b"theirs")
    ticket = table.place(b"ours", 1).ticket
    steps = place(b"ours", 2, "id", arbiter=LEASED, limits=LIMITS, ticket=ticket)
    with pytest.raises(CommitUnknownError):
        run(steps, _Mute(table.world, performs=False))
    assert table.queue.queue == Queue(serving=1, next=1)
