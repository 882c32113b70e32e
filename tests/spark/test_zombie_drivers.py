"""Two drivers run one stream from copies of one checkpoint, and are in the commit of one epoch at once (E7)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.servers.catalogs import CatalogKind
from tests.integration.places import once
from tests.spark import zombie
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.ordered import each
from tests.spark.stream import Stream
from tests.spark.zombie import Task

pytestmark = pytest.mark.long
Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]

STEPS = {"delta": "commit.put_entry", "sql": "swap.commit"}
"""The first write of a commit beside the data: the claim of a version, the swap of the table's metadata."""


def side_by_side(
    format_: str, hooked: Hooked, lakes: Lakes, folder: Path, *, shift: int
) -> tuple[End, list[dict[str, Any]]]:
    """A table with epoch 0 of a stream, and what two drivers say of epoch 1, which both commit at once."""
    place, catalogs = None, {}
    if format_ == "delta":
        end = delta(hooked("dynamodb"))
        assert end.hooked is not None
        place = end.hooked.place
    else:
        lake = lakes("sql")
        end, catalogs = iceberg(lake), {lake.name: lake.properties}
    sink = end.open().sink(app_id="orders")
    stream, copy = Stream(folder), Stream(folder, "copy")
    stream.feed("a", 1, 2, 3)
    stream.run(end.spark, sink)
    shutil.copytree(folder / stream.checkpoint, folder / copy.checkpoint)
    stream.feed("b", 4, 5)
    step = STEPS[format_]
    tasks = [Task(stream, sink, step, 0, place, catalogs), Task(copy, sink, step, shift, place, catalogs)]
    with each(*map(zombie.start, tasks)) as drivers:
        for driver in drivers:
            driver.ready()
        for driver in drivers:
            driver.say("go on")
        return end, [driver.hear() for driver in drivers]


@pytest.mark.parametrize("format_", STEPS)
def test_the_same_rows_by_two_drivers_at_once_are_there_once_and_both_know_it(
    format_: str, hooked: Hooked, lakes: Lakes, tmp_path: Path
) -> None:
    end, said = side_by_side(format_, hooked, lakes, tmp_path, shift=0)
    assert sorted(one["outcome"] for one in said) == ["already_committed", "committed"], said
    assert said[0]["version"] == said[1]["version"]
    assert [one["epoch"] for one in said] == [1, 1]
    assert end.ids() == once(1, 2, 3, 4, 5)


@pytest.mark.parametrize("format_", STEPS)
def test_of_other_rows_for_the_same_epoch_one_driver_wins_and_the_other_is_told(
    format_: str, hooked: Hooked, lakes: Lakes, tmp_path: Path
) -> None:
    end, said = side_by_side(format_, hooked, lakes, tmp_path, shift=100)
    assert {one.get("error") for one in said} == {None, "ReplayMismatchError"}, said
    won = next(number for number, one in enumerate(said) if "outcome" in one)
    assert (said[won]["outcome"], said[won]["epoch"]) == ("committed", 1)
    assert end.ids() == (once(1, 2, 3, 4, 5), once(1, 2, 3, 104, 105))[won]
