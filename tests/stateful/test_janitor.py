"""Whatever people and lifecycle rules remove between two calls, no row is lost or doubled, and no repeat is committed again (T4-A3).

Kills and lost answers among the calls too: what a dead writer left is finished by the next one, whose ledger may be empty by then.
What must not be removed is named in docs/promise.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from safewrite.protocol.effects import Missing, Ok, Outcome
from safewrite.protocol.keys import MARK
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLedger, MemoryObjects
from tests.stateful.calls import Call
from tests.stateful.clock import Clock
from tests.stateful.lake import Lake
from tests.stateful.station import Delivery, Place, Station
from tests.stateful.test_groups import Groups, groups
from tests.stateful.test_machine import WRITERS, common, faults, wheres

A_MOMENT_S = 2.0
"""Longer than a writer relies on the ledger's mark that it has seen."""
Thing = Literal["ledger", "queue", "temp files", "_last_checkpoint", "checkpoints", "probe"]
INSIDE: dict[Thing, str] = {
    "queue": "_safewrite/queue/",
    "temp files": "_delta_log/.tmp/",
    "probe": "_safewrite/probe/",
    "_last_checkpoint": "_delta_log/_last_checkpoint",
}


def remove(lake: Lake, thing: Thing) -> int:
    """Remove a thing, as by hand, a moment before the next call; how much there was."""
    blobs, ledger = lake.objects.blobs, lake.world.ledger
    if thing == "ledger" and isinstance(ledger, MemoryLedger):
        gone, _ = len(ledger.records), ledger.records.clear()
    else:
        names = [name for name in blobs if _is_of(thing, name)]
        # A temp file is in use for as long as its commit is not finished.
        names = [] if thing == "temp files" and lake.locks is not None else names
        gone = len(names)
        for name in names:
            del blobs[name]
    lake.clock.sleep(A_MOMENT_S)
    return gone


def _is_of(thing: Thing, name: str) -> bool:
    if thing == "ledger":
        return name.startswith("_safewrite/ledger/")
    return ".checkpoint." in name if thing == "checkpoints" else name.startswith(INSIDE[thing])


class Janitor(RuleBasedStateMachine):
    """Each rule is one call, or a removal between two; ``Lake.do`` checks every promise after a call."""

    @initialize(arbiter=st.sampled_from(["dynamodb", "object-store"]))
    def open(self, arbiter: Literal["dynamodb", "object-store"]) -> None:
        self.lake = Lake(arbiter, writers=WRITERS)

    @rule(call=st.builds(Call, st.just("append"), naming=st.sampled_from(["key", "key", "txn"]), **common))
    def append(self, call: Call) -> None:
        self.lake.do(call)

    @rule(call=st.builds(Call, st.just("overwrite"), naming=st.just("key"), where=wheres, **common))
    def overwrite(self, call: Call) -> None:
        self.lake.do(call)

    @rule(
        thing=st.sampled_from(Thing.__args__),  # type: ignore[attr-defined]
        call=st.builds(Call, st.just("append"), naming=st.sampled_from(["same", "same", "other"]), **common),
    )
    def remove_and_replay(self, thing: Thing, call: Call) -> None:
        remove(self.lake, thing)
        self.lake.do(call)

    @rule(
        thing=st.sampled_from(Thing.__args__),  # type: ignore[attr-defined]
        call=st.builds(Call, st.sampled_from(["append", "overwrite"]), naming=st.just("key"), faults=faults, writer=common["writer"], rows=common["rows"]),
    )  # fmt: skip
    def remove_and_go_on(self, thing: Thing, call: Call) -> None:
        remove(self.lake, thing)
        self.lake.do(call)

    @rule(call=st.builds(Call, st.sampled_from(["resolve", "checkpoint", "reopen", "expire"]), **common))
    def look_after(self, call: Call) -> None:
        self.lake.do(call)


DAY_MS = 24 * 3600 * 1000


@dataclass
class Swept(MemoryObjects):
    """Objects under a prefix are removed by their age as S3 does: at the midnight after so many days, or some time later."""

    clock: Clock = field(default_factory=Clock)
    days: int = 1
    prefix: str = "_safewrite/"
    written_ms: dict[str, int] = field(default_factory=dict)

    def put(self, path: str, body: bytes) -> Outcome:
        self.written_ms[path] = self.clock.wall_ms
        return super().put(path, body)

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        outcome = super().put_if_absent(path, body)
        if isinstance(outcome, Ok):
            self.written_ms[path] = self.clock.wall_ms
        return outcome

    def ends_ms(self, path: str) -> int:
        return (self.written_ms[path] // DAY_MS + self.days + 1) * DAY_MS

    def get_lasting(self, path: str) -> Outcome:
        leaves = path in self.blobs and self.ends_ms(path) - self.clock.wall_ms <= DAY_MS
        return Missing() if leaves else self.get(path)

    def sweep(self, takes: Callable[[str], bool] = lambda _: True) -> None:
        for path in [one for one in self.blobs if one.startswith(self.prefix)]:
            if self.ends_ms(path) <= self.clock.wall_ms and takes(path):
                del self.blobs[path]


class Sweeping(RuleBasedStateMachine):
    """A lifecycle rule takes objects of ``_safewrite/`` by age, in any order and with any delay, among writes and repeats."""

    @initialize(days=st.integers(1, 4))
    def open(self, days: int) -> None:
        self.lake = Lake("object-store", writers=2, objects=lambda clock: Swept(clock=clock, days=days))

    @rule(
        call=st.builds(
            Call, st.just("append"), naming=st.just("key"), rows=common["rows"], writer=st.integers(0, 1)
        )
    )
    def append(self, call: Call) -> None:
        self.lake.do(call)

    @rule(
        call=st.builds(Call, st.just("append"), naming=st.just("same"), pick=common["pick"], writer=st.integers(0, 1), faults=faults)
    )  # fmt: skip
    def replay(self, call: Call) -> None:
        self.lake.do(call)

    @rule(hours=st.sampled_from([3, 12, 24, 24, 48]), seed=st.integers(0, 999))
    def time_passes(self, hours: int, seed: int) -> None:
        self.lake.clock.sleep(hours * 3600)
        swept = self.lake.objects
        assert isinstance(swept, Swept)
        rng = Random(seed)
        swept.sweep(lambda _: rng.random() < 0.5)


TestSweeping = Sweeping.TestCase
TestSweeping.settings = settings(
    deadline=None,
    max_examples=15,
    stateful_step_count=14,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.long
class TestManySweeps(Sweeping.TestCase):
    """Many more of them."""

    settings = settings(deadline=None, max_examples=3000, stateful_step_count=24)


class GroupJanitor(Groups):
    """What remembers the members of shared commits is removed among deliveries: at worst a repeat is refused, none is doubled."""

    place: ClassVar[Place] = "object-store"
    told: ClassVar[Counter[str]] = Counter()

    @initialize(place=st.sampled_from(["dynamodb", "object-store"]))
    def open(self, place: Place) -> None:
        self.station.close()
        self.station = Station(place)

    @rule(
        beginning=st.sampled_from(["_safewrite/ledger/", "_safewrite/members/", "_safewrite/queue/", "_delta_log/_last_checkpoint"]),
        group=groups,
    )  # fmt: skip
    def remove_and_deliver(self, beginning: str, group: tuple[Delivery, ...]) -> None:
        self.station.remove(beginning)
        self.station.do(0, group)

    def teardown(self) -> None:
        self.station.close()


TestGroupJanitor = GroupJanitor.TestCase
TestGroupJanitor.settings = settings(
    deadline=None,
    max_examples=10,
    stateful_step_count=10,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.long
class TestManyGroupRemovals(GroupJanitor.TestCase):
    """Many more of them."""

    settings = settings(deadline=None, max_examples=800, stateful_step_count=16)


TestJanitor = Janitor.TestCase
TestJanitor.settings = settings(
    deadline=None,
    max_examples=6,
    stateful_step_count=12,
    derandomize=True,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate),
)


@pytest.mark.long
class TestManyRemovals(Janitor.TestCase):
    """Many more of them."""

    settings = settings(deadline=None, max_examples=1500, stateful_step_count=16)


@pytest.mark.parametrize("arbiter", ["dynamodb", "object-store"])
def test_a_repeat_after_the_ledger_was_emptied_is_a_repeat(arbiter: Any) -> None:
    """T4-A3: the redelivery was committed again, while ``resolve`` of the same key found the first commit."""
    lake = Lake(arbiter)
    rows = (("a", "x", 1.5),)
    for verb in ("append", "append", "overwrite"):
        assert lake.do(Call(verb, 0, "key", rows=rows)) == "committed"
    assert remove(lake, "ledger") > 3
    for pick in range(3):
        for writer in (0, 1):
            assert lake.do(Call("append", writer, "same", pick, rows=rows)) == "already_committed"
    assert lake.do(Call("append", 0, "other", rows=rows)) == "replay_mismatch"


def swept_lake(days: int) -> tuple[Lake, Swept]:
    lake = Lake("object-store", writers=1, objects=lambda clock: Swept(clock=clock, days=days))
    assert isinstance(lake.objects, Swept)
    return lake, lake.objects


def test_t4_a3_a_key_that_was_put_back_lasts_as_long_as_the_mark() -> None:
    """The intent stayed as old as it was: it went first, and a key without one counted as new, though its commit was recorded."""
    lake, store = swept_lake(5)
    rows = (("a", "x", 1.5),)

    def after(days: int) -> None:
        lake.clock.sleep(days * 24 * 3600)
        store.sweep()

    assert lake.do(Call("append", 0, "key", rows=rows)) == "committed"
    after(3)
    assert lake.do(Call("append", 0, "key", rows=rows)) == "committed"
    after(4)  # the mark is gone
    assert lake.do(Call("append", 0, "key", rows=rows)) == "committed"
    after(3)
    assert lake.do(Call("append", 0, "same", 1, rows=rows)) == "already_committed"


def test_t4_a3_a_mark_that_is_about_to_go_is_not_relied_on() -> None:
    """S3 removes what has expired in any order, and hours later: an entry may go before the mark."""
    lake, store = swept_lake(5)
    rows = (("a", "x", 1.5),)
    assert lake.do(Call("append", 0, "key", rows=rows)) == "committed"
    lake.clock.sleep(6 * 24 * 3600)
    store.sweep(lambda path: path != ObjectLedger(store).path_of(MARK))
    assert lake.do(Call("append", 0, "same", rows=rows)) == "already_committed"
