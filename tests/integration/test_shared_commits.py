"""Real processes that share commits, some killed and some stopped at a step of their write (D1 to D5, D8)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import deltalake
import pytest

from safewrite.table import shared_queue as queue
from safewrite.testing.steps import At, KillAt, PauseAt, Recorder, side_of
from tests.integration.children import WAIT_S
from tests.integration.places import Place, crash_at, once, rows, visible

PROCESSES, APPENDS = 5, 3
ALWAYS_MET = ("share.put_member:before", "share.put_member:after", "share.look:before", "share.look:after")
LEADING = (
    "share.list:after",
    "share.get_member:after",
    "share.commit_id:before",
    "commit.put_entry:after",
    "commit.put_commit:before",
    "commit.put_commit:after",
    "commit.verify:after",
    "share.delete:after",
    "ledger.commit:after",
)
SHORT = {("object-store", "share.put_member:after"), ("dynamodb", "commit.put_entry:after")}
CASES = [
    pytest.param(*case, marks=() if case in SHORT else pytest.mark.long)
    for case in product(("object-store", "dynamodb"), ALWAYS_MET + LEADING)
]


def write(place: Any, first: int, trap: tuple[type[KillAt | PauseAt], str] | None) -> None:
    """Append a few times under keys of the process; ``trap`` ends or stops it at a step of its second write."""
    table = place.open(group="always", lease_s=0.3)
    for number in range(first, first + APPENDS):
        inner = table.world
        if trap is not None and number == first + 1:
            table.world = trap[0](inner, *side_of(trap[1]))
        receipt = table.append(rows(number), key=f"event-{number}")
        assert receipt.outcome == "committed"
        table.world = inner


def start(place: Any, first: int, trap: Any, forget: Callable[[], object] = lambda: None) -> int:
    """Fork a process that writes; its exit code says whether all went well.  ``forget`` leaves what is the parent's."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        forget()
        write(place, first, trap)
        code = 0
    finally:
        os._exit(code)


def codes_of(pids: list[int]) -> list[int]:
    """How each process ended; none is left."""
    ended: dict[int, int] = {}
    try:
        watch(pids, ended)
    finally:
        for pid in set(pids) - ended.keys():
            os.kill(pid, signal.SIGKILL)
    return [ended[pid] for pid in pids]


def watch(pids: list[int], ended: dict[int, int]) -> None:
    """Note how each process ended; those that stopped go on once no other one writes."""
    stopped, limit_s = set[int](), time.monotonic() + WAIT_S
    while len(ended) < len(pids):
        assert time.monotonic() < limit_s, (ended, stopped)
        for pid in pids:
            done, status = (0, 0) if pid in ended else os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if done and os.WIFSTOPPED(status):
                stopped.add(pid)
            elif done:
                ended[pid] = os.waitstatus_to_exitcode(status)
        if len(ended) + len(stopped - ended.keys()) == len(pids):
            for pid in stopped - ended.keys():
                os.kill(pid, signal.SIGCONT)
            stopped.clear()
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize(("arbiter", "point"), CASES)
def test_processes_that_share_survive_the_death_and_the_sleep_of_others(
    new_place: Callable[[str], Place], arbiter: str, point: str
) -> None:
    """One is killed at a step, one sleeps there until all others have ended; every row is there once."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="before")
    traps: list[Any] = [(KillAt, point), (PauseAt, point), *[None] * (PROCESSES - 2)]
    codes = codes_of([start(place, 100 * (number + 1), trap) for number, trap in enumerate(traps)])
    assert codes[1:] == [0] * (PROCESSES - 1)
    assert codes[0] == -signal.SIGKILL or (codes[0] == 0 and point in LEADING)
    expected = [100 * (process + 1) + number for process in range(PROCESSES) for number in range(APPENDS)]
    table = place.open(group="always")
    for number in expected:
        assert table.append(rows(number), key=f"event-{number}").outcome in {"committed", "already_committed"}
    assert visible([place.ids(), place.replayed_ids()]) == once(0, *expected)


def test_a_quick_writer_notices_those_who_wait(
    new_place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits at its first try each time, and might outrun for ever whoever waits for the others."""
    monkeypatch.setattr(queue, "QUICK_S", 1e9)
    place = new_place("object-store")
    quick = place.open(create=True)
    quick.append(rows(0))
    crash_at(place.open(group="always"), "share.put_member", "after", rows(1), key="waits")
    quick._format.queue._listened_s = -queue.LISTEN_S  # type: ignore[attr-defined]
    assert [quick.append(rows(number)).members for number in (2, 3)] == [1, 2]
    assert place.ids() == once(0, 1, 2, 3)


@pytest.mark.long
def test_who_shares_does_not_queue_for_a_ticket_behind_a_commit_under_way(
    new_place: Callable[[str], Place],
) -> None:
    """It waits where others may commit its rows: in turns, one by one, a crowd that meets would take a minute."""
    place = new_place("dynamodb")
    place.open(create=True).append(rows(0))
    crash_at(place.open(), "commit.put_entry", "after", rows(1), key="under way")
    table = place.open(group="auto")
    table.world = recorder = Recorder(table.world)
    assert table.append(rows(2)).outcome == "committed"
    steps = recorder.steps
    assert steps.index("share.put_member") < steps.index("lease.take")
    assert place.ids() == once(0, 1, 2)


def test_a_commit_that_no_one_claimed_seals_the_claims_of_who_waited_then(
    new_place: Callable[[str], Place],
) -> None:
    """Who waits reads versions without the lock table; before it leads it looks at all claims since it began to wait (A12)."""
    place = new_place("dynamodb")
    place.open(create=True).append(rows(0))
    crash_at(place.open(group="always"), "share.put_member", "after", rows(8), key="first")
    waits = place.open(group="always")
    options = dict(place.storage_options)
    unclaimed = partial(deltalake.write_deltalake, place.uri, rows(9), mode="append", storage_options=options)
    waits.world = At(waits.world, "share.poll", "before", unclaimed)
    assert waits.append(rows(2)).outcome == "committed"
    assert waits._format._mixed  # type: ignore[attr-defined]
    assert place.ids() == once(0, 2, 8, 9)
