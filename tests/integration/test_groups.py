"""Processes that deliver events in groups of their own, some of them killed: each event is there once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

import safewrite as sw
from safewrite.stores.world import Performer
from tests.integration.places import Place, once, rows
from tests.sampling import some

EVENTS, WRITERS = 40, 3
ALL = range(1, EVENTS + 2 * WRITERS + 1)
"""The last are two events of each writer, which no other delivers: so each reaches every step twice, however slow it is."""
STEPS = ("ledger.intend", "stage.put_data", "commit.put_commit", "ledger.commit")
CASES = [
    (arbiter, step, after)
    for arbiter in ("dynamodb", "object-store", "local")
    for step in (*STEPS, *(("commit.put_entry",) if arbiter == "dynamodb" else ()))
    for after in (False, True)
]


class Deadly(Performer):
    """Kills its process at the n-th write of a commit, before or after it."""

    def __init__(self, world: Performer, at: int, step: str, *, after: bool) -> None:
        self.world, self.left, self.step, self.after = world, at, step, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Any) -> Any:
        names = [one.name for one in getattr(effect, "effects", (effect,))]
        hit = self.step in names
        self.left -= hit
        if hit and self.left == 0 and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = self.world.perform(effect)
        if hit and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


def deliver(place: Place, seed: int, kill: tuple[int, str, bool] | None, acks: Any) -> None:
    """Deliver every event twice, in groups as the seed draws them; tell which were acknowledged."""
    draw = random.Random(seed)
    table = place.open()
    if kill is not None:
        at, step, after = kill
        table.world = Deadly(table.world, at, step, after=after)
    events = [*range(1, EVENTS + 1)] * 2
    draw.shuffle(events)
    own = [EVENTS + 2 * seed + 1, EVENTS + 2 * seed + 2]
    while events:
        size = draw.randint(1, 9)
        group, events = [*events[:size], *own[:1]], events[size:]
        own = own[1:]
        members = [(f"event-{number}", rows(number)) for number in group]
        try:
            answers = table.append_many(members)
        except sw.SafewriteError as error:
            assert not isinstance(error, sw.ForeignWriterError), error  # noqa: PT017 - in a child
            continue
        assert all(isinstance(one, sw.Receipt) for one in answers), answers
        acks.put(group)


@pytest.mark.long
@pytest.mark.parametrize(("arbiter", "step", "after"), some(CASES, every=5))
def test_events_in_changing_groups_are_there_once_whoever_is_killed(
    new_place: Callable[[str], Place], arbiter: str, step: str, after: bool
) -> None:
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="before")
    context = multiprocessing.get_context("fork")
    acks = context.SimpleQueue()
    kills = [(2, step, after), None, (1, step, after)]
    children = [
        context.Process(target=deliver, args=(place, seed, kill, acks)) for seed, kill in enumerate(kills)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [-signal.SIGKILL, 0, -signal.SIGKILL]
    acked: set[int] = set()
    while not acks.empty():
        acked |= set(acks.get())
    found = place.ids()
    assert max(found.values()) == 1, "doubled"
    assert acked <= set(found), "lost"
    final = place.open().append_many([(f"event-{n}", rows(n)) for n in ALL])
    assert all(isinstance(one, sw.Receipt) for one in final)
    assert place.ids() == once(0, *ALL) == place.replayed_ids()
