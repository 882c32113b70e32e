"""Tasks for the tests of engines; executors import them from here."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.engine.abc import CHUNKS, DATA, PART, TaskAttempt
from safewrite.errors import WouldAlterError

IDS = pa.schema([("a.b", pa.int64())])
"""A name with a dot, which PySpark takes for a path."""


def chunk(ids: Iterable[int]) -> bytes:
    """Rows of an exchange in one value."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"a.b": pa.array([*ids], pa.int64())}, schema=IDS)
    with pa.ipc.new_stream(sink, IDS) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class Count:
    """Reports how many rows an input has, in which part, and their sum."""

    columns: pa.Schema | None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, tuple[int, int, int]]:
        rows = total = 0
        for batch in batches:
            rows += batch.num_rows
            total += pc.sum(batch.column("a.b")).as_py() or 0
        yield from ()
        return at.part, rows, total


@dataclass(frozen=True)
class Deal:
    """Deals ids to parts by their remainder, as chunks."""

    parts: int
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, int]:
        rows = 0
        for batch in batches:
            ids = batch.column("a.b").to_pylist()
            rows += len(ids)
            dealt = {part: [id_ for id_ in ids if id_ % self.parts == part] for part in range(self.parts)}
            data = [chunk(some) for some in dealt.values()]
            yield pa.record_batch(
                [pa.array([*dealt], pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS
            )
        return rows


@dataclass(frozen=True)
class Gather:
    """Reports the ids of the chunks that came, and of which parts they are."""

    columns: pa.Schema | None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, tuple[int, set[int], list[int]]]:
        parts, ids = set[int](), list[int]()
        for batch in batches:
            assert batch.schema.names == [PART, DATA]
            for data in batch.column(DATA):
                with pa.ipc.open_stream(data.as_buffer()) as stream:
                    found = stream.read_all().column("a.b").to_pylist()
                ids += found
                parts |= {id_ % self.modulo for id_ in found}
        yield from ()
        return at.part, parts, sorted(ids)

    modulo: int = 7


@dataclass(frozen=True)
class Refuse:
    """Gives the rows that it gets, and refuses an id."""

    id: int
    columns: pa.Schema | None = IDS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, int]:
        for batch in batches:
            yield batch
            if self.id in batch.column(0).to_pylist():
                raise WouldAlterError(f"{self.id} is refused. Nothing was written.")
        return at.part


@dataclass(frozen=True)
class Alone:
    """A task without input, which reports what it was made with."""

    value: str
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, tuple[int, str]]:
        assert not [*batches]
        yield from ()
        return at.part, self.value


@dataclass(frozen=True)
class Numbers:
    """Reports the numbers that came."""

    columns: pa.Schema | None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, list[int]]:
        yield from ()
        return [number for batch in batches for number in batch.column(0).to_pylist()]
