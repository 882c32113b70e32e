"""Bronze in Iceberg calls the path of a row's file ``_raw_file``: Iceberg keeps ``_file``, which earlier releases made (T4-C1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.iceberg.catalog.safe_catalog import CommitStateUnknownError, NotLandedError, SafeCatalog
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit.quarantine import Quarantine
from safewrite.medallion.config import stored_names
from safewrite.medallion.config.job import load
from safewrite.medallion.tables import job as tables
from safewrite.medallion.tables.engine import by_executors
from safewrite.values import kept_names
from tests.medallion.test_evolution import put, shop
from tests.medallion.test_jobs import HEAD, Shop, set_in
from tests.medallion.test_silver_tasks import Sent

OF_EARLIER = "_file"
OF_NOW = "_raw_file"


@contextmanager
def earlier_release() -> Iterator[None]:
    """What is done within is done as before the column had another name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_names, "STORED_FILE", OF_EARLIER)
        patch.setattr(tables, "rename_file_column", lambda table, name: None)
        patch.setattr(kept_names, "ICEBERG", kept_names.ICEBERG - {OF_EARLIER})
        yield


def iceberg(job: Shop, name: str = "bronze.orders") -> Any:
    return load_catalog("default", **job.config["catalog"]).load_table(name)


def columns(job: Shop) -> dict[str, int]:
    return {one.name: one.field_id for one in iceberg(job).schema().fields}


def paths(job: Shop) -> set[str]:
    return {*iceberg(job).scan().to_arrow()[OF_NOW].to_pylist()}


def silver(job: Shop) -> dict[Any, str]:
    return {
        row["id"]: str(row["price"]) for row in iceberg(job, "silver.orders").scan().to_arrow().to_pylist()
    }


def flaws(job: Shop) -> list[str]:
    return [*filter(None, (text for one in verify(Pipeline(job.config)) for text in [*one.flaws, one.error]))]


@pytest.fixture
def job(tmp_path: Path) -> Shop:
    """Bronze and silver of an earlier release, whose last run was killed between bronze's commit and silver's."""
    job = shop(tmp_path, "iceberg")
    set_in(job, "defaults", "restarted_load", to="fold")
    job.put("shop/orders/LOAD00000001.csv", HEAD + "I,1,1.00,1\nI,2,2.00,2\nI,x,2.00,2\n")
    set_in(job, "defaults", "files", to=job.config["defaults"]["files"] | {"op_in_full_load": True})
    put(job, 1, HEAD + "U,1,1.50,10\n")
    with earlier_release():
        assert job.run().ok
        put(job, 2, HEAD + "U,2,2.50,20\nI,3,3.00,21\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("safewrite.medallion.pipeline.Pipeline._refine", _killed)
            with pytest.raises(KeyboardInterrupt):
                job.run()
    assert OF_EARLIER in columns(job)
    return job


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_new_bronze_has_no_name_that_iceberg_keeps(tmp_path: Path) -> None:
    job = shop(tmp_path, "iceberg")
    put(job, 1, HEAD + "U,1,1.50,10\n")
    assert job.run().ok
    for layer in ("bronze.orders", "silver.orders"):
        assert kept_names.among(iceberg(job, layer).schema().column_names, kept_names.ICEBERG) == []
    assert paths(job) == {"shop/orders/20261101-000001000.csv"}
    assert flaws(job) == []


def test_a_bronze_of_an_earlier_release_is_renamed_by_id_and_goes_on(job: Shop) -> None:
    """Commits from before and after the rename are read, followed, replayed and compared."""
    before = columns(job)
    put(job, 3, HEAD + "D,1,,30\nI,4,4.00,31\n")
    assert job.run().ok
    assert columns(job)[OF_NOW] == before[OF_EARLIER]
    assert OF_EARLIER not in columns(job)
    assert silver(job) == {2: "2.50", 3: "3.00", 4: "4.00"}
    assert len(paths(job)) == 4
    assert flaws(job) == []
    for again in (Pipeline(job.config).replay, Pipeline(job.config).reset):
        run = again(["shop.orders"])
        assert run.ok, run.tables[0].error
        assert run.tables[0].landed.rows == 0
    assert silver(job) == {2: "2.50", 3: "3.00", 4: "4.00"}
    versions = len(iceberg(job).metadata.schemas)
    assert job.run().tables[0].news is False
    assert len(iceberg(job).metadata.schemas) == versions


def test_a_run_without_new_files_leads_over_once_and_the_next_asks_little(job: Shop) -> None:
    with earlier_release():
        assert job.run().ok
        assert job.run().tables[0].news is False
    assert job.run().ok
    assert OF_NOW in columns(job)
    assert job.run().tables[0].news is False


@pytest.mark.long
def test_files_that_the_earlier_release_landed_are_known_though_state_is_lost(job: Shop) -> None:
    """Their keys have fingerprints with the old name."""
    for one in (job.folder / "state").rglob("*.json"):
        one.unlink()
    assert job.run().ok
    assert silver(job) == {1: "1.50", 2: "2.50", 3: "3.00"}
    assert iceberg(job).scan().to_arrow().num_rows == 5
    assert flaws(job) == []


@pytest.mark.long
def test_rows_that_were_removed_from_the_earlier_bronze_come_again(job: Shop) -> None:
    """The commit that brought them is of the old name, and is read by field id."""
    assert job.run().ok
    iceberg(job).delete(f"{OF_NOW} = 'shop/orders/20261101-000002000.csv'")
    run = Pipeline(job.config).replay(["shop.orders"])
    assert run.ok, run.tables[0].error
    assert run.tables[0].landed.rows == 2
    assert flaws(job) == []


def test_commands_that_only_read_take_either_name_and_rename_nothing(job: Shop) -> None:
    with earlier_release():
        assert job.run().ok
    was = iceberg(job).metadata_location
    assert flaws(job) == []
    pipeline = Pipeline(job.config)
    assert [one.name for one in Quarantine(pipeline).find()] == ["shop/orders/LOAD00000001.csv#3"]
    pipeline.places.work = by_executors(Sent())
    assert [one.clean for one in verify(pipeline)] == [True]
    assert iceberg(job).metadata_location == was


@pytest.mark.sweep("error1")
@pytest.mark.parametrize(
    ("error", "lands"),
    [
        (NotLandedError("Lost the race."), False),
        (CommitStateUnknownError("No answer."), True),
        pytest.param(CommitStateUnknownError("No answer."), False, marks=pytest.mark.long),
    ],
)
def test_a_rename_whose_answer_is_lost_is_looked_for(
    job: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception, lands: bool
) -> None:
    """One that may have landed is not sent twice by one run; the next run goes on."""
    commit, asked = SafeCatalog.commit_table, list[object]()

    def failing(self: SafeCatalog, table: Any, *given: Any) -> Any:
        is_first = not asked
        asked.append(table)
        if lands or not is_first:
            found = commit(self, table, *given)
            return found if not is_first else _raise(error)
        return _raise(error)

    monkeypatch.setattr(SafeCatalog, "commit_table", failing)
    run = job.run()
    assert run.ok is (lands or isinstance(error, NotLandedError))
    assert job.run().ok
    assert silver(job) == {1: "1.50", 2: "2.50", 3: "3.00"}
    assert len(iceberg(job).metadata.schemas) == 2
    assert flaws(job) == []


def _raise(error: Exception) -> None:
    raise error


def test_an_earlier_release_refuses_a_bronze_that_was_led_over(job: Shop) -> None:
    """Also a run that opened bronze before: nothing comes into a wrong column."""
    stale = sw.open("bronze.orders", catalog=job.config["catalog"])
    rows = stale.rows(where="id = 1").slice(0, 1)
    assert job.run().ok
    with pytest.raises(sw.WouldAlterError, match=f"'{OF_EARLIER}': not in the table"):
        stale.append(rows)
    put(job, 3, HEAD + "I,9,9.00,90\n")
    with earlier_release():
        run = job.run()
    assert f"called {OF_NOW} now" in str(
        run.tables[0].error
    )  # where a release does not look at names of before: not declared
    assert 9 not in silver(job)


@pytest.mark.parametrize("name", [OF_NOW, "_RAW_FILE"])
def test_a_column_of_the_source_under_the_new_name_is_refused_on_iceberg_alone(
    tmp_path: Path, name: str
) -> None:
    config = shop(tmp_path, "iceberg", {"id": "int64", name: "string"}).config
    with pytest.raises(sw.InvalidInputError, match=f"'{name}'.*bronze needs for itself"):
        load(config)


@pytest.mark.sweep("_RAW_FILE")
@pytest.mark.parametrize("name", [OF_NOW, "_RAW_FILE"])
def test_a_delta_bronze_may_have_it(tmp_path: Path, name: str) -> None:
    job = shop(tmp_path, "delta", {"id": "int64", name: "string"})
    set_in(job, "defaults", "keys", to=[name])
    job.put("shop/orders/LOAD00000001.csv", f"Op,id,{name},seq\nI,1,a,1\n")
    put(job, 1, f"Op,id,{name},seq\nU,2,a,5\nI,x,b,6\n")
    set_in(job, "defaults", "files", to=job.config["defaults"]["files"] | {"op_in_full_load": True})
    assert job.run().ok
    assert flaws(job) == []
    assert len(Quarantine(Pipeline(job.config)).find()) == 1


def test_an_earlier_bronze_with_a_column_of_the_new_name_is_refused_before_anything_is_written(
    job: Shop,
) -> None:
    with iceberg(job).update_schema() as update:
        update.rename_column("price", "_Raw_File")
    run = job.run()
    assert "has a column '_Raw_File' of the source" in str(run.tables[0].error)
    assert OF_EARLIER in columns(job)
