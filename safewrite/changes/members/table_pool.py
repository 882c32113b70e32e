"""Works in one task on the shares of many tables, some of them at a time: most of their time they wait for the store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import pyarrow as pa

from safewrite.boundary.workers import Workers
from safewrite.changes.members.table_chunks import UnfitError, first_part
from safewrite.changes.tasks.read_task import CHANGES
from safewrite.engine.abc import Task, TaskAttempt, TaskOutput, TaskReport, performed
from safewrite.engine.exchange import CHUNKS, Dealt, Share, Whole
from safewrite.errors import SafewriteError

T = TypeVar("T")
Read = Callable[[pa.Table], pa.Table]
"""Makes changes as a decision takes them of those that came; picklable."""


TABLES_AT_ONCE = 32
"""A task works on at most this many tables at a time: most of their time they wait for the store."""
JOINED = 10_000
"""Changes that came from several tasks are read together, until they are so many."""
_Told = list[tuple[str, TaskReport]]


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Workers:
    return Workers(TABLES_AT_ONCE, "safewrite-tables")


def _side_by_side(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """The results of calls, in their order, so many at a time; an error of one is raised when all threads are done."""
    if len(calls) == 1:
        return [calls[0]()]
    left, found = deque(enumerate(calls)), dict[int, T]()

    def work() -> None:
        while left:
            try:
                number, call = left.popleft()
            except IndexError:  # another thread took it
                return
            found[number] = call()

    pending = [_pool_of(os.getpid()).submit(work) for _ in range(min(at_once, len(calls)))]
    for one in pending:
        one.result()
    return [found[number] for number in range(len(calls))]


@dataclass(frozen=True)
class TaskOfTable:
    """A task of a table; ``number`` is its place among those of the table."""

    name: str
    number: int
    task: Task

    def done(self, given: Iterable[Any], at: TaskAttempt) -> tuple[list[Dealt], TaskReport]:
        """What the task gives to an exchange, and its report."""
        *rows, report = performed(self.task, given, TaskAttempt(self.number, at.number))
        assert isinstance(report, TaskReport)
        return [row for row in rows if isinstance(row, Dealt)], report


@dataclass(frozen=True)
class GivenRows:
    """Gives rows that came with it."""

    rows: tuple[Dealt, ...]
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, None]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from self.rows


@dataclass(frozen=True)
class LookUps:
    """Gives the rows of look-ups of many tables; its input are numbers of bundles."""

    bundles: tuple[tuple[TaskOfTable, ...], ...]
    at_once: int
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, _Told]:
        told: _Told = []
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            bundle = self.bundles[number]
            for start in range(0, len(bundle), TABLES_AT_ONCE):
                some = bundle[start : start + TABLES_AT_ONCE]
                given = [pa.record_batch({"number": pa.array([piece.number])}) for piece in some]
                calls = [partial(piece.done, [one], at) for piece, one in zip(some, given, strict=True)]
                for piece, (rows, report) in zip(some, _side_by_side(calls, self.at_once), strict=True):
                    yield from (_named(piece.name, one) for one in rows)
                    told.append((piece.name, report))
        return told


def _named(name: str, rows: Dealt) -> Dealt:
    """Rows of a table among those of others."""
    return replace(rows, name=name, first=first_part(name))


@dataclass(frozen=True)
class Runs:
    """Runs some tasks that have no input and give no rows."""

    pieces: tuple[TaskOfTable, ...]
    at_once: int
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, _Told]:
        yield from ()
        done = _side_by_side([partial(piece.done, (), at) for piece in self.pieces], self.at_once)
        return [(piece.name, report) for piece, (_, report) in zip(self.pieces, done, strict=True)]


def _joined(shares: Iterable[Share]) -> Iterator[pa.Table]:
    """The changes among shares.  Those that came from several tasks are read together, for a reading costs as much as that of a thousand."""
    found: dict[pa.Schema, list[pa.Table]] = {}
    for rows in (one.table() for one in shares if one.kind == CHANGES):
        same = found.setdefault(rows.schema, [])
        same.append(rows)
        if sum(one.num_rows for one in same) >= JOINED:
            yield pa.concat_tables(found.pop(rows.schema)).combine_chunks()
    yield from (pa.concat_tables(same).combine_chunks() for same in found.values())


@dataclass(frozen=True)
class Decisions:
    """Decides about the keys of a part, of some tables at a time; shares of other tables are passed over.

    It reports, by table, what the table's task reports, or why there is none.
    """

    tables: Mapping[str, tuple[Task, Read]]
    at_once: int
    columns: None = None

    def __call__(
        self, shares: Iterable[Share], at: TaskAttempt
    ) -> Generator[TaskOutput, None, list[tuple[str, TaskReport | str]]]:
        yield from ()
        found: dict[str, list[Share]] = {}
        for share in shares:
            if share.name in self.tables:
                found.setdefault(share.name, []).append(share)
        names = sorted(found)
        calls = [partial(self._decided, name, found.pop(name), at) for name in names]
        done = _side_by_side(calls, self.at_once)
        return [*zip(names, done, strict=True)]

    def _decided(self, name: str, shares: Sequence[Share], at: TaskAttempt) -> TaskReport | str:
        task, read = self.tables[name]
        try:
            given = [one for one in shares if one.kind != CHANGES]
            given += [Whole(read(rows), name) for rows in _joined(shares)]
        except UnfitError as error:
            return str(error)
        except SafewriteError as error:
            return TaskReport(at, error=error)
        return TaskOfTable(name, at.part, task).done(given, at)[1]
