"""Dead letters say nothing of the changes that come with them: neither that the source was set back, nor how far its clock is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import landed


def told(op: str, key: int, n: Any, lsn: int, offset: int) -> KafkaRecord:
    """A change of a table without a schema; the clock goes with the log."""
    source = postgres(lsn, "a", ts_ms=1714000000000 + lsn)
    return record(event(op, {"id": key, "n": n}, None, source=source), {"id": key}, offset=offset)


def misfit(count: int, lsn: int, offset: int) -> list[KafkaRecord]:
    return [told("u", 1, "a text now", lsn + at, offset + at) for at in range(count)]


@pytest.mark.sweep("90", "iceberg", "True-1")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("count", [1, 90])
@pytest.mark.parametrize("has_others", [False, True])
def test_t4_b1_a_late_change_and_a_newer_dead_letter_are_no_source_that_was_set_back(
    tmp_path: Path, *, form: str, count: int, has_others: bool
) -> None:
    """Nothing tells to raise ``epoch``, under which the change that was sent again would win over the newer row."""
    job = Job(tmp_path, [{"table": "a"}], form, schemas=False)
    first = [told("c", key, key, 10 + key, key) for key in range(2)]
    again = [told("c", 0, 0, 10, 5)]
    others = [told("c", 1000 + at, 1, 900 + at, 400 + at) for at in range(count)] if has_others else []
    batches = [first, [told("u", 0, 7, 500, 3)], [*again, *misfit(count, 600, 100), *others]]
    lines = landed(job, batches, Executors())
    assert [(line.late, line.dead) for line in lines if line.table][-1] == (1, count)
    assert job.rows("a")[0]["n"] == 7
    assert len(job.rows("a")) == 2 + len(others)
    assert not job.verdict().faults


def test_t4_b1_the_time_of_a_dead_letter_does_not_excuse_a_source_that_was_set_back(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    first = [told("c", 0, 0, 100, 0), told("c", 1, 1, 101, 1)]
    set_back = record(
        event("u", {"id": 0, "n": 5}, None, source=postgres(50, "a", ts_ms=1714000000700)),
        {"id": 0},
        offset=9,
    )
    batches = [first, [*misfit(1, 900, 2), told("c", 2, 2, 102, 3)], [set_back, told("c", 3, 3, 60, 10)]]
    with pytest.raises(sw.InvalidInputError, match="lower log positions"):
        landed(job, batches, Executors())


@pytest.mark.long
def test_t4_b1_a_row_that_the_filter_does_not_let_pass_is_no_late_one(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "filter": "n < 100"}], schemas=False)
    first = [told("c", key, key, 10 + key, key) for key in range(3)]
    again, gone = [told("c", 0, 0, 10, 200)], [told("u", 1, 500, 600, 201)]
    others = [told("c", 1000 + at, 1, 900 + at, 400 + at) for at in range(90)]
    landed(job, [first, [told("u", 0, 7, 500, 100)], [*again, *gone, *others]], None)
    assert (job.rows("a")[0]["n"], 1 in job.rows("a")) == (7, False)
