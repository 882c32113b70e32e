"""Full loads that come again with a content that bronze has: from an earlier load, or under a new epoch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

import safewrite as sw
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.bronze import landing
from tests.medallion.test_jobs import HEAD, Shop, set_in

START_S = 1_790_000_000


@pytest.fixture
def job(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    set_in(made, "defaults", "restarted_load", to="fold")
    return made


def load(job: Shop, number: int, rows: str, *, day: int) -> Path:
    path = job.folder / f"raw/shop/orders/LOAD{number:08X}.csv"
    job.put(str(path.relative_to(job.folder / "raw")), f"id,price\n{rows}")
    os.utime(path, (START_S + 86400 * day,) * 2)
    return path


def new_task(job: Shop, reload: str = "truncate") -> None:
    job.config["tables"]["shop.orders"] |= {"epoch": 2, "reload": reload}


def forget(job: Shop) -> None:
    shutil.rmtree(job.folder / "state")


def take_note(job: Shop) -> None:
    """A run that has something to do forgets files that were taken away."""
    path = load(job, 255, "", day=0)
    assert job.run().ok
    path.unlink()


def flaws(job: Shop) -> list[str]:
    return [flaw for audit in verify(Pipeline(job.config)) for flaw in audit.flaws]


def nothing(job: Shop) -> None:
    pass


@pytest.mark.sweep("forget")
@pytest.mark.parametrize("between", [nothing, forget])
def test_the_third_load_wins_with_the_content_of_the_first(
    job: Shop, between: Callable[[Shop], None]
) -> None:
    for day, price in enumerate(("1.00", "1.50", "1.00", "1.50", "1.00")):
        load(job, 1, f"1,{price}\n", day=day)
        if day:
            assert any("not landed" in flaw for flaw in flaws(job))
        between(job) if day else None
        assert job.run().ok
        assert job.silver() == {1: price}
        assert flaws(job) == []
        assert job.run().tables[0].news is False


@pytest.mark.long
def test_the_third_load_wins_though_its_file_was_taken_away_in_between(job: Shop) -> None:
    for day, price in enumerate(("1.00", "1.50", "1.00")):
        path = load(job, 1, f"1,{price}\n", day=day)
        assert job.run().ok
        assert (job.silver(), flaws(job)) == ({1: price}, [])
        path.unlink()
        take_note(job)


@pytest.mark.long
def test_a_content_from_before_its_file_was_taken_away_lands_once_more_alone(job: Shop) -> None:
    for day, price in enumerate(("1.00", "1.50")):
        path = load(job, 1, f"1,{price}\n", day=day)
        job.run()
    path.unlink()
    take_note(job)
    for day, price in enumerate(("2.00", "1.00", "2.00"), start=2):
        load(job, 1, f"1,{price}\n", day=day)
        assert job.run().ok
        assert (job.silver(), flaws(job)) == ({1: price}, [])


def test_a_listing_from_before_the_second_load_brings_nothing_back(job: Shop) -> None:
    load(job, 1, "1,1.00\n", day=0)
    job.run()
    load(job, 1, "1,1.50\n", day=2)
    job.run()
    load(job, 1, "1,1.00\n", day=1)
    job.run()
    assert job.silver() == {1: "1.50"}


@pytest.mark.sweep("truncate-forget", "keep-forget")
@pytest.mark.parametrize("between", [nothing, forget])
@pytest.mark.parametrize("reload", ["truncate", "keep"])
def test_a_new_task_loads_a_file_that_is_as_it_was(
    job: Shop, reload: str, between: Callable[[Shop], None]
) -> None:
    """Else a truncate of the new epoch takes the rows of all files that did not change."""
    load(job, 1, "1,1.00\n", day=0)
    load(job, 2, "2,1.00\n", day=0)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,2,7.00,1\n")
    job.run()
    new_task(job, reload)
    load(job, 1, "1,1.00\n3,1.00\n", day=1)
    load(job, 2, "2,1.00\n", day=1)
    between(job)
    assert job.run().ok
    assert job.silver() == {1: "1.00", 2: "1.00", 3: "1.00"}
    assert flaws(job) == []
    assert job.run().tables[0].news is False


def test_a_new_task_loads_a_file_that_was_taken_away_and_is_as_it_was(job: Shop) -> None:
    load(job, 1, "1,1.00\n", day=0)
    load(job, 2, "2,1.00\n", day=0)
    job.run()
    shutil.rmtree(job.folder / "raw/shop")
    take_note(job)
    new_task(job)
    load(job, 1, "1,1.00\n3,1.00\n", day=1)
    load(job, 2, "2,1.00\n", day=1)
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "1.00", 2: "1.00", 3: "1.00"}, [])


@pytest.mark.parametrize("taken_away", [False, True])
def test_without_fold_a_new_task_whose_file_is_as_it_was_is_refused(job: Shop, taken_away: bool) -> None:
    set_in(job, "defaults", "restarted_load", to="raise")
    load(job, 2, "2,1.00\n", day=0)
    job.run()
    if taken_away:
        shutil.rmtree(job.folder / "raw/shop")
        take_note(job)
    new_task(job)
    load(job, 2, "2,1.00\n", day=1)
    (run,) = job.run().tables
    assert run.error_kind == "replay_mismatch"
    assert "written again since bronze took the same rows" in str(run.error)
    assert job.silver() == {2: "1.00"}


def test_files_of_the_last_load_that_lie_there_still_are_none_of_the_new_tasks(job: Shop) -> None:
    load(job, 1, "1,1.00\n", day=0)
    load(job, 2, "2,1.00\n", day=0)
    job.run()
    new_task(job)
    load(job, 1, "1,1.50\n", day=1)
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "1.50"}, [])


@pytest.mark.sweep("forget")
@pytest.mark.parametrize("between", [nothing, forget])
def test_a_file_that_was_written_again_as_it_was_is_known_and_is_none_of_a_later_task(
    job: Shop, between: Callable[[Shop], None]
) -> None:
    load(job, 1, "1,1.00\n", day=0)
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,1,7.00,1\n")
    job.run()
    load(job, 1, "1,1.00\n", day=1)
    assert job.run().tables[0].landed.rows == 0
    assert job.run().tables[0].news is False
    new_task(job, "keep")
    between(job)
    assert job.run().tables[0].landed.rows == 0
    assert (job.silver(), flaws(job)) == ({1: "7.00"}, [])


@pytest.mark.sweep("a part")
@pytest.mark.parametrize("how", ["all", "a part"])
def test_rows_that_are_put_back_have_the_epoch_that_they_had(job: Shop, how: str) -> None:
    """Else changes of the last task win over those of the new one, which count from the start."""
    load(job, 1, "5,1.00\n6,1.00\n", day=0)
    job.run()
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,5,7.00,500\nU,6,7.00,501\n")
    job.run()
    new_task(job, "keep")
    job.put("shop/orders/20261102-000000001.csv", HEAD + "U,5,8.00,1\nU,6,8.00,2\n")
    job.run()
    load(job, 1, "5,1.00\n6,1.00\n", day=0)
    bronze = deltalake.DeltaTable(str(job.folder / "bronze/orders"))
    bronze.delete("_epoch = 1" if how == "all" else "_epoch = 1 AND id = 5")
    before = Pipeline(job.config).run().tables[0]
    assert before.error_kind == "conflict" or how == "all"
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    shutil.rmtree(job.folder / "silver")
    Pipeline(job.config).reset(["shop.orders"])
    assert job.silver() == {5: "8.00", 6: "8.00"}
    assert flaws(job) == []


def test_rows_of_which_nothing_tells_their_epoch_are_not_put_back(job: Shop) -> None:
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,5,7.00,500\n")
    job.run()
    new_task(job, "keep")
    job.put("shop/orders/20261102-000000001.csv", HEAD + "U,5,8.00,1\n")
    job.run()
    bronze = deltalake.DeltaTable(str(job.folder / "bronze/orders"))
    bronze.delete("_epoch = 1")
    for file in (job.folder / "bronze/orders").glob("*.parquet"):
        if str(file.name) not in {Path(uri).name for uri in bronze.file_uris()}:
            file.unlink()
    (run,) = Pipeline(job.config).replay(["shop.orders"]).tables
    assert "of epoch 2 or of one before" in str(run.error)
    job.config["tables"]["shop.orders"] |= {"epoch": 1, "reload": None}
    assert Pipeline(job.config).replay(["shop.orders"]).ok
    new_task(job, "keep")
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({5: "8.00"}, [])


@pytest.mark.long
def test_a_reset_takes_each_load_as_it_was_taken_when_it_came(job: Shop) -> None:
    """Row 2 was gone with the load of epoch 2; that of epoch 3 keeps what is there."""
    load(job, 1, "1,1.00\n2,1.00\n", day=0)
    job.run()
    new_task(job, "truncate")
    load(job, 1, "1,1.00\n", day=1)
    job.run()
    assert job.silver() == {1: "1.00"}
    job.config["tables"]["shop.orders"] |= {"epoch": 3, "reload": "keep"}
    load(job, 1, "4,4.00\n", day=2)
    assert job.run().ok
    assert job.silver() == {1: "1.00", 4: "4.00"}
    (audit,) = verify(Pipeline(job.config))
    assert '"reload": {"2": "truncate or keep", "3": "keep"}' in str(audit.error)
    (run,) = Pipeline(job.config).reset(["shop.orders"]).tables
    assert "epochs [2]" in str(run.error)
    assert job.silver() == {1: "1.00", 4: "4.00"}
    job.config["tables"]["shop.orders"] |= {"reload": {"2": "truncate", "3": "keep"}}
    assert flaws(job) == []
    assert Pipeline(job.config).reset(["shop.orders"]).ok
    assert (job.silver(), flaws(job)) == ({1: "1.00", 4: "4.00"}, [])


def test_a_new_epoch_needs_a_word_of_its_own(job: Shop) -> None:
    job.config["tables"]["shop.orders"] |= {"epoch": 3, "reload": {"2": "keep"}}
    with pytest.raises(sw.InvalidInputError, match="reload: from epoch 2 on say"):
        Pipeline(job.config)


@pytest.mark.sweep("forget")
@pytest.mark.parametrize("between", [nothing, forget])
def test_a_configuration_of_an_earlier_task_lands_nothing(job: Shop, between: Callable[[Shop], None]) -> None:
    """It was set back, or runs elsewhere still: what it lands is older than all, and silver passes over it."""
    load(job, 1, "1,1.00\n", day=0)
    job.run()
    new_task(job)
    load(job, 1, "1,5.00\n", day=1)
    job.run()
    shutil.rmtree(job.folder / "raw/shop")
    job.put("shop/orders/20261105-000000001.csv", HEAD + "U,1,7.00,9\n")
    between(job)
    now, before = dict(job.config["tables"]["shop.orders"]), {"epoch": 1, "reload": None}
    job.config["tables"]["shop.orders"] |= before
    for run in (job.run, lambda: Pipeline(job.config).replay(["shop.orders"])):
        (table,) = run().tables
        assert "says epoch 1, and bronze has files of epoch 2" in str(table.error)
        assert "20261105-000000001.csv would be older" in str(table.error)
    assert (job.silver(), table.landed.rows) == ({1: "5.00"}, 0)
    job.config["tables"]["shop.orders"] = now
    assert job.run().ok
    assert (job.silver(), flaws(job)) == ({1: "7.00"}, [])
    job.config["tables"]["shop.orders"] |= before
    assert job.run().ok  # nothing is new


def test_a_run_of_an_earlier_configuration_stops_once_a_later_one_has_landed(
    job: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(job, 1, "1,1.00\n", day=0)
    job.run()
    job.put("shop/orders/20261101-000000001.csv", HEAD + "U,1,2.00,1\n")
    job.put("shop/orders/20261102-000000001.csv", HEAD + "U,1,7.00,9\n")
    before, land_group = Pipeline(job.config), landing._land_group
    monkeypatch.setattr(landing, "FILES_MAX", 1)

    def meanwhile(*given: Any) -> None:
        monkeypatch.setattr(landing, "_land_group", land_group)
        land_group(*given)
        (job.folder / "raw/shop/orders/20261102-000000001.csv").rename(job.folder / "later.csv")
        new_task(job)
        load(job, 1, "1,5.00\n", day=1)
        assert job.run().ok

    monkeypatch.setattr(landing, "_land_group", meanwhile)
    (run,) = before.run().tables
    assert "says epoch 1, and bronze has files of epoch 2" in str(run.error)
    assert "20261102-000000001.csv would be older" in str(run.error)
    assert job.silver() == {1: "5.00"}
