"""Tasks in threads of this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import safewrite as sw
from safewrite.engine.abc import TaskAttempt, TaskReport, bodies
from safewrite.engine.local import LocalEngine
from safewrite.engine.spark import _hashing_to, _murmur3
from tests.engine.cases import CASES, batches
from tests.engine.tasks import Count


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_threads_run_tasks(case: Callable[..., None]) -> None:
    case(LocalEngine(), lambda ranges: [*map(batches, ranges)])


def test_a_report_that_comes_twice_is_refused() -> None:
    """Two attempts of a task have each written the task's rows."""
    one, twice = (
        TaskReport(TaskAttempt(0, 1), "a"),
        [TaskReport(TaskAttempt(1, number), "b") for number in (2, 3)],
    )
    assert bodies([twice[0], one]) == ["a", "b"]
    with pytest.raises(sw.InternalError, match="Task 1 reported twice, by attempts 2 and 3"):
        bodies([twice[0], one, twice[1]])


def test_spark_s_hash_of_an_int() -> None:
    """Figures of ``SELECT hash(0), hash(1), hash(-5), hash(2147483647)``; Spark itself is asked in tests/spark."""
    assert [_murmur3(number) for number in (0, 1)] == [933211791, -559580957]
    for parts in (1, 2, 7, 64):
        assert [_murmur3(number) % parts for number in _hashing_to(parts)] == [*range(parts)]


def test_attempts_of_threads_have_numbers_of_their_own() -> None:
    engine = LocalEngine()
    sources = [[*map(batches, [range(3)])] for _ in range(4)]
    numbers = []
    for source in sources:
        with engine.map(source, Count()) as mapped:
            numbers += [report.at.number for report in mapped.reports]
    assert all(a < b for a, b in itertools.pairwise(numbers))
