"""A Spark driver in a stress run: where a life of it ends, and what it makes of an error of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.stress.plans.spark_writers import ANY_MOMENT, AT_COMMIT, NEXT_STEP
from bench.stress.writers import spark_life
from bench.stress.writers.spark_answers import doubt_of, refusal_of
from safewrite.delta.spark.hook import CommitHook
from safewrite.errors import CommitUnknownError, StorageError


# --- a life ---------------------------------------------------------------------------------------
class KilledError(Exception):
    """Instead of the SIGKILL."""


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill ends this test's life, not its process."""

    def killpg(group: int, signal: int) -> None:
        raise KilledError

    monkeypatch.setattr(spark_life.os, "killpg", killpg)


def life(folder: Path, *ends: dict[str, Any]) -> spark_life.Life:
    """The next life of a driver, whose ledger is in ``folder``."""
    return spark_life.Life(
        {"kind": "Spark", "writer": 1, "history": str(folder / "history.jsonl"), "traps": list(ends)}
    )


def deaths(folder: Path) -> list[tuple[str, str, str]]:
    """The ends that the ledger knows."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [(e["end"], e["step"], e["when"]) for e in map(json.loads, lines) if e["event"] == "kill"]


def end(name: str, **place: Any) -> dict[str, Any]:
    return {"end": name, "step": "any", "when": "any", "batches": 0, "places": 0, "delay_s": 0.0, **place}


@pytest.mark.usefixtures("mortal")
def test_a_life_ends_at_its_step_and_side_after_its_batches(tmp_path: Path) -> None:
    one = life(tmp_path, end(AT_COMMIT, step="swap.commit", when="after", batches=1))
    for step, when in (("swap.commit", "before"), ("swap.commit", "after"), ("swap.load", "after")):
        one.trap(0, step, when)
    one.batches += 1
    one.trap(1, "swap.commit", "before")
    with pytest.raises(KilledError):
        one.trap(1, "swap.commit", "after")
    assert deaths(tmp_path) == [(AT_COMMIT, "swap.commit", "after")]


@pytest.mark.usefixtures("mortal")
def test_no_life_ends_at_the_step_of_another_while_there_are_new_ones(tmp_path: Path) -> None:
    places = [("a", "before"), ("a", "after"), ("b", "before")]
    ends = [end(NEXT_STEP)] * 3
    for _ in ends:
        one = life(tmp_path, *ends)
        with pytest.raises(KilledError):
            [one.trap(0, step, when) for step, when in places]
    assert deaths(tmp_path) == [(NEXT_STEP, *place) for place in places]


@pytest.mark.usefixtures("mortal")
def test_the_last_life_and_one_that_is_killed_from_outside_end_at_no_step(tmp_path: Path) -> None:
    for ends in ((), (end(ANY_MOMENT),)):
        one = life(tmp_path, *ends)
        assert one.is_last is not bool(ends)
        one.trap(0, "commit.put_commit", "before")
    assert deaths(tmp_path) == []


# --- what an error says -----------------------------------------------------------------------------
class _Commits:
    """Commits that end with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def commit(self, path: str, body: str) -> bool:
        raise self.error


def said(error: Exception) -> str:
    """What Spark's user reads when the hook ends with ``error``."""
    hook = CommitHook(_Commits(error))  # type: ignore[arg-type]
    path = "s3a://lake/orders/_delta_log/00000000000000000041.json"
    return "An error occurred: java.io.IOException: " + hook.commit(path, '{"commitInfo":{"txnId":"t-1"}}\n')


def test_a_commit_in_doubt_is_asked_for_by_what_its_error_names() -> None:
    """Though its reason may say that this or that was not written."""
    text = said(CommitUnknownError("The answer was lost. Nothing was written twice.", key=None))
    assert doubt_of(text) == ("s3a://lake/orders", 41, "t-1")
    assert refusal_of(text) is None


def test_an_error_that_safewrite_does_not_know_leaves_the_commit_in_doubt() -> None:
    assert doubt_of(said(ZeroDivisionError())) == ("s3a://lake/orders", 41, "t-1")


def test_an_error_that_says_that_nothing_was_committed_is_believed() -> None:
    text = said(StorageError("The store refuses. Nothing was committed."))
    assert (doubt_of(text), refusal_of(text)) == (None, "StorageError")
    assert refusal_of("[DELTA_CONCURRENT_APPEND] ConcurrentAppendException") == "DELTA_CONCURRENT_APPEND"


@pytest.mark.parametrize("text", ["java.io.IOException: Connection reset", "java.lang.OutOfMemoryError", ""])
def test_an_error_that_says_nothing_of_the_table_is_neither(text: str) -> None:
    assert (doubt_of(text), refusal_of(text)) == (None, None)
