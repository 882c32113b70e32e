"""A job that writes to a branch of an Iceberg table: written, audited, published; and a job whose branch did not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from tests.cdc.jobs import Job, change
from tests.cdc.on_executors import Executors
from tests.test_cli import run_json

ON_AUDIT: list[dict[str, Any]] = [{"table": "a", "branch": "audit"}, {"table": "b"}]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, ON_AUDIT, "iceberg")


def kept(job: Job, branch: str = "main", name: str = "a") -> dict[int, Any]:
    """The rows of a branch, as PyIceberg reads them."""
    scan = load_catalog(**job.catalog()).load_table(f"db.{name}").scan().use_ref(branch)
    return {row["id"]: row["n"] for row in scan.to_arrow().to_pylist()}


def fast_forward(job: Job) -> str:
    """By the command, as who has audited does it."""
    properties = [word for one in job.catalog().items() for word in ("--catalog-property", "=".join(one))]
    code, answer = run_json("fast-forward", "db.a", *properties, "--branch", "audit")
    assert code == 0
    return str(answer["outcome"])


def test_rows_land_on_the_branch_are_audited_published_and_the_job_goes_on(job: Job) -> None:
    job.land(
        change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0),
        change("c", "b", 1, {"id": 1, "n": 1}, lsn=2, offset=1),
    )
    job.land(
        change("c", "a", 2, {"id": 2, "n": 2}, lsn=3, offset=2), change("d", "a", 1, None, lsn=4, offset=3)
    )
    assert (kept(job), kept(job, "audit"), kept(job, name="b")) == ({}, {2: 2}, {1: 1})
    audited = sw.open("db.a", catalog=job.catalog(), branch="audit")
    assert audited.rows(where="n > 1")["id"].to_pylist() == [2]
    assert fast_forward(job) == "committed"
    assert fast_forward(job) == "already_committed"
    assert kept(job) == {2: 2}
    # The job goes on: what was deleted stays deleted, and a batch that comes again is not landed again.
    job.land(
        change("d", "a", 1, None, lsn=4, offset=3), change("u", "a", 2, {"id": 2, "n": 5}, lsn=5, offset=4)
    )
    assert (kept(job), kept(job, "audit")) == ({2: 2}, {2: 5})
    assert fast_forward(job) == "committed"
    assert kept(job) == {2: 5}
    # Without the option it goes on from where main is.
    job.tables = [{"table": "a"}]
    job.land(
        change("u", "a", 2, {"id": 2, "n": 5}, lsn=5, offset=4),
        change("c", "a", 3, {"id": 3, "n": 6}, lsn=6, offset=5),
    )
    assert (kept(job), kept(job, "audit")) == ({2: 5, 3: 6}, {2: 5})
    assert job.verdict().faults == ()


def test_a_branch_that_was_dropped_stops_the_job_until_its_rows_are_sent_again(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    fast_forward(job)
    landing = job.landing()
    job.land(change("c", "a", 2, {"id": 2, "n": 99}, lsn=3, offset=1), landing=landing)
    load_catalog(**job.catalog()).load_table("db.a").manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(sw.ConflictError, match="dropped"):
        job.land(change("c", "a", 3, {"id": 3, "n": 3}, lsn=4, offset=2), landing=landing)
    # Kafka gives the job what the ledger has not closed: the rows that went with the branch would not come again.
    with pytest.raises(sw.ConflictError, match="rows went that do not come again"):
        job.land(change("c", "a", 3, {"id": 3, "n": 3}, lsn=4, offset=2))
    job.tables = [{**ON_AUDIT[0], "epoch": 1}]
    job.land(*(change("r", "a", at, {"id": at, "n": at}, lsn=at + 1, offset=at) for at in (1, 2, 3)))
    assert (kept(job), kept(job, "audit")) == ({1: 1}, {1: 1, 2: 2, 3: 3})
    assert fast_forward(job) == "committed"
    job.land(change("u", "a", 3, {"id": 3, "n": 4}, lsn=9, offset=4))
    assert (kept(job), kept(job, "audit")) == ({1: 1, 2: 2, 3: 3}, {1: 1, 2: 2, 3: 4})


@pytest.mark.sweep("main")
@pytest.mark.parametrize("branch", ["audit", "main"])
def test_a_job_stops_where_another_engine_sets_its_branch_back(job: Job, branch: str) -> None:
    """It went on behind the rows that went: a job that ran did not ask, nor did one with executors."""
    job.schemas, work = True, Executors().work
    job.tables = ON_AUDIT[:1] if branch == "audit" else [{"table": "a"}]
    given = [change("c", "a", one, {"id": one, "n": one}, lsn=one, offset=one - 1) for one in (1, 2, 3)]
    running = job.landing()
    running.land(job.batch(given[:1]), work)
    table = load_catalog(**job.catalog()).load_table("db.a")
    before = table.metadata.refs[branch].snapshot_id
    lines = running.land(job.batch(given[1:2], 1), work)
    assert lines[1].by_executors == 1
    moved = table.refresh().manage_snapshots()
    if branch == "main":
        moved.rollback_to_snapshot(before).commit()
    else:
        moved.create_branch(before, branch).commit()
    went = "rows went that do not come again"
    for landing, said in (
        (running, went if branch == "main" else "another engine set it back"),
        (job.landing(), went),
    ):
        with pytest.raises(sw.ConflictError, match=said):
            landing.land(job.batch(given[2:], 2), work)
    assert kept(job, branch) == {1: 1}


def test_a_job_that_leaves_its_branch_stops_until_the_rows_there_are_published(job: Job) -> None:
    """It went on from where main is, without them."""
    given = [change("c", "a", one, {"id": one, "n": one}, lsn=one, offset=one - 1) for one in (1, 2, 3)]
    job.land(given[0])
    fast_forward(job)
    job.land(given[1])
    job.tables = [{"table": "a"}]
    with pytest.raises(sw.ConflictError, match="on another branch"):
        job.land(given[2])
    fast_forward(job)
    job.land(given[2])
    assert kept(job) == {1: 1, 2: 2, 3: 3}


@pytest.mark.long
def test_a_table_whose_branch_was_dropped_begins_again_where_the_user_says_so(job: Job) -> None:
    """The first error named the command, and after it came another error."""
    given = [change("c", "a", one, {"id": one, "n": one}, lsn=one, offset=one - 1) for one in (1, 2, 3)]
    job.land(given[0])
    load_catalog(**job.catalog()).load_table("db.a").manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(sw.ConflictError, match="safewrite cdc restart"):
        job.land(given[1])
    job.landing().ledger.restart("db.a")
    job.land(given[1])
    job.land(given[2])
    assert kept(job, "audit") == {2: 2, 3: 3}


def test_a_branch_of_a_delta_table_is_refused_when_the_configuration_is_read(tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match="branch is of Iceberg tables"):
        Job(tmp_path, ON_AUDIT).landing()
