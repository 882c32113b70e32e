"""Silver equals the truth of a source whose files come late, twice, out of order, overwritten and begun again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.medallion.harness import Harness, lab
from safewrite.medallion import Pipeline, Run

FORMATS = ("delta", "iceberg")


def tell_the_whole_story(job: Harness) -> None:
    """All that DMS and its operators do to files, with a look at silver after each."""
    job.begin(loads=3)  # a full load that is begun again, with what is there by then
    job.run()
    job.go_on()
    job.run()
    for table in job.tables:
        job.dms.deliver_held(table)
        job.dms.deliver_again(table)
    job.run()
    assert job.wrong() == {}
    for table in job.tables:  # a table that is loaded anew within its task
        job.dms.load(table)
    assert {one.error_kind for one in Pipeline(job.config).run().tables} == {"replay_mismatch"}
    job.dms.new_task()  # of most tables a file of the load is as it was
    job.run()
    assert job.wrong() == {}
    job.go_on()
    job.run()
    assert job.wrong() == {}
    overwritten = {job.dms.overwrite(table) for table in job.tables}
    run = job.run()
    assert {path for one in run.tables for path in one.landed.overwritten} == overwritten
    assert sum(one.landed.quarantined for one in run.tables) == len(job.tables)
    quiet = job.run()
    assert [one.news for one in quiet.tables] == [False] * len(job.tables)
    assert job.wrong() == {}
    assert job.flaws() == []


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_silver_equals_the_truth_in_every_value(table_format: str, tmp_path: Path) -> None:
    tell_the_whole_story(lab(tmp_path, table_format, tables=3))


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("seed", range(2, 5))
def test_silver_equals_the_truth_of_eighty_tables(table_format: str, seed: int, tmp_path: Path) -> None:
    tell_the_whole_story(lab(tmp_path, table_format, tables=80, seed=seed))


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_each_row_of_bronze_is_accounted_for_in_silver(table_format: str, tmp_path: Path) -> None:
    job = lab(tmp_path, table_format, tables=4)
    job.begin()
    taken = [one.refined for one in job.run().tables]
    job.go_on()
    taken += [one.refined for one in job.run().tables]
    assert sum(sum(one.changes.values()) for one in taken) == sum(one.rows + one.split for one in taken)
    assert sum(one.rows for one in taken) == sum(job.read("bronze", name).num_rows for name in job.dms.tables)
    assert sum(one.split for one in taken) > 0


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_what_was_remembered_may_be_lost(table_format: str, tmp_path: Path) -> None:
    """The state folder saves requests; bronze itself tells which files it has."""
    job = lab(tmp_path, table_format, tables=2)
    job.begin()
    job.run()
    before = {name: job.read("bronze", name).num_rows for name in job.dms.tables}
    for path in (tmp_path / "state" / "shop").iterdir():
        path.unlink()
    assert [one.landed.rows for one in job.run().tables] == [0, 0]
    assert {name: job.read("bronze", name).num_rows for name in job.dms.tables} == before
    (tmp_path / "state" / "shop" / "shop.t00.json").write_text('{"format": 1, "files": [')
    assert job.run().ok
    assert job.flaws() == []


def test_a_file_that_was_overwritten_raises_and_stops_its_table_alone(tmp_path: Path) -> None:
    job = lab(tmp_path, "delta", tables=2, defaults={"on_overwritten": "raise"})
    job.begin()
    job.go_on()
    job.run()
    first, second = job.tables
    path = job.dms.overwrite(first)
    job.dms.change(second, 5)
    job.dms.flush(second)

    run = Pipeline(job.config).run()
    assert not run.ok
    assert [one.error_kind for one in run.tables] == ["replay_mismatch", None]
    assert path in str(run.tables[0].error)
    assert run.tables[1].landed.rows > 0
    (job.dms.root / path).write_bytes(first.written[path])  # the first content comes back
    for table in job.tables:
        job.dms.deliver_held(table)
    job.run()
    assert job.wrong() == {}


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
def test_runs_and_replays_of_one_pipeline_may_meet_in_threads(table_format: str, tmp_path: Path) -> None:
    """Where one of them is told that another moved silver first, the next run finds all done."""
    job = lab(tmp_path, table_format, tables=2)
    job.begin()
    job.run()
    job.go_on()
    for table in job.tables:
        job.dms.deliver_held(table)
    pipeline = Pipeline(job.config)
    start = threading.Barrier(3)

    def one(replays: bool) -> Run:
        start.wait()
        return pipeline.replay(list(job.dms.tables)) if replays else pipeline.run()

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(one, (False, False, True)))
    told = {table.error_kind for run in runs for table in run.tables}
    assert told <= {None, "position_moved"}, [table.error for run in runs for table in run.tables]
    job.run()
    assert job.wrong() == {}
    assert job.flaws() == []
