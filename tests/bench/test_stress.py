"""The stress run end to end, small: real processes, real servers, the proxy, kills, naive writers."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.stress import run as stress_run
from bench.stress.__main__ import app
from bench.stress.arm import ArmResult
from bench.stress.fleet import Tally
from bench.stress.plans import (
    delta_arms,
    iceberg_arms,
    leaders,
    menu,
    plan,
)
from bench.stress.plans.menu import (
    ARMS,
    NAIVE_ARMS,
    SAFE_ARMS,
    make_arm,
)
from bench.stress.plans.plan import Settings, place_traps
from bench.stress.run import Result
from bench.stress.writers import common
from safewrite.testing.checker import Judgement, Read, check, judge
from safewrite.testing.history import COLUMNS, IntendedWrite, Row, make_rows
from tests.bench.runs import ROOT, arm, stress

pytestmark = pytest.mark.xdist_group("stress")  # one worker makes the run that these tests look at

STEPS = {
    "key": ("ledger.intend", "stage.put_data", "commit.put_commit", "ledger.commit"),
    "txn": ("stage.put_data", "commit.put_commit"),
    "none": ("stage.put_data", "commit.put_commit"),
}


SMALL = (
    "--seed",
    "11",
    "--writers",
    "6",
    "--appends",
    "6",
    "--rows",
    "40",
    "--pause-s",
    "2",
    "--limit-s",
    "100",
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], str]:
    """Six writers of four kinds on one table, two kill points, pauses; naive writers beside them."""
    return stress(
        tmp_path_factory.mktemp("stress"), *SMALL, "--arms", "safewrite-shared,unsafe-rename",
        "--steps", "commit.put_commit,ledger.commit,lead.put_commit,lead.verify",
    )  # fmt: skip


def test_safewrite_loses_doubles_and_alters_nothing_under_faults_and_kills(small: Any) -> None:
    _, report, _ = small
    safe = arm(report, "safewrite-shared")
    assert safe["rows"]["acked_rows"] >= 5 * 6 * 40 * 0.75
    flaws = {name: safe["rows"][name] for name in ("lost", "doubled", "torn", "altered", "phantom", "zombie")}
    assert flaws == dict.fromkeys(flaws, 0)
    assert safe["verdict"] == "valid", safe["reasons"]


def test_every_planned_kill_and_pause_happened(small: Any) -> None:
    safe = arm(small[1], "safewrite-shared")
    assert set(safe["kills"]) >= {
        "commit.put_commit:before", "commit.put_commit:after", "ledger.commit:before", "ledger.commit:after",
    }  # fmt: skip
    assert {"commit.put_commit:before", "commit.put_commit:after"} <= set(safe["pauses"])
    assert safe["restarts"] == sum(safe["kills"].values())


def test_writers_that_commit_for_others_are_killed_and_those_share_commits(small: Any) -> None:
    safe = arm(small[1], "safewrite-shared")
    assert safe["fired"][leaders.KILLED] > 0
    assert safe["acks_per_commit"] > 1


def test_the_faults_reached_safewrite_through_the_proxy(small: Any) -> None:
    safe = arm(small[1], "safewrite-shared")
    kinds = Counter({kind: n for by_kind in safe["faults"].values() for kind, n in by_kind.items()})
    assert set(map(str, plan.FAULT_CLASSES)) <= set(kinds)


def test_peers_and_three_kinds_of_frames_wrote_to_the_same_table(small: Any) -> None:
    safe = arm(small[1], "safewrite-shared")
    assert len(safe["kinds"]) == 4
    assert all(safe["by_kind"][kind]["acked_commits"] > 0 for kind in safe["kinds"])
    assert safe["peers"]["acked_rows"] > 0


def test_the_naive_writers_lose_rows_in_the_same_report(small: Any) -> None:
    naive = arm(small[1], "unsafe-rename")
    assert naive["rows"]["lost"] > 0
    assert naive["verdict"] == "bitten"


def test_a_good_run_exits_with_zero_and_says_valid(small: Any) -> None:
    code, report, _ = small
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])


@pytest.mark.parametrize(("first_step_at", "made"), [(1, 3), (7, 8), (99, 12)])
def test_a_writer_whose_pause_is_to_come_appends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_step_at: int, made: int
) -> None:
    """Others may commit its rows, time and again; and what never comes does not go on for ever."""
    monkeypatch.setattr(common.os, "kill", lambda *_: None)
    trap = {"seq": 1, "step": "commit.put_commit", "when": "after", "action": "pause"}
    config = {
        "kind": "ours",
        "writer": 1,
        "history": str(tmp_path / "h.jsonl"),
        "appends": 3,
        "traps": [trap],
    }
    seqs = []
    for _ in range(2):
        life = common.Writer(config)
        for seq in life.seqs():
            seqs.append(seq)
            if seq >= first_step_at:
                life.trap(seq, trap["step"], trap["when"])
    assert seqs == [*range(made), *range(made)]


class _Links(HTMLParser):
    """Collects whatever a browser would fetch or run, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img", "object"):
            self.outside.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.outside.append(value)


def test_the_page_needs_nothing_from_outside(small: Any) -> None:
    page = small[2]
    links = _Links()
    links.feed(page)
    assert links.outside == []
    assert not re.search(r"@import|url\((?!#)", page)
    # The figures: three of the one safewrite arm; the bars side by side are no figure.
    assert page.count("<svg") == 3
    assert page.count('class="row"') == 2


def test_the_page_says_how_to_run_it_again_and_what_was_not_tested(small: Any) -> None:
    _, report, page = small
    assert report["replay"] in page
    assert report["replay"] == (
        "python -m bench.stress --seed 11 --writers 6 --appends 6 --rows 40 --pause-s 2.0"
        " --steps commit.put_commit,ledger.commit,lead.put_commit,lead.verify"
        " --arms safewrite-shared,unsafe-rename"
    )
    assert all(line in html.unescape(page) for line in report["not_tested"])


@pytest.mark.long
def test_lost_answers_double_rows_for_readers_of_the_change_feed(tmp_path: Path) -> None:
    """Though the table itself shows them once.  In ``make test`` the other naive writers bite in the run above."""
    _, report, _ = stress(tmp_path, *SMALL, "--arms", "lost-answer")
    naive = arm(report, "lost-answer")
    assert naive["verdict"] == "bitten"
    assert naive["rows"]["doubled"] > 0
    assert naive["rows"]["recommitted"] == naive["rows"]["doubled"]


# --- the plan -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ARMS)
def test_a_seed_replays_the_plan_of_an_arm(name: str) -> None:
    first, second = (make_arm(name, Settings(seed=5)) for _ in range(2))
    assert first == second
    if name in SAFE_ARMS:
        assert place_traps(first, STEPS, Settings(seed=5)) == place_traps(second, STEPS, Settings(seed=5))


def test_another_seed_is_another_plan() -> None:
    arms = [make_arm("safewrite-dynamodb", Settings(seed=seed)) for seed in (5, 6)]
    assert arms[0].faults != arms[1].faults
    placed = [
        place_traps(arm, STEPS, Settings(seed=seed)).writers for seed, arm in zip((5, 6), arms, strict=True)
    ]
    assert placed[0] != placed[1]


def test_every_step_is_killed_before_and_after_at_writers_that_come_by_it() -> None:
    settings = Settings(seed=1)
    arm = place_traps(make_arm("safewrite-dynamodb", settings), STEPS, settings)
    planned = [(w, trap) for w in arm.writers for trap in w.traps if trap["seq"] is not None]
    kills = Counter((trap["step"], trap["when"]) for _, trap in planned if trap["action"] == "kill")
    wanted = {(step, when) for step in STEPS["key"] for when in ("before", "after")}
    assert kills == dict.fromkeys(wanted | {(plan.CALLER_STEP, "before")}, 1)
    assert all(w.judged for w, _ in planned)
    assert all(t["step"] in (*STEPS[w.identity], plan.CALLER_STEP) for w, t in planned)


@pytest.mark.parametrize("name", ["safewrite-sql", "safewrite-dynamodb"])
def test_a_writer_that_tries_nothing_again_is_killed_no_more_often_than_it_appends(name: str) -> None:
    for seed in range(
        20
    ):  # as many traps as a real commit has steps, in a short run: the slots do not suffice
        settings = Settings(seed=seed, appends=4)
        steps = dict.fromkeys(STEPS, tuple(f"step.{number}" for number in range(15)))
        arm = place_traps(make_arm(name, settings), steps, settings)
        writers = [writer for writer in arm.writers if writer.judged and writer.identity == "none"]
        assert writers
        assert all(len(writer.traps) < writer.appends for writer in writers)


def test_a_step_that_only_a_fresh_append_meets_is_killed_in_the_retry_of_a_killed_one() -> None:
    settings = Settings(seed=1)
    steps = {identity: (*names, "together") for identity, names in STEPS.items()}
    arm = place_traps(make_arm("safewrite-dynamodb", settings), steps, settings)
    placed = [(w, trap) for w in arm.writers for trap in w.traps if trap["step"] == "together"]
    assert Counter(trap["when"] for _, trap in placed) == {"before": 1, "after": 1}
    for writer, trap in placed:
        assert writer.identity == "key"
        assert {**trap, "step": "stage.put_data", "when": "before"} in writer.traps


def test_the_default_run_is_as_large_as_promised() -> None:
    settings = Settings(seed=1)
    main = make_arm("safewrite-dynamodb", settings)
    assert len(main.writers) >= 16
    assert len({writer.kind for writer in main.writers}) >= 3
    rows = [
        w.rows * w.appends
        for name in delta_arms.SAFE_ARMS
        for w in make_arm(name, settings).writers
        if w.judged
    ]
    assert sum(rows) * 0.75 >= 50_000


def test_the_object_store_arm_plans_no_fault_that_cannot_fire() -> None:
    arm = make_arm("safewrite-object-store", Settings(seed=1))
    assert not [rule for rule in arm.faults if any(step.startswith("ddb_") for step in rule.steps)]
    assert {rule.kind for rule in arm.faults} == set(plan.FAULT_CLASSES)


def test_a_run_that_names_nothing_ends_with_a_short_pair_on_iceberg() -> None:
    chosen = menu.choose(None)
    assert chosen == (
        *delta_arms.SAFE_ARMS,
        "safewrite-shared",
        *delta_arms.NAIVE_ARMS,
        "safewrite-sql",
        "pyiceberg-sql",
    )
    assert not any(menu.is_iceberg(name) for name in menu.choose("delta"))
    short = make_arm("safewrite-sql", Settings(seed=1, arms=chosen)).writers[0].appends
    assert short < make_arm("safewrite-sql", Settings(seed=1, arms=("safewrite-sql",))).writers[0].appends


def test_iceberg_without_a_catalog_is_all_catalogs_and_with_one_that_alone() -> None:
    assert set(menu.choose("iceberg")) == set(iceberg_arms.SAFE_ARMS + iceberg_arms.NAIVE_ARMS)
    assert menu.choose(None, catalog="glue") == ("safewrite-glue", "pyiceberg-glue", "last-attempt-glue")


def test_nobody_loses_rows_in_a_store_of_ones_own_unless_asked_for() -> None:
    assert menu.choose(None, own=True) == (*delta_arms.SAFE_ARMS, *delta_arms.SHARED_ARMS)


@pytest.mark.parametrize("name", iceberg_arms.SAFE_ARMS)
def test_safewrite_meets_the_fault_that_destroys_the_table_of_a_naive_writer(name: str) -> None:
    arm = make_arm(name, Settings(seed=1))
    assert set(iceberg_arms.last_attempt_faults()) <= set(arm.faults)
    assert {rule.kind for rule in arm.faults} == set(iceberg_arms.CLASSES)


def test_writer_numbers_of_all_arms_differ() -> None:
    numbers = [
        w.number for name in (*SAFE_ARMS, *NAIVE_ARMS) for w in make_arm(name, Settings(seed=1)).writers
    ]
    assert len(set(numbers)) == len(numbers)


# --- the verdict over all arms --------------------------------------------------------------------
def result_of(name: str, seen: list[Row], *, fired: dict[str, int] | None = None) -> ArmResult:
    """An arm whose one writer was acked for the rows of append 0, of which readers saw ``seen``."""
    settings = Settings(seed=1)
    planned = make_arm(name, settings)
    number = planned.writers[0].number
    rows = make_rows(1, number, 0, 10)
    write = IntendedWrite(
        kind="k", writer=number, seq=0, key=None, first_id=rows[0].id, checks=tuple(row.check for row in rows),
        outcome="ok", invoked_at=1.0, acked_at=2.0,
    )  # fmt: skip
    columns = {column: [getattr(row, column) for row in seen] for column in COLUMNS}
    verdict = check([write], [Read.of(reader, columns) for reader in "abc"])
    judgement = judge(verdict, fired=fired or {})
    return ArmResult(planned, "s3://b/t", 1.0, verdict, judgement, Tally(), Counter(), Counter(), [], 1, 0)


def rows_acked(name: str) -> list[Row]:
    return make_rows(1, make_arm(name, Settings(seed=1)).writers[0].number, 0, 10)


def judged(*arms: ArmResult, rows_min: int = 1) -> Judgement:
    return Result(Settings(seed=1, acked_rows_min=rows_min), list(arms), 0.0, 1.0, {}).judgement


def test_a_run_is_valid_only_if_safewrite_kept_all_and_the_naive_lost_some() -> None:
    kept = result_of("safewrite-dynamodb", rows_acked("safewrite-dynamodb"))
    lost = result_of("unsafe-rename", rows_acked("unsafe-rename")[:5])
    assert judged(kept, lost).valid is True
    unharmed = result_of("unsafe-rename", rows_acked("unsafe-rename"))
    assert judged(kept, unharmed).valid is None
    assert "does not bite" in judged(kept, unharmed).reasons[0]


def test_a_naive_arm_alone_that_bites_is_a_good_run() -> None:
    lost = result_of("unsafe-rename", rows_acked("unsafe-rename")[:5])
    assert judged(lost, rows_min=10**6).valid is True


def test_one_lost_row_of_safewrite_makes_the_whole_run_invalid() -> None:
    short = result_of("safewrite-dynamodb", rows_acked("safewrite-dynamodb")[1:], fired={"cut": 0})
    unharmed = result_of("unsafe-rename", rows_acked("unsafe-rename"))
    for arms in ([short, unharmed], [unharmed, short]):
        assert judged(*arms).valid is False
    assert "safewrite-dynamodb: 1 lost" in judged(short).reasons


def test_an_unfired_fault_or_too_few_rows_leave_the_run_unknown() -> None:
    rows = rows_acked("safewrite-dynamodb")
    assert judged(result_of("safewrite-dynamodb", rows, fired={"cut": 0})).valid is None
    assert judged(result_of("safewrite-dynamodb", rows), rows_min=11).valid is None
    assert judged(result_of("safewrite-dynamodb", rows), rows_min=10).valid is True


# --- usage --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--arms", "no-such-arm"], "no arm is named"),
        (["--format", "delta", "--catalog", "rest"], "--format delta"),
        (["--table", "s3://bucket/path", "--catalog", "sql"], "need the local servers"),
        (["--table", "bucket/path", "--no-proxy"], "s3://bucket/path"),
        (["--table", "s3://bucket/path", "--proxy"], "--no-proxy"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what_to_do(
    tmp_path: Path, options: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, ["--out", str(tmp_path), *options])
    assert done.exit_code == 2, done.output
    assert said in re.sub(r"[\s│]+", " ", done.output)


# --- ending it early ------------------------------------------------------------------------------
def test_ctrl_c_ends_both_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, begun = threading.Event(), threading.Event()
    begun.set()

    class Arm:
        def __init__(self) -> None:
            self.begun = begun

        def execute(self, _: Any) -> None:
            assert stop.wait(20)
            raise stress_run.StoppedError("the run was ended early")

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(stress_run, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stress_run._run_lanes([[Arm()], [Arm()]], lambda *_: None, stop)  # type: ignore[list-item]
    assert stop.is_set()


@pytest.mark.long
def test_ctrl_c_ends_all_that_the_run_has_started(tmp_path: Path) -> None:
    options = ("--seed", "1", "--writers", "2", "--appends", "500", "--rows", "5")
    command = [
        sys.executable, "-m", "bench.stress", "--out", str(tmp_path), "--arms", "safewrite-object-store", *options,
    ]  # fmt: skip
    with (tmp_path / "said").open("w+") as said:
        run = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + 120
            while not list(tmp_path.glob("*/safewrite-object-store/start")):
                assert run.poll() is None, said.read()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            begun = descendants(run.pid)
            os.kill(run.pid, signal.SIGINT)
            assert run.wait(timeout=60) == 130
        finally:
            run.kill()
            run.wait()
    # Two servers, two proxies, two writers with a child each, at least.
    assert len(begun) >= 8
    assert [pid for pid in begun if alive(pid)] == []


def descendants(pid: int) -> list[int]:
    """The ids of all processes that ``pid`` has started, and those have."""
    children = [
        int(word)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for word in path.read_text().split()
    ]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
