"""Works in one task on the shares of many tables, some of them at a time: most of their time they wait for the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar

import pyarrow as pa

from safewrite.boundary.workers import Workers
from safewrite.changes.many_tables import CHANGES, ROWS, Chunk, UnfitError, first_part
from safewrite.engine.abc import CHUNKS, DATA, PART, Task, TaskAttempt, TaskReport, performed
from safewrite.errors import SafewriteError

T = TypeVar("T")
Read = Callable[[pa.Table], pa.Table]
"""Makes a chunk of changes as a decision takes it of one as it came; picklable."""


TABLES_AT_ONCE = 32
"""A task works on at most this many tables at a time: most of their time they wait for the store."""
_Told = list[tuple[str, TaskReport]]


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Workers:
    return Workers(TABLES_AT_ONCE, "safewrite-tables")


def _side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls, in their order; an error of one is raised when it is asked for."""
    if len(calls) == 1:
        return [calls[0]()]
    pending = [_pool_of(os.getpid()).submit(call) for call in calls]
    return [one.result() for one in pending]


@dataclass(frozen=True)
class TaskOfTable:
    """A task of a table; ``number`` is its place among those of the table."""

    name: str
    number: int
    task: Task

    def done(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> tuple[list[pa.RecordBatch], TaskReport]:
        """The rows of the task, and its report."""
        *rows, report = performed(self.task, batches, TaskAttempt(self.number, at.number))
        assert isinstance(report, TaskReport)
        return [row for row in rows if isinstance(row, pa.RecordBatch)], report


@dataclass(frozen=True)
class GivenChunks:
    """Gives chunks that came with it."""

    chunks: tuple[pa.RecordBatch, ...]
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, None]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from self.chunks


@dataclass(frozen=True)
class LookUps:
    """Gives the rows of look-ups of many tables; its input are numbers of bundles."""

    bundles: tuple[tuple[TaskOfTable, ...], ...]
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, _Told]:
        told: _Told = []
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            bundle = self.bundles[number]
            for start in range(0, len(bundle), TABLES_AT_ONCE):
                some = bundle[start : start + TABLES_AT_ONCE]
                given = [pa.record_batch({"number": pa.array([piece.number])}) for piece in some]
                calls = [partial(piece.done, [one], at) for piece, one in zip(some, given, strict=True)]
                for piece, (rows, report) in zip(some, _side_by_side(calls), strict=True):
                    yield from (_named(piece.name, one) for one in rows)
                    told.append((piece.name, report))
        return told


def _named(name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Chunks of a table among those of others."""
    data = [Chunk(name, ROWS, memoryview(one.as_buffer())).packed() for one in rows.column(DATA)]
    first = first_part(name)
    parts = [first + part for part in rows.column(PART).to_pylist()]
    return pa.record_batch([pa.array(parts, pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS)


@dataclass(frozen=True)
class Runs:
    """Runs some tasks that have no input and give no rows."""

    pieces: tuple[TaskOfTable, ...]
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, _Told]:
        yield from ()
        done = _side_by_side([partial(piece.done, (), at) for piece in self.pieces])
        return [(piece.name, report) for piece, (_, report) in zip(self.pieces, done, strict=True)]


@dataclass(frozen=True)
class Decisions:
    """Decides about the keys of a part, of some tables at a time; chunks of other tables are passed over.

    It reports, by table, what the table's task reports, or why there is none.
    """

    tables: Mapping[str, tuple[Task, Read]]
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, list[tuple[str, TaskReport | str]]]:
        yield from ()
        chunks: dict[str, list[Chunk]] = {}
        for batch in batches:
            for data in batch.column(DATA):
                chunk = Chunk.of(memoryview(data.as_buffer()))
                if chunk.name in self.tables:
                    chunks.setdefault(chunk.name, []).append(chunk)
        names = sorted(chunks)
        done = _side_by_side([partial(self._decided, name, chunks.pop(name), at) for name in names])
        return [*zip(names, done, strict=True)]

    def _decided(self, name: str, chunks: Sequence[Chunk], at: TaskAttempt) -> TaskReport | str:
        task, read = self.tables[name]
        try:
            data = [_read(chunk, read) for chunk in chunks]
        except UnfitError as error:
            return str(error)
        except SafewriteError as error:
            return TaskReport(at, error=error)
        rows = pa.record_batch(
            [pa.array([0] * len(data), pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS
        )
        return TaskOfTable(name, at.part, task).done([rows], at)[1]


def _read(chunk: Chunk, read: Read) -> bytes | memoryview:
    """A chunk as a decision takes it."""
    if chunk.kind != CHANGES:
        return chunk.data
    rows = read(chunk.rows())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
