"""Writers that share commits on a virtual clock: what they cost, and that a race is checked."""

from __future__ import annotations

import pytest

from bench.perf.group_sim import Race, Setting, measured
from bench.perf.virtual_stores import GET, PUT, READ_UNIT, WRITE_UNIT
from safewrite.protocol.delta.claim import commit_path


def raced(setting: Setting) -> Race:
    """A race that was run and is sound."""
    race = Race(setting)
    race.run()
    race.check()
    return race


@pytest.mark.parametrize(
    ("lock_table", "dollars"),
    [
        # data file, key, commit, result of the key; the log's end and the read-back
        (False, 4 * PUT + 2 * GET),
        # data file, temp file, commit; key, claim, its end, result of the key; the queue of tickets is not read
        (True, 3 * PUT + 2 * GET + 4 * WRITE_UNIT),
    ],
)
def test_a_lone_writer_pays_for_the_steps_of_a_commit(lock_table: bool, dollars: float) -> None:
    race = raced(Setting(1, until_s=1.0, lock_table=lock_table))
    acked = len(race.latencies)
    assert acked >= 5
    assert race.stores.dollars_of_million / acked == pytest.approx(dollars, abs=PUT + READ_UNIT)


@pytest.mark.parametrize("lock_table", [False, True])
def test_writers_that_meet_share_and_pay_less_time(lock_table: bool) -> None:
    shared = raced(Setting(8, until_s=3.0, lock_table=lock_table))
    alone = raced(Setting(8, until_s=3.0, lock_table=lock_table, shares=False))
    assert len(shared.latencies) > 1.2 * len(alone.latencies)
    assert float(measured(shared)[3]) > 2.5
    assert measured(alone)[3] == "1.0"


def test_three_writers_that_die_at_once_cost_no_lease_each() -> None:
    """On the virtual clock, where a lease is 3 s: of changes, whose leaders are waited for longest."""
    race = raced(Setting(6, until_s=3.0, changes=True, dying=3))
    assert 3.0 < max(race.latencies) < 6.0
    assert len(race.dead) == 3


def test_a_race_in_which_a_write_came_twice_or_not_is_no_result() -> None:
    for change in (lambda blobs: {**blobs, commit_path(99): blobs[commit_path(1)]}, lambda blobs: {}):
        race = raced(Setting(2, until_s=0.5))
        race.stores.objects.blobs = change(race.stores.objects.blobs)
        with pytest.raises(SystemExit, match="acked"):
            race.check()
