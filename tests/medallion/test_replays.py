"""A replay doubles nothing beside another, neither in bronze nor in quarantine, and misses nothing where clocks differ."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import deltalake
import pytest

from safewrite.errors import HistoryGapError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.bronze import landing, restore_rows
from safewrite.medallion.lineage import lineage as lineage_module
from safewrite.medallion.lineage.lineage import BronzeGapError, Lineage
from tests.medallion.test_jobs import HEAD, Shop, set_in

NAME = "shop.orders"


@pytest.fixture
def job(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    for number in (1, 2):
        made.put(f"shop/orders/20261101-00000000{number}.csv", f"{HEAD}I,{number},1.00,1{number}\n")
        assert made.run().ok
    return made


def bronze(job: Shop) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(str(job.folder / "bronze/orders"))


def ids(job: Shop) -> list[int]:
    return sorted(row["id"] for row in job.rows("bronze/orders"))


def test_two_replays_beside_a_run_put_rows_back_once(job: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second replay sees another version of bronze than the first, and the same rows missing."""
    bronze(job).delete("id = 2")
    own, calls = landing.put_back, []

    def beside(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            job.put("shop/orders/20261101-000000003.csv", f"{HEAD}I,3,1.00,13\n")
            assert Pipeline(job.config).replay([NAME]).ok
        return own(*given)

    monkeypatch.setattr(landing, "put_back", beside)
    (one,) = Pipeline(job.config).replay([NAME]).tables
    assert (one.error, ids(job)) == (None, [1, 2, 3])
    assert verify(Pipeline(job.config))[0].clean


@pytest.mark.long
def test_two_replays_that_put_back_at_one_moment_put_rows_back_once(
    job: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has put them back when the first has looked what is missing, and is about to commit."""
    bronze(job).delete("id = 2")
    own, calls = restore_rows.lost, []

    def beside(*given: Any) -> Any:
        found = own(*given)
        calls.append(given)
        if len(calls) == 1:
            bronze(job).optimize.compact()  # another version
            assert Pipeline(job.config).replay([NAME]).ok
        return found

    monkeypatch.setattr(restore_rows, "lost", beside)
    (one,) = Pipeline(job.config).replay([NAME]).tables
    assert (one.error, ids(job)) == (None, [1, 2])
    assert len(calls) == 2


@pytest.mark.long
def test_rows_that_go_again_and_again_are_put_back_each_time(job: Shop) -> None:
    for way in (
        lambda: bronze(job).delete("id = 2"),
        lambda: bronze(job).restore(1),
        lambda: bronze(job).delete(),
    ):
        way()
        (one,) = Pipeline(job.config).replay([NAME]).tables
        assert (one.error, ids(job)) == (None, [1, 2])
        assert one.landed.rows > 0
    assert verify(Pipeline(job.config))[0].clean


@pytest.mark.long
def test_a_row_that_breaks_a_rule_is_in_quarantine_once_however_often_bronze_is_taken(job: Shop) -> None:
    set_in(job, "defaults", "quality", to={"ranges": {"price": [2, None]}, "quarantined_share_max": 1.0})
    job.put("shop/orders/20261101-000000003.csv", f"{HEAD}I,3,1.00,13\nI,4,1.50,14\n")
    assert job.run().tables[0].refined.quarantined == 2
    first = len(job.rows("aside"))
    told = [Pipeline(job.config).replay([NAME]).tables[0].refined.quarantined for _ in range(2)]
    assert Pipeline(job.config).reset([NAME]).ok
    assert (first, told) == (2, [2, 0]), "rows of before the rule are new to quarantine, once"
    assert len(job.rows("aside")) == 4


# --- from a time on -------------------------------------------------------------------------------------
def set_clock(job: Shop, version: int, ms: int | None) -> None:
    """What the writer of a version of bronze said of the time; None: it said nothing."""
    path = job.folder / f"bronze/orders/_delta_log/{version:020}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = ms
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize("last_ms", [1000, None])
def test_a_replay_from_a_time_goes_past_a_commit_whose_clock_was_behind(
    job: Shop, last_ms: int | None
) -> None:
    for version, ms in enumerate((0, 100_000, last_ms)):
        set_clock(job, version, ms)
    deltalake.DeltaTable(str(job.folder / "silver/orders")).delete()
    since = dt.datetime.fromtimestamp(100, dt.UTC)
    (one,) = Pipeline(job.config).replay([NAME], since=since).tables
    assert (one.error, one.refined.rows, sorted(job.silver())) == (None, 2, [1, 2])


def test_the_same_of_snapshots_of_iceberg() -> None:
    """Of snapshots made at 10, 50 and 40 all from 45 on are those of 50 and what came after it."""

    class History:
        """A table whose first snapshot has expired."""

        uri = "b"

        def history(self, limit: int) -> list[Any]:
            at = [dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (40, 50, 10)]
            return [
                SimpleNamespace(version=number, timestamp=one)
                for number, one in zip((3, 2, 1), at, strict=True)
            ]

        def added_since(self, position: int) -> list[Any]:
            if position < 1:
                raise HistoryGapError("it has expired")
            return [SimpleNamespace(version=one) for one in range(position + 1, 4)]

    lineage = Lineage("shop.orders", cast("Any", History()), None, "replay")
    assert [one.version for one in lineage.from_time(45)] == [2, 3]
    assert lineage.from_time(51) == []
    with pytest.raises(BronzeGapError, match="no longer goes back"):
        lineage.from_time(10)


def test_of_a_long_history_so_much_is_read_as_the_time_asks_for(
    job: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_module, "_LOOKED_AT", 1)
    for version, ms in enumerate((0, 200_000_000, 400_000_000)):
        set_clock(job, version, ms)
    lineage = Pipeline(job.config).job(NAME).lineage
    lineage.look()
    for since_ms, versions in ((0, [1, 2]), (200_000_000, [1, 2]), (300_000_000, [2]), (400_000_001, [])):
        assert [one.version for one in lineage.from_time(since_ms)] == versions
