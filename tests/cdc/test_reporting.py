"""What a job tells of each batch: the log, CloudWatch's lines, OpenTelemetry, and never in its way."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

import safewrite as sw
from safewrite import cdc, metrics
from safewrite.cdc.config.job import Kafka
from safewrite.cdc.kafka.admin import KafkaAdmin
from safewrite.cdc.kafka.listener import QueryListener
from safewrite.cdc.kafka.source import Source
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.ledger.reporting import tell_stream
from safewrite.cdc.records.batch import Partition
from tests.cdc.events import record
from tests.cdc.jobs import Job, change
from tests.metrics.test_metrics import Meter, problems


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, [{"table": "a"}, {"table": "b"}])


def records() -> list[Any]:
    return [
        change("c", "a", 1, {"id": 1}, lsn=1, offset=0), change("u", "a", 1, {"id": 1}, lsn=2, offset=1),
        change("d", "b", 5, None, lsn=3, offset=2), record(b"?", offset=3),
    ]  # fmt: skip


def land(job: Job, on_event: Any, number: int = 0) -> Any:
    return Landing(job.landing().config, on_event=on_event).land(job.batch(records(), number))


def test_each_table_of_a_batch_is_told_once_and_what_names_none_under_the_job(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[sw.Event] = []
    with caplog.at_level(logging.DEBUG, "safewrite"):
        land(job, events.append)
    told = {event.table: event.details for event in events if event.kind == "table_batch"}
    assert set(told) == {"job", "db.a", "db.b"}
    counted = ("records", "applied", "superseded", "tombstoned", "dead")
    assert [told["db.a"][name] for name in counted] == [2, 1, 1, 0, 0]
    assert [told["db.b"][name] for name in counted] == [1, 1, 0, 1, 0]
    assert told["job"] == {"batch": 0, "records": 1, "ignored": 0, "dead": 1}
    assert told["db.a"]["commit_s"] >= 0
    assert told["db.a"]["lag_s"] > 0
    assert told["db.a"]["valid_through_s"] > 1_000_000_000
    assert (
        sum(event.kind == "commit" for event in events) >= 4
    )  # the tables' own writes, the books' among them
    kinds = [getattr(one, "kind", "") for one in caplog.records]
    assert kinds.count("table_batch") == 3
    (whole,) = (one for one in caplog.records if getattr(one, "kind", "") == "batch")
    assert whole.levelno == logging.INFO
    assert [getattr(whole, name) for name in ("job", "batch", "tables", "records", "applied", "dead")] == [
        "job",
        0,
        2,
        4,
        2,
        1,
    ]
    assert whole.getMessage().startswith(
        "batch 0 of job: 2 tables, 4 records, 2 applied, 1 superseded, 1 dead"
    )
    assert all(
        one.levelno == logging.DEBUG for one in caplog.records if getattr(one, "kind", "") == "table_batch"
    )
    events.clear()
    assert land(job, events.append) == []
    assert [event.kind for event in events if event.kind == "table_batch"] == []


def test_the_events_are_metrics_of_cloudwatch_and_opentelemetry(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Meter()
    record_with, lines = metrics.otel(meter), metrics.emf(namespace="lake")

    def both(event: sw.Event) -> None:
        record_with(event)
        lines(event)

    land(job, both)
    numbers = {"lag_records": 7, "batch_s": 1.5, "batch": 0}
    tell_stream("job", "text", numbers, metrics.listener(both))
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [problems(line) for line in printed] == [[]] * len(printed)
    found = {(line["kind"], line["Table"]): line for line in printed}
    assert found["table_batch", "db.a"]["ChangesApplied"] == 1
    assert found["table_batch", "job"]["DeadLetters"] == 1
    assert "SourceLag" not in found["table_batch", "job"]
    assert (found["stream", "job"]["LagRecords"], found["stream", "job"]["BatchTime"]) == (7, 1.5)
    seen = {name for name, _, _ in meter.seen}
    assert {"safewrite.cdc.records", "safewrite.cdc.lag.records", "safewrite.cdc.lag.time"} <= seen


def test_a_listener_that_raises_stops_nothing(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: sw.Event) -> None:
        raise ValueError("no")

    land(job, broken)
    tell_stream("job", "text", {"failed": 1}, metrics.listener(broken))
    assert job.rows("a") == {1: {"id": 1}}
    assert "on_event= raised" in caplog.text


def test_what_cannot_be_called_is_refused(job: Job) -> None:
    with pytest.raises(sw.InvalidInputError, match="on_event= is a function"):
        cdc.Pipeline(job.landing().config, on_event="print")  # type: ignore[arg-type]


def test_the_lag_is_told_only_where_spark_knows_it() -> None:
    from safewrite.cdc.kafka import listener

    newest = {"t": {"0": 10, "1": 5}, "u": {"0": 3}}
    assert listener.lag_of({"t": {"0": 4, "1": 5}}, newest) == 6
    assert listener.lag_of(newest, newest) == 0
    unknown = ((None, newest), (3, newest), (newest, None), ("?", "?"))
    assert [listener.lag_of(*one) for one in unknown] == [None] * 4


def test_a_consumer_group_that_gets_no_offsets_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> Any:
        raise RuntimeError("GroupAuthorizationException: not authorized")

    monkeypatch.setattr(KafkaAdmin, "client", away)
    kafka = Kafka(servers="s", topics=["t"])
    Source(kafka, "job").commit(None, {Partition("t", 0): 5})  # type: ignore[arg-type]
    assert not caplog.records, "no group is configured, so nothing is asked"
    kafka = Kafka(servers="s", topics=["t"], commit_group="lag")
    Source(kafka, "job").commit(None, {Partition("t", 0): 5})  # type: ignore[arg-type]
    (said,) = caplog.records
    assert "lag did not get the offsets" in said.getMessage()
    assert "not authorized" in said.getMessage()


def test_what_a_stream_ended_of_is_told_and_not_that_java_called_python(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It said that "an exception was raised by the Python Proxy", and of what stood below."""
    listener = QueryListener("shop", "q", cast("Any", mock.MagicMock()), None, lambda: None)
    listener.onQueryStarted(cast("Any", SimpleNamespace(name="q", runId=1)))
    told = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "clientserver.py", line 642, in _call_proxy\n    return_value = getattr(self.pool[obj_id], method)(*params)\n'
        "safewrite.errors.StorageError: Version 0 of the log holds a torn line.\n\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)"
    )
    with caplog.at_level(logging.ERROR, "safewrite"):
        listener.onQueryTerminated(cast("Any", SimpleNamespace(runId=1, exception=told)))
    (said,) = caplog.messages
    assert said.endswith(
        "ended by an error: safewrite.errors.StorageError: Version 0 of the log holds a torn line."
    )
