"""The plan of Spark streams in a stress run: which arms have them, and where the lives of their drivers end."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.stress import menu, streams
from bench.stress.plan import ArmPlan, Settings, WriterPlan, place_traps

SAFE = ("safewrite-dynamodb", "safewrite-sql")
STEPS = dict.fromkeys(("key", "txn", "none"), ("commit.put_commit",))


def planned(arm: str, *, seed: int = 7, spark: int = 1, kills: int = 60) -> ArmPlan:
    """One arm's plan."""
    return menu.make_arm(
        arm, Settings(seed=seed, writers=4, arms=SAFE, spark=spark, spark_kills=kills, steps=())
    )


def stream_of(arm: ArmPlan) -> WriterPlan:
    """Its one Spark stream."""
    (found,) = [writer for writer in arm.writers if writer.stream]
    return found


@pytest.mark.parametrize("arm", menu.NAIVE_ARMS)
def test_naive_arms_have_no_stream(arm: str) -> None:
    assert not any(writer.stream for writer in planned(arm).writers)


@pytest.mark.parametrize("arm", SAFE)
def test_without_spark_nothing_is_changed(arm: str) -> None:
    plan = planned(arm, spark=0)
    assert not any(writer.stream for writer in plan.writers)
    assert all(dict(writer.habits).get("think_s", 0.0) == 0.0 for writer in plan.writers if writer.judged)


@pytest.mark.parametrize("arm", SAFE)
def test_lives_end_past_the_commit_and_at_any_moment_and_half_of_them_at_steps(arm: str) -> None:
    ends = Counter(end["step"] for end in stream_of(planned(arm)).traps)
    assert ends == {streams.EPOCH_STEP: 15, streams.ANY_STEP: 15, streams.NEXT_STEP: 30}


@pytest.mark.parametrize("arm", SAFE)
def test_the_other_writers_of_safewrite_are_there_for_most_of_the_lives(arm: str) -> None:
    plan = planned(arm)
    others = [writer for writer in plan.writers if writer.judged and not writer.stream]
    assert others
    for writer in others:
        assert dict(writer.habits)["think_s"] * writer.appends == pytest.approx(61 * 15)


def test_the_only_kill_of_the_shortest_run_is_past_the_commit() -> None:
    (end,) = stream_of(planned(SAFE[0], kills=1)).traps
    assert end["step"] == streams.EPOCH_STEP


def test_the_seed_replays_the_plan() -> None:
    assert planned(SAFE[0]) == planned(SAFE[0])
    assert stream_of(planned(SAFE[0])).traps != stream_of(planned(SAFE[0], seed=8)).traps


def test_the_kills_of_other_writers_never_fall_to_a_stream() -> None:
    arm = planned(SAFE[0])
    for seed in range(20):
        placed = place_traps(arm, STEPS, Settings(seed=seed))
        assert stream_of(placed).traps == stream_of(arm).traps
        assert any(writer.traps for writer in placed.writers if not writer.stream)
