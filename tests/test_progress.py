"""Long commands tell on a terminal how far they have come, on standard error; elsewhere they tell nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rich.console

import safewrite as sw
from safewrite.progress import watched, watching
from tests.iceberg.command_line import sqlite_place
from tests.test_cli import run, run_json

Told = list[tuple[str, int, int]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """What a watcher of this thread hears."""
    found: Told = []
    with watching(lambda *said: found.append(said)):
        yield found


def test_the_watcher_hears_of_each_item_and_no_other_thread_or_time() -> None:
    found: Told = []
    assert list(watched("ab", "letters", 2)) == ["a", "b"]
    with watching(lambda *said: found.append(said)):
        assert list(watched("ab", "letters", 2)) == ["a", "b"]
        assert list(watched(range(2), "files", 1500, each=1000)) == [0, 1]
    list(watched("ab", "letters", 2))
    assert found == [
        ("letters", 0, 2), ("letters", 1, 2), ("letters", 2, 2), ("files", 0, 1500), ("files", 1000, 1500), ("files", 1500, 1500),
    ]  # fmt: skip


def table(folder: Path) -> str:
    made = sw.create(str(folder / "t"), pa.schema({"id": pa.int64()}))
    for number in range(3):
        made.append([{"id": number}], key=f"event-{number}")
    return str(folder / "t")


def test_doctor_and_verify_of_both_formats_tell_how_far_they_are(tmp_path: Path, told: Told) -> None:
    address, keys = table(tmp_path), tmp_path / "keys"
    keys.write_text("event-0\nevent-1\nevent-2\n")
    assert run("verify", address, "--ledger", keys)[0] == 0
    assert ("commits", 4, 4) in told
    assert run("doctor", address, "--deep")[0] == 0
    assert ("footers", 3, 3) in told
    with sqlite_place(tmp_path) as place:
        told.clear()
        assert place.text("doctor", "--deep")[0] == 0
        assert {what for what, _, _ in told} == {"manifests", "data files"}
        assert all(done <= total for _, done, total in told)


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_bar_is_on_standard_error_of_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    """And the answer on standard output is the same, as JSON too."""
    address, screen = table(tmp_path), Terminal() if on_terminal else io.StringIO()
    really = rich.console.Console

    def console(*given: Any, stderr: bool = False, **settings: Any) -> Any:
        return really(*given, file=screen, width=80, **settings) if stderr else really(*given, **settings)

    monkeypatch.setattr(rich.console, "Console", console)
    monkeypatch.setenv("TERM", "xterm")
    code, answer = run_json("doctor", address, "--deep")
    assert (code, answer["findings"]) == (0, [])
    assert ("footers" in screen.getvalue()) is on_terminal


def test_a_medallion_run_tells_of_its_tables(tmp_path: Path, told: Told) -> None:
    from tests.medallion.test_jobs import HEAD, Shop

    job = Shop(tmp_path)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job.config))
    job.put("shop/orders/20261101-000000001.csv", HEAD + "I,1,1.00,10\n")
    assert run("medallion", "run", "--config", path)[0] == 0
    assert run("medallion", "verify", "--config", path)[0] == 0
    assert told[-1] == ("tables", len(job.config["tables"]), len(job.config["tables"]))
    assert told.count(told[-1]) == 2
