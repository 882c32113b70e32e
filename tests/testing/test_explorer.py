"""The protocol under every interleaving and fault, and the explorer on protocols that are broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safewrite.errors import not_committed
from safewrite.protocol.delta.claim import commit_path
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Ok
from safewrite.protocol.values import Entry
from safewrite.testing.explorer import models, peers
from safewrite.testing.explorer.__main__ import MODELS, main
from safewrite.testing.explorer.automaton import (
    Absent,
    Acked,
    Automaton,
    Broken,
    Down,
    End,
    InDoubt,
    Node,
    NotCommitted,
    Program,
)
from safewrite.testing.explorer.delta_models import Model, WriterProcess
from safewrite.testing.explorer.immutable import Store
from safewrite.testing.explorer.invariants import Judge
from safewrite.testing.explorer.rows import FIRST, body_of
from safewrite.testing.explorer.search import FAULTS, Explorer
from safewrite.testing.explorer.unions import unequal

GATE = {
    "locks": 0,
    "objects": 1,
    "lease": 0,
    "retry-early": 1,
    "create-locks": 0,
    "stamps-objects": 1,
    "stamps-locks": 0,
    "group-early": 0,
    "group-one": 0,
    "changes-locks": 0,
    "compact-locks": 0,
    "compact-twice": 0,
    "compact-two": 0,
    "compact-rewritten": 0,
    "unions-objects": 0,
    "unions-locks": 0,
    "share-fresh": 0,
    "share-resolve": 0,
    "put": 0,
    "objects-put": 1,
    "spark": 0,
    "old-locks": 0,
    "sealed-spark": 0,
    "engine": 0,
    "engines": 0,
    "engine-put": 1,
    "iceberg-two": 1,
    "iceberg-retry": 1,
    "iceberg-empty": 0,
    "iceberg-queue": 0,
    "iceberg-plain": 0,
    "iceberg-plain-sql": 0,
    "iceberg-set": 1,
    "iceberg-expire": 0,
    "iceberg-expire-short": 0,
    "iceberg-rollback-sql": 0,
    "iceberg-branch": 0,
    "iceberg-ids": 0,
    "iceberg-ids-sql": 0,
    "unions-iceberg": 0,
    "unions-iceberg-sql": 0,
    "share-iceberg-fresh": 0,
}
"""Models of the gate, with their faults: each step of each protocol, in a space that takes less than a second."""
SOUND = [
    *GATE.items(),
    *(
        pytest.param(name, model.faults, marks=pytest.mark.long)
        for name, model in MODELS.items()
        if not model.flaw and GATE.get(name) != model.faults
    ),
]
FLAWED = [name for name, model in MODELS.items() if model.flaw]


class Naive(Model):
    """Two writers that do not look whose commit they were beaten by, judged as if they were ours."""

    def start(self, slot: int, incarnation: int) -> Program:
        return peers.conditional_put(self.writers[slot].key, f"{slot}.{incarnation}")


NAIVE = Naive(
    "naive",
    "",
    (WriterProcess("safewrite", "a", restarts=0), WriterProcess("safewrite", "b", restarts=0)),
    Arbiter(False),
)


# --- the protocol -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "faults"), SOUND)
def test_no_interleaving_with_the_short_budget_of_faults_breaks_a_promise(name: str, faults: int) -> None:
    report = Explorer(MODELS[name], faults).explore()
    assert (report.violation, report.trace) == ("", [])
    assert report.whole
    assert report.ends > 0


@pytest.mark.parametrize("name", FLAWED)
def test_a_known_flaw_is_still_there(name: str) -> None:
    report = Explorer(MODELS[name], MODELS[name].faults).explore()
    assert report.violation.partition(":")[0] in MODELS[name].flaw


def test_every_fault_is_met_by_two_writers_with_a_lock_table() -> None:
    explorer = Explorer(MODELS["locks"], 1)
    wanted = {"", "crash after", *FAULTS} - {"conflict", "forgotten"}
    met = set()
    level, seen = [explorer.first()], set()
    while level and not met >= wanted:
        state = level.pop()
        for after, label, _ in explorer.successors(state):
            met.add(explorer.step_of(label, state, after).fault)
            if after not in seen:
                seen.add(after)
                level.append(after)
    assert met >= wanted


# --- broken protocols -------------------------------------------------------------------------------
def test_a_writer_without_own_commit_detection_doubles_after_a_lost_answer() -> None:
    report = Explorer(NAIVE, 1, kinds=["lost-after"]).explore()
    assert report.violation.startswith("doubled: key a is in versions [1, 2]")
    assert [(step.effect, step.fault) for step in report.trace] == [
        ("open.list", ""),
        ("peer.put_commit", "lost-after"),
        ("peer.put_commit", ""),
        ("open.list", ""),
        ("peer.put_commit", ""),
    ]


def test_without_faults_the_same_writer_is_sound() -> None:
    report = Explorer(NAIVE, 0).explore()
    assert not report.violation
    assert report.whole


def test_a_fault_that_is_switched_off_is_not_met() -> None:
    kinds = [kind for kind in FAULTS if kind not in ("crash", "lost-after", "resent", "late")]
    assert not Explorer(NAIVE, 1, kinds=kinds).explore().violation


# --- the search -------------------------------------------------------------------------------------
@pytest.mark.sweep("objects-2", "put-1", "create-objects-1")
@pytest.mark.parametrize(
    ("name", "faults"), [("objects", 2), ("lease", 0), ("put", 1), ("create-objects", 1)]
)
def test_merging_equal_local_states_hides_no_global_one(name: str, faults: int) -> None:
    merged, apart = (_reached(name, faults, merging=merging) for merging in (True, False))
    assert merged == apart


def _reached(name: str, faults: int, *, merging: bool) -> set[object]:
    explorer = Explorer(MODELS[name], faults, merging=merging)
    reached: set[object] = set()
    level = [explorer.first()]
    seen = set(level)
    while level:
        state = level.pop()
        reached.add(explorer.described(state))
        for after, _, _ in explorer.successors(state):
            if after not in seen:
                seen.add(after)
                level.append(after)
    return reached


def test_the_same_seed_explores_the_same_states() -> None:
    first, again, other = (Explorer(MODELS["locks"], 2, seed=seed).explore(1_000) for seed in (7, 7, 8))
    assert (first.states, first.transitions, first.ends) == (again.states, again.transitions, again.ends)
    assert first.transitions != other.transitions
    assert not first.whole


def test_a_generator_is_run_again_from_the_start_for_a_second_answer() -> None:
    automaton = Automaton(MODELS["objects"].start)
    first = automaton.begin(0, 0)
    listing = Ok(())
    assert automaton.step(first, 0, listing) == automaton.step(first, 0, listing)


# --- the judge --------------------------------------------------------------------------------------
JUDGE = Judge(NAIVE)


def _store(*bodies: bytes, at: tuple[int, ...] | None = None) -> Store:
    versions = at or tuple(range(len(bodies)))
    return Store(tuple((commit_path(v), body) for v, body in zip(versions, bodies, strict=True)))


@pytest.mark.parametrize(
    ("store", "end", "found"),
    [
        (_store(FIRST, body_of("a", "0.0")), Acked(1), ""),
        (_store(FIRST, body_of("a", "0.0"), body_of("a", "0.1")), None, "doubled"),
        (_store(FIRST, body_of("b", "1.0"), at=(0, 2)), None, "hole"),
        (_store(FIRST, body_of("b", "1.0")), Acked(1), "lost"),
        (_store(FIRST), Acked(1), "lost"),
        (_store(FIRST, body_of("a", "0.0")), NotCommitted("storage"), "zombie"),
        (_store(FIRST, body_of("a", "0.1")), NotCommitted("storage"), ""),
        (_store(FIRST), NotCommitted("corrupt_log"), "alarm"),
        (_store(FIRST), Broken("AssertionError"), "alarm"),
        (_store(FIRST), InDoubt(), ""),
        (_store(FIRST), Absent(), ""),
        (_store(FIRST, body_of("b+a", "1.0")), Absent(), "misled"),
        (_store(FIRST), Down(), ""),
    ],
)
def test_the_judge_sees(store: Store, end: End | None, found: str) -> None:
    assert JUDGE.state(store, [Node(0, 0, end=end)]).partition(":")[0] == found


def test_the_judge_sees_a_replaced_commit_file() -> None:
    before, after = _store(FIRST, body_of("a", "0.0")), _store(FIRST, body_of("b", "1.0"))
    assert JUDGE.replaced(before, after).startswith("replaced: the commit file of version 1")
    assert JUDGE.replaced(before, before) == ""
    assert Judge(models.MODELS["spark"]).replaced(before, after) == ""


def test_the_judge_sees_a_table_that_nobody_can_write_to_any_more() -> None:
    judge = Judge(models.MODELS["locks"])
    stale = Entry("00000000000000000007.json", ".tmp/gone")
    stuck = _store(FIRST)._replace(entries=(stale,))
    assert judge.end(stuck, [], []).startswith("stuck: UnsafeConfigError")
    assert judge.end(_store(FIRST), [], []) == ""


@pytest.mark.parametrize(
    ("marked", "found"),
    [
        ((1, 3), ""),
        ((3,), "revived: after version 2 the deleted rows [1] are back"),
        ((1, 3, 5), "lost: after version 2 the rows [5] are gone, and nobody deleted them"),
        ("v.bin is gone", "unreadable: version 2 has a vector that no reader can read: v.bin is gone"),
    ],
)
def test_the_judge_sees_a_vector_that_is_no_union(marked: tuple[int, ...] | str, found: str) -> None:
    assert unequal([("version 1", (1,), (1,)), ("version 2", (3,), marked)]) == found


# --- the command ------------------------------------------------------------------------------------
def test_the_command_prints_a_row_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "objects", "--faults", "1"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["model", "faults", "states", "transitions", "ends", "violations", "seconds"]
    assert row.split()[:2] == ["objects", "1"]
    assert row.split()[5] == "0"


def test_the_command_fails_and_prints_the_trace_of_a_violation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "objects", NAIVE)
    assert main(["--model", "objects", "--faults", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].strip().startswith("doubled:")
    assert lines[4].endswith("[resent]")


def test_the_command_fails_if_a_known_flaw_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = models.MODELS["objects"]
    monkeypatch.setitem(MODELS, "objects", replace(objects, flaw=("doubled",)))
    assert main(["--model", "objects", "--faults", "0"]) == 1


def test_the_command_lists_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(MODELS)


def test_what_a_library_raises_is_an_alarm_and_no_failure_that_was_foreseen() -> None:
    """A candidate that lacks what a write asks of it wrote nothing, and each model of two writers was one of one."""

    def broken() -> Program:
        try:
            yield from ()
            raise AttributeError("no such thing")
        except AttributeError as error:
            raise not_committed(error) from error

    automaton = Automaton(lambda slot, incarnation: broken())
    assert automaton.nodes[automaton.begin(0, 0)].end == Broken("AttributeError: no such thing")
