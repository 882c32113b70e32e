"""T3-S7: a job of change data ends on SIGTERM as schedulers of containers send it, between batches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from safewrite.cdc.kafka.ending import BatchUnderWay, run_until_ended


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
