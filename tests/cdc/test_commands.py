"""``safewrite cdc``: what an operator sees of a job."""

from __future__ import annotations

import json
import shutil
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from safewrite.cdc import Pipeline
from safewrite.cli.app import app
from tests.cdc.events import record
from tests.cdc.jobs import Job, change
from tests.metrics.test_metrics import Meter


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, [{"table": "a"}], request.param)


def run(job: Job, *arguments: str) -> Result:
    file = job.folder / "job.json"
    file.write_text(job.landing().config.model_dump_json())
    return CliRunner().invoke(app, ["cdc", *arguments, "--config", str(file)])


def answer(job: Job, *arguments: str) -> Any:
    found = run(job, *arguments, "--output", "json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.sweep("iceberg")
def test_verify_of_a_job_that_has_no_ledger_where_it_looks_is_not_good_news(job: Job) -> None:
    found = run(job, "verify")
    assert (found.exit_code, "no batch of the job 'job'" in found.stderr) == (2, True)
    job.land(record(b"?", offset=0))
    file = job.folder / "job.json"
    assert run(job, "verify").exit_code == 0
    file.write_text(file.read_text().replace('"job":"job"', '"job":"other"'))
    found = CliRunner().invoke(app, ["cdc", "verify", "--config", str(file)])
    assert found.exit_code == 2


@pytest.mark.sweep("iceberg")
def test_verify_adds_the_ledger_up(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0), record(b"?", offset=1))
    job.land(change("d", "a", 1, None, lsn=2, offset=2), record(None, {"id": 1}, offset=3), number=1)
    told = answer(job, "verify")
    assert told["batches"] == 2
    assert told["faults"] == []
    assert [
        (one["table"], one["records"], one["dead"], one["ignored"], one["applied"]) for one in told["tables"]
    ] == [
        (None, 2, 1, 1, 0),
        ("db.a", 2, 0, 0, 2),
    ]
    assert "Every record of 2 batches is accounted for" in run(job, "verify").stdout


@pytest.mark.sweep("iceberg")
def test_verify_names_what_is_missing_and_exits_with_1(job: Job) -> None:
    """A ledger of which a batch, and a dead letter, was deleted."""
    for offset in range(3):
        job.land(record(b"?", offset=offset), number=offset)
    landing = job.landing()
    ledger, letters = landing.targets.find(landing.ledger.table), landing.targets.find(landing.ledger.letters)
    assert ledger is not None
    assert letters is not None
    ledger.delete([("batch", "=", 1)])
    letters.delete([("offset", ">=", 1)])
    found = run(job, "verify", "--output", "json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert told["faults"] == [
        "topic/0: offsets 1 to 2 are in no batch",
        "2 records are told as dead letters, and 1 are kept",
    ]


@pytest.mark.sweep("iceberg")
def test_check_and_schema_read_nothing(job: Job) -> None:
    assert answer(job, "check") == {
        "job": "job",
        "tables": [{"table": "db.a", "source": "a", "format": job.form}],
    }
    assert "db.a" in run(job, "check").stdout
    assert json.loads(CliRunner().invoke(app, ["cdc", "schema"]).stdout)["title"] == "Config"
    assert not (job.folder / "cdc").exists()


def test_a_fault_of_the_configuration_exits_with_2(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"job": 1}')
    for command in ("check", "verify", "run"):
        found = CliRunner().invoke(app, ["cdc", command, "--config", str(file)])
        assert found.exit_code == 2, found.output
        assert "job: Input should be a valid string" in found.output


@pytest.mark.sweep("iceberg")
def test_restart_is_for_tables_that_the_job_landed(job: Job) -> None:
    found = run(job, "restart", "--table", "db.a")
    assert found.exit_code == 2
    assert "landed no rows" in found.output
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    assert answer(job, "restart", "--table", "db.a") == {"restarted": "db.a"}
    assert run(job, "restart", "--table", "db.a").exit_code == 2


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("options", [(), ("--emf",), ("--otel",), ("--emf", "--otel", "--namespace", "lake")])
def test_run_makes_metrics_where_they_are_asked_for(
    job: Job, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """The stream is one batch that is landed by hand; the rest is the command's."""
    meter = Meter()

    def start(pipeline: Pipeline, _: object) -> Any:
        pipeline.landing.land(job.batch([change("c", "a", 1, {"id": 1}, lsn=1, offset=0)]))
        return types.SimpleNamespace(awaitTermination=lambda timeout: True)

    monkeypatch.setattr(Pipeline, "start", start)
    monkeypatch.setattr("safewrite.cdc.kafka.session.session", lambda *_: None)
    monkeypatch.setattr("safewrite.metrics.telemetry._global_meter", lambda: meter)
    found = run(job, "run", *options)
    assert found.exit_code == 0, found.output
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    of_batches = [line for line in lines if line["kind"] == "table_batch"]
    assert [line["ChangesApplied"] for line in of_batches] == ([1] if "--emf" in options else [])
    namespaces = {one["Namespace"] for line in lines for one in line["_aws"]["CloudWatchMetrics"]}
    assert {line["Job"] for line in lines} == ({"job"} if "--emf" in options else set())
    assert namespaces == ({"lake" if "lake" in options else "safewrite"} if "--emf" in options else set())
    assert ("safewrite.cdc.applied" in {name for name, _, _ in meter.seen}) is ("--otel" in options)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("named", [True, False], ids=["named", "made unasked"])
def test_verify_says_that_a_table_is_gone(job: Job, named: bool) -> None:
    """T4-B7: the ledger added up, and the rows were not there; also where the catalog still has the table."""
    if not named:
        job.tables.clear()
        job.settings |= {
            "unknown_tables": "create",
            "unknown_database": "db",
            "defaults": {"format": job.form},
        }
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    assert answer(job, "verify")["faults"] == []
    name = "a" if named else "public_a"
    shutil.rmtree(job.folder / ("db" if job.form == "delta" else "lake/db") / name)
    found = run(job, "verify", "--output", "json")
    assert found.exit_code == 1
    (fault,) = json.loads(found.stdout)["faults"]
    assert (
        f"landed rows in db.{name}" in fault or f"The table db.{name}, in which the job landed rows" in fault
    )
