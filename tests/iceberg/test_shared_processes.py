"""Real processes that share snapshots on each catalog, one of them killed and one stopped at a step of its write (D1 to D5, D8)."""

from __future__ import annotations

import os
import signal
from itertools import product
from typing import Any

import pytest

from safewrite.testing.steps import KillAt, PauseAt, side_of
from tests.iceberg import places
from tests.iceberg.places import Place, check
from tests.integration.places import rows
from tests.integration.test_shared_commits import APPENDS, watch

PROCESSES = 4
POINTS = (
    "share.put_member:after",
    "share.get_member:after",
    "stage.put_manifest_list:after",
    "swap.commit:before",
    "swap.commit:after",
    "share.delete:after",
)


def write(place: Place, first: int, trap: Any) -> None:
    """Append a few times under keys of the process; ``trap`` ends or stops it at a step of its second write."""
    table = place.open(group="always", lease_s=0.3)
    for number in range(first, first + APPENDS):
        inner = table.world
        if trap is not None and number == first + 1:
            table.world = trap[0](inner, *side_of(trap[1]))
        assert table.append(rows(number), key=f"event-{number}").outcome == "committed"
        table.world = inner


def start(place: Place, first: int, trap: Any) -> int:
    """Fork a process that writes; its exit code says whether all went well."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    places._catalogs.clear()  # its connections are the parent's
    try:
        write(place, first, trap)
        code = 0
    finally:
        os._exit(code)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_processes_that_share_survive_the_death_and_the_sleep_of_others(place: Place, point: str) -> None:
    """One is killed at a step, one sleeps there until all others have ended; every row is there once."""
    place.create(0)
    traps: list[Any] = [(KillAt, point), (PauseAt, point), *[None] * (PROCESSES - 2)]
    pids = [start(place, 100 * (number + 1), trap) for number, trap in enumerate(traps)]
    ended: dict[int, int] = {}
    try:
        watch(pids, ended)
    finally:
        for pid in set(pids) - ended.keys():
            os.kill(pid, signal.SIGKILL)
    codes = [ended[pid] for pid in pids]
    assert codes[1:] == [0] * (PROCESSES - 1)
    assert codes[0] in {0, -signal.SIGKILL}
    expected = [100 * (process + 1) + number for process, number in product(range(PROCESSES), range(APPENDS))]
    table = place.open(group="always")
    for number in expected:
        assert table.append(rows(number), key=f"event-{number}").outcome in {"committed", "already_committed"}
    check(place, 0, *expected)
