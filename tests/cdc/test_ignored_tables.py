"""Source tables that a job passes over: their records are counted and not kept, whoever reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.config.job import load
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.records.change import KafkaRecord, SourceTable
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.status import status
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, change
from tests.cdc.on_executors import Executors


def told(job: Job, given: list[KafkaRecord]) -> dict[str | None, tuple[int, int, int]]:
    lines = job.landing().land(job.batch(given), Executors().work)
    assert job.verdict().faults == ()
    return {line.table: (line.records, line.ignored, line.dead) for line in lines}


@pytest.mark.sweep("one by one")
@pytest.mark.parametrize("schemas", [True, False], ids=["by columns", "one by one"])
def test_records_of_unknown_tables_are_counted_and_not_kept(tmp_path: Path, schemas: bool) -> None:
    job = Job(tmp_path, [{"table": "a"}], settings={"unknown_tables": "ignore"}, schemas=schemas)
    given = [
        change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0),
        change("c", "b", 1, {"id": 1, "n": 2}, lsn=2, offset=1),
        change("d", "b", 1, lsn=3, offset=2),
        record(None, {"id": 1}, offset=3),
        change("c", "c", 7, {"id": 7}, lsn=4, offset=4),
        record(b"no event", {"id": 1}, offset=5),
    ]
    assert told(job, given) == {None: (5, 4, 1), "db.a": (1, 0, 0)}
    assert job.rows("a") == {1: {"id": 1, "n": 1}}
    assert [letter["offset"] for letter in job.letters()] == [5]
    (table,) = status(job.landing(), job.read("job_ledger", "cdc")).tables
    assert (table.table, table.records, table.applied) == ("db.a", 1, 1)


def test_ignored_tables_are_named_by_patterns(tmp_path: Path) -> None:
    settings = {"ignored_tables": ["public.tmp_*", "log?"]}
    job = Job(tmp_path, [{"table": "a"}], settings=settings, schemas=True)
    tables = ["a", "tmp_1", "tmp_", "logs", "log", "b"]
    given = [change("c", one, 1, {"id": 1}, lsn=at + 1, offset=at) for at, one in enumerate(tables)]
    assert told(job, given) == {None: (5, 3, 2), "db.a": (1, 0, 0)}
    assert [letter["offset"] for letter in job.letters()] == [4, 5]


def router(*patterns: str, sources: tuple[str, ...] = (), unknown: str = "dead-letter") -> Router:
    config: dict[str, Any] = {
        "job": "j", "kafka": {"servers": "s", "topics": ["t"]}, "envelope": "debezium-json", "checkpoint": "c",
        "warehouse": "w", "unknown_tables": unknown, "ignored_tables": list(patterns),
        "tables": [{"database": "d", "table": f"t{at}", "source": one} for at, one in enumerate(sources)],
    }  # fmt: skip
    return Router(load(config))


@pytest.mark.parametrize(
    ("sources", "patterns", "ignored"),
    [
        (["orders"], ["archive.*"], True),
        (["archive.orders"], ["archive.*"], False),
        (["archive.orders"], ["db.*"], True),
        (["orders"], ["order*"], False),
        (["db.archive.orders"], ["*"], False),
        (["other"], ["orders"], True),
        (["other"], ["Orders"], False),
        (["other"], ["order"], False),
    ],
)
def test_a_table_that_is_named_wins_over_a_pattern_that_says_no_more_of_the_source(
    sources: list[str], patterns: list[str], ignored: bool
) -> None:
    source = SourceTable("db", "archive", "orders")
    assert router(*patterns, sources=tuple(sources)).ignores(source) is ignored


@pytest.mark.parametrize(
    ("names", "patterns", "unknown", "ignored"),
    [
        (["pg.public.a", "pg.public.a"], [], "ignore", False),
        (["pg.public.b", "pg.public.b"], [], "ignore", True),
        (["pg.all.events"], [], "ignore", False),
        (["pg.public.b"], ["public.b"], "dead-letter", True),
        (["pg.public.a"], ["public.*"], "dead-letter", False),
        (["pg.public.a", "pg.all.b"], ["all.*"], "dead-letter", False),
        (["b"], ["*"], "dead-letter", False),
    ],
)
def test_a_tombstone_is_passed_over_only_where_its_table_is_sure(
    names: list[str], patterns: list[str], unknown: str, ignored: bool
) -> None:
    """A configured source may name a database, which no tombstone does; a routed topic is the name of no table."""
    found = router(*patterns, sources=("inventory.public.a",), unknown=unknown)
    assert found.ignores_tombstone(names) is ignored


def test_a_compacted_delete_of_a_table_that_is_passed_over_is_no_dead_letter(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}], settings={"ignored_tables": ["public.b"]}, schemas=False)
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    lines = job.land(record(None, {"id": 1}, offset=1, topic="pg.public.b"))
    assert [(line.table, line.records, line.ignored) for line in lines] == [(None, 1, 1)]
    assert not job.letters()
    assert sorted(job.rows("a")) == [1]


def test_a_dead_letter_of_a_table_that_is_ignored_today_is_replayed_and_gone(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}])
    job.land(
        change("c", "a", 1, {"id": 1}, lsn=1, offset=0),
        record(event("c", {"id": 2}, source=postgres(2, "b")), {"id": 2}, offset=1),
    )
    found = DeadLetters(job.landing(ignored_tables=["b"])).replay()
    assert (found.landed, found.dead) == (1, {})
    assert [letter["state"] for letter in job.letters()] == ["replayed"]
    assert job.verdict().faults == ()
