"""Reads and judges rows of bronze in tasks, which make changes of silver of them; this process counts, and commits.

The engine says where tasks run, and the changes stay there: those in this process are applied as a frame, others by tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import safewrite as sw
from safewrite.engine.abc import Engine, TaskAttempt
from safewrite.engine.computed_changes import ComputedChanges
from safewrite.engine.local import LocalEngine
from safewrite.engine.task_files import TaskReader
from safewrite.medallion.config.bronze_columns import UNCHANGED, UNCHANGED_FIELD
from safewrite.medallion.config.commit_columns import with_commit_columns
from safewrite.medallion.config.quality_rules import Quality
from safewrite.medallion.config.stored_names import as_called
from safewrite.medallion.silver.changes import changes_of, with_truncates
from safewrite.medallion.silver.judging import (
    Aside,
    check_loads,
    loads_of,
    log_unknown_keys,
    moved_without_value,
    put_aside,
    taken_out,
    updates_in,
)
from safewrite.medallion.silver.load_keys import LoadKeys, ReadAgainError, SharedIn, among
from safewrite.medallion.silver.quality import Shares, judged
from safewrite.medallion.silver.row_rules import SilverRules
from safewrite.medallion.silver.unfit import Record, last_of_ties
from safewrite.medallion.tables.job import TableJob

PIECE_ROWS = 250_000
"""About this many rows of bronze, or those of one row group if it has more, are a task."""
STEP_ROWS = 32_000_000
"""At most this many go into one commit of silver: each part of their keys is still decided about in the memory of a task."""


@dataclass
class RowsRead:
    """What a task read: ``rows`` are good ones, and ``behind`` those that a tie leaves behind.

    ``split`` counts changes that are in no row; ``updates`` those among the rows.
    """

    shares: Shares = field(default_factory=Shares)
    aside: Aside = field(default_factory=dict)
    loads: set[int] = field(default_factory=set)
    updates: int = 0
    rows: int = 0
    behind: int = 0
    split: int = 0

    def add(self, other: RowsRead) -> None:
        """Take in what a later task read."""
        self.shares.add(other.shares)
        for where, records in other.aside.items():
            self.aside.setdefault(where, []).extend(records)
        self.loads |= other.loads
        self.updates += other.updates
        self.rows += other.rows
        self.behind += other.behind
        self.split += other.split


@dataclass(frozen=True)
class ReadBronze:
    """Gives changes of silver; its input are numbers of pieces of bronze.  The first begins with the truncates of epochs."""

    name: str
    bronze: pa.Schema
    pieces: tuple[sw.AddedRows | None, ...]
    """Each with all rows of a task; None: no rows."""
    quality: Quality
    keys: tuple[str, ...]
    taken: tuple[str, ...]
    """The columns that silver has."""
    columns: pa.Schema
    epochs: tuple[int, ...]
    times: tuple[pa.Field, ...]
    """The columns that say when a change was committed."""
    shared: Callable[[pa.Table], Mapping[str, npt.NDArray[np.bool_]]]
    """Says which rows of full loads are not to be taken, and why."""
    refused: frozenset[Record]
    """Rows that silver does not take, and that are in quarantine."""
    asked: SilverRules
    """What silver itself asks of a row."""

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, RowsRead]:
        """Read pieces."""
        found = RowsRead()
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            if number == 0 and self.epochs:
                truncates, count = with_truncates(self.columns.empty_table(), self.epochs)
                found.split += count
                yield from truncates.to_batches()
            yield from self._changes(self.good(self.rows(number), found), found).to_batches()
        return found

    def rows(self, number: int) -> pa.Table:
        """All rows of a piece.  Raises as ``AddedRows.tables``."""
        piece = self.pieces[number]
        tables = [] if piece is None else map(as_called, piece.tables())
        return pa.concat_tables([as_called(self.bronze.empty_table()), *tables], promote_options="permissive")

    def good(self, rows: pa.Table, found: RowsRead) -> pa.Table:
        """The rows of a piece that silver may take: of those with one place in the order the last, if they say other things."""
        bad = judged(
            rows,
            self.quality,
            self.name,
            {**self.shared(rows), **moved_without_value(rows, self.keys)},
            self.asked,
        )
        found.shares.count(rows, bad, self.quality)
        good, aside = taken_out(rows, bad)
        read = RowsRead(Shares(), aside, {*loads_of(good)}, updates_in(good))
        last = last_of_ties(good, self.keys, is_timed=bool(self.times))
        read.behind = good.num_rows - last.num_rows
        found.add(read)
        # Now: a row that a refused one left behind stays behind.
        return last.filter(pa.array(~among(last, self.refused))) if self.refused else last

    def _changes(self, good: pa.Table, found: RowsRead) -> pa.Table:
        rows = self.asked.filled(with_commit_columns(good, [*self.times]))
        changes, split = changes_of(rows, self.keys, self.taken)
        found.add(RowsRead(rows=good.num_rows, split=split))
        if UNCHANGED in self.columns.names and UNCHANGED not in changes.column_names:
            nothing = pa.nulls(changes.num_rows, UNCHANGED_FIELD.type)
            changes = changes.append_column(UNCHANGED_FIELD, nothing)
        return changes.cast(self.columns)


@dataclass
class StepRead:
    """A commit's rows on their way to silver; what tasks read is known once silver's commit, or :attr:`changes`, has asked them.

    ``quarantined`` counts records that were new there.
    """

    job: TableJob
    engine: Engine[Any]
    make: ReadBronze
    loads: LoadKeys
    count: int
    """About so many rows there are."""
    read: RowsRead = field(default_factory=RowsRead)
    quarantined: int = 0
    is_judged: bool = False
    """Whether the rows are good as a whole, and there are changes of them."""

    def changes(self) -> pa.Table | ComputedChanges[Any]:
        """The changes, for ``apply_changes``.

        Raises:
            InvalidInputError: the rows are refused as a whole.
            ReadAgainError: rows of full loads were read that are not to be taken, as is known now.
            EngineError: the tasks could not be run.
        """
        source = self.engine.numbers(len(self.make.pieces))
        if self.engine.at_hand(source) is None:
            return ComputedChanges(self.job.name, self.engine, source, self.make, self._learn, self.count)
        with self.engine.map(source, self.make) as mapped:
            self._learn(mapped.bodies())
            return pa.Table.from_batches(self.engine.at_hand(mapped.rows) or (), self.make.columns)

    @property
    def noted(self) -> dict[str, str]:
        """What silver's history says of the commit."""
        return {"medallion.rows": str(self.read.rows), "medallion.split": str(self.read.split)}

    def _learn(self, reports: Sequence[RowsRead]) -> Mapping[str, str]:
        """Judge what tasks read, with bad rows in quarantine."""
        whole = RowsRead()
        for one in reports:
            whole.add(one)
        if whole.loads and not self.loads.is_known and self.loads.look().records:
            raise ReadAgainError("Rows of full loads are read again. Nothing was written.")
        whole.shares.check(self.job.config.quality, self.job.name)
        self.quarantined += put_aside(self.job, whole.aside)
        check_loads(self.job, whole.loads)
        log_unknown_keys(self.job, whole.updates)
        self.read, self.is_judged = whole, True
        return self.noted


@dataclass(frozen=True)
class SilverTasks:
    """Reads bronze for silver by an engine's tasks.

    ``reader`` reads data files there; None where tasks of this process use bronze's own.  ``is_whole``: one task has all rows of a
    commit, so that it sees which of them have one place in the order.
    """

    engine: Engine[Any]
    reader: TaskReader | None
    is_whole: bool

    def here(self) -> SilverTasks:
        """The same in this process."""
        return SilverTasks(LocalEngine(), None, is_whole=True)

    def read(
        self,
        job: TableJob,
        brought: Sequence[sw.AddedRows],
        epochs: tuple[int, ...],
        loads: LoadKeys,
        refused: Set[Record] = frozenset(),
    ) -> StepRead:
        """What some commits brought, and before it truncates of epochs; without records that are refused."""
        times, bronze = job.config.commit_fields, job.bronze.schema
        asked = SilverRules.of(job.silver, job.config.keys)
        nothing = asked.filled(with_commit_columns(as_called(bronze.empty_table()), times))
        taken = (*job.silver_schema.names, *asked.made(job.silver_schema.names).names)
        columns = changes_of(nothing, job.config.keys, taken)[0].schema
        more = [UNCHANGED_FIELD] if UNCHANGED in bronze.names else []
        make = ReadBronze(
            job.name,
            bronze,
            tuple(self._pieces(brought)),
            job.config.quality,
            tuple(job.config.keys),
            taken,
            pa.schema([one.with_nullable(True) for one in (*columns, *more)]),
            epochs,
            tuple(times),
            loads.bad if self.reader is None else SharedIn(loads.records, loads.reason),
            frozenset(refused),
            asked,
        )
        return StepRead(job, self.engine, make, loads, sum(one.row_count for one in brought))

    def _pieces(self, brought: Sequence[sw.AddedRows]) -> Sequence[sw.AddedRows | None]:
        files = tuple(file for one in brought for file in one.files)
        if not files:
            return [None]
        if self.reader is not None:
            brought = [replace(brought[0], reader=self.reader)]
        if not self.is_whole and self.reader is not None:
            parts = tuple(part for file in files for part in self.reader.cut(file, PIECE_ROWS))
            return replace(brought[0], files=parts).split(PIECE_ROWS)
        return [replace(brought[0], files=files)]


def tasks_of(job: TableJob, engine: Engine[Any] | None) -> SilverTasks:
    """What reads bronze for silver: tasks of an engine, or of this process where there is none, or it cannot reach bronze."""
    way = None if engine is None else job.bronze.in_tasks()
    if engine is None or way is None:
        return SilverTasks(LocalEngine(), None, is_whole=True)
    return SilverTasks(engine, way.reader, is_whole=False)
