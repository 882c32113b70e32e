"""How many requests a warm append makes, and how many of them one after another: 30 ms away each of these is 30 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safewrite.protocol.effects import Effect, NewId, Now, Outcome, Together, WallClock
from safewrite.stores.world import Performer
from tests.integration.places import Place, once, rows

KEYED = {"key": "event"}
STEPS = {
    ("object-store", False): [
        {"stage.put_data", "commit.get_anchor"},
        {"commit.put_commit"},
        {"commit.verify"},
    ],
    ("object-store", True): [
        {"ledger.intend", "stage.put_data", "commit.get_anchor"},
        {"commit.put_commit"},
        {"commit.verify", "ledger.commit"},
    ],
    ("dynamodb", False): [
        {"stage.put_data", "commit.get_anchor", "commit.put_temp"},
        {"commit.put_entry"},
        {"commit.put_commit"},
        {"commit.verify", "commit.complete"},
    ],
    ("dynamodb", True): [
        {"ledger.intend", "stage.put_data", "commit.get_anchor", "commit.put_temp"},
        {"commit.put_entry"},
        {"commit.put_commit"},
        {"commit.verify", "commit.complete", "ledger.commit"},
    ],
}


class Steps:
    """A world that notes which requests are asked for at once."""

    def __init__(self, world: Performer) -> None:
        self.world, self.seen = world, list[list[str]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        if not isinstance(effect, Now | NewId | WallClock):
            parts = effect.effects if isinstance(effect, Together) else (effect,)
            self.seen.append([part.name for part in parts])
        return self.world.perform(effect)


@pytest.mark.sweep("object-store-True", "dynamodb-True")
@pytest.mark.parametrize(("arbiter", "keyed"), STEPS)
def test_a_warm_append_makes_no_more_steps(
    new_place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch, arbiter: str, keyed: bool
) -> None:
    monkeypatch.setattr("safewrite.delta.format.FRESH_S", 1e9)  # however slow the machine is
    place = new_place(arbiter)
    table = place.open(create=True)
    table.append(rows(1))
    table.append(rows(2))  # nothing was unfinished a moment ago
    table.world = steps = Steps(table.world)
    table.append(rows(3), **(KEYED if keyed else {}))
    assert [set(step) for step in steps.seen] == STEPS[arbiter, keyed]
    assert sum(map(len, steps.seen)) == sum(map(len, STEPS[arbiter, keyed]))
    assert place.ids() == once(1, 2, 3) == place.replayed_ids()
