"""Wrong clocks, entries that vanish, and writers that sleep past everything (A8 to A11, D1)."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product

import pytest

from safewrite.stores import aws
from safewrite.testing.steps import At, PauseAt, Recorder
from tests.integration.children import Nursery, Task
from tests.integration.places import LEASE_S, Place, crash_at, once, rows, visible
from tests.sampling import some

DAY_S = 24 * 3600


def remove_entry(place: Place, version: int) -> None:
    """What TTL does, or somebody who tidies up."""
    place.dynamodb().delete_item(
        TableName=place.lock_table,
        Key={
            "tablePath": {"S": place.uri.replace("s3://", "s3a://")},
            "fileName": {"S": f"{version:020d}.json"},
        },
    )


@pytest.mark.parametrize("point", [("commit.put_entry", "after"), ("commit.put_commit", "after")])
def test_a_writer_whose_entry_is_removed_while_it_sleeps_is_once(
    guarded: Place, point: tuple[str, str]
) -> None:
    """A9, A11: another writer claims the same version meanwhile, and commits."""
    guarded.open(create=True).append(rows(0), key="before")

    def meanwhile() -> None:
        remove_entry(guarded, 1)
        guarded.open().append(rows(1), key="another")

    table = guarded.open()
    table.world = trap = At(table.world, point[0], "after", meanwhile)
    assert table.append(rows(2), key="event").outcome == "committed"
    assert trap.reached
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(0, 1, 2)
    guarded.open().append(rows(3), key="next")
    assert guarded.ids() == once(0, 1, 2, 3)


@pytest.mark.long
def test_a_repairer_that_sleeps_while_others_finish_overwrites_nothing(guarded: Place) -> None:
    """A8: its copy comes when N.json stands, and more has been written."""
    guarded.open(create=True).append(rows(0), key="before")
    crash_at(guarded.open(), "commit.put_entry", "after", rows(1), key="left")
    repairer = guarded.open()
    bodies: list[bytes] = []

    def meanwhile() -> None:
        guarded.open().append(rows(2), key="another")
        bodies.append(guarded.objects(f"_delta_log/{1:020d}.json")[f"_delta_log/{1:020d}.json"])

    repairer.world = trap = At(repairer.world, "repair.get_temp", "after", meanwhile)
    repairer.append(rows(3), key="event")
    assert trap.reached
    assert list(guarded.objects(f"_delta_log/{1:020d}.json").values()) == bodies
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(0, 1, 2, 3)


@pytest.mark.parametrize("days", [-2, 2], ids=["two-days-behind", "two-days-ahead"])
def test_entries_expire_by_the_servers_time_whatever_the_writers_clock_says(
    guarded: Place, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A9, A10: an expiry in the past would let TTL remove an entry that still guards a version."""
    wrong = time.time_ns
    monkeypatch.setattr(aws.time, "time_ns", lambda: wrong() + days * DAY_S * 10**9)
    table = guarded.open(create=True)
    now_s = wrong() // 10**9
    for number in range(3):
        table.append(rows(number), key=f"event-{number}")
    for item in guarded.entries():
        expire_s = int(item["expireTime"]["N"])
        assert now_s + DAY_S <= expire_s <= now_s + 3 * DAY_S
    assert guarded.ids() == once(0, 1, 2)


STEPS = [
    "stage.put_data",
    "commit.put_temp",
    "commit.put_entry",
    "commit.put_commit",
    "commit.verify",
    "commit.complete",
    "ledger.commit",
]
UNLOCKED = [STEPS[0], *STEPS[3:5], STEPS[6]]
"""Those of a table without a lock table."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("arbiter", "side"), some(product(["dynamodb", "object-store"], ["before", "after"]), every=2)
)
def test_a_writer_stopped_past_its_lease_at_any_step_is_once(
    nursery: Nursery, new_place: Callable[[str], Place], arbiter: str, side: str
) -> None:
    """D1, A11: SIGSTOP, others go on for longer than a lease, SIGCONT; with the same key tried by a zombie too."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="before")
    table = place.open()
    table.world = recorder = Recorder(table.world)
    table.append(rows(1), key="recorded")
    steps = [step for step in STEPS if step in recorder.steps]
    assert steps == (STEPS if arbiter == "dynamodb" else UNLOCKED)
    expected = [0, 1]
    for number, step in enumerate(steps):
        mine, other = 10 + number, 100 + number
        task = Task(
            place, (mine,), {"key": f"event-{mine}"}, f"{step}:{side}", PauseAt, queued=arbiter == "dynamodb"
        )
        with nursery.paused(task):
            waiting = place.open()
            waiting._writer.queue_first = 5
            waiting.append(rows(other), key=f"event-{other}")
            if number % 2:
                place.open().append(rows(mine), key=f"event-{mine}")
            time.sleep(LEASE_S / 2)
        expected += [mine, other]
        assert visible([place.ids(), place.replayed_ids()]) == once(*expected), step
