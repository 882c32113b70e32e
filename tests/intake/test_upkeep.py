"""A job maintains its tables between batches: when they are due, within its share of the time, and no failure stops a batch."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite import cdc
from safewrite.cli.app import app
from safewrite.intake.upkeep import SAVED_S, START_S, Maintain, Upkeep
from safewrite.medallion import Pipeline
from safewrite.upkeep import workplace
from tests.cdc.jobs import Job, change
from tests.medallion.test_evolution import shop
from tests.medallion.test_jobs import HEAD
from tests.upkeep import elsewhere


@dataclass
class Stub:
    """A table whose maintenance takes a second by the clock of the test."""

    clock: list[float]
    version: int = 0
    calls: list[float] = field(default_factory=list)
    raises: Exception | None = None

    def maintain(self, *, budget_s: float, engine: object) -> Any:
        self.calls.append(budget_s)
        self.clock[0] += 1
        self.version += 1
        if self.raises is not None:
            raise self.raises
        return type("Report", (), {"groups": 1})()


def upkeep(clock: list[float], **settings: Any) -> tuple[Upkeep, list[sw.Event]]:
    events: list[sw.Event] = []
    return Upkeep(Maintain(**settings), events.append, lambda: clock[0]), events


def test_a_table_is_maintained_after_so_many_commits_and_its_neighbours_at_other_times() -> None:
    clock = [0.0]
    keeps, _ = upkeep(clock, every_commits=10, share=0.5)
    tables = {f"t{number}": Stub(clock) for number in range(30)}
    at_once = []
    for _ in range(100):
        clock[0] += 100
        for one in tables.values():
            one.version += 1
        at_once.append(len(keeps.keep(tables.items())))  # type: ignore[arg-type]
    assert max(at_once) < 15
    assert all(8 <= len(one.calls) <= 10 for one in tables.values())


def test_processes_that_see_one_commit_each_maintain_now_and_then() -> None:
    clock = [0.0]
    table = Stub(clock)
    for version in range(0, 2000, 2):  # each run commits twice
        table.version = version
        keeps, _ = upkeep(clock, every_commits=10)
        keeps.keep([("t", table)])  # type: ignore[list-item]
    assert 60 < len(table.calls) < 140


def test_upkeep_takes_its_share_of_the_time_and_saves_up_no_more_than_a_minute() -> None:
    clock = [0.0]
    keeps, _ = upkeep(clock, every_commits=1, share=0.1)
    table = Stub(clock, version=5)
    for _ in range(1000):  # a batch a second
        clock[0] += 1
        table.version += 1
        keeps.keep([("t", table)])  # type: ignore[list-item]
    assert 0.09 * clock[0] < len(table.calls) < 0.11 * clock[0] + START_S
    clock[0] += 10**6
    table.version += 1
    keeps.keep([("t", table)])  # type: ignore[list-item]
    assert table.calls[-1] == SAVED_S


def test_a_failure_is_said_once_counted_each_time_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    keeps, events = upkeep(clock, every_commits=1)
    table = Stub(clock, version=5, raises=sw.StorageError("No answer."))
    for _ in range(3):
        keeps.keep([("t", table)])  # type: ignore[list-item]
        table.version += 1
    assert [(one.kind, one.table, one.details["failed"]) for one in events] == [("upkeep", "t", 1)] * 3
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert said == ["upkeep: t was not maintained, and the job goes on: No answer."]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize(("form", "maintain"), [("delta", "off"), ("delta", "on"), ("iceberg", "on")])
def test_a_change_data_job_keeps_its_tables_and_its_ledger_in_shape(
    form: str, maintain: str, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    job = Job(tmp_path, [{"table": "a"}], form)
    landing = job.landing(maintain="off" if maintain == "off" else {"every_commits": 2, "share": 0.5})
    for number in range(6):
        row = {"id": number, "v": "x"}
        job.land(change("c", "a", number, row, lsn=number, offset=number), landing=landing, number=number)
    found = [landing.targets.seen(one) for one in (landing.ledger.table, landing.config.tables[0])]
    files = [one.maintain(dry_run=True).files_before for one in found if one is not None]
    assert max(files) < 5 if maintain == "on" else files == [6, 6]
    assert len(job.rows("a")) == 6
    assert job.verdict().faults == ()
    if maintain == "off":
        given = landing.config.model_dump(mode="json", exclude_defaults=True)
        done = cdc.Pipeline(json.dumps(given)).maintain()
        assert (done.ok, done.left, len(done.reports)) == (True, [], 2)
        assert all(one.files_after == 1 for one in done.reports.values())


@pytest.mark.parametrize(
    "table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.sweep("iceberg"))]
)
def test_a_medallion_job_keeps_bronze_and_silver_in_shape_and_its_next_run_has_no_news(
    table_format: str, tmp_path: Path
) -> None:
    job = shop(tmp_path, table_format)
    job.config["maintain"] = {"every_commits": 2, "share": 0.5}
    pipeline = Pipeline(job.config)
    told: list[sw.Event] = []
    pipeline.places.on_event = pipeline.upkeep.on_event = told.append
    for second in range(5):
        path = f"shop/orders/20261101-0000{second:02}000.csv"
        job.put(path, HEAD + f"I,{second},1.00,{second + 10}\n")
        run = pipeline.run()
        assert run.ok
        assert pipeline.run().tables[0].news is False
    kept = {one.table for one in told if one.kind == "upkeep" and one.details.get("groups")}
    assert len(kept) == 2
    (tmp_path / "job.json").write_text(json.dumps(job.config))
    command = ["maintain", "--config", str(tmp_path / "job.json"), "--output", "json"]
    done = CliRunner().invoke(app, command)
    found = json.loads(done.stdout)
    assert (done.exit_code, len(found["tables"]), found["failed"], found["left"]) == (0, 3, {}, [])
    left = json.loads(CliRunner().invoke(app, [*command, "--seconds", "0.000001"]).stdout)["left"]
    assert len(left) == 3
    assert len(job.silver()) == 5 if table_format == "delta" else True
    assert all("failed" not in one.details for one in told if one.kind == "upkeep")


# --- where -----------------------------------------------------------------------------------------------
def test_a_change_data_job_that_has_executors_lets_them_put_files_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on after one that failed: the next time a table is due its files are put together."""
    monkeypatch.setattr(workplace, "SMALL", 0)
    (tmp_path / "lake").mkdir()
    job = Job(tmp_path, [{"table": "a"}], "delta")
    landing = job.landing(maintain={"every_commits": 2, "share": 0.5})
    landing.upkeep.place = elsewhere.workplace(engine := elsewhere.Elsewhere(["before", "after"]))
    for number in range(8):
        row = {"id": number, "v": "x"}
        job.land(change("c", "a", number, row, lsn=number, offset=number), landing=landing, number=number)
    assert engine.jobs > 2
    found = landing.targets.seen(landing.config.tables[0])
    assert found is not None
    assert found.maintain(dry_run=True).files_before < 5
    assert len(job.rows("a")) == 8
    assert job.verdict().faults == ()


def test_a_medallion_job_lets_the_executors_of_its_engine_put_files_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workplace, "SMALL", 0)
    away = elsewhere.workplace(engine := elsewhere.Elsewhere()).executors
    monkeypatch.setattr("safewrite.engine.spark.executors_of", lambda *args, **more: away)
    job = shop(tmp_path, "delta")
    job.config["maintain"] = "off"
    pipeline = Pipeline(job.config, engine="spark")
    for second in range(2):
        job.put(f"shop/orders/20261101-0000{second:02}000.csv", HEAD + f"I,{second},1.00,{second + 10}\n")
        assert pipeline.run().ok
    landed = engine.jobs
    done = pipeline.maintain()
    assert (done.ok, engine.jobs > landed) == (True, True)
    assert len(job.silver()) == 2


def test_the_command_takes_the_name_of_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "SMALL", 0)
    away = elsewhere.workplace(engine := elsewhere.Elsewhere()).executors
    monkeypatch.setattr(
        "safewrite.engine.spark.executors_of", lambda name, *_, **__: away if name == "spark" else None
    )
    table = sw.open(tmp_path / "t", create=True)
    for turn in ("local", "spark"):
        for number in range(3):
            table.append([{"n": number}])
        done = CliRunner().invoke(app, ["maintain", str(tmp_path / "t"), "--engine", turn])
        assert (done.exit_code, engine.jobs) == (0, int(turn == "spark"))
    refused = CliRunner().invoke(app, ["maintain", str(tmp_path / "t"), "--engine", "sprak"])
    assert (refused.exit_code, "sprak" in refused.output) == (2, True)
