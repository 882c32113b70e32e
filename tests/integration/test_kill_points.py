"""SIGKILL before and after every effect of a commit; nobody, the same writer or another one goes on (A4 to A6).

The points are listed by recording the write itself, so that no step can be forgotten.  The short form kills a
keyed append at each of them, once; what follows it takes turns.  Other ways of writing are killed at a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import safewrite as sw
from safewrite.testing.steps import Recorder, points
from tests.integration.children import Nursery, Task, set_scene
from tests.integration.places import Place, crash_at, once, rows, visible
from tests.sampling import kind_of, some_points

BEFORE, MINE, OTHER_ROWS, NEXT, LEFT, RIVAL = 1, 10, 20, 30, 40, 50
NEVER_MISSING = {
    "dynamodb": {
        "ledger.intend",
        "stage.put_data",
        "commit.put_temp",
        "commit.put_entry",
        "commit.put_commit",
    }
    | {"commit.verify", "commit.complete", "ledger.commit"},
    "object-store": {
        "ledger.intend",
        "stage.put_data",
        "commit.put_commit",
        "commit.verify",
        "ledger.commit",
    },
    "local": {"ledger.intend", "stage.put_data", "commit.put_commit", "commit.verify", "ledger.commit"},
}


@dataclass(frozen=True)
class Scenario:
    """How the write that is killed comes about."""

    naming: dict[str, Any] = field(default_factory=lambda: {"key": "event-1"})
    queued: bool = False
    creates: bool = False
    repairs: bool = False
    contended: bool = False
    checkpoints: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """How every process of the scenario opens the table."""
        return {"checkpoints": self.checkpoints, "create": self.creates}

    def prepare(self, place: Place) -> None:
        """What is there before the write begins."""
        if self.creates:
            return
        interval = {"delta.checkpointInterval": "1"} if self.checkpoints else {}
        place.open(create=True, properties=interval).append(rows(BEFORE), key="before")
        if self.repairs:
            crash_at(place.open(), "commit.put_entry", "after", rows(LEFT), key="left")

    @property
    def fresh(self) -> bool:
        """Whether the writer tries at once, without another look: by the clock otherwise, so settled here."""
        return not (self.creates or self.repairs)

    @property
    def rival(self) -> int | None:
        """The row that another writer adds after this one has opened the table."""
        return RIVAL if self.contended else None

    def base(self) -> list[int]:
        """Ids that must be there once, whatever happens."""
        return [] if self.creates else [BEFORE, RIVAL] if self.contended else [BEFORE]


KEYED = Scenario()
SCENARIOS = {
    "txn": Scenario(naming={"txn": ("app", 7)}),
    "unkeyed": Scenario(naming={}),
    "creating": Scenario(creates=True),
    "checkpoint": Scenario(checkpoints=True),
    "contended": Scenario(contended=True),
    "queued": Scenario(queued=True),
    "repairing": Scenario(repairs=True),
}
CASES = [("dynamodb", name) for name in SCENARIOS]
CASES += [
    ("object-store", "txn"),
    ("object-store", "creating"),
    ("object-store", "contended"),
    ("local", "creating"),
]


def recorded(place: Place, scenario: Scenario) -> list[str]:
    """The points of the scenario's write, from a write that nobody disturbs."""
    scenario.prepare(place)
    table = place.open(**scenario.settings)
    set_scene(place, table, queued=scenario.queued, rival=scenario.rival, fresh=scenario.fresh)
    table.world = recorder = Recorder(table.world)
    table.append(rows(MINE), **scenario.naming)
    return points(recorder.steps)


def kill(nursery: Nursery, place: Place, scenario: Scenario, point: str) -> None:
    """Prepare the table, and let a child die at ``point``."""
    scenario.prepare(place)
    task = Task(
        place,
        (MINE,),
        scenario.naming,
        point,
        settings=scenario.settings,
        queued=scenario.queued,
        rival=scenario.rival,
        fresh=scenario.fresh,
    )
    assert nursery.killed(task), f"the child never came to {point}"


def seen(place: Place, scenario: Scenario, *, by_all: bool = False) -> dict[int, int]:
    """What readers see, once the rows that must be there are there; ids of which none was lost or doubled."""
    if scenario.creates and not place.objects(f"_delta_log/{0:020d}.json"):
        return {}
    counts = visible([place.ids(), place.replayed_ids()] if by_all else [place.ids()])
    assert set(counts.values()) <= {1}, counts
    assert set(counts) >= set(scenario.base()), counts
    assert set(counts) <= {*scenario.base(), MINE, OTHER_ROWS, NEXT, LEFT}, counts
    return dict(counts)


def follow(place: Place, scenario: Scenario, sequel: tuple[Callable[[Place, Scenario], None], ...]) -> None:
    """What comes after the death of the writer, and in the end what all readers see."""
    for step in sequel:
        step(place, scenario)
    seen(place, scenario, by_all=True)


def next_writer(place: Place, scenario: Scenario) -> None:
    """Somebody else writes: what was left is repaired, and nobody's rows vanish."""
    landed = MINE in seen(place, scenario)
    receipt = place.open(**scenario.settings).append(rows(NEXT), key="next")
    assert receipt.outcome == "committed"
    after = seen(place, scenario)
    assert NEXT in after
    assert not landed or MINE in after


def retry(place: Place, scenario: Scenario) -> None:
    """The same key and rows again: once, with a receipt; other rows under it are refused."""
    landed = MINE in seen(place, scenario)
    receipt = place.open(**scenario.settings).append(rows(MINE), **scenario.naming)
    assert receipt.outcome == "already_committed" or not landed
    table = place.open(**scenario.settings)
    with pytest.raises(sw.ReplayMismatchError):
        table.append(rows(OTHER_ROWS), **scenario.naming)
    again = table.append(rows(MINE), **scenario.naming)
    assert (again.outcome, again.version) == ("already_committed", receipt.version)
    after = seen(place, scenario)
    assert MINE in after
    assert OTHER_ROWS not in after


def other_rows(place: Place, scenario: Scenario) -> None:
    """Other rows under the key: refused if the first ones landed or were claimed, else they are the ones."""
    landed = MINE in seen(place, scenario)
    try:
        place.open(**scenario.settings).append(rows(OTHER_ROWS), **scenario.naming)
    except sw.ReplayMismatchError:
        after = seen(place, scenario)
        assert MINE in after
        assert OTHER_ROWS not in after
    else:
        after = seen(place, scenario)
        assert not landed
        assert MINE not in after
        assert OTHER_ROWS in after
        with pytest.raises(sw.ReplayMismatchError):
            place.open(**scenario.settings).append(rows(MINE), **scenario.naming)


SEQUELS: list[tuple[Callable[[Place, Scenario], None], ...]] = [
    (next_writer, retry),
    (retry, next_writer),
    (other_rows, next_writer),
]


@pytest.mark.sweep("dynamodb-False", "object-store")
@pytest.mark.parametrize("every_sequel", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("arbiter", NEVER_MISSING)
def test_a_writer_killed_at_any_step_leaves_its_rows_once_or_not_at_all(
    nursery: Nursery, new_place: Callable[[str], Place], arbiter: str, every_sequel: bool
) -> None:
    """A4, A5, A6: the table is readable, a retry with the same key is once, other rows are refused.

    The short form kills once at each kind of step, before it and after it in turn, and the sequels take turns;
    or each follows each point.
    """
    found = recorded(new_place(arbiter), KEYED)
    assert set(found) >= set(points(NEVER_MISSING[arbiter])), found
    for number, point in enumerate(found if every_sequel else some_points(found, every=len(found))):
        for sequel in SEQUELS if every_sequel else [SEQUELS[number % len(SEQUELS)]]:
            place = new_place(arbiter)
            kill(nursery, place, KEYED, point)
            follow(place, KEYED, sequel)


PLAIN = NEVER_MISSING["dynamodb"] | {"commit.temp_id", "commit.get_anchor", "ledger.get"}
"""Kinds of steps of a keyed append, which is killed at each of them."""


def test_a_keyed_append_has_the_plain_steps(new_place: Callable[[str], Place]) -> None:
    """So none of them is left out by all samples."""
    assert set(map(kind_of, recorded(new_place("dynamodb"), KEYED))) == PLAIN


@pytest.mark.long
@pytest.mark.parametrize("every_point", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(("arbiter", "name"), CASES)
def test_every_way_of_writing_survives_being_killed_at_any_step(
    nursery: Nursery, new_place: Callable[[str], Place], arbiter: str, name: str, every_point: bool
) -> None:
    """Streams' batches, writes without a key, the first write of a table, with a checkpoint, a queue, a repair.

    The short form takes every sixteenth step, and each kind of step that a keyed append has not.
    """
    scenario = SCENARIOS[name]
    found = recorded(new_place(arbiter), scenario)
    for number, point in enumerate(found if every_point else some_points(found, met=PLAIN, every=16)):
        place = new_place(arbiter)
        kill(nursery, place, scenario, point)
        follow(place, scenario, SEQUELS[number % 3] if scenario.naming else (next_writer,))
        if scenario.repairs:
            assert LEFT in seen(place, scenario), "a claimed commit was not finished"


def test_a_killed_writer_that_had_claimed_a_version_is_finished_by_the_next_one(
    nursery: Nursery, guarded: Place
) -> None:
    """A5: readers without DynamoDB miss it until the next writer repairs it."""
    kill(nursery, guarded, KEYED, "commit.put_entry:after")
    assert guarded.ids() == once(BEFORE)
    assert guarded.entries()[-1]["complete"]["S"] == "false"
    guarded.open().append(rows(NEXT), key="next")
    assert guarded.ids() == once(BEFORE, MINE, NEXT)
    assert {item["complete"]["S"] for item in guarded.entries()} == {"true"}


@pytest.mark.long
def test_an_entry_left_open_after_its_copy_is_closed_by_a_writer_that_comes_by(guarded: Place) -> None:
    """A6."""
    KEYED.prepare(guarded)
    table = guarded.open()
    crash_at(guarded.open(), "commit.complete", "before", rows(MINE), key="left")
    assert guarded.ids() == once(BEFORE, MINE)
    assert guarded.entries()[-1]["complete"]["S"] == "false"
    table.append(rows(NEXT), key="next")
    assert {item["complete"]["S"] for item in guarded.entries()} == {"true"}
    assert guarded.ids() == once(BEFORE, MINE, NEXT)


@pytest.mark.long
def test_a_temp_file_that_nobody_claimed_is_harmless(nursery: Nursery, guarded: Place) -> None:
    """A4."""
    kill(nursery, guarded, KEYED, "commit.put_entry:before")
    temps = guarded.objects("_delta_log/.tmp/")
    guarded.open().append(rows(NEXT), key="next")
    assert guarded.ids() == once(BEFORE, NEXT)
    assert set(guarded.objects("_delta_log/.tmp/")) > set(temps)


def test_a_claimed_commit_whose_temp_file_is_gone_is_not_closed_as_if_it_had_landed(guarded: Place) -> None:
    """A7: no temp and no N.json: the log would have a hole under a completed entry."""
    KEYED.prepare(guarded)
    crash_at(guarded.open(), "commit.put_entry", "after", rows(MINE), key="left")
    temp = f"_delta_log/{guarded.entries()[-1]['tempPath']['S']}"
    body = guarded.objects(temp)[temp]
    guarded.delete(temp)
    with pytest.raises(sw.StorageError, match="safewrite doctor") as caught:
        guarded.open(group="never").append(rows(NEXT), key="next")
    assert caught.value.kind == "corrupt_log"
    with pytest.raises(sw.CommitUnknownError, match="safewrite doctor"):  # another may have read its member
        guarded.open().append(rows(NEXT), key="shares")
    assert guarded.entries()[-1]["complete"]["S"] == "false"
    guarded.put(temp, body)
    guarded.open().append(rows(NEXT), key="next")
    assert guarded.ids() == once(BEFORE, MINE, NEXT)
