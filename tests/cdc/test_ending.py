"""T3-S7: a job of change data ends on SIGTERM as schedulers of containers send it, between batches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.kafka import ending
from safewrite.cdc.kafka.ending import BatchUnderWay, run_until_ended
from safewrite.cdc.pipeline import Pipeline
from tests.cdc.jobs import Job


class Query:
    """A query whose ``awaitTermination`` does something, and ends after ``stop``."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps, self.stopped_in_batch = list(steps), None
        self.batch = BatchUnderWay()

    def awaitTermination(self, timeout: Any = None) -> bool:  # noqa: N802 - Spark's own name
        assert timeout
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False

    def stop(self) -> None:
        self.stopped_in_batch = not self.batch.wait(0)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_batch_that_is_under_way_lands_before_the_job_ends() -> None:
    """T3-S7"""
    started, release, landed = threading.Event(), threading.Event(), []
    query = Query(started.wait, terminate, release.set)

    def land() -> None:
        with query.batch.landing():
            started.set()
            release.wait(10)
            landed.append(True)

    thread = threading.Thread(target=land)
    query.steps[1] = lambda: (terminate(), threading.Timer(0.3, release.set).start())
    thread.start()
    run_until_ended(query, query.batch, grace_s=30)
    thread.join()
    assert landed
    assert query.stopped_in_batch is False


def test_a_batch_that_takes_too_long_is_cut_off() -> None:
    query = Query(terminate)
    with query.batch.landing():
        run_until_ended(query, query.batch, grace_s=0.05)
    assert query.stopped_in_batch is True


def test_a_second_signal_does_not_wait_for_the_batch() -> None:
    query = Query(lambda: (terminate(), terminate()))
    with query.batch.landing():
        run_until_ended(query, query.batch, grace_s=600)
    assert query.stopped_in_batch is True


def test_a_query_that_ends_by_itself_is_not_stopped_and_the_signal_is_whose_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    query = Query(lambda: None)
    run_until_ended(query, query.batch)
    assert query.stopped_in_batch is None
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_does_not_end_before_who_listens_was_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells it in a thread of its own: each SIGTERM ended with the stack of a call to a process that was gone."""
    told, query = threading.Event(), Query(terminate)
    monkeypatch.setattr(query, "stop", threading.Timer(0.2, told.set).start)
    run_until_ended(query, query.batch, told=told)
    assert told.is_set()
    monkeypatch.setattr(ending, "TOLD_S", 0.01)
    run_until_ended(Query(), query.batch, told=threading.Event())


def test_what_ended_the_query_is_raised_and_the_signal_is_whose_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def fail() -> None:
        raise RuntimeError("the query failed")

    query = Query(fail)
    with pytest.raises(RuntimeError, match="the query failed"):
        run_until_ended(query, query.batch)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_job_in_another_thread_leaves_signals_alone() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            query = Query(lambda: None)
            run_until_ended(query, query.batch)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == []


@pytest.mark.parametrize("of_batch", [True, False], ids=["of the batch", "of Spark"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OffsetOutOfRangeException: t-0 at 5", "Kafka deleted records before the job 'job' read them"),
        ("Some data may have been lost because they are not available in Kafka any more", "name with a raised epoch"),
        ("NullPointerException", "ended by an error"),
    ],
)  # fmt: skip
def test_what_ended_a_job_is_told_in_few_lines(
    tmp_path: Path, text: str, said: str, *, of_batch: bool
) -> None:
    """T4-B7: the right sentence stood within hundreds of lines of Java's and Python's traces."""
    trace = (
        f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: {text}\n"
        + "\tat a.b.C\n" * 400
    )
    pipeline = Pipeline(Job(tmp_path, [{"table": "a"}]).landing().config)

    class Ended:
        def awaitTermination(self, timeout: Any = None) -> bool:  # noqa: N802 - Spark's own name
            pipeline.error = RuntimeError(trace) if of_batch else None
            raise RuntimeError("[STREAM_FAILED] ..." if of_batch else trace)

    with pytest.raises(sw.StorageError) as raised:
        pipeline.wait(Ended())  # type: ignore[arg-type]
    assert said in str(raised.value)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
