"""Batches land in many tables exactly once: replays, crashes between commits, other cuts, second jobs, poison."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.servers.servers import Ministack, create_lock_table
from safewrite.cdc.landing.landing import Landing, TableBatch
from safewrite.cdc.records.change import KafkaRecord
from safewrite.errors import Kind
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, Source, change, cut
from tests.sampling import some

TABLES: list[dict[str, Any]] = [{"table": name} for name in "abc"]


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, TABLES, request.param)


def equal(job: Job, source: Source) -> None:
    """Every table is as its source, and every record is accounted for."""
    assert {name: job.rows(name) for name in source.tables} == source.rows
    verdict = job.verdict()
    assert verdict.faults == ()
    assert sum(one.totals["records"] for one in verdict.accounts) == len(source.records)


@pytest.mark.sweep("iceberg")
def test_three_tables_follow_their_sources(job: Job) -> None:
    source = Source(1)
    landing = job.landing()
    for number, records in enumerate(cut(source.run(120), 25)):
        landing.land(job.batch(records, number))
    equal(job, source)
    assert not job.letters()


class CrashError(Exception):
    """The driver dies here."""


def dying(landing: Landing, monkeypatch: pytest.MonkeyPatch, after: int, step: str = "_apply") -> None:
    """The driver dies once so many tables have committed, or before the ledger is written."""
    done: list[str] = []
    apply = landing._apply

    def dies(share: TableBatch) -> None:
        if step == "_apply" and len(done) >= after:
            raise CrashError
        done.append(share.table.name)
        apply(share)

    monkeypatch.setattr(landing, "_apply", dies)
    if step == "ledger":

        def write(*_: Any) -> None:
            raise CrashError

        monkeypatch.setattr(landing.ledger, "write", write)


STEPS = [(0, "_apply"), (1, "_apply"), (2, "_apply"), (3, "ledger")]
AGAIN = ["the same batch", "other batches", "one whole batch"]
DEATHS = [(form, *step, again) for form in ("delta", "iceberg") for step in STEPS for again in AGAIN]


@pytest.mark.sweep(
    "iceberg-1",
    "iceberg-2-_apply-the same",
    "iceberg-3-ledger-other",
    "iceberg-0-_apply-one whole batch",
    "delta-0",
    "delta-1",
)
@pytest.mark.parametrize(("job", "after", "step", "again"), some(DEATHS, every=3), indirect=["job"])
def test_a_driver_that_died_between_commits_loses_and_doubles_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch, after: int, step: str, again: str
) -> None:
    """E1, E2: with its checkpoint, and without it, when batches are cut otherwise."""
    source = Source(after + 7)
    first, second = cut(source.run(80), 50)[:2]
    rest = source.records[100:]
    job.land(*first)
    landing = job.landing(parallel_tables=1)
    dying(landing, monkeypatch, after, step)
    with pytest.raises(CrashError):
        landing.land(job.batch(second, 1))
    if again == "the same batch":
        job.land(*second, number=1)
        job.land(*rest, number=2)
    elif again == "other batches":
        for records in cut(source.records, 13):
            job.land(*records)
    else:
        job.land(*source.records)
    equal(job, source)


@pytest.mark.sweep("iceberg")
def test_a_batch_that_landed_lands_no_more(job: Job) -> None:
    source = Source(3)
    records = source.run(30)
    assert job.land(*records)
    assert job.land(*records) == []
    assert job.land(*records[:10]) == []
    equal(job, source)


@pytest.mark.sweep("iceberg")
def test_the_ledger_has_the_counts_of_an_attempt_whose_driver_died(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        change("c", "a", 1, {"id": 1}, lsn=1, offset=0), change("u", "a", 1, {"id": 1}, lsn=2, offset=1),
        change("c", "a", 2, {"id": "x"}, lsn=3, offset=2), change("u", "a", 3, {"id": 3}, lsn=4, offset=3, before={"id": 4}),
        record(b"poison", offset=4),
    ]  # fmt: skip
    landing = job.landing()
    dying(landing, monkeypatch, 9, "ledger")
    with pytest.raises(CrashError):
        landing.land(job.batch(records))
    lines = {line.table: line for line in job.land(*records)}
    line = lines["db.a"]
    assert (line.records, line.earlier, line.dead, line.split, line.changes) == (4, 0, 1, 1, 4)
    assert (line.inserted, line.superseded, line.tombstoned) == (2, 1, 1)
    assert (lines[None].dead, lines[None].records) == (1, 1)
    assert job.verdict().faults == ()
    assert sorted(letter["offset"] for letter in job.letters()) == [2, 4]


@pytest.mark.sweep("iceberg")
def test_two_jobs_of_one_name_never_both_land_a_record(job: Job) -> None:
    """E7: a zombie next to its successor, batches cut in different places."""
    source = Source(5)
    records = source.run(90)
    barrier, failed = threading.Barrier(2), list[sw.SafewriteError]()

    def run(size: int) -> None:
        landing = job.landing()
        barrier.wait()
        try:
            for part in cut(records, size):
                landing.land(job.batch(part))
        except sw.SafewriteError as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(size,)) for size in (17, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        assert error.kind is Kind.POSITION_MOVED, error
    for part in cut(records, 17):  # whoever is started again
        job.land(*part)
    equal(job, source)


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_made_anew_is_refused_with_the_way_out(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0), change("c", "b", 1, {"id": 1}, lsn=2, offset=1))
    if job.form == "delta":
        shutil.rmtree(job.folder / "db" / "a")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog(**job.catalog()).drop_table("db.a")
    more = [change("c", "a", 2, {"id": 2}, lsn=3, offset=2), change("c", "b", 2, {"id": 2}, lsn=4, offset=3)]
    with pytest.raises(sw.ConflictError, match=r"restart --config FILE --table db\.a") as told:
        job.land(*more)
    assert told.value.kind is Kind.TABLE_REPLACED
    assert set(job.rows("b")) == {1}
    job.landing().ledger.restart("db.a")
    (line,) = [line for line in job.land(*more) if line.table == "db.a"]
    assert line.begins_at
    assert set(job.rows("a")) == {2}
    assert set(job.rows("b")) == {1, 2}
    with pytest.raises(sw.InvalidInputError, match="no rows"):
        job.landing().ledger.restart("db.nobody")


@pytest.mark.sweep("iceberg")
def test_a_gap_before_a_batch_is_refused(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    late = replace(job.batch([change("c", "a", 3, {"id": 3}, lsn=3, offset=2)]), joined=True)
    with pytest.raises(sw.ConflictError, match="never landed"):
        job.landing().land(late)
    assert set(job.rows("a")) == {1}


@pytest.mark.sweep("iceberg")
def test_a_checkpoint_that_is_ahead_of_an_empty_lake_is_refused(job: Job) -> None:
    """Else the job would begin in the middle, without a word."""
    late = replace(job.batch([change("c", "a", 3, {"id": 3}, lsn=3, offset=2)], 7), joined=True)
    with pytest.raises(sw.ConflictError, match="ledger knows of none"):
        job.landing().land(late)


@pytest.mark.sweep("iceberg")
def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(job: Job) -> None:
    """E2: its offsets begin again, and would all be behind the positions of its tables."""
    job.land(*(change("c", "a", n, {"id": n}, lsn=n, offset=n) for n in range(5)))
    job.topic_id = "id-2"
    anew = [change("c", "a", n, {"id": n}, lsn=n, offset=n - 10) for n in range(10, 12)]
    with pytest.raises(sw.ConflictError, match="created again"):
        job.landing().land(replace(job.batch(anew), joined=True))
    job.land(*anew)
    assert set(job.rows("a")) == {0, 1, 2, 3, 4, 10, 11}


@pytest.mark.sweep("iceberg")
def test_what_cannot_land_is_kept_with_its_bytes_and_counted_once(job: Job) -> None:
    poison = b'{"op": "c", \xff'
    records = [
        record(poison, b"\x00key", offset=0, headers={"h": b"\xfe"}),
        change("c", "unknown", 1, {"id": 1}, lsn=1, offset=1),
        change("c", "a", 1, {"id": 1, "n": 1}, lsn=2, offset=2),
        change("c", "a", 2, {"id": 2, "n": "text"}, lsn=3, offset=3),
        change("c", "a", 3, {"id": 3, "n": 2**70}, lsn=4, offset=4),
        change("c", "a", None, {"id": None}, lsn=5, offset=5),
        change("c", "a", 4, {"id": 4, "n": 4}, lsn=6, offset=6),
        change("c", "a", 5, {"id": 5, "s": "\ud800"}, lsn=7, offset=7),
    ]  # fmt: skip
    job.land(*records)
    job.land(*records)
    letters = {letter["offset"]: letter for letter in job.letters()}
    assert sorted(letters) == [0, 1, 3, 4, 5, 7]
    assert (letters[0]["value"], letters[0]["key"]) == (poison, b"\x00key")
    assert "no table of the configuration" in letters[1]["reason"]
    assert "'n'" in letters[3]["reason"]
    assert letters[3]["table"] == "db.a"
    assert set(job.rows("a")) == {1, 4}
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_table_may_fail_on_what_cannot_land(job: Job) -> None:
    job.tables = [{"table": "a", "dead_letters": "fail"}]
    with pytest.raises(sw.InvalidInputError, match="topic/0 at 1"):  # most values of n are numbers
        job.land(
            change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0),
            change("c", "a", 2, {"id": 2, "n": "x"}, lsn=2, offset=1),
            change("c", "a", 3, {"id": 3, "n": 3}, lsn=3, offset=2),
        )
    assert not job.letters()


@pytest.mark.sweep("iceberg")
def test_letters_of_a_replay_under_another_configuration_are_neither_lost_nor_doubled(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0),
        change("c", "b", 1, {"id": 1}, lsn=2, offset=1),
    ]
    job.tables = [{"table": "a"}]
    landing = job.landing()
    dying(landing, monkeypatch, 0)
    with pytest.raises(CrashError):
        landing.land(job.batch(records))
    job.tables = [{"table": "b"}]
    job.land(*records)
    assert sorted(letter["offset"] for letter in job.letters()) == [0, 1]
    assert set(job.rows("b")) == {1}


def test_tables_on_s3_with_a_lock_table(tmp_path: Path, ministack: Ministack) -> None:
    bucket = f"cdc-{uuid.uuid4().hex[:8]}"
    ministack.boto3_client("s3").create_bucket(Bucket=bucket)
    lock_table = create_lock_table(ministack.boto3_client("dynamodb"), f"locks-{bucket}")
    options = ministack.storage_options()
    settings = {"warehouse": f"s3://{bucket}/lake", "lock_table": lock_table, "storage_options": options}
    job = Job(tmp_path, TABLES, settings=settings)
    source = Source(21)
    for number, records in enumerate(cut(source.run(40), 15)):
        job.land(*records, number=number)
    equal(job, source)


def snapshot_row(key: int, name: str, *, lsn: int, offset: int) -> KafkaRecord:
    source = postgres(lsn, "a", sequence=f'[null,"{lsn}"]', snapshot="true")
    return record(event("r", {"id": key, "name": name}, source=source), {"id": key}, offset=offset)


def committed_later(
    op: str, key: int, name: str | None, *, lsn: int, offset: int, before: int | None = None
) -> KafkaRecord:
    """A change of a transaction that began before the snapshot; ``before`` is the commit that the connector saw last."""
    source = postgres(lsn, "a", sequence=f'[{"null" if before is None else json.dumps(str(before))},"{lsn}"]')
    return record(event(op, name and {"id": key, "name": name}, source=source), {"id": key}, offset=offset)


@pytest.mark.sweep("iceberg", "batches of 10", "batches of 2")
@pytest.mark.parametrize("size", [1, 2, 10], ids=lambda size: f"batches of {size}")
def test_what_was_under_way_when_a_snapshot_was_taken_is_newer_than_its_rows(job: Job, size: int) -> None:
    records = [
        *(snapshot_row(key, "old", lsn=150, offset=key) for key in range(4)),
        committed_later("u", 0, "new", lsn=90, offset=4),
        committed_later("d", 1, None, lsn=95, offset=5),
        committed_later("u", 2, "newer", lsn=99, offset=6),
        committed_later("u", 2, "newest", lsn=140, offset=7, before=160),
        committed_later("u", 3, "last", lsn=170, offset=8, before=160),
    ]
    for number, cut_ in enumerate(cut(records, size)):
        job.landing().land(job.batch(cut_, number))
    assert {key: row["name"] for key, row in job.rows("a").items()} == {0: "new", 2: "newest", 3: "last"}
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_change_from_before_a_snapshot_does_not_come_back_after_a_restart_of_the_source(job: Job) -> None:
    """Its transaction told the commit before it, so it is where it was."""
    landing = job.landing()
    landing.land(
        job.batch(
            [
                committed_later("c", 0, "first", lsn=90, offset=0, before=80),
                snapshot_row(0, "second", lsn=150, offset=1),
            ],
            0,
        )
    )
    landing.land(job.batch([committed_later("c", 0, "first", lsn=90, offset=2, before=80)], 1))
    assert job.rows("a")[0]["name"] == "second"


@pytest.mark.sweep("iceberg")
def test_an_epoch_of_the_source_knows_no_snapshot_of_the_one_before(job: Job) -> None:
    job.landing().land(job.batch([snapshot_row(0, "old", lsn=150, offset=0)], 0))
    anew = Job(job.folder, [{"table": "a", "epoch": 1}], job.form).landing()
    anew.land(
        job.batch(
            [
                committed_later("u", 0, "first", lsn=10, offset=1),
                committed_later("u", 0, "second", lsn=20, offset=2, before=15),
            ],
            1,
        )
    )
    assert job.rows("a")[0]["name"] == "second"


@pytest.mark.sweep("iceberg")
def test_a_configuration_of_an_earlier_epoch_lands_nothing(job: Job) -> None:
    """It was set back, or runs elsewhere still: a new key would land below the rows that its epoch's end takes away."""
    job.land(change("c", "a", 1, {"id": 1}, lsn=9, offset=0))
    later = [{"table": "a", "epoch": 2}]
    Job(job.folder, later, job.form).land(change("c", "a", 2, {"id": 2}, lsn=1, offset=1), number=1)
    with pytest.raises(
        sw.InvalidInputError, match=r"says epoch 0 of db.a, and the job landed changes of epoch 2"
    ):
        job.land(change("c", "a", 3, {"id": 3}, lsn=10, offset=2), number=2)
    assert set(job.rows("a")) == {1, 2}
    job.tables = later
    job.land(change("c", "a", 3, {"id": 3}, lsn=2, offset=2), number=2)
    job.land(change("u", "a", 3, {"id": 3}, lsn=3, offset=3), number=3)
    assert set(job.rows("a")) == {1, 2, 3}
    assert not job.verdict().faults
