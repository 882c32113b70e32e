"""What a batch costs in the driver, counted: what is read, made and put for each table, and what is not done again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safewrite.changes.meaning import reading
from safewrite.changes.meaning.memory import Memory
from tests.cdc.jobs import Job, change
from tests.cdc.on_executors import Executors, work_of

TABLES = "abc"


def landing_of(folder: Path) -> tuple[Job, Any]:
    job = Job(folder, [{"table": one} for one in TABLES], schemas=True)
    return job, job.landing()


def inserts(job: Job, number: int) -> Any:
    """A batch with a new row for each table, and from the third on with a delete of the first one's."""
    at = number * 10
    records = [
        change("c", one, at, {"id": at}, lsn=at + place, offset=at + place)
        for place, one in enumerate(TABLES, 1)
    ]
    if number == 2:
        records += [
            change("d", one, 0, None, lsn=at + place, offset=at + place)
            for place, one in enumerate(TABLES, 5)
        ]
    return job.batch(records, number)


def counted(monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> Counter[str]:
    """How often a function is called from now on, in whatever thread; the threads of a job stay."""
    found, before = Counter[str](), getattr(of, name)

    def counting(*given: Any, **settings: Any) -> Any:
        found[name] += 1
        return before(*given, **settings)

    monkeypatch.setattr(of, name, counting)
    return found


def test_a_warm_batch_reads_nothing_of_what_its_tables_remember(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that a table names is read once by a process, and again after a batch that wrote another one."""
    job, landing = landing_of(tmp_path)
    work, read = work_of(Executors()), counted(monkeypatch, Memory, "decode")
    told = list[int]()
    for number in range(6):
        before = read.total()
        landing.land(inserts(job, number), work)
        told.append(read.total() - before)
    assert told == [0, 3, 0, 3, 0, 0]
    assert {one: set(job.rows(one)) for one in TABLES} == {one: {10, 20, 30, 40, 50} for one in TABLES}


def test_a_warm_batch_reads_the_conditions_of_each_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, landing = landing_of(tmp_path)
    work = work_of(Executors())
    landing.land(inserts(job, 0), work)
    read = counted(monkeypatch, reading, "parse")
    landing.land(inserts(job, 1), work)
    assert read.total() == len(TABLES)


def test_a_warm_batch_puts_each_key_in_two_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for its intent before the commit, one for its result behind it; no table waits for the transactions of another."""
    job, landing = landing_of(tmp_path)
    work = work_of(Executors())
    landing.land(inserts(job, 0), work)
    commits, connect = Counter[str](), sqlite3.connect

    def connected(file: Path, **settings: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(file, **settings)
        made.set_trace_callback(lambda text: commits.update([file.parts[-3]] if text == "COMMIT" else []))
        return made

    monkeypatch.setattr(sqlite3, "connect", connected)
    landing.land(inserts(job, 1), work)
    assert commits == dict.fromkeys(TABLES, 2)
