"""Tasks for the tests of engines; executors import them from here."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.engine.abc import TaskAttempt, TaskOutput
from safewrite.engine.exchange import CHUNKS, Aside, Dealt, Share
from safewrite.errors import WouldAlterError

IDS = pa.schema([("a.b", pa.int64())])
"""A name with a dot, which PySpark takes for a path."""


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
    """Deals ids to parts by their remainder, and sends aside how many they were."""

    parts: int
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, int]:
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            ids = np.asarray(batch.column("a.b").to_numpy(), np.uint64)
            yield Dealt(pa.Table.from_batches([batch]), ids, self.parts, name="ids", kind=1)
        yield Aside(str(rows).encode())
        return rows


@dataclass(frozen=True)
class Gather:
    """Reports the ids of the shares that came, and of which parts they are."""

    columns: pa.Schema | None = None

    def __call__(
        self, shares: Iterable[Share], at: TaskAttempt
    ) -> Generator[TaskOutput, None, tuple[int, set[int], list[int]]]:
        parts, ids = set[int](), list[int]()
        for share in shares:
            assert (share.name, share.kind) == ("ids", 1)
            found = share.table().column("a.b").to_pylist()
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
