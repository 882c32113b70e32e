"""``safewrite cdc status``: where each table of a job stands, and what to do where the job cannot go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.ledger.ledger import LEDGER_SCHEMA
from safewrite.cdc.records.batch import Partition, Range
from safewrite.cdc.status import Reach, Status, TableStatus, status
from tests.cdc.events import record
from tests.cdc.jobs import Job, change
from tests.cdc.test_commands import answer, run
from tests.cdc.test_landing import CrashError, dying

TOPIC = Partition("topic", 0, "id-1")


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, [{"table": "a"}, {"table": "b"}], request.param)


@pytest.fixture
def delta(tmp_path: Path) -> Job:
    return Job(tmp_path, [{"table": "a"}])


def look(job: Job, reach: Reach | None = None, **more: Any) -> Status:
    landing = job.landing(**more)
    found = landing.targets.find(landing.ledger.table)
    ledger = LEDGER_SCHEMA.empty_table() if found is None else job.read("job_ledger", "cdc")
    return status(landing, ledger, reach)


def only(job: Job, reach: Reach | None = None, **more: Any) -> TableStatus:
    (found,) = look(job, reach, **more).tables
    return found


def created(key: int, offset: int, table: str = "a") -> Any:
    return change("c", table, key, {"id": key}, lsn=offset + 1, offset=offset)


@pytest.mark.sweep("iceberg")
def test_each_table_of_a_job_has_a_row(job: Job) -> None:
    assert {one["state"] for one in answer(job, "status")["tables"]} == {"not begun"}
    job.land(created(1, 0), created(2, 1), record(b"?", offset=2))
    job.land(change("d", "a", 1, None, lsn=9, offset=3), number=1)
    told = answer(job, "status")
    assert (told["batches"], told["dead_nowhere"]) == (2, 1)
    first, second = told["tables"]
    assert {name: first[name] for name in ("table", "format", "state", "last_batch", "positions", "lag", "rows")} == {
        "table": "db.a", "format": job.form, "state": "ok", "last_batch": 1, "positions": {"topic/0": 4}, "lag": None, "rows": 1,
    }  # fmt: skip
    assert (first["records"], first["applied"], first["dead"], second["state"]) == (3, 3, 0, "not begun")
    assert first["last_commit"] > first["valid_through"] > "2020"
    assert "topic/0: 4" in run(job, "status").stdout


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_dropped_needs_a_restart(job: Job) -> None:
    job.land(created(1, 0), created(1, 1, "b"))
    shutil.rmtree(job.folder / "db", ignore_errors=True)
    if job.form == "iceberg":
        from pyiceberg.catalog import load_catalog

        load_catalog(**job.catalog()).drop_table("db.a")
    found = run(job, "status", "--output", "json")
    assert found.exit_code == 1
    told = json.loads(found.stdout)["tables"][0]
    assert told["state"] == "needs restart"
    assert "safewrite cdc restart --config FILE --table db.a" in told["what"]
    run(job, "restart", "--table", "db.a")
    assert look(job).tables[0].state == "not begun"


@pytest.mark.long
def test_a_batch_that_broke_off_shows_until_it_is_read_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.land(created(1, 0), created(1, 1, "b"))
    landing = job.landing(parallel_tables=1)
    dying(landing, monkeypatch, 1)
    records = created(2, 2), created(2, 3, "b")
    with pytest.raises(CrashError):
        landing.land(job.batch(records, 1))
    assert [(one.state, one.positions) for one in look(job).tables] == [
        ("behind", {"topic/0": 4}),
        ("ok", {"topic/0": 2}),
    ]
    assert not look(job).stopped
    job.land(*records, number=1)
    assert [one.state for one in look(job).tables] == ["ok", "ok"]


def test_a_first_batch_that_broke_off_is_no_fault(delta: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = delta.landing()
    dying(landing, monkeypatch, 1, "ledger")
    with pytest.raises(CrashError):
        landing.land(delta.batch([created(1, 0)]))
    assert only(delta).state == "behind"


def test_a_table_in_which_nothing_landed_says_what_is_known_of_it(tmp_path: Path) -> None:
    """No batch was closed, for its first one was refused; one without records for it; one whose records are all dead letters."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}])
    columns = pa.schema([("id", pa.int64()), ("other", pa.int64())])
    sw.create(f"{tmp_path}/db/a", columns, properties={"cdc.keys": '["other"]'})
    with pytest.raises(sw.InvalidInputError, match="other"):
        job.land(created(1, 0))
    found = only(job)
    assert found.state == "not begun"
    assert "its first one is under way, broke off or was refused" in found.what
    job.tables.append({"table": "b", "primary_key": ["no"]})
    job.tables[0] = {"table": "c"}
    job.land(created(1, 0, "c"))
    assert look(job).tables[1].what == "no records came for it in the batches that are closed"
    job.land(created(1, 1, "b"), number=1)
    (_, found) = look(job).tables
    assert found.what == "1 records came for it, and no row landed: 1 are dead letters, 0 were ignored"


def test_the_lag_is_what_the_topics_have_after_the_positions(delta: Job) -> None:
    topics = {TOPIC: Range(10, 50), Partition("topic", 1, "id-1"): Range(0, 7)}
    assert only(delta, topics).lag == 47
    latest = {"kafka": {"servers": "none", "topics": ["topic"], "starting_offsets": "latest"}}
    assert only(delta, topics, **latest).lag == 0
    some = {"servers": "none", "topics": ["topic"], "starting_offsets": {"topic": {"0": 45, "1": -1}}}
    assert only(delta, topics, kafka=some).lag == 5
    delta.land(*(created(n, n) for n in range(10, 20)))
    found = only(delta, topics)
    assert (found.lag, found.state, found.what) == (37, "behind", "")
    assert only(delta, {TOPIC: Range(0, 20)}).state == "ok"


def test_a_topic_that_was_made_anew_fences_the_job(delta: Job) -> None:
    delta.land(created(1, 0))
    anew = {Partition("topic", 0, "id-2"): Range(0, 3)}
    found = only(delta, anew)
    assert (found.state, "created again" in found.what, found.lag) == ("fenced", True, 3)
    assert only(delta, {TOPIC: Range(0, 1)}).state == "ok"
    again = Job(delta.folder, delta.tables, topic_id="id-2")
    again.land(created(2, 0))
    assert only(delta, anew).state == "behind"
    assert only(delta, anew).positions == {"topic/0 of id-1": 1, "topic/0 of id-2": 1}


def test_a_table_that_was_set_back_fences_the_job(delta: Job) -> None:
    """E: RESTORE takes rows out whose offsets do not come again; here by an engine that is not ours."""
    delta.land(created(1, 0))
    delta.land(created(2, 1), number=1)
    table = deltalake.DeltaTable(str(delta.folder / "db" / "a"))
    table.restore(table.version() - 1)
    found = only(delta)
    assert found.state == "fenced"
    assert "set back" in found.what
    with pytest.raises(sw.ConflictError) as refused:
        delta.land(created(3, 2), number=2)
    assert refused.value.kind is sw.Kind.POSITION_MOVED
    again = sw.open(delta.folder / "db" / "a")
    again.append(
        again.schema.empty_table(), positions={name: (at, at) for name, at in again.positions().items()}
    )
    assert only(delta).state == "ok"


def test_a_table_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}, {"table": "b"}])
    job.land(created(1, 0), created(1, 1, "b"))
    for file in (job.folder / "db" / "a" / "_delta_log").glob("*.json"):
        file.write_text("?")
    found = look(job)
    assert [one.state for one in found.tables] == ["unreadable", "ok"]
    assert found.tables[0].what
    assert found.stopped


def test_tables_that_nobody_named_have_a_row_too(tmp_path: Path) -> None:
    job = Job(tmp_path, [], settings={"unknown_tables": "create", "unknown_database": "other"})
    job.land(created(1, 0))
    assert [(one.table, one.state, one.rows) for one in look(job).tables] == [("other.public_a", "ok", 1)]


@pytest.mark.long
def test_a_ledger_of_an_earlier_version_gets_the_new_columns(delta: Job) -> None:
    delta.land(created(1, 0))
    landing = delta.landing()
    ledger = landing.targets.find(landing.ledger.table)
    assert ledger is not None
    rows = delta.read("job_ledger", "cdc").drop_columns(["commit_ms", "closed_ms"])
    positions = ledger.positions()
    shutil.rmtree(delta.folder / "cdc")
    old = sw.create(f"{delta.folder}/cdc/job_ledger", rows.schema)
    old.append(rows, positions={name: (None, at) for name, at in positions.items()})
    assert (only(delta).state, only(delta).last_commit) == ("ok", None)
    delta.land(created(2, 1), number=1)
    assert only(delta).last_commit is not None
    assert delta.verdict().faults == ()


def test_an_option_that_would_do_nothing_is_refused(delta: Job) -> None:
    found = run(delta, "status", "--conf", "a=b")
    assert (found.exit_code, "--kafka" in found.output) == (2, True)


def test_the_page_says_first_what_is_wrong_and_plots_the_batches(delta: Job, tmp_path: Path) -> None:
    """One file without scripts and links; dead letters colour their batch and the badge."""
    page = tmp_path / "status.html"
    delta.land(created(1, 0))
    assert run(delta, "status", "--html", str(page)).exit_code == 0
    assert (
        "<h1>The table is neither behind nor stopped; 1 change applied in 1 batch.</h1>" in page.read_text()
    )
    delta.land(change("c", "a", "no number", {"id": "no number"}, lsn=9, offset=1), number=1)
    run(delta, "status", "--html", str(page))
    text = page.read_text()
    assert "1 dead letter waits" in text
    assert (text.count('<rect class="bad"'), text.count("<rect ")) == (4, 8)
    assert 'class="badge warn"' in text
    assert not [word for word in ("<script", "http", "src=", "href=") if word in text]
    shutil.rmtree(delta.folder / "db" / "a")
    stopped = run(delta, "status", "--html", str(page))
    assert (stopped.exit_code, 'class="badge bad"' in page.read_text()) == (1, True)
    assert "1 table of 1 stops the job" in page.read_text()
    assert run(delta, "status", "--html", str(tmp_path / "none" / "page.html")).exit_code == 2
