"""A job that lands some batches by executors and others in its own process, and one whose executors would send too much."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench.cdc.modes import SETTINGS, Mode
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.status import status
from safewrite.cdc.table.by_tasks import ExecutorWork, TooMuchHereError
from safewrite.cdc.table.task_shares import TaskShare
from safewrite.changes.members.table_chunks import UnfitError
from tests.cdc.jobs import Job, Source, cut
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import by_executors, job_of, told
from tests.cdc.test_history import late_changes


def by_lot(draw: random.Random, *, lost: frozenset[int] = frozenset()) -> Any:
    """Executors for about half of the batches; they go before these of their jobs."""
    executors = Executors(lost)
    return lambda records: executors.work(records) if draw.random() < 0.5 else ExecutorWork.here(records)


@pytest.mark.parametrize(
    ("seed", "changes"), [(31, 80), *(pytest.param(one, 160, marks=pytest.mark.long) for one in range(6))]
)
def test_a_job_that_changes_its_mind_lands_what_one_does_that_does_not(
    tmp_path: Path, seed: int, changes: int
) -> None:
    """Batches have the same names, and the ledger the same lines."""
    source = Source(seed)
    source.run(changes)
    batches = cut(source.records, 20)
    plain, other = job_of(tmp_path / "plain"), job_of(tmp_path / "other")
    lines = []
    for job, work in ((plain, ExecutorWork.here), (other, by_lot(random.Random(seed)))):
        landing = job.landing()
        given = [replace(job.batch(one, at), engine=f"batch {at}, by lot") for at, one in enumerate(batches)]
        lines.append([line for one in given for line in landing.land(one, work)])
        assert {name: job.rows(name) for name in source.tables} == source.rows
        assert job.verdict().faults == ()
    assert told(lines[0]) == told(lines[1])
    found = status(other.landing(), other.read("job_ledger", "cdc"))
    assert found.to_dict()["engine"] == f"batch {len(batches) - 1}, by lot"
    landed = by_executors(lines[1]).values()
    assert 0 < sum(one for one, _ in landed) < sum(all_of for _, all_of in landed)


@pytest.mark.parametrize(
    ("mode", "form"),
    [("history", "delta"), ("append", "iceberg"), ("marked", "delta"), ("history", "iceberg")],
)
def test_tables_of_every_mode_are_the_same_whoever_lands_a_batch(
    tmp_path: Path, mode: Mode, form: str
) -> None:
    """Late changes and copies among them; executors go with their rows now and then."""
    late = {} if mode == "append" else {"all_late": "count"}
    records = [replace(one, partition=json.loads(one.key or b"")["id"] % 2) for one in late_changes(5, 60)]
    batches, found, lines = cut(records, 9), list[Any](), list[Any]()
    for name, work in (
        ("plain", ExecutorWork.here),
        ("other", by_lot(random.Random(8), lost=frozenset({3, 7}))),
    ):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name, [{"table": "a", **late, **SETTINGS[mode]}], form)
        landing = job.landing()
        lines.append(
            [line for at, one in enumerate(batches) for line in landing.land(job.batch(one, at), work)]
        )
        found.append(sorted(job.read("a").to_pylist(), key=str))
        assert job.verdict().faults == ()
    assert found[0] == found[1]
    assert told(lines[0], form) == told(lines[1], form)
    landed = by_executors(lines[1]).values()
    assert 0 < sum(one for one, _ in landed) < sum(all_of for _, all_of in landed)


@pytest.mark.parametrize("first", ["executors", "here"])
def test_a_batch_that_one_side_began_is_landed_by_the_other_in_other_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The driver dies when one table has committed."""
    source, job = Source(7), job_of(tmp_path / "lake")
    source.run(60)
    sides = [Executors().work, ExecutorWork.here]
    one, other = sides if first == "executors" else reversed(sides)
    landing, done = job.landing(parallel_tables=1), list[Any]()
    apply = landing._apply

    def crash(share: Any) -> None:
        if done:
            raise RuntimeError("the driver dies here")
        done.append(share)
        apply(share)

    monkeypatch.setattr(landing, "_apply", crash)
    with pytest.raises(RuntimeError, match="the driver dies here"):
        landing.land(job.batch(source.records, 0), one)
    landing = job.landing()
    lines = [line for part in cut(source.records, 25) for line in landing.land(job.batch(part, 0), other)]
    assert {name: job.rows(name) for name in source.tables} == source.rows
    assert job.verdict().faults == ()
    assert sum(line.records for line in lines) == len(source.records)
    assert sum(line.earlier for line in lines) > 0


def weighed(executors: Executors, most: int) -> Any:
    """The work of executors whose driver takes so many bytes of records."""

    def work(records: KafkaRecords) -> ExecutorWork:
        return replace(executors.work(records), most=most)

    return work


@pytest.mark.parametrize("when", ["decoded", "looked at"])
def test_more_than_the_driver_takes_does_not_come_to_it(tmp_path: Path, when: str) -> None:
    """A log of changes comes whole; so does a table that is not as tasks knew it, which is seen when they have read it."""
    source, folder = Source(9), tmp_path / "lake"
    source.run(40)
    job: Job = job_of(folder, **({"mode": "append", "metadata": {"op": "op"}} if when == "decoded" else {}))
    executors, landing = Executors(), job.landing()
    unfit = UnfitError("a test says so")
    prepared = mock.patch.object(TaskShare, "prepared", side_effect=unfit)
    with (
        prepared,
        mock.patch.object(executors, "taken", side_effect=AssertionError("it came")),
        pytest.raises(TooMuchHereError, match="would come to the driver, which takes 2,000 at once"),
    ):
        landing.land(job.batch(source.records, 0), weighed(executors, 2000))
    assert not (folder / "db").exists() or all(job.read(name).num_rows == 0 for name in source.tables)
    for part in cut(source.records, 8):
        landing.land(job.batch(part, 0), executors.work)
    verdict = job.verdict()
    assert verdict.faults == ()
    assert sum(one.totals["records"] for one in verdict.accounts) == len(source.records)
    if when == "looked at":
        assert {name: job.rows(name) for name in source.tables} == source.rows
