"""A table takes the rows of one source, whoever lands them, or of several that a column of its key tells apart (T3-B1, T3-B2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.status import status
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job

FORMS = ("delta", "iceberg")
CREATE = {"unknown_tables": "create", "unknown_database": "raw"}


def of(
    db: str, op: str, key: int, row: Any = None, *, at: int, table: str = "o", partition: int = 0, **more: Any
) -> KafkaRecord:
    """An event of ``<db>.public.<table>``, whose log position and offset are the same number."""
    source = postgres(at, table, db=db, **more)
    return record(event(op, row, source=source), {"id": key}, offset=at, partition=partition)


def row(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "s": name}


@pytest.mark.sweep("iceberg", "one driver")
@FORM_AND_SCHEMAS
@pytest.mark.parametrize("fresh", [False, True], ids=["one driver", "a driver a batch"])
def test_a_created_table_refuses_another_source_of_its_name(
    tmp_path: Path, form: str, schemas: bool, fresh: bool
) -> None:
    """T3-B1: the guard was in the memory of a driver, and the next one let the second source overwrite and delete."""
    job = Job(tmp_path, [], form, {**CREATE, "defaults": {"format": form}}, schemas=schemas)
    landing = job.landing()
    for one in (
        of("db1", "c", 1, row(1, "first"), at=1),
        of("db2", "c", 1, row(1, "second"), at=2),
        of("db2", "d", 1, at=3),
        of("db1", "u", 1, row(1, "first again"), at=4),
    ):
        job.land(one, landing=None if fresh else landing, number=one.offset)
    assert [one["s"] for one in job.read("public_o", "raw").to_pylist()] == ["first again"]
    assert sorted(one["offset"] for one in job.letters()) == [2, 3]
    assert all("db1.public.o" in one["reason"] and "db2.public.o" in one["reason"] for one in job.letters())
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_source_that_is_not_fully_named_takes_one_source(tmp_path: Path, form: str, schemas: bool) -> None:
    """T3-B2: of the first batch that which has most of it, in whatever order they come."""
    job = Job(tmp_path, [{"table": "o"}], form, schemas=schemas)
    job.land(
        of("a_stray", "c", 1, row(1, "stray"), at=1),
        *(of("shop", "c", key, row(key, "shop"), at=key + 1) for key in (1, 2, 3)),
        of("shop", "c", 9, row(9, "other schema"), at=7, schema="archive"),
    )
    job.land(of("a_stray", "d", 2, at=10), of("shop", "u", 2, row(2, "newer"), at=11))
    assert {key: one["s"] for key, one in job.rows("o").items()} == {1: "shop", 2: "newer", 3: "shop"}
    assert sorted(one["offset"] for one in job.letters()) == [1, 7, 10]
    found = status(job.landing(), job.read("job_ledger", "cdc"))
    assert [(one.source, one.dead) for one in found.tables] == [("shop.public.o", 3)]


def test_records_of_one_partition_keep_their_order_whichever_source_they_are_of(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "o"}], schemas=False)
    job.land(*(of(f"db{at % 2}", "u", 1, row(1, str(at)), at=at) for at in range(1, 8)))
    assert job.rows("o")[1]["s"] == "7"


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_second_job_with_another_source_is_refused_too(tmp_path: Path, form: str) -> None:
    job = Job(tmp_path, [{"table": "o", "source": "db1.public.o"}], form, schemas=False)
    job.land(of("db1", "c", 1, row(1, "first"), at=1))
    other = Job(tmp_path, [{"table": "o", "source": "db2.public.o"}], form, {"job": "second"}, schemas=False)
    other.land(of("db2", "d", 1, at=2), of("db2", "c", 5, row(5, "second"), at=3))
    assert list(job.rows("o")) == [1]
    assert sorted(one["offset"] for one in other.read("second_dead_letters", "cdc").to_pylist()) == [2, 3]


def test_two_jobs_that_begin_at_once_with_other_sources_do_not_both_begin(tmp_path: Path) -> None:
    """Neither finds a record when it looks; the record of a source is moved in the commit of its rows."""
    names = ("db1", "db2")
    jobs = [
        Job(tmp_path, [{"table": "o", "source": f"{db}.public.o"}], settings={"job": db}, schemas=False)
        for db in names
    ]
    landings = [job.landing() for job in jobs]
    commits = [landing._commit for landing in landings]

    def late(*given: Any) -> None:
        landings[0].land(jobs[0].batch([of("db1", "c", 1, row(1, "first"), at=1)]))
        commits[1](*given)

    landings[1]._commit = late  # type: ignore[method-assign]
    with pytest.raises(sw.ConflictError):
        landings[1].land(jobs[1].batch([replace(of("db2", "c", 1, row(1, "second"), at=1), topic="another")]))
    assert jobs[0].rows("o")[1]["s"] == "first"


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_an_earlier_version_records_the_source_that_goes_on(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, [{"table": "o"}], form, schemas=False)
    with monkeypatch.context() as before:
        before.setattr("safewrite.cdc.routing.table_source.TableSource.moves", lambda *_: {})
        job.land(of("db1", "c", 1, row(1, "first"), at=1))
    assert not [
        one for one in job.landing().targets.position(job.landing().config.tables[0])[1] if "source/" in one
    ]
    job.land(of("db1", "u", 1, row(1, "newer"), at=2))
    job.land(of("db2", "d", 1, at=3))
    assert job.rows("o")[1]["s"] == "newer"
    assert [one["offset"] for one in job.letters()] == [3]


@pytest.mark.long
def test_a_source_that_got_another_name_comes_with_a_new_epoch(tmp_path: Path) -> None:
    options: dict[str, Any] = {"table": "o"}
    job = Job(tmp_path, [options], schemas=False)
    job.land(of("db1", "c", 1, row(1, "first"), at=1))
    options["epoch"] = 1
    job.land(of("restored", "u", 1, row(1, "restored"), at=2))
    job.land(of("db1", "u", 1, row(1, "of the old one"), at=3))
    assert job.rows("o")[1]["s"] == "restored"
    assert [one["offset"] for one in job.letters()] == [3]


def test_dead_letters_fail_stops_for_a_second_source(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "o", "dead_letters": "fail"}], schemas=False)
    job.land(of("db1", "c", 1, row(1, "first"), at=1))
    with pytest.raises(sw.InvalidInputError, match=r"takes the rows of db1\.public\.o"):
        job.land(of("db2", "c", 1, row(1, "second"), at=2))


@pytest.mark.long
def test_a_batch_that_is_read_again_counts_strangers_as_it_did(tmp_path: Path) -> None:
    """The driver dies between its tables and its ledger."""
    job = Job(tmp_path, [{"table": "o"}], schemas=False)
    given = [
        of("db1", "c", 1, row(1, "x"), at=1),
        of("db1", "c", 2, row(2, "x"), at=2),
        of("db2", "c", 1, row(1, "y"), at=3),
    ]
    job.land_and_die(*given)
    lines = [line for line in job.land(*given) if line.table]
    assert [(line.records, line.dead, line.applied) for line in lines] == [(3, 1, 2)]
    assert not job.verdict().faults


# --- shards ---------------------------------------------------------------------------------------------
@pytest.mark.sweep("iceberg", "the job's column")
@FORM_AND_SCHEMAS
@pytest.mark.parametrize("is_named", [False, True], ids=["the job's column", "a column of the rows"])
def test_shards_share_a_table_that_tells_them_apart(
    tmp_path: Path, form: str, schemas: bool, is_named: bool
) -> None:
    shard = (
        {"shard_column": "tenant", "primary_key": ["tenant", "id"]}
        if is_named
        else {"shard_column": "_source"}
    )
    job = Job(tmp_path, [{"table": "o", **shard}], form, schemas=schemas)

    def at_of(db: str, name: str) -> dict[str, Any]:
        return {**row(1, name), **({"tenant": db} if is_named else {})}

    job.land(
        of("db1", "c", 1, at_of("db1", "first"), at=1),
        of("db2", "c", 1, at_of("db2", "second"), at=2, partition=1),
        of("db3", "c", 1, at_of("db3", "third"), at=2, partition=2),
    )
    gone = record(
        event("d", before={"id": 1, "s": None, **({"tenant": "db2"} if is_named else {})}, source=postgres(5, "o", db="db2")),
        {"id": 1}, offset=5, partition=1,
    )  # fmt: skip
    job.land(gone, of("db1", "u", 1, at_of("db1", "newer"), at=6), landing=job.landing())
    rows = job.read("o").to_pylist()
    assert sorted(one["s"] for one in rows) == ["newer", "third"]
    names = {one["tenant"] if is_named else one["_source"] for one in rows}
    assert names == ({"db1", "db3"} if is_named else {"db1.public.o", "db3.public.o"})
    assert not job.letters()


def test_a_truncate_of_one_shard_takes_no_rows_of_others(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "o", "shard_column": "_source"}], schemas=False)
    truncate = record(event("t", source=postgres(9, "o", db="db2")), None, offset=9)
    job.land(of("db1", "c", 1, row(1, "first"), at=1), of("db2", "c", 1, row(1, "second"), at=2), truncate)
    assert sorted(one["s"] for one in job.read("o").to_pylist()) == ["first", "second"]
    assert "truncate of db2.public.o" in job.letters()[0]["reason"]


def test_a_column_of_the_source_with_the_name_of_the_shards_is_told(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "o", "shard_column": "s"}], schemas=True)
    job.land(of("db1", "c", 1, row(1, "first"), at=1))
    assert "shard_column" in job.letters()[0]["reason"]


@pytest.mark.parametrize("schemas", [False, True])
def test_records_without_a_shard_column_that_is_of_the_key_are_advised(tmp_path: Path, schemas: bool) -> None:
    key = {"shard_column": "tenant", "primary_key": ["tenant", "id"]}
    job = Job(tmp_path, [{"table": "o", **key}], schemas=schemas)
    job.land(of("db1", "c", 1, row(1, "first"), at=1), of("db1", "d", 1, at=2))
    reasons = [one["reason"] for one in job.letters()]
    assert len(reasons) == 2
    assert all("take it out of primary_key if the job is to write" in one for one in reasons)


def test_each_shard_has_a_snapshot_of_its_own(tmp_path: Path) -> None:
    """Two servers in one partition: the first changes of the one come not behind the snapshot of the other."""
    job = Job(tmp_path, [{"table": "o", "shard_column": "_source"}], schemas=False)
    unseen = '[null,"1"]'
    job.land(
        of("db1", "r", 1, row(1, "first"), at=900, snapshot="true", sequence=unseen),
        of("db2", "r", 1, row(1, "second"), at=901, snapshot="true", sequence=unseen),
    )
    job.land(
        record(
            event("u", row(1, "a"), source=postgres(20, "o", db="db3", sequence=unseen)),
            {"id": 1},
            offset=910,
        ),
        record(
            event("u", row(1, "b"), source=postgres(30, "o", db="db3", sequence='["25","30"]')),
            {"id": 1},
            offset=911,
        ),
    )
    found = {one["_source"]: one["s"] for one in job.read("o").to_pylist()}
    assert found == {"db1.public.o": "first", "db2.public.o": "second", "db3.public.o": "b"}
