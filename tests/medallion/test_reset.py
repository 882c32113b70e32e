"""Silver is rebuilt from bronze, or takes bronze again from a time on, by commands that are safe while a job runs."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import safewrite as sw
from bench.medallion.harness import Harness, lab
from safewrite.cli.app import app
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.silver import apply

NAME = "shop.t00"


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    made = lab(tmp_path, request.param)
    made.begin()
    for table in made.tables:
        made.dms.deliver_held(table)
    made.run()
    return made


def silver(job: Harness) -> sw.Table:
    return sw.open(
        job.address("silver", NAME), catalog=job.catalog if job.table_format == "iceberg" else None
    )


def command(job: Harness, *arguments: str) -> Any:
    return CliRunner().invoke(
        app, ["medallion", arguments[0], "--config", str(job.write_config()), "--table", NAME, *arguments[1:]]
    )


def spoil(job: Harness) -> None:
    """As a bad rule or a by-hand repair does: replays pass over what they think that silver has."""
    first = job.read("silver", NAME).slice(0, 1).to_pylist()[0]
    wrong = {**first, "_epoch": 99, "name": "wrong"}
    keys = Pipeline(job.config).config.tables[NAME].keys
    silver(job).apply_changes([wrong], keys=keys, sequence_by=["_epoch", "_seq"])


@pytest.mark.sweep("iceberg")
def test_a_reset_makes_silver_what_bronze_says(job: Harness) -> None:
    spoil(job)
    assert job.wrong()
    assert Pipeline(job.config).replay([NAME]).ok
    assert job.wrong(), "a replay passes over what is older"
    done = command(job, "reset")
    assert done.exit_code == 0, done.output
    assert job.wrong() == {}
    assert Pipeline(job.config).run().tables[0].refined.rows == 0
    job.go_on()
    job.run()
    assert job.wrong() == {}
    assert verify(Pipeline(job.config))[0].clean


@pytest.mark.sweep("iceberg")
def test_a_reset_that_breaks_off_is_ended_by_the_next_run(
    job: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.go_on()
    job.run()
    spoil(job)
    monkeypatch.setattr(apply, "ROWS_MAX", 1)  # a commit for each file of bronze
    own, begun = apply._apply, []

    def breaks_off(*given: Any) -> None:
        if begun:
            raise KeyboardInterrupt
        begun.append(given)
        own(*given)

    monkeypatch.setattr(apply, "_apply", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(job.config).reset([NAME])
    assert silver(job).positions()["reset"] == 1
    (audit,) = verify(Pipeline(job.config))
    assert audit.behind == audit.bronze_rows, "silver lacks rows, and says so"
    monkeypatch.setattr(apply, "_apply", own)
    assert Pipeline(job.config).run().ok
    assert (job.wrong(), silver(job).positions()["reset"]) == ({}, 2)
    assert Pipeline(job.config).reset([NAME]).ok
    assert (job.wrong(), silver(job).positions()["reset"]) == ({}, 4)


@pytest.mark.sweep("iceberg")
def test_a_run_that_ends_beside_a_reset_which_breaks_off_leaves_something_to_do(
    job: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has brought silver to bronze's head; then silver is half made, before the run notes that all is done."""
    job.go_on()
    own, refine, begun = apply._apply, Pipeline._refine, []

    def breaks_off(*given: Any) -> None:
        if begun:
            raise KeyboardInterrupt
        begun.append(given)
        own(*given)

    def beside(*given: Any) -> None:
        refine(*given)
        if not begun:
            with monkeypatch.context() as patch:
                patch.setattr(apply, "ROWS_MAX", 1)
                patch.setattr(apply, "_apply", breaks_off)
                with pytest.raises(KeyboardInterrupt):
                    Pipeline(job.config).reset([NAME])

    monkeypatch.setattr(Pipeline, "_refine", beside)
    assert Pipeline(job.config).run().ok
    assert silver(job).positions()["reset"] == 1
    assert Pipeline(job.config).run().ok
    assert (job.wrong(), silver(job).positions()["reset"]) == ({}, 2)


@pytest.mark.long
def test_a_run_beside_a_reset_harms_nothing(job: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run lands and takes what is new, once before the reset's first commit and once after it."""
    spoil(job)
    monkeypatch.setattr(apply, "ROWS_MAX", 1)
    own, calls = apply._apply, []

    def beside(*given: Any) -> None:
        calls.append(given)
        if len(calls) in {1, 3}:
            job.go_on()
            assert Pipeline(job.config).run().ok
        own(*given)

    monkeypatch.setattr(apply, "_apply", beside)
    assert Pipeline(job.config).reset([NAME]).ok
    monkeypatch.setattr(apply, "_apply", own)
    job.run()
    assert job.wrong() == {}
    assert verify(Pipeline(job.config))[0].clean


@pytest.mark.sweep("iceberg")
def test_a_replay_from_a_time_takes_what_came_since(job: Harness) -> None:
    time.sleep(0.002)  # the clock of the next commits is past this one
    since = dt.datetime.now(dt.UTC)
    before = job.read("bronze", NAME).num_rows
    job.go_on()
    job.run()
    (one,) = Pipeline(job.config).replay([NAME], since=since).tables
    assert one.refined.rows == job.read("bronze", NAME).num_rows - before > 0
    assert not one.refined.changes["inserted"]
    done = command(job, "replay", "--since", "2999-01-01", "--output", "json")
    assert (done.exit_code, '"rows": 0' in done.output) == (0, True), done.output
    done = command(job, "replay", "--since", "yesterday")
    assert done.exit_code == 2
    assert "ISO 8601" in done.output
    assert job.wrong() == {}
