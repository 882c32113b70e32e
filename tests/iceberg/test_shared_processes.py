"""Real processes that share snapshots on each catalog, one of them killed and one stopped at a step of its write (D1 to D5, D8)."""

from __future__ import annotations

import signal
from itertools import product
from typing import Any

import pytest

from safewrite.testing.steps import KillAt, PauseAt
from tests.iceberg import places
from tests.iceberg.places import Place, check
from tests.integration.places import rows
from tests.integration.test_shared_commits import APPENDS, codes_of, start

PROCESSES = 4
POINTS = (
    "share.put_member:after",
    "share.get_member:after",
    "stage.put_manifest_list:after",
    "swap.commit:before",
    "swap.commit:after",
    "share.delete:after",
)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_processes_that_share_survive_the_death_and_the_sleep_of_others(place: Place, point: str) -> None:
    """One is killed at a step, one sleeps there until all others have ended; every row is there once."""
    place.create(0)
    traps: list[Any] = [(KillAt, point), (PauseAt, point), *[None] * (PROCESSES - 2)]
    codes = codes_of(
        [start(place, 100 * (number + 1), trap, places._catalogs.clear) for number, trap in enumerate(traps)]
    )  # connections are the parent's
    assert codes[1:] == [0] * (PROCESSES - 1)
    assert codes[0] in {0, -signal.SIGKILL}
    expected = [100 * (process + 1) + number for process, number in product(range(PROCESSES), range(APPENDS))]
    table = place.open(group="always")
    for number in expected:
        assert table.append(rows(number), key=f"event-{number}").outcome in {"committed", "already_committed"}
    check(place, 0, *expected)
