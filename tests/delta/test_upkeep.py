"""Checkpoints are made while no write waits for them, and whatever breaks one off harms no write and no reader."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import safewrite as sw
from safewrite.delta import upkeep
from safewrite.protocol.effects import Effect, Failed, Ok, Outcome, Together
from safewrite.stores.world import Performer

WAIT_S = 60.0
EVERY_FOURTH = {"delta.checkpointInterval": "4"}


class Hooked:
    """A world with threads that calls a hook before it performs an effect of this name; the hook may answer itself."""

    threads = 2

    def __init__(self, world: Performer, name: str, hook: Callable[[], Outcome | None]) -> None:
        self._world, self._name, self._hook = world, name, hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Together):
            return Ok(tuple(self.perform(part) for part in effect.effects))
        answer = self._hook() if effect.name == self._name else None
        return answer or self._world.perform(effect)


def made(path: Path) -> list[int]:
    """Versions that have a checkpoint."""
    return sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*.checkpoint.parquet"))


def ids(path: Path) -> list[int]:
    """What another reader sees."""
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def append(table: sw.Table, *numbers: int) -> None:
    for number in numbers:
        table.append([{"id": number}], key=f"event-{number}")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "t"
    upkeep.finish()


@pytest.fixture
def table(path: Path) -> sw.Table:
    """Three versions: the checkpoint after the next but one is due."""
    table = sw.open(path, create=True, properties=EVERY_FOURTH)
    append(table, *range(4))
    return table


@contextmanager
def held_at(table: sw.Table, step: str) -> Iterator[threading.Event]:
    """Holds whoever comes to a step until this block ends; the event tells that somebody came."""
    came, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        came.set()
        assert go_on.wait(WAIT_S)

    table.world = Hooked(table.world, step, hold)
    try:
        yield came
    finally:
        go_on.set()


@pytest.mark.sweep("files.get_commit", "files.get_checkpoint", "checkpoint.put_hint")
@pytest.mark.parametrize(
    "step", ["files.get_checkpoint", "files.get_commit", "checkpoint.put", "checkpoint.put_hint"]
)
def test_no_write_waits_for_a_checkpoint(path: Path, step: str) -> None:
    """Goal: the writes after a due version are acknowledged while its checkpoint stands still, at any of its steps."""
    table = sw.open(path, create=True, properties=EVERY_FOURTH)
    append(table, *range(5))
    upkeep.finish()
    append(table, 5, 6, 7)
    with held_at(table, step) as came:
        append(table, 8)
        assert came.wait(WAIT_S)
        append(table, *range(9, 12))
        assert made(path) == ([4, 8] if step == "checkpoint.put_hint" else [4])
        assert ids(path) == list(range(12))
    upkeep.finish()
    assert made(path) == [4, 8]
    assert ids(path) == list(range(12))


def test_the_next_checkpoint_is_made_from_the_one_that_a_thread_made(path: Path, table: sw.Table) -> None:
    append(table, 4)
    upkeep.finish()
    for number in range(5):
        (path / "_delta_log" / f"{number:020d}.json").unlink()  # as log clean-up does
    append(table, *range(5, 9))
    upkeep.finish()
    assert made(path) == [4, 8]
    assert ids(path) == list(range(9))


def test_of_checkpoints_that_pile_up_only_the_newest_is_made(path: Path, table: sw.Table) -> None:
    with held_at(table, "checkpoint.put") as came:
        append(table, 4)
        assert came.wait(WAIT_S)
        append(table, *range(5, 17))
    upkeep.finish()
    assert made(path) == [4, 16]
    assert ids(path) == list(range(17))


@pytest.mark.sweep("error2")
@pytest.mark.parametrize("error", [RuntimeError("no"), MemoryError(), OSError(28, "no space")])
def test_a_checkpoint_that_fails_fails_no_write_and_is_told(path: Path, error: Exception) -> None:
    events: list[sw.Event] = []
    table = sw.open(path, create=True, properties=EVERY_FOURTH, on_event=events.append)
    append(table, *range(4))

    def fail() -> None:
        raise error

    usual = table.world
    table.world = Hooked(usual, "checkpoint.put", fail)
    append(table, *range(4, 8))
    upkeep.finish()
    assert made(path) == []
    table.world = usual
    append(table, 8)
    upkeep.finish()
    assert made(path) == [8]
    failed, done = (event for event in events if event.kind == "checkpoint")
    assert (failed.details["version"], failed.details["error"]) == (4, "internal")
    assert done.details["version"] == 8
    assert done.details["bytes"] > 0
    assert {*map(type, done.details.values())} == {int, float}


def test_no_checkpoint_of_a_table_comes_to_the_log_of_another(path: Path, table: sw.Table) -> None:
    """A17: dropped and made again while the thread stood still; ours would hide the rows of the new one."""
    with held_at(table, "checkpoint.get_anchor") as came:
        append(table, 4)
        assert came.wait(WAIT_S)
        path.rename(path.with_name("old"))
        other = sw.open(path, create=True)
        append(other, *range(100, 107))
    upkeep.finish()
    assert made(path) == []
    assert ids(path) == list(range(100, 107))


def test_two_writers_of_one_checkpoint_leave_one(path: Path, table: sw.Table) -> None:
    """B2: a person's ``checkpoint()`` and the thread's; the conditional create decides."""
    with held_at(table, "checkpoint.put") as came:
        append(table, 4)
        assert came.wait(WAIT_S)
        assert sw.open(path).checkpoint()
        body = (path / "_delta_log" / f"{4:020d}.checkpoint.parquet").read_bytes()
    upkeep.finish()
    assert (path / "_delta_log" / f"{4:020d}.checkpoint.parquet").read_bytes() == body
    append(table, 5)
    assert ids(path) == list(range(6))


# --- processes ----------------------------------------------------------------------------------------
def _write_five(path: str, kill_at: str | None = None) -> None:
    table = sw.open(path, create=True, properties=EVERY_FOURTH)
    if kill_at is not None:
        table.world = Hooked(table.world, kill_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    append(table, *range(5))


@pytest.mark.sweep("forkserver", "spawn")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_ends_makes_its_checkpoint_first(path: Path, method: str) -> None:
    child = multiprocessing.get_context(method).Process(target=_write_five, args=(str(path),))
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == 0
    assert made(path) == [4]
    assert ids(path) == list(range(5))


@pytest.mark.long
def test_a_script_that_ends_makes_its_checkpoint_first(path: Path) -> None:
    script = f"from tests.delta.test_upkeep import _write_five; _write_five({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=WAIT_S, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert made(path) == [4]


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    [
        "files.get_commit",
        "checkpoint.get_anchor",
        "checkpoint.put",
        "checkpoint.get_hint",
        "checkpoint.put_hint",
    ],
)
def test_a_process_that_is_killed_in_a_checkpoint_lost_no_write(path: Path, step: str) -> None:
    child = multiprocessing.get_context("fork").Process(target=_write_five, args=(str(path), step))
    child.start()
    child.join(WAIT_S)
    assert child.exitcode == -signal.SIGKILL
    assert made(path) == ([4] if "hint" in step else [])
    assert ids(path) == list(range(5))
    table = sw.open(path)
    append(table, *range(9))  # repeats, then new ones
    upkeep.finish()
    assert made(path) == ([4, 8] if "hint" in step else [8])
    assert ids(path) == list(range(9))


def test_a_forked_child_leaves_to_its_parent_what_that_has_begun(path: Path, table: sw.Table) -> None:
    with held_at(table, "checkpoint.put") as came:
        append(table, 4)
        assert came.wait(WAIT_S)

        def go_on() -> None:
            append(table, *range(5, 8))
            upkeep.finish()
            assert made(path) == []

        child = multiprocessing.get_context("fork").Process(target=go_on)
        child.start()
        child.join(WAIT_S)
        assert child.exitcode == 0
    upkeep.finish()
    assert made(path) == [4]
    assert ids(path) == list(range(8))


# --- Lambda -------------------------------------------------------------------------------------------
@pytest.fixture
def function(table: sw.Table, monkeypatch: pytest.MonkeyPatch) -> sw.Table:
    """The table in a Lambda function."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "orders")
    return table


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "safewrite-upkeep"]


def test_a_function_that_returned_has_nothing_under_way(path: Path, function: sw.Table) -> None:
    """It is frozen then: the next warm call makes it, and is done with it when it returns."""
    append(function, 4)
    assert (made(path), threads()) == ([], [])
    append(function, 5)
    upkeep.finish()
    assert made(path) == [4]


def test_a_function_without_time_leaves_a_checkpoint_to_the_next_call(path: Path, function: sw.Table) -> None:
    append(function, 4)
    with held_at(function, "files.get_commit") as came:
        function.append([{"id": 5}], timeout_s=2.0)
        assert came.is_set()
    upkeep.finish()
    assert made(path) == []  # it was told to stop before its next request
    append(function, 6)
    upkeep.finish()
    assert made(path) == [4]
    assert ids(path) == list(range(7))


@pytest.mark.long
def test_functions_that_are_never_warm_make_one_once_too_many_were_left(
    path: Path, table: sw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = [sw.open(path) for _ in range(7)]
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "orders")
    for number, one in enumerate(cold, start=4):
        assert made(path) == []
        append(one, number)
    assert made(path) == [10]


def test_a_write_that_fails_leaves_nothing_under_way(path: Path, function: sw.Table) -> None:
    append(function, 4)
    function.world = Hooked(function.world, "stage.put_data", lambda: Failed("no"))
    with pytest.raises(sw.SafewriteError):
        append(function, 5)
    upkeep.finish()
    assert made(path) == [4]
    assert ids(path) == list(range(5))


@pytest.mark.long
def test_a_writer_with_time_makes_the_checkpoint_that_hurried_ones_left(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    hurried = sw.open(place, create=True)
    hurried._format.checkpoints = False  # type: ignore[attr-defined]
    for n in range(24):
        hurried.append(pa.table({"id": [n]}))
    patient = sw.open(place)
    patient.append(pa.table({"id": [24]}))
    assert not list((tmp_path / "orders" / "_delta_log").glob("*.checkpoint.parquet"))
    patient.append(pa.table({"id": [25]}))
    upkeep.finish()
    (made,) = (tmp_path / "orders" / "_delta_log").glob("*.checkpoint.parquet")
    assert made.name.startswith("00000000000000000025")
