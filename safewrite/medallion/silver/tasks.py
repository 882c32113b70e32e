"""Reads and judges rows of bronze in tasks, which make changes of silver of them; this process counts, and commits."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.engine.abc import Engine, TaskAttempt
from safewrite.engine.made import MadeChanges
from safewrite.engine.written import TaskReader
from safewrite.errors import InvalidInputError, MissingExtraError, SafewriteError, UnsupportedTableError
from safewrite.medallion.config.bronze_columns import UNCHANGED, UNCHANGED_FIELD
from safewrite.medallion.config.commit_columns import with_commit_columns
from safewrite.medallion.config.rules import Quality, Result
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
from safewrite.medallion.silver.load_keys import LoadKeys, ReadAgainError, shared_in
from safewrite.medallion.silver.quality import RuleError, Shares, judged
from safewrite.medallion.silver.unfit import Record
from safewrite.medallion.tables.job import TableJob

PIECE_ROWS = 250_000
"""About this many rows of bronze, or those of one row group if it has more, are a task."""
STEP_ROWS = 32_000_000
"""At most this many go into one commit of silver: each part of their keys is still decided about in the memory of a task."""


class ByDriverError(Exception):
    """Tasks cannot bring these rows to silver: this process does.  Nothing was committed."""


@dataclass
class RowsRead:
    """What a task read: ``rows`` are good ones; ``split`` counts changes that are in no row; ``updates`` those among the rows."""

    shares: Shares = field(default_factory=Shares)
    aside: Aside = field(default_factory=dict)
    loads: set[int] = field(default_factory=set)
    updates: int = 0
    rows: int = 0
    split: int = 0

    def add(self, other: RowsRead) -> None:
        """Take in what a later task read."""
        self.shares.add(other.shares)
        for where, records in other.aside.items():
            self.aside.setdefault(where, []).extend(records)
        self.loads |= other.loads
        self.updates += other.updates
        self.rows += other.rows
        self.split += other.split


@dataclass(frozen=True)
class ReadBronze:
    """Gives changes of silver; its input are numbers of pieces of bronze.  The first begins with the truncates of epochs."""

    name: str
    pieces: tuple[sw.AddedRows, ...]
    quality: Quality
    keys: tuple[str, ...]
    taken: tuple[str, ...]
    """The columns that silver has."""
    columns: pa.Schema
    epochs: tuple[int, ...]
    times: tuple[pa.Field, ...]
    """The columns that say when a change was committed."""
    shared: tuple[frozenset[Record], str]
    """Rows of full loads that are not to be taken, and why."""

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
            for rows in map(as_called, self.pieces[number].tables()):
                for start in range(0, rows.num_rows, PIECE_ROWS):  # a row group may have more
                    yield from self._changes(rows.slice(start, PIECE_ROWS), found).to_batches()
        return found

    def _changes(self, rows: pa.Table, found: RowsRead) -> pa.Table:
        unfit = shared_in(rows, *self.shared) | moved_without_value(rows, self.keys)
        bad = judged(rows, self.quality, self.name, unfit)
        found.shares.count(rows, bad, self.quality)
        good, aside = taken_out(rows, bad)
        timed = with_commit_columns(good, [*self.times])
        changes, split = changes_of(timed, self.keys, self.taken)
        found.add(RowsRead(Shares(), aside, {*loads_of(good)}, updates_in(good), good.num_rows, split))
        if UNCHANGED in self.columns.names and UNCHANGED not in changes.column_names:
            nothing = pa.nulls(changes.num_rows, UNCHANGED_FIELD.type)
            changes = changes.append_column(UNCHANGED_FIELD, nothing)
        return changes.cast(self.columns)


@dataclass
class TasksRead:
    """What all tasks read, once silver's commit has asked them; ``quarantined`` counts records that were new there."""

    given: MadeChanges[Any]
    read: RowsRead = field(default_factory=RowsRead)
    quarantined: int = 0
    refused: SafewriteError | None = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Let this process do what tasks cannot, and say which rows are at fault where changes contradict each other.

        Raises:
            ByDriverError: nothing was committed.
        """
        try:
            yield
        except RuleError:
            raise
        except (InvalidInputError, MissingExtraError, UnsupportedTableError) as error:
            if self.refused is not None:
                raise
            raise ByDriverError(str(error)) from error


@dataclass(frozen=True)
class SilverTasks:
    """Brings bronze to silver by an engine's tasks; ``reader`` reads its data files there."""

    engine: Engine[Any]
    reader: TaskReader

    def read(
        self, job: TableJob, brought: Sequence[sw.AddedRows], epochs: tuple[int, ...], loads: LoadKeys
    ) -> TasksRead:
        """The changes that some commits brought, and before them truncates of epochs; they are read when silver takes them."""
        files = [part for one in brought for file in one.files for part in self.reader.cut(file, PIECE_ROWS)]
        pieces = replace(brought[0], files=tuple(files), reader=self.reader).split(PIECE_ROWS)
        taken = tuple(job.silver_schema.names)
        times = job.config.commit_fields
        nothing = with_commit_columns(job.bronze.schema.empty_table(), times)
        columns = changes_of(nothing, job.config.keys, taken)[0].schema
        more = [UNCHANGED_FIELD] if UNCHANGED in job.bronze.schema.names else []
        loose = pa.schema([one.with_nullable(True) for one in (*columns, *more)])
        make = ReadBronze(
            job.name,
            tuple(pieces),
            job.config.quality,
            tuple(job.config.keys),
            taken,
            loose,
            epochs,
            tuple(times),
            (loads.records, loads.reason),
        )

        def learn(reports: list[RowsRead]) -> Mapping[str, str]:
            try:
                found.read = _checked(job, reports, found, loads)
            except SafewriteError as error:
                found.refused = error
                raise
            return {"medallion.rows": str(found.read.rows), "medallion.split": str(found.read.split)}

        source = self.engine.numbers(len(pieces))
        rows = sum(one.row_count for one in brought)
        found = TasksRead(MadeChanges(job.name, self.engine, source, make, learn, rows))
        return found


def _checked(job: TableJob, reports: Sequence[RowsRead], found: TasksRead, loads: LoadKeys) -> RowsRead:
    """All that tasks read, with bad rows in quarantine.

    Raises:
        InvalidInputError: the batch is bad as a whole.
        ReadAgainError: rows of full loads were read that are not to be taken, as is known now.
    """
    whole = RowsRead()
    for one in reports:
        whole.add(one)
    if whole.loads and not loads.is_known and loads.look().records:
        raise ReadAgainError("Rows of full loads are read again. Nothing was written.")
    whole.shares.check(job.config.quality, job.name)
    found.quarantined += put_aside(job, whole.aside)
    check_loads(job, whole.loads)
    log_unknown_keys(job, whole.updates)
    return whole


def tasks_of(job: TableJob) -> SilverTasks | None:
    """What brings bronze to silver by tasks; None where this process does: rules of what silver would become ask for its rows."""
    if job.places.engine is None or job.config.quality.result != Result():
        return None
    bronze = job.bronze.in_tasks()
    return None if bronze is None else SilverTasks(job.places.engine, bronze.reader)
