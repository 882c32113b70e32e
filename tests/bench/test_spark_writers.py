"""The plan of Spark's writers in a stress run: which arms have them, where the lives of their drivers end, and who counts it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.stress import report
from bench.stress.arm import ArmResult, traps_fired
from bench.stress.fleet import Tally
from bench.stress.plans import menu, spark_writers
from bench.stress.plans.plan import (
    ArmPlan,
    Settings,
    WriterPlan,
    place_traps,
)
from bench.stress.plans.spark_writers import (
    ANY_MOMENT,
    AT_COMMIT,
    ENDS,
    NEXT_STEP,
    PAST_COMMIT,
)
from bench.stress.run import Result
from safewrite.testing.checker import Judgement, Read, check
from safewrite.testing.history import COLUMNS, IntendedWrite, make_rows

STEPS = dict.fromkeys(("key", "txn", "none"), ("commit.put_commit",))
COMMITS = {"delta": "commit.put_commit", "iceberg": "swap.commit"}


def planned(arm: str, *, seed: int = 7, spark: int = 1, kills: int = 60) -> ArmPlan:
    """One arm's plan."""
    return menu.make_arm(
        arm, Settings(seed=seed, writers=4, arms=menu.SAFE_ARMS, spark=spark, spark_kills=kills, steps=())
    )


def drivers_of(arm: ArmPlan) -> list[WriterPlan]:
    """Its Spark writers."""
    return [writer for writer in arm.writers if writer.spark]


# --- the plan -----------------------------------------------------------------------------------
@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_every_arm_of_safewrite_has_a_stream_and_on_delta_a_plain_writer_beside_it(arm: str) -> None:
    programs = Counter(writer.program for writer in drivers_of(planned(arm, spark=2)))
    # A plain writer has no keys, so it applies no changes.
    plain = {} if menu.is_iceberg(arm) or arm in menu.CHANGE_ARMS else {"spark_plain.py": 2}
    stream = "changes_stream.py" if arm in menu.CHANGE_ARMS else "spark_stream.py"
    assert programs == {stream: 2, **plain}
    assert all(writer.judged for writer in drivers_of(planned(arm)))


@pytest.mark.parametrize("arm", [name for name in menu.NAIVE_ARMS if name not in menu.SPARK_ARMS])
def test_naive_arms_are_as_without_spark(arm: str) -> None:
    assert planned(arm) == planned(arm, spark=0)


@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_without_spark_nothing_is_changed(arm: str) -> None:
    plan = planned(arm, spark=0)
    assert not drivers_of(plan)
    assert all(dict(writer.habits).get("think_s", 0.0) == 0.0 for writer in plan.writers if writer.judged)


def test_the_arm_of_spark_as_it_comes_runs_where_spark_does() -> None:
    assert not set(menu.SPARK_ARMS) & set(menu.choose(None))
    assert set(menu.SPARK_ARMS) <= set(menu.choose(None, spark=True))
    assert not set(menu.SPARK_ARMS) & set(menu.choose(None, spark=True, own=True))


@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_lives_end_past_the_commit_at_it_at_any_moment_and_half_of_them_at_steps(arm: str) -> None:
    drivers = drivers_of(planned(arm))
    assert drivers
    for driver in drivers:
        ends = Counter(end["end"] for end in driver.traps)
        assert ends == {PAST_COMMIT: 10, AT_COMMIT: 10, ANY_MOMENT: 10, NEXT_STEP: 30}


@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_the_usual_run_ends_lives_past_the_commit_at_it_and_at_any_moment(arm: str) -> None:
    drivers = drivers_of(planned(arm, kills=Settings(seed=1).spark_kills))
    assert drivers
    for driver in drivers:
        assert [end["end"] for end in driver.traps] == [PAST_COMMIT, AT_COMMIT, ANY_MOMENT]


@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_the_commit_is_killed_on_both_sides_of_what_makes_rows_visible(arm: str) -> None:
    commit = COMMITS["iceberg" if menu.is_iceberg(arm) else "delta"]
    drivers = drivers_of(planned(arm))
    assert drivers
    for driver in drivers:
        places = {(end["step"], end["when"]) for end in driver.traps if end["end"] == AT_COMMIT}
        assert places == {(commit, "before"), (commit, "after")}


@pytest.mark.parametrize("arm", menu.SAFE_ARMS)
def test_the_other_writers_of_safewrite_are_there_for_most_of_the_lives(arm: str) -> None:
    plan = planned(arm)
    others = [writer for writer in plan.writers if writer.judged and not writer.spark]
    assert others
    for writer in others:
        assert dict(writer.habits)["think_s"] * writer.appends == pytest.approx(
            61 * 15 * len(drivers_of(plan))
        )


def test_a_driver_with_deltas_own_log_store_is_a_peer_where_there_is_a_lock_table() -> None:
    settings = Settings(seed=7, writers=4, log_store="/jars")
    for name in menu.SAFE_ARMS:
        found = drivers_of(menu.make_arm(name, settings))
        has_locks = name in {"safewrite-dynamodb", "safewrite-shared", "safewrite-lambda"}
        assert [(one.judged, dict(one.habits)["log_store"]) for one in found] == [
            (False, "/jars")
        ] * has_locks
    arm = menu.make_arm("safewrite-shared", settings)
    assert all(dict(one.habits)["think_s"] > 0 for one in arm.writers if one.judged)


def test_the_seed_replays_the_plan() -> None:
    assert planned("safewrite-dynamodb") == planned("safewrite-dynamodb")
    for one, other in zip(
        drivers_of(planned("safewrite-dynamodb")),
        drivers_of(planned("safewrite-dynamodb", seed=8)),
        strict=True,
    ):
        assert one.traps != other.traps


def test_the_kills_of_other_writers_never_fall_to_spark() -> None:
    arm = planned("safewrite-dynamodb")
    for seed in range(20):
        placed = place_traps(arm, STEPS, Settings(seed=seed))
        assert drivers_of(placed) == drivers_of(arm)
        assert any(writer.traps for writer in placed.writers if not writer.spark)


# --- what came ------------------------------------------------------------------------------------
def kill(
    writer: WriterPlan, end: str, step: str = "commit.put_commit", when: str = "before"
) -> dict[str, Any]:
    """What the ledger says of a kill."""
    return {
        "event": "kill", "source": "ledger", "t": 3.0, "pid": 1, "kind": writer.kind, "writer": writer.number,
        "step": step, "when": when, "end": end,
    }  # fmt: skip


def ended(arm: ArmPlan) -> list[dict[str, Any]]:
    """Every life as planned."""
    return [kill(driver, end["end"]) for driver in drivers_of(arm) for end in driver.traps]


def test_a_run_in_which_every_life_ended_as_planned_misses_none() -> None:
    arm = planned("safewrite-dynamodb", kills=6)
    assert spark_writers.missing(arm, ended(arm)) == []


@pytest.mark.parametrize("end", ENDS)
def test_a_life_that_did_not_end_as_planned_is_missed_by_its_name(end: str) -> None:
    arm = planned("safewrite-dynamodb", kills=6)
    stream, plain = drivers_of(arm)
    marks = ended(arm)
    marks.remove(kill(plain, end))
    (said,) = spark_writers.missing(arm, marks)
    assert plain.kind in said
    assert stream.kind not in said
    assert end in said


def test_a_kill_of_another_writer_does_not_stand_in_for_one_of_spark() -> None:
    arm = planned("safewrite-dynamodb", kills=1)
    pandas = next(writer for writer in arm.writers if not writer.spark)
    proxy = {"source": "proxy", "kind": "cut", "step": "put_commit", "t": 1}
    marks = [kill(pandas, PAST_COMMIT), proxy]
    assert len(spark_writers.missing(arm, marks)) == 2


def test_a_kill_of_spark_does_not_stand_in_for_one_of_another_writer() -> None:
    settings = Settings(seed=1, steps=("commit.put_commit",))
    arm = place_traps(planned("safewrite-dynamodb", kills=1), STEPS, settings)
    name = "kill before commit.put_commit"
    stream, _ = drivers_of(arm)
    pandas = next(writer for writer in arm.writers if writer.judged and not writer.spark)
    assert traps_fired(arm, [kill(stream, AT_COMMIT)])[name] == 0
    assert traps_fired(arm, [kill(stream, AT_COMMIT), kill(pandas, "")])[name] == 1


def result(arm: ArmPlan, marks: list[dict[str, Any]]) -> Result:
    """A run of one arm in which every writer was acked once."""
    rows = {writer.number: make_rows(1, writer.number, 0, 5) for writer in arm.writers}
    writes = [
        IntendedWrite(
            kind=writer.kind, writer=writer.number, seq=0, key=None, first_id=rows[writer.number][0].id,
            checks=tuple(row.check for row in rows[writer.number]), outcome="ok", invoked_at=1.0, acked_at=2.0,
            elapsed_s=1.0, tries=1,
        )
        for writer in arm.writers
    ]  # fmt: skip
    seen = [row for written in rows.values() for row in written]
    columns = {column: [getattr(row, column) for row in seen] for column in COLUMNS}
    verdict = check(writes, [Read.of("one", columns)])
    made = ArmResult(
        arm, "s3://b/t", 9.0, verdict, Judgement(True, ()), Tally(), Counter(), Counter(), marks, 1, 0
    )
    return Result(Settings(seed=1), [made], 1.0, 9.0, {"revision": "none", "machine": "none"})


def test_the_report_names_sparks_writers_and_where_their_drivers_ended() -> None:
    arm = planned("safewrite-dynamodb", kills=3)
    stream, plain = drivers_of(arm)
    pandas = arm.writers[0]
    marks = [
        kill(pandas, "", "ledger.commit"), kill(stream, PAST_COMMIT, spark_writers.EPOCH_STEP), kill(plain, AT_COMMIT),
        kill(plain, AT_COMMIT, when="after"), {"source": "proxy", "kind": "cut", "step": "put_commit", "t": 1},
    ]  # fmt: skip
    run = result(arm, marks)
    summary = report.to_dict(run)
    (safe,) = summary["arms"]
    assert safe["kills"] == {"ledger.commit:before": 1}
    assert safe["spark_kills"] == 3
    assert [(one["kind"], one["drivers"], one["kills"]) for one in safe["spark"]] == [
        (stream.kind, 1, 1), (plain.kind, 1, 2),
    ]  # fmt: skip
    assert {(one["end"], one["step"], one["when"], one["kills"]) for one in safe["spark"][1]["ends"]} == {
        (AT_COMMIT, "commit.put_commit", "before", 1), (AT_COMMIT, "commit.put_commit", "after", 1),
    }  # fmt: skip
    page = report.render(run, summary)
    assert all(text in page for text in (stream.kind, plain.kind, spark_writers.EPOCH_STEP, AT_COMMIT))
    console = Console(record=True, width=200)
    report.show(run, summary, console, Path("out"))
    said = console.export_text()
    assert all(text in said for text in (stream.kind, plain.kind, "1 of 1", "2 of 1", "0 of 1"))
