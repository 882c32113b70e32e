"""Runs tasks in a few threads of this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, TypeVar

import pyarrow as pa

from safewrite.boundary.workers import Workers
from safewrite.engine.abc import Mapped, Task, TaskAttempt, TaskOutput, TaskReport, performed
from safewrite.engine.exchange import Aside, Share

T = TypeVar("T")
Source = Sequence[Iterable[Any]]
"""Inputs of tasks: batches, rows on their way to parts, or shares that came to a part."""

THREADS = max(2, min(4, os.cpu_count() or 1))

_attempts = itertools.count()


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Workers:
    """One pool for all engines of a process; a forked child makes its own, for threads do not survive."""
    return Workers(THREADS, "safewrite-tasks")


class LocalEngine:
    """Runs every task once.  Rows that tasks give are in memory."""

    @contextmanager
    def map(self, source: Source, task: Task, rows_a_batch: int | None = None) -> Iterator[Mapped[Source]]:
        """See :class:`safewrite.engine.abc.Engine`; the batches are there already."""
        made = _all_of([partial(_run, task, given, part) for part, given in enumerate(source)])
        rows = [given for given, _ in made]
        yield Mapped([report for _, report in made], rows, rows)

    def taken(self, source: Source) -> list[Any]:
        """See :class:`safewrite.engine.abc.Engine`."""
        return [one.what for one in itertools.chain.from_iterable(source) if isinstance(one, Aside)]

    def here(self, source: Source) -> None:
        """See :class:`safewrite.engine.abc.Engine`; they are in this process."""

    def at_hand(self, source: Source) -> list[Any] | None:
        """See :class:`safewrite.engine.abc.Engine`."""
        return [*itertools.chain.from_iterable(source)]

    def collected(self, source: Source, columns: pa.Schema) -> pa.Table:
        """See :class:`safewrite.engine.abc.Engine`."""
        tables = [pa.Table.from_batches([one]).cast(columns) for one in itertools.chain.from_iterable(source)]
        return pa.concat_tables([columns.empty_table(), *tables])

    def exchange(self, source: Source, parts: int) -> Source:
        """See :class:`safewrite.engine.abc.Engine`."""
        found: list[list[Share]] = [[] for _ in range(parts)]
        for one in itertools.chain.from_iterable(source):
            if not isinstance(one, Aside):
                for number, share in one.to_parts(parts):
                    found[number].append(share)
        return found

    def together(self, sources: Sequence[Source]) -> Source:
        """See :class:`safewrite.engine.abc.Engine`."""
        return [*itertools.chain.from_iterable(sources)]

    def gathered(self, source: Source, inputs: int) -> Source:
        """See :class:`safewrite.engine.abc.Engine`."""
        if len(source) <= inputs:
            return source
        return [[*itertools.chain.from_iterable(source[number::inputs])] for number in range(inputs)]

    def numbers(self, count: int) -> Source:
        """See :class:`safewrite.engine.abc.Engine`."""
        return [[pa.record_batch({"number": pa.array([number])})] for number in range(count)]

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        """See :class:`safewrite.engine.abc.Engine`."""
        made = _all_of([partial(_run, task, (), part) for part, task in enumerate(tasks)])
        return [report for _, report in made]


def _run(task: Task, given: Iterable[Any], part: int) -> tuple[list[TaskOutput], TaskReport]:
    *rows, report = performed(task, given, TaskAttempt(part, next(_attempts)))
    assert isinstance(report, TaskReport)
    return [row for row in rows if not isinstance(row, TaskReport)], report


def _all_of(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of some calls, in their order; what the first of them raises is raised."""
    if len(calls) == 1:
        return [calls[0]()]
    pending = [_pool_of(os.getpid()).submit(call) for call in calls]
    try:
        return [one.result() for one in pending]
    finally:
        for one in pending:
            one.cancel()
