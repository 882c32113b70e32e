"""The stress run of writers that share commits: its plan, and that it finds a leader that looks for no key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.stress.arm import traps_fired
from bench.stress.plans import leaders
from bench.stress.plans.menu import make_arm
from bench.stress.plans.plan import Settings, place_traps
from bench.stress.writers import common
from tests.bench.runs import stress

SMALL = (
    "--seed", "12", "--writers", "8", "--appends", "12", "--rows", "20", "--arms", "safewrite-shared", "--pause-s", "2",
    "--steps", "commit.put_commit,share.get_member,lead.put_commit,lead.verify,share.delete", "--limit-s", "250",
)  # fmt: skip
KEYLESS = ("D2-a_members_key_is_not_looked_for",)
"""Who leads commits a member again whose writer was committed already, but not taken out of the queue."""


@pytest.mark.parametrize("name", ["safewrite-shared", "safewrite-shared-sql"])
def test_every_step_of_those_who_lead_and_who_wait_is_killed_at_writers_that_try_again(name: str) -> None:
    settings = Settings(seed=1)
    arm = leaders.place_traps(make_arm(name, settings), settings)
    placed = [(writer, trap) for writer in arm.writers for trap in writer.traps]
    kills = Counter((trap["step"], trap["when"]) for _, trap in placed if trap["action"] == "kill")
    steps = (*leaders.steps_of(arm), *leaders.WAITING_STEPS)
    assert kills == dict.fromkeys([(step, when) for step in steps for when in ("before", "after")], 1)
    assert all(writer.judged and writer.identity != "none" for writer, _ in placed)
    assert leaders.place_traps(make_arm(name, settings), settings) == arm
    alone = make_arm("safewrite-dynamodb", settings)
    assert leaders.place_traps(alone, settings) == alone


def test_more_kills_can_be_aimed_at_those_who_lead_and_no_two_are_one() -> None:
    settings = Settings(seed=1, appends=40, leader_kills=300)
    arm = leaders.place_traps(make_arm("safewrite-shared", settings), settings)
    traps = [(w.number, t["seq"], t["step"], t["when"], t["action"]) for w in arm.writers for t in w.traps]
    kills = Counter(step for _, _, step, _, action in traps if action == "kill")
    assert {step: kills[step] for step in leaders.LEADER_STEPS} == dict.fromkeys(leaders.LEADER_STEPS, 76)
    assert {step: kills[step] for step in leaders.WAITING_STEPS} == dict.fromkeys(leaders.WAITING_STEPS, 2)
    assert len(traps) == len(set(traps))


def test_a_kill_at_a_step_of_writers_that_share_nothing_need_not_come() -> None:
    settings = Settings(seed=1)
    steps = dict.fromkeys(("key", "txn", "none"), ("together", "commit.get_anchor", "commit.put_commit"))
    planned = {
        name: place_traps(make_arm(name, settings), steps, settings)
        for name in ("safewrite-shared", "safewrite-dynamodb")
    }
    wanted = {name: {step.split()[2] for step in traps_fired(arm, [])} for name, arm in planned.items()}
    assert wanted["safewrite-dynamodb"] - wanted["safewrite-shared"] == {"together", "commit.get_anchor"}
    assert "commit.put_commit" in wanted["safewrite-shared"]


def test_a_run_in_which_nobody_who_led_was_killed_proves_nothing() -> None:
    settings = Settings(seed=1)
    arm = leaders.place_traps(make_arm("safewrite-shared", settings), settings)
    waiting, leading = ({"event": "kill", "step": step} for step in ("share.put_member", "lead.verify"))
    assert leaders.fired(arm, [waiting]) == {leaders.KILLED: 0}
    assert leaders.fired(arm, [waiting, leading]) == {leaders.KILLED: 1}
    assert leaders.fired(make_arm("safewrite-dynamodb", settings), []) == {}


def test_a_commit_is_that_of_a_leader_once_members_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(perform=lambda effect: effect)
    met: list[tuple[str, str]] = []
    writer: Any = SimpleNamespace(current=(0, ""), trap=lambda _seq, step, when: met.append((step, when)))
    common.set_traps(world, writer)
    for name in (
        "commit.put_commit",
        "share.get_member",
        "commit.put_commit",
        "share.put_member",
        "commit.verify",
        "share.get_member",
        "swap.commit",
    ):
        world.perform(SimpleNamespace(name=name))
    assert [step for step, when in met if when == "after"] == [
        "commit.put_commit", "share.get_member", "commit.put_commit", "lead.put_commit", "share.put_member", "commit.verify",
        "share.get_member", "swap.commit", "lead.commit",
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("catalog", ["sql", "rest", "glue"])
def test_writers_of_an_iceberg_table_share_snapshots_while_those_who_lead_are_killed(
    tmp_path: Path, catalog: str
) -> None:
    """An arm that shares next to PyIceberg, compaction, expiry and a change of the schema."""
    code, report, _ = stress(
        tmp_path, "--seed", "12", "--writers", "8", "--appends", "8", "--rows", "20", "--arms", f"safewrite-shared-{catalog}",
        "--pause-s", "2", "--steps", "swap.commit,share.get_member,lead.commit,share.delete", "--limit-s", "250", "--no-spark-reader",
    )  # fmt: skip
    assert (code, report["verdict"]) == (0, "valid"), report["reasons"]
    assert report["arms"][0]["fired"][leaders.KILLED] > 0
    assert report["arms"][0]["acks_per_commit"] > 1


@pytest.mark.long
@pytest.mark.parametrize(("faults", "verdict"), [((), "valid"), (KEYLESS, "INVALID")])
def test_kills_of_leaders_commit_rows_again_only_where_leaders_look_for_no_key(
    tmp_path: Path, faults: tuple[str, ...], verdict: str
) -> None:
    _, report, _ = stress(tmp_path, *SMALL, faults=faults)
    assert report["verdict"] == verdict, report["reasons"]
    assert report["arms"][0]["fired"][leaders.KILLED] >= 4
    if faults:
        assert any("recommitted" in reason for reason in report["reasons"])
