"""What a changed configuration will do to a running job is said before it does it; tables come and go without a loss."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cdc.config.table_config import METADATA
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import JobPlan, plan
from safewrite.cdc.ledger.target_tables import has_branch
from safewrite.cdc.status import status, tables_gone
from safewrite.cli.app import app
from tests.cdc.jobs import Job, Source, change
from tests.cdc.on_executors import Executors, work_of

ALL = {kind: kind for kind in METADATA}


def planned(job: Job, /, **more: Any) -> JobPlan:
    letters = pa.Table.from_pylist(job.letters()) if job.letters() else None
    return plan(job.landing(**more), letters)


def said(found: JobPlan, name: str) -> tuple[str, str]:
    (one,) = [one for one in found.tables if one.table == name]
    return one.what, "\n".join(one.notes)


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_table_is_added_to_a_running_job_taken_from_it_and_put_back(tmp_path: Path, form: str) -> None:
    """Its records are dead letters while it is out, so that none of them is lost; the other table goes on meanwhile."""
    job, source = Job(tmp_path, [{"table": "a"}], form), Source(11, tables=("a", "b"))
    job.land(*source.run(24), number=0)
    job.tables.append({"table": "b"})
    found = planned(job)
    assert said(found, "db.a") == ("goes on", "")
    assert said(found, "db.b")[0] == "begins"
    assert "dead letters are of tables that were not configured" in found.notes[-1]
    job.land(*source.run(24), number=1)
    assert DeadLetters(job.landing()).replay().dead == {}
    assert {name: job.rows(name) for name in ("a", "b")} == source.rows

    job.tables.pop()
    what, notes = said(planned(job), "db.b")
    assert (what, "its records are dead letters" in notes) == ("is left", True)
    there = job.rows("b")
    job.land(*source.run(24), number=2)
    assert job.rows("b") == there
    assert job.rows("a") == source.rows["a"]

    job.tables.append({"table": "b"})
    assert said(planned(job), "db.b")[0] == "goes on"
    job.land(*source.run(24), number=3)
    assert DeadLetters(job.landing()).replay().dead == {}
    assert {name: job.rows(name) for name in ("a", "b")} == source.rows
    assert job.verdict().faults == ()


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job that has landed a row of a table; plans of it write nothing."""
    folder = tmp_path_factory.mktemp("plan")
    job = Job(folder, [{"table": "a", "source": "public.a"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1, "at": "2026"}, lsn=1, offset=0))
    return job


@pytest.mark.parametrize(
    ("more", "what", "note"),
    [
        ({}, "goes on", ""),
        ({"primary_key": ["n"]}, "is refused", "created with the key ['id']"),
        ({"mode": "history"}, "is refused", "created with mode upsert"),
        ({"epoch": 2}, "goes on", "epoch is raised from 0 to 2"),
        ({"source": "other.a"}, "goes on", "it has the rows of inventory.public.a, and source is other.a now"),
        ({"source": "a"}, "goes on", ""),
        ({"shard_column": "n", "primary_key": ["n", "id"]}, "is refused", "created with the key"),
        ({"deleted_column": "gone"}, "goes on", "it gets the columns gone"),
        ({"deleted_column": "n"}, "is refused", "names n, which is int64 in the table: it has to be boolean"),
        ({"deleted_column": "AT"}, "goes on", "it has at, which engines cannot tell from AT: every record is a dead letter"),
        ({"metadata": {"part": "partition"}}, "goes on", "it gets the columns part; rows from before have NULL"),
        ({"leave_out": ["n"]}, "goes on", "leave_out: n stay, and are NULL"),
        ({"name_mapping": {"n": "m"}}, "goes on", "m is a new column; n stays"),
        ({"leave_out": ["id"]}, "goes on", "its key is of id, which leave_out or name_mapping takes away: every record is a dead letter"),
        ({"name_mapping": {"id": "m"}}, "goes on", "its key is of id, which leave_out or name_mapping takes away"),
        ({"timestamp_fields": {"at": "iso8601"}}, "goes on", "at stays string, not timestamp[us, tz=UTC]"),
        ({"partition_by": ["n"]}, "goes on", "divided by nothing, not by n"),
        ({"properties": {"delta.logRetentionDuration": "interval 9 days"}}, "goes on", "do nothing: delta.logRetentionDuration"),
    ],
)  # fmt: skip
def test_each_change_of_a_table_is_told(landed: Job, more: dict[str, Any], what: str, note: str) -> None:
    job = Job(landed.folder, [landed.tables[0] | more], schemas=False)
    found = said(planned(job), "db.a")
    assert found[0] == what
    assert note in found[1]
    assert bool(note) == bool(found[1])
    assert planned(job).is_refused == (what == "is refused")


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "more", [{"mode": "append", "metadata": ALL}, {"deleted_column": "gone"}, {"mode": "history"}]
)
def test_nothing_is_told_of_the_columns_of_the_job_itself(
    tmp_path: Path, form: str, more: dict[str, Any]
) -> None:
    job = Job(tmp_path, [{"table": "a"} | more], form, schemas=False)
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    assert said(planned(job), "db.a") == ("goes on", "")


def test_letters_that_wait_are_told_where_an_epoch_is_raised(tmp_path: Path) -> None:
    """They would land as changes of the new epoch, and take the place of rows that are newer."""
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.land(change("u", "a", 1, {"id": 1, "n": "x"}, lsn=2, offset=1))
    assert said(planned(job), "db.a") == ("goes on", "")
    job.tables[0]["epoch"] = 1
    assert "1 of its dead letters wait" in said(planned(job), "db.a")[1]


def test_letters_of_a_table_made_unasked_are_said_where_the_epoch_of_all_is_raised(tmp_path: Path) -> None:
    unasked = {"unknown_tables": "create", "unknown_database": "db"}
    job = Job(tmp_path, [], schemas=False, settings=unasked)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.land(change("c", "a", 2, {"id": 2, "n": "x"}, lsn=2, offset=1))
    job.settings = unasked | {"defaults": {"epoch": 1}}
    what, notes = said(planned(job), "db.public_a")
    assert what == "goes on"
    assert "epoch is raised from 0 to 1" in notes
    assert "1 of its dead letters wait" in notes


def test_what_the_plan_refuses_the_job_refuses(landed: Job) -> None:
    job = Job(landed.folder, [landed.tables[0] | {"epoch": 0, "primary_key": ["n"]}], schemas=False)
    (_, note) = said(planned(job), "db.a")
    with pytest.raises(Exception, match="created with the key") as caught:
        job.land(change("u", "a", 1, {"id": 1, "n": 2}, lsn=2, offset=1))
    assert str(caught.value) == note


def test_a_job_of_another_name_and_other_topics_are_told(landed: Job) -> None:
    assert "knows no job 'second'" in planned(landed, job="second").notes[0]
    assert said(planned(landed, job="second"), "db.a")[0] == "joins"
    notes = planned(landed, kafka={"servers": "none", "topics": ["new"]}).notes
    assert [note.partition(":")[0] for note in notes[:2]] == ["New topics", "Topics that are read no more"]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({}, "its records are dead letters"),
        ({"unknown_tables": "ignore"}, "counted and not kept"),
        ({"ignored_tables": ["*.a"]}, "counted and not kept"),
    ],
)
def test_a_table_that_is_taken_out_is_told(landed: Job, more: dict[str, Any], note: str) -> None:
    what, notes = said(planned(Job(landed.folder, [{"table": "other"}], schemas=False), **more), "db.a")
    assert (what, note in notes) == ("is left", True)


def test_the_command_says_it_and_exits_with_1_where_the_job_would_stop(landed: Job, tmp_path: Path) -> None:
    def run(job: Job, *more: str) -> Any:
        file = tmp_path / "job.json"
        file.write_text(job.landing().config.model_dump_json())
        return CliRunner().invoke(app, ["cdc", "plan", "--config", str(file), *more])

    done = run(landed, "--output", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["tables"] == [{"table": "db.a", "what": "goes on", "notes": []}]
    folder = tmp_path / "lake"
    shutil.copytree(landed.folder, folder)
    shutil.rmtree(folder / "db")
    done = run(Job(folder, landed.tables, schemas=False))
    assert done.exit_code == 1
    assert "db.a is refused" in done.stdout
    assert "safewrite cdc restart" in " ".join(done.stdout.split())


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_table_of_another_format_than_before_is_told_and_not_advised_to_begin_again(
    tmp_path: Path, form: str
) -> None:
    """T4-B7: it was said to be dropped, and the restart that was advised led to an empty table."""
    job = Job(tmp_path, [{"table": "a"}], form, schemas=False)
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    job.settings |= {"warehouse": str(tmp_path), "catalog": job.catalog(), "create_namespace": True}
    job.tables[0]["format"] = "iceberg" if form == "delta" else "delta"
    what, notes = said(planned(job), "db.a")
    assert (what, f"Set format to {form}, as it was" in notes) == ("is refused", True)
    (state,) = status(job.landing(), job.read("job_ledger", "cdc")).tables
    assert f"Set format to {form}, as it was" in state.what
    assert "restart" not in notes + state.what
    with pytest.raises(sw.ConflictError, match=f"of format {form}, and the configuration says"):
        job.land(change("c", "a", 2, {"id": 2}, lsn=2, offset=1), number=1)


@pytest.mark.long
def test_a_branch_that_is_added_is_told_and_not_made_by_a_look(tmp_path: Path) -> None:
    """T4-B7: plan said nothing, and made the branch; so did status and verify."""
    job = Job(tmp_path, [{"table": "a"}], "iceberg", schemas=False)
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    job.tables[0]["branch"] = "audit"
    what, notes = said(planned(job), "db.a")
    assert what == "goes on"
    assert notes.startswith("branch: audit is made of what main has with the next rows")
    assert status(job.landing(), job.read("job_ledger", "cdc")).tables[0].state == "ok"
    assert tables_gone(job.landing()) == ()
    job.tables[0].pop("branch")
    assert not has_branch(job.landing().targets.find(job.landing().config.tables[0]), "audit")
    job.tables[0]["branch"] = "audit"
    job.land(change("c", "a", 2, {"id": 2}, lsn=2, offset=1), number=1)
    assert said(planned(job), "db.a") == ("goes on", "")


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_key_of_records_that_is_to_order_its_changes_is_told(tmp_path: Path, form: str) -> None:
    """T4-B7: check knows the key only where primary_key names it; the error spoke of arguments that no configuration has."""
    order = {"sequence": "precombine", "precombine_key": ["n", "id"]}
    job = Job(tmp_path, [{"table": "a"} | order], form, schemas=False)
    for landing, work in ((job.landing(), work_of(None)), (job.landing(engine="spark"), Executors().work)):
        with pytest.raises(sw.InvalidInputError, match="has id, which is part of the key"):
            landing.land(job.batch([change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0)]), work)
    job.tables[0] = {"table": "a"}
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.tables[0] |= order
    what, notes = said(planned(job), "db.a")
    assert (what, "precombine_key of db.a has id" in notes) == ("is refused", True)
