"""Groups of files are tasks: small ones are put together side by side, and one that fails takes no other with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safewrite.errors import StorageError
from safewrite.protocol.effects import Effect, Failed, Get, Outcome
from safewrite.stores.world import Performer
from safewrite.table import regrouping
from safewrite.table.verbs import Table
from tests.upkeep import test_delta, test_iceberg

FORMATS = ["delta", "iceberg"]


def made(kind: str, folder: Path, days: str = "ab") -> tuple[Table, Callable[[], list[Any]]]:
    """A table of days, each of three files, and what reads its rows."""
    if kind == "delta":
        return test_delta.made(folder, 3, days=tuple(days)), lambda: test_delta.rows(folder)
    lake = test_iceberg.Lake(folder, days=tuple(days))
    return lake.open(), lake.rows


class Reads:
    """A world that does something at each read of a data file."""

    def __init__(self, world: Performer, act: Callable[[str], Outcome | None]) -> None:
        self.world, self.act = world, act

    def perform(self, effect: Effect) -> Outcome:
        parts = getattr(effect, "effects", (effect,))
        read = [one.path for one in parts if isinstance(one, Get) and "day=" in one.path]
        outcome = self.act(read[0]) if read else None
        return self.world.perform(effect) if outcome is None else outcome


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fit", [True, False], ids=["small", "large"])
def test_groups_that_fit_into_memory_are_read_side_by_side_and_others_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fit: bool
) -> None:
    if not fit:
        monkeypatch.setattr(regrouping, "BYTES_AT_ONCE", 1)
    table, rows = made(kind, tmp_path / "t")
    before, meeting, days = rows(), threading.Barrier(2), set[str]()

    def meet(path: str) -> None:
        day = next(part for part in path.split("/") if part.startswith("day="))
        if day in days:
            return
        days.add(day)
        try:
            meeting.wait(5 if fit else 0.2)
        except threading.BrokenBarrierError:
            met.append(False)
        else:
            met.append(True)

    met = list[bool]()
    table.world = Reads(table.world, meet)
    report = table.maintain()
    assert met == [fit, fit]
    assert (report.groups, report.files_after, rows()) == (2, 2, before)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_that_gives_no_answer_for_one_group_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, kind: str
) -> None:
    table, rows = made(kind, tmp_path / "t")
    before, version, files = rows(), table.version, len([*tmp_path.rglob("*.parquet")])
    world = table.world
    table.world = Reads(world, lambda path: Failed("no answer") if "day=b" in path else None)
    with pytest.raises(StorageError):
        table.maintain()
    assert (rows(), table.version) == (before, version)
    if kind == "delta":  # files of the other group go, for no commit was begun with them
        assert len([*tmp_path.rglob("*.parquet")]) == files
    table.world = world
    assert table.maintain().groups == 2
    assert rows() == before
