"""What a run tells of each table, to the log and as metrics; and files that events name beforehand."""

from __future__ import annotations

import datetime as dt
import html
import json
import logging
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite import metrics
from safewrite.cli.app import app
from safewrite.medallion import Pipeline
from safewrite.medallion.report.html_report import render
from tests.medallion.test_evolution import FORMATS, shop
from tests.medallion.test_jobs import HEAD, Shop, set_in

FIRST = HEAD + "I,1,1.00,10\nI,2,2.00,11\nI,x,3.00,12\n"
HOUR_S = 3600


def run(job: Shop, **more: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
    """A run, and the event of each table."""
    events: list[sw.Event] = []
    done = Pipeline(job.config, on_event=events.append).run(**more)
    return done, {event.table: dict(event.details) for event in events if event.kind == "table_run"}


def put(job: Shop, second: int, text: str, *, age_s: float = 0, table: str = "orders") -> None:
    path = f"shop/{table}/20261101-0000{second:02}000.csv"
    job.put(path, text)
    at_s = time.time() - age_s
    os.utime(job.folder / "raw" / path, (at_s, at_s))


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_run_tells_what_came_and_what_is_left(table_format: str, tmp_path: Path) -> None:
    job = shop(tmp_path, table_format)
    put(job, 1, FIRST, age_s=HOUR_S)
    _, told = run(job)
    found = told["shop.orders"]
    assert {name: found[name] for name in ("files", "rows", "quarantined", "applied", "failed")} == {
        "files": 1, "rows": 2, "quarantined": 1, "applied": 2, "failed": 0
    }  # fmt: skip
    assert (found["lag_files"], found["lag_commits"], found["lag_s"]) == (0, 0, 0.0)
    _, told = run(job)
    assert (told["shop.orders"]["files"], told["shop.orders"]["lag_s"]) == (0, 0.0)

    set_in(job, "defaults", "quality", "result", to={"conditions": ["price < 50"]})
    put(job, 2, HEAD + "U,1,90.00,20\n")  # lands in bronze, and silver refuses it
    done, told = run(job)
    found = told["shop.orders"]
    assert (done.tables[0].ok, found["failed"], found["error"]) == (False, 1, "invalid_input")
    assert (found["rows"], found["applied"], found["lag_files"], found["lag_commits"]) == (1, 0, 0, 1)
    assert 0 < found["lag_s"] < HOUR_S

    put(job, 3, "Op,id,seq\nI,9,30\n", age_s=HOUR_S)  # lacks a column, and waits
    done, told = run(job)
    found = told["shop.orders"]
    assert (found["lag_files"], found["lag_s"] > HOUR_S) == (1, True)
    page = render(done, dt.datetime.now(dt.UTC))
    assert "files behind" in page
    row = re.search(r"<tr><td>shop.orders</td>.*?</tr>", page, re.DOTALL)
    assert row is not None
    cells = dict(re.findall(r'data-label="([^"]+)" class="[^"]*">([^<]*)<', row[0]))
    assert [cells[name] for name in ("state", "behind since", "files behind", "bronze commits behind")] == [
        "failed",
        "1 h",
        "1",
        "?",
    ]
    assert "<h1>1 table of 1 failed; 1 table behind; 0 rows landed in bronze, 0 taken by silver.</h1>" in page
    assert html.escape(done.tables[0].error, quote=False).replace("'", "&#39;") in page, "the reason in full"


def test_the_page_has_the_runs_before_that_had_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is kept in the state folder, and never grows beyond its length; without it a run does the same."""
    monkeypatch.setattr("safewrite.medallion.report.history.RUNS_MAX", 3)
    job = Shop(tmp_path)
    put(job, 1, FIRST)
    assert run(job)[0].earlier == []
    put(job, 2, "Op,id,seq\nI,9,30\n")
    failed = run(job)[0]
    (tmp_path / "raw/shop/orders/20261101-000002000.csv").unlink()
    quiet = run(job)[0]
    assert "earlier" not in quiet.to_dict()
    assert [(one.landed, one.quarantined, one.failures) for one in quiet.earlier] == [(0, 0, 1), (2, 1, 0)]
    page = render(quiet, dt.datetime.now(dt.UTC))
    assert f"1 failed: shop.orders ({failed.tables[0].error_kind})" in page
    for second in range(3, 7):
        put(job, second, HEAD + f"I,{second}0,1.00,{second}0\n")
        assert run(job)[0].ok
    assert [one.landed for one in run(job)[0].earlier] == [1, 1, 1]
    record = tmp_path / "state/shop/_runs.json"
    for text in ("{", '{"a": 1}', "[5]", '[{"at": "x"}]'):
        record.write_text(text)
        assert (run(job)[0].ok, run(job)[0].earlier) == (True, [])
    record.unlink()
    record.mkdir()  # it can neither be read nor written
    put(job, 7, HEAD + "I,70,1.00,70\n")
    assert run(job)[0].ok


def test_a_line_of_the_log_has_the_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Shop(tmp_path)
    put(job, 1, FIRST)
    with caplog.at_level(logging.INFO, "safewrite"):
        run(job)
        run(job)
    (line,) = [one for one in caplog.records if getattr(one, "kind", "") == "table_run"]  # none without news
    assert "shop.orders: files 1, rows 2, quarantined 1" in line.message
    assert (line.table, line.rows, line.lag_files) == ("shop.orders", 2, 0)  # type: ignore[attr-defined]


def test_emf_lines_have_a_set_for_each_table(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    put(job, 1, FIRST)
    (tmp_path / "job.json").write_text(json.dumps(job.config))
    given = ["medallion", "run", "--config", str(tmp_path / "job.json"), "--emf", "--namespace", "lake"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (of_table,) = [line for line in lines if line["kind"] == "table_run"]
    assert {line["kind"] for line in lines} == {"commit", "table_run"}
    assert (of_table["Table"], of_table["RowsLanded"], of_table["RowsQuarantined"]) == ("shop.orders", 2, 1)
    (directive,) = of_table["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("lake", [["Table"], ["Job"]])
    assert {line["Job"] for line in lines} == {"shop"}
    assert {one["Name"] for one in directive["Metrics"]} == {
        metric.name for metric in metrics.METRICS if "medallion" in metric.instrument
    }


def test_a_listener_that_raises_stops_nothing(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    put(job, 1, FIRST)

    def broken(_: sw.Event) -> None:
        raise ValueError("no")

    assert Pipeline(job.config, on_event=broken).run().ok
    assert job.silver() == {1: "1.00", 2: "2.00"}


# --- hints -------------------------------------------------------------------------------------------------
def two(folder: Path) -> Shop:
    job = Shop(folder)
    set_in(job, "tables", "shop.items", to=dict(job.config["tables"]["shop.orders"]))
    set_in(job, "ignored_tables", to=["shop.notes"])
    for table in ("orders", "items"):
        put(job, 1, FIRST, table=table)
    return job


def names(done: Any) -> list[str]:
    return [one.table for one in done.tables]


def test_hints_say_where_to_look_and_listing_what_is_there(tmp_path: Path) -> None:
    job = two(tmp_path)
    raw = job.config["raw"]["location"]
    done, _ = run(job, hints=[f"{raw}/shop/orders/no-such-file.csv", "s3://elsewhere/x.csv"])
    assert (names(done), done.tables[0].landed.files) == (["shop.orders"], 1)
    assert (tmp_path / "silver" / "items").exists() is False
    assert run(job, hints=[])[0].tables == []
    assert run(job, hints=[f"{raw}/shop/notes/x.csv"])[0].tables == []
    done, _ = run(job, hints=[f"{raw}/shop/orders/a.csv", f"{raw}/shop/items/b.csv"], tables=["shop.items"])
    assert names(done) == ["shop.items"]
    assert job.silver("items") == {1: "1.00", 2: "2.00"}


@pytest.mark.sweep("x.csv")
@pytest.mark.parametrize("hint", ["shop/unknown/x.csv", "x.csv", "cdc/20261101-000000001.csv"])
def test_a_hint_that_may_be_of_any_table_is_a_run_of_all(hint: str, tmp_path: Path) -> None:
    """Then files of no table are reported as ever."""
    job = two(tmp_path)
    put(job, 2, FIRST, table="unknown")
    done, _ = run(job, hints=[f"{job.config['raw']['location']}/{hint}"])
    assert names(done) == ["shop.orders", "shop.items"]
    assert len(done.errors) == 1
