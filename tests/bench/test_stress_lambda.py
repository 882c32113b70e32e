"""Lambda functions on one table, fed by SQS, small: nothing lost or doubled by safewrite, and a load that bites."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench.stress import run as stress_run
from bench.stress.plans import lambda_arms, menu
from bench.stress.plans.plan import CALLER_STEP, Settings, place_traps
from bench.stress.writers import lambda_common, lambda_fleet
from safewrite.testing.history import make_rows
from tests.bench.runs import arm, mutant, stress

pytestmark = pytest.mark.xdist_group("stress-lambda")  # one worker makes the run that these tests look at

ALIKE = ("--seed", "11", "--rows", "20", "--pause-s", "1", "--no-spark-reader")
SMALL = (
    *ALIKE, "--lambda", "4", "--appends", "15", "--steps", "commit.put_commit,ledger.commit,caller.record_ack",
)  # fmt: skip
SMALLEST = (*ALIKE, "--lambda", "2", "--appends", "4", "--steps", "none")
"""So few messages that some faults do not come, and no step at which an environment would be killed."""
FLAWS = ("lost", "doubled", "torn", "altered", "phantom", "zombie", "recommitted", "disagreed")
HANDLER = "bench/stress/writers/lambda_safewrite.py"
WRITE, ANSWER = "write = BatchWriter(table, ", "    return answer\n"
STEPS = dict.fromkeys(("key", "txn", "none"), ("stage.put_data", "commit.put_commit"))


@pytest.mark.long
def test_each_of_few_messages_is_in_the_table_once(tmp_path: Path) -> None:
    """The short form of the next two: environments end at any moment and at their time limit."""
    _, report, _ = stress(tmp_path, *SMALLEST, "--arms", "safewrite-lambda")
    safe = arm(report, "safewrite-lambda")
    assert {name: safe["rows"][name] for name in FLAWS} == dict.fromkeys(FLAWS, 0)
    assert (safe["rows"]["acked"], safe["rows"]["acked_rows"]) == (8, 8 * 20)
    came = {name for name, count in safe["fired"].items() if count}
    ends = {f"{action} {when} {step}" for action, step, when in lambda_arms.ENDS}
    assert (
        ends
        | {"redelivery", "repeat", "overlap", "regrouped", "reported", "failed batch", "poison", "freeze"}
        <= came
    )
    assert [reason for reason in report["reasons"] if not reason.endswith(" never fired")] == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """Four environments, sixty messages and some poison."""
    code, report, _ = stress(tmp_path_factory.mktemp("lambda"), *SMALL, "--arms", "safewrite-lambda")
    return code, report


@pytest.mark.long
def test_each_message_is_in_the_table_once_and_poison_is_not(small: Any) -> None:
    code, report = small
    safe = arm(report, "safewrite-lambda")
    assert (code, report["verdict"], report["reasons"]) == (0, "valid", [])
    assert {name: safe["rows"][name] for name in FLAWS} == dict.fromkeys(FLAWS, 0)
    assert (safe["rows"]["acked"], safe["rows"]["acked_rows"]) == (60, 60 * 20)


@pytest.mark.long
def test_every_class_of_fault_came(small: Any) -> None:
    fired = arm(small[1], "safewrite-lambda")["fired"]
    ends = {f"{action} {when} {step}" for action, step, when in lambda_arms.ENDS}
    steps = {
        f"kill {when} {step}"
        for step in ("commit.put_commit", "ledger.commit")
        for when in ("before", "after")
    }
    mapping = {"redelivery", "repeat", "overlap", "regrouped", "reported", "failed batch", "poison", "freeze"}
    assert ends | steps | mapping | {f"kill before {CALLER_STEP}"} <= set(fired)
    assert {name for name, count in fired.items() if not count} == set()


@pytest.mark.long
def test_awswrangler_doubles_rows_in_the_same_functions(tmp_path: Path) -> None:
    code, report, _ = stress(tmp_path, *SMALL, "--arms", "awswrangler-lambda")
    naive = arm(report, "awswrangler-lambda")
    assert (code, naive["verdict"]) == (0, "bitten")
    assert naive["rows"]["doubled"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        ({HANDLER: (WRITE, f"import uuid\n{WRITE}key=lambda _: str(uuid.uuid4()), ")}, "doubled"),
        ({HANDLER: (ANSWER, '    return {"batchItemFailures": []}\n')}, "was acknowledged"),
    ],
    ids=["a random key", "an error taken for success"],
)
def test_a_run_with_a_flawed_handler_is_invalid(
    tmp_path: Path, flaw: dict[str, tuple[str, str]], reason: str
) -> None:
    checkout = mutant(tmp_path, flaw)
    code, report, _ = stress(tmp_path, *SMALL, "--arms", "safewrite-lambda", checkout=checkout)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert any(reason in said for said in report["reasons"])


# --- the plan -------------------------------------------------------------------------------------
def test_a_function_is_killed_before_and_after_each_step_and_from_outside() -> None:
    settings = Settings(seed=1, lambda_=3, appends=5)
    placed = place_traps(menu.make_arm("safewrite-lambda", settings), STEPS, settings)
    (writer,) = lambda_arms.place_traps(placed, STEPS, settings).writers
    assert (writer.functions, writer.appends) == (3, 15)
    steps = [("kill", step, when) for step in STEPS["key"] for when in ("before", "after")]
    wanted = [*steps, ("kill", CALLER_STEP, "before"), *lambda_arms.ENDS]
    assert sorted((t["action"], t["step"], t["when"]) for t in writer.traps) == sorted(wanted)


def test_the_arms_in_lambda_run_only_where_they_are_asked_for() -> None:
    assert not set(menu.LAMBDA_ARMS) & set(menu.choose(None, spark=True))
    assert set(menu.LAMBDA_ARMS) <= set(menu.choose(None, lambda_=True))
    assert not set(menu.LAMBDA_ARMS) & set(menu.choose(None, lambda_=True, own=True))


def test_of_many_environments_few_serve_at_once_and_few_are_killed() -> None:
    (writer,) = menu.make_arm("safewrite-lambda", Settings(seed=1, lambda_=64, appends=32)).writers
    habits = dict(writer.habits)
    assert (habits["functions"], writer.appends) == (64, 2_048)
    assert (habits["serving_max"], habits["starting_max"]) == (
        lambda_arms.SERVING_MAX,
        lambda_arms.STARTING_MAX,
    )
    assert (habits["faults"], habits["poison"]) == (lambda_arms.FAULTS_MAX, lambda_arms.POISON_MAX)


def test_arms_with_many_environments_run_one_after_the_other() -> None:
    class Arm:
        def __init__(self, *, naive: bool) -> None:
            self.arm = self
            self.naive = naive

    naive, safe = Arm(naive=True), Arm(naive=False)
    few, many = (Settings(seed=1, lambda_=count) for count in (4, 64))
    assert stress_run.lanes_of([naive, safe], few) == [[safe], [naive]]  # type: ignore[list-item]
    assert stress_run.lanes_of([naive, safe], many) == [[safe, naive]]  # type: ignore[list-item]


# --- what befalls an invocation -------------------------------------------------------------------
def faults(**more: Any) -> lambda_fleet.Faults:
    return lambda_fleet.Faults({"seed": 3, "faults": 2, "frozen_s": 1.0, **more})


def kind_of(fault: Any) -> str:
    found = {
        "kill": fault.kill_after_s < 60,
        "timeout": fault.limit_s is not None,
        "freeze": fault.frozen_s > 0,
    }
    return next((kind for kind, is_it in found.items() if is_it), "")


def test_no_more_faults_are_drawn_than_are_wanted_while_they_are_under_way() -> None:
    """Each kill costs the start of an environment; many invocations draw before the first of them ends."""
    here = faults()
    drawn: list[str] = []
    for number in range(60):  # a thread for each, as each has an invocation under way
        thread = threading.Thread(target=lambda number=number: drawn.append(kind_of(here.draw(number))))
        thread.start()
        thread.join()
    assert {kind: drawn.count(kind) for kind in ("kill", "timeout", "freeze")} == {
        "kill": 2, "timeout": 2, "freeze": 2,
    }  # fmt: skip


def test_a_fault_that_came_too_late_to_hit_is_drawn_again() -> None:
    here = faults()
    first = [number for number in range(60) if kind_of(here.draw(number)) and here.end(None) is None]
    assert len(first) > 6


def test_a_kill_comes_at_any_moment_of_an_invocation_of_usual_length() -> None:
    here = faults(faults=1_000)
    for _ in range(9):
        here.end(40.0)
    moments = [fault.kill_after_s for number in range(300) if kind_of(fault := here.draw(number)) == "kill"]
    assert min(moments) < 10
    assert 30 < max(moments) < 40


# --- what a handler gets --------------------------------------------------------------------------
def test_rows_come_out_of_a_message_as_they_went_in() -> None:
    rows = make_rows(5, 1, 2, 200, key="message 2")
    frame = lambda_common.frame_of(lambda_common.body_of(rows))
    assert frame.equals(lambda_common.common.to_arrow(rows))
    stranger = lambda_common.frame_of(lambda_common.body_of(rows, stranger=1))
    assert stranger.column_names == [*frame.column_names, "stranger"]


def test_a_trap_kills_the_one_process_that_comes_first(tmp_path: Path) -> None:
    traps = lambda_common.Traps(tmp_path)
    assert traps.arm("commit.put_commit", "after")
    assert not traps.arm("commit.put_commit", "after")
    program = (
        "import sys; from bench.stress.writers.lambda_common import Traps; traps = Traps(sys.argv[1])\n"
        "traps.spring('commit.put_commit', 'before'); print('before'); sys.stdout.flush()\n"
        "traps.spring('commit.put_commit', 'after'); print('after')"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = [
        subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        for _ in range(2)
    ]
    assert [(one.returncode, one.stdout.split()) for one in said] == [
        (-9, ["before"]),
        (0, ["before", "after"]),
    ]
    assert traps.is_sprung("commit.put_commit", "after")


def test_what_cannot_be_read_or_written_is_reported_and_the_rest_is_not(tmp_path: Path) -> None:
    rows = make_rows(5, 1, 2, 3)
    bodies = {"good": lambda_common.body_of(rows), "refused": lambda_common.body_of(rows), "torn": "{"}
    event = {"Records": [{"messageId": name, "body": body} for name, body in bodies.items()]}
    written: list[str] = []

    def write_batch(members: list[lambda_common.Member]) -> list[Any]:
        written.extend(name for name, _ in members)
        return [ValueError("no") if name == "refused" else None for name, _ in members]

    answer = lambda_common.answer(event, lambda_common.Traps(tmp_path), write_batch)
    assert written == ["good", "refused"]
    assert {item["itemIdentifier"] for item in answer["batchItemFailures"]} == {"torn", "refused"}
