"""Runs the tasks of many tables in common jobs: a job of Spark's costs as much for one table as for a thousand.

Each table's write has a thread, and an engine that looks like one of its own.  When every thread that is left waits for a job,
what they wait for becomes one: look-ups first, then decisions, then rewrites.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

import pyarrow as pa

from safewrite.changes.meaning.reading import check_target, loose, parsed, read_batch
from safewrite.changes.meaning.row_rule import RowRule
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.members.table_chunks import KeyReport, UnfitError
from safewrite.changes.members.table_pool import (
    Decisions,
    GivenRows,
    LookUps,
    Read,
    Runs,
    TaskOfTable,
)
from safewrite.changes.tasks.read_task import ABSENT, OF_CHANGES, ReadBatch, ReadReport, no_truncates
from safewrite.engine.abc import Engine, EngineError, Mapped, Task, TaskReport, bodies
from safewrite.engine.exchange import Dealt
from safewrite.engine.task_files import TaskWriter, WriteMembers, WrittenRows
from safewrite.errors import InternalError, SafewriteError
from safewrite.frames.fingerprint import Fingerprint
from safewrite.protocol.keys import OFFSETS

S = TypeVar("S")
T = TypeVar("T")
Fit = Callable[[pa.Table], tuple[pa.Table, pa.ChunkedArray]]
"""Puts changes under their table's types, and gives the places of its changes in the batch; picklable."""
Doubt = Callable[[Sequence[TaskReport]], str | None]
"""Says of the reports of a decision why it is not to be committed by tasks; None if it is.  What it raises the write raises."""


# --- what a table asks for -----------------------------------------------------------------------------
@dataclass(frozen=True)
class _Numbers:
    count: int


@dataclass(frozen=True)
class _Rows(Generic[S]):
    """Rows that name their table; those of other tables are among them."""

    rows: S


@dataclass(frozen=True)
class _Union(Generic[S]):
    parts: tuple[_Rows[S], ...]


class _Kind(IntEnum):
    """The kinds of jobs, in the order in which they run."""

    LOOK_UP = 0
    DECIDE = 1
    RUN = 2


@dataclass
class _Call:
    """A job that a thread waits for, and its answer."""

    kind: _Kind
    source: Any
    tasks: Sequence[Task]
    answer: tuple[list[TaskReport], Any] | None = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class TableEngine(Generic[S]):
    """The engine of one table's write: it waits for the others."""

    name: str
    jobs: SharedJobs[S]

    @contextmanager
    def map(self, source: Any, task: Task, rows_a_batch: int | None = None) -> Iterator[Mapped[Any]]:
        """See :class:`safewrite.engine.abc.Engine`; rows are kept until the jobs are closed."""
        kind = _Kind.LOOK_UP if isinstance(source, _Numbers) else _Kind.DECIDE
        reports, rows = self.jobs.wait(self.name, _Call(kind, source, [task]))
        yield Mapped(reports, _Rows(rows), None)

    def taken(self, source: Any) -> list[Any]:
        """See :class:`safewrite.engine.abc.Engine`; no row of a table goes to no part."""
        return []

    def here(self, source: Any) -> None:
        """See :class:`safewrite.engine.abc.Engine`; a job is not this table's alone."""

    def at_hand(self, source: Any) -> None:
        """See :class:`safewrite.engine.abc.Engine`; the rows are with those of other tables."""

    def collected(self, source: Any, columns: pa.Schema) -> pa.Table:
        """See :class:`safewrite.engine.abc.Engine`; rows of other tables are among them, so no check is asked."""
        raise InternalError(
            "Rows of many tables were to be checked. Nothing was committed. Please report it."
        )

    def exchange(self, source: Any, parts: int) -> Any:
        """See :class:`safewrite.engine.abc.Engine`; there are as many parts as all tables have together."""
        return source

    def together(self, sources: Sequence[Any]) -> Any:
        """See :class:`safewrite.engine.abc.Engine`."""
        return _Union(tuple(sources))

    def gathered(self, source: Any, inputs: int) -> Any:
        """See :class:`safewrite.engine.abc.Engine`; there are as many inputs as all tables have together."""
        return source

    def numbers(self, count: int) -> Any:
        """See :class:`safewrite.engine.abc.Engine`."""
        return _Numbers(count)

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        """See :class:`safewrite.engine.abc.Engine`."""
        return self.jobs.wait(self.name, _Call(_Kind.RUN, None, tasks))[0] if tasks else []


@dataclass
class _Seat:
    """A table that takes part."""

    doubt: Doubt
    read: Read | None = None
    call: _Call | None = None


@dataclass
class SharedJobs(Generic[S]):
    """Jobs of many tables on one engine.

    Args:
        rows: the changes of all tables, dealt by ``safewrite.changes.members.table_chunks.dealt``.
        parts: decisions are made in so many tasks.
        tasks: look-ups and rewrites are spread over so many tasks.
        at_once: so many tables are worked on at a time, in a task and by threads while others wait for a job.
    """

    engine: Engine[S]
    rows: S
    parts: int
    tasks: int
    at_once: int
    broken: EngineError | None = None
    """Why the engine could not run a job."""
    seats: dict[str, _Seat] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)
    _working: threading.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._working = threading.Semaphore(self.at_once)

    def add(self, rows: Sequence[Dealt]) -> None:
        """Take in further changes, which are in this process, before any table takes part.

        Raises:
            EngineError: the engine could not run a job.
        """
        source = self.engine.numbers(1)
        mapped = self._stack.enter_context(self.engine.map(source, GivenRows(tuple(rows))))
        mapped.bodies()
        self.rows = self.engine.together([self.rows, mapped.rows])

    # --- the tables' threads ------------------------------------------------------------------------
    def join(self, name: str, doubt: Doubt) -> None:
        """Let a table take part from now on, until :meth:`working` ends."""
        with self._changed:
            self.seats[name] = _Seat(doubt)

    def read(self, name: str, read: Read) -> None:
        """Say how tasks read the changes of a table."""
        self.seats[name].read = read

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Work on a table, and take no part after it."""
        try:
            with self._working:
                yield
        finally:
            with self._changed:
                self.seats.pop(name, None)
                self._changed.notify_all()

    def wait(self, name: str, call: _Call) -> tuple[list[TaskReport], Any]:
        """Wait for a job that has the tasks of a call.

        Raises:
            UnfitError: the table's changes are not to be applied in parts.
            EngineError: the engine could not run it.
        """
        self._working.release()
        try:
            with self._changed:
                self.seats[name].call = call
                self._changed.notify_all()
            call.done.wait()
        finally:
            self._working.acquire()
        if call.error is not None:
            raise call.error
        assert call.answer is not None
        return call.answer

    # --- the thread that runs jobs ------------------------------------------------------------------
    def serve(self, take: Callable[[Mapping[str, str]], None]) -> None:
        """Run jobs until no table takes part any more.

        ``take`` takes the changes of tables that are not to be applied in parts (why, by table), before another table of the job goes on.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: all(seat.call is not None for seat in self.seats.values()))
                calls = {name: seat.call for name, seat in self.seats.items() if seat.call is not None}
                if not calls:
                    return
                first = min(call.kind for call in calls.values())
                chosen = {name: call for name, call in calls.items() if call.kind is first}
            try:
                self._run(first, chosen, take)
            except Exception as error:  # noqa: BLE001 - each thread raises it
                self.broken = error if isinstance(error, EngineError) else self.broken
                for call in chosen.values():
                    call.answer, call.error = None, error
            chosen = {name: call for name, call in chosen.items() if not call.done.is_set()}
            with self._changed:
                for name in chosen:
                    self.seats[name].call = None
            for call in chosen.values():
                call.done.set()

    def close(self) -> None:
        """Let the engine forget all rows."""
        self._stack.close()

    def _run(
        self, kind: _Kind, calls: Mapping[str, _Call], take: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Answer calls of one kind by one job."""
        if kind is _Kind.DECIDE:
            if doubts := self._decide(calls):
                self._refuse(doubts, calls)
                take(doubts)
            return
        work = [
            TaskOfTable(name, number, call.tasks[0 if kind is _Kind.LOOK_UP else number])
            for name, call in calls.items()
            for number in range(call.source.count if kind is _Kind.LOOK_UP else len(call.tasks))
        ]
        count = min(self.tasks, len(work))
        found: dict[str, list[TaskReport]] = {name: [] for name in calls}
        bundles = tuple(tuple(work[start::count]) for start in range(count))
        rows: S | None = None
        if kind is _Kind.LOOK_UP:
            task = LookUps(bundles, self.at_once)
            mapped = self._stack.enter_context(self.engine.map(self.engine.numbers(count), task))
            found_bodies, rows = mapped.bodies(), mapped.rows
        else:
            found_bodies = bodies(self.engine.run([Runs(bundle, self.at_once) for bundle in bundles]))
        for body in found_bodies:
            for name, report in body:
                found[name].append(report)
        for name, call in calls.items():
            call.answer = found[name], rows

    def _decide(self, calls: Mapping[str, _Call]) -> Mapping[str, str]:
        """Answer calls; why the others are not to be."""
        sources: dict[int, S] = {}
        for call in calls.values():
            for part in call.source.parts:
                sources[id(part.rows)] = part.rows
        readers = {name: seat.read for name, seat in self.seats.items() if seat.read is not None}
        tables = {name: (call.tasks[0], readers[name]) for name, call in calls.items() if name in readers}
        task = Decisions(tables, self.at_once)
        source = self.engine.exchange(self.engine.together([*sources.values()]), self.parts)
        with self.engine.map(source, task) as mapped:
            found_bodies = mapped.bodies()
        found: dict[str, list[TaskReport]] = {name: [] for name in calls}
        doubts: dict[str, str] = {}
        for name, report in (one for body in found_bodies for one in body):
            if isinstance(report, str):
                doubts[name] = report
            else:
                found[name].append(report)
        for name, call in calls.items():
            try:
                why = doubts.get(name) or self.seats[name].doubt(found[name])
            except SafewriteError as error:
                call.error = error
                continue
            if why is None:
                call.answer = found[name], None
            else:
                doubts[name] = why
        return doubts

    def _refuse(self, doubts: Mapping[str, str], calls: Mapping[str, _Call]) -> None:
        """Let tables take part no more."""
        for name, why in doubts.items():
            calls[name].error = UnfitError(why)
            calls[name].done.set()
        with self._changed:
            self._changed.wait_for(
                lambda: all(
                    name not in self.seats or self.seats[name].call is not calls[name] for name in doubts
                )
            )


# --- rows of one table -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class SharedRows:
    """Rows of one table, among those of others, that tasks write to files to be appended.

    ``read`` makes rows of the table of those that came; it raises :class:`UnfitError` for rows that tasks cannot take.
    """

    name: str
    jobs: SharedJobs[Any]
    read: Read

    def written(self, writer: TaskWriter) -> tuple[Any, int]:
        """The rows as ``append_many`` takes them, and how many there are.

        Raises:
            UnfitError: tasks cannot take them.
            EngineError: the engine could not run the job.
            SafewriteError: what a task raised.
        """
        self.jobs.read(self.name, self.read)
        engine = TableEngine(self.name, self.jobs)

        def written(names: Sequence[str]) -> list[WrittenRows]:
            source = engine.together([_Rows(self.jobs.rows)])
            with engine.map(source, WriteMembers(writer, frozenset(names))) as mapped:
                return mapped.bodies()

        found = written([self.name])
        rows = sum(one.members[self.name].rows for one in found)
        return writer.group(found, written).member(self.name), rows


# --- changes of one table --------------------------------------------------------------------------------
@dataclass(frozen=True)
class ShareReader:
    """Reads changes in a task: ``fit`` puts them under the table's types, and gives their places.

    ``fit`` raises :class:`UnfitError` for changes that tasks cannot take.
    """

    fit: Fit
    spec: Spec
    schema: pa.Schema
    partition_by: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The changes as a decision takes them."""
        frame, places = self.fit(rows)
        batch = read_batch(frame, self.spec, self.schema, self.partition_by)
        columns = pa.schema([*loose(self.schema), *OF_CHANGES])
        count = batch.table.num_rows
        lacks = (
            pa.nulls(count, OF_CHANGES.field(ABSENT).type)
            if self.spec.unchanged is None
            else frame.column(self.spec.unchanged)
        )
        return pa.table([*batch.table.columns, pa.array(batch.ops), places, lacks], schema=columns)


@dataclass(frozen=True)
class SharedChanges:
    """Changes of one table, among those of others: :meth:`Table.apply_changes` takes them for rows.

    Args:
        keys: those of the changes, under the table's types.
        rows: how many changes there are.
        parts: to so many parts they were dealt.
        columns: what the table's columns do not name: the columns that conditions ask for.
        origin: what determines the changes, as text; it names the batch instead of a hash of its rows.
    """

    name: str
    jobs: SharedJobs[Any]
    fit: Fit
    keys: KeyReport
    rows: int
    parts: int
    columns: pa.Schema
    origin: str
    truncates: Sequence[tuple[Any, ...]] = ()
    """Of each its place, and what orders it; ``rows`` counts them, and they are not among the rows."""
    marks: str | None = None
    """The column of booleans that marks deleted rows which stay."""
    rule: RowRule | None = None
    """Says which rows come and go, in the place of the sequence of the changes."""

    @property
    def engine(self) -> Engine[Any]:
        """The table's engine."""
        return TableEngine(self.name, self.jobs)

    @property
    def properties(self) -> dict[str, str]:
        """What the table's history is to say of the commit besides: nothing."""
        return {}

    @property
    def shown(self) -> Callable[[Any, pa.Schema], Any]:
        """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`; no check is asked."""
        return lambda rows, columns: rows

    @contextmanager
    def read_in(
        self, spec: Spec, schema: pa.Schema, partition_by: tuple[str, ...] = ()
    ) -> Iterator[tuple[ReadBatch, Any]]:
        """See :class:`safewrite.changes.tasks.apply_job.EngineChanges`."""
        check_target(spec, schema)
        spec = parsed(
            replace(spec, check=None, marks=self.marks, rule=self.rule), pa.schema([*schema, *self.columns])
        )
        self.jobs.read(self.name, ShareReader(self.fit, spec, schema, partition_by))
        digest = hashlib.sha256(self.origin.encode()).hexdigest()[:32]
        fingerprint = Fingerprint(self.rows, digest, OFFSETS)
        hashes = None if self.keys.hashes is None else [self.keys.hashes]
        truncates = no_truncates(spec, schema)
        if self.truncates:
            places, *values = zip(*self.truncates, strict=True)
            columns = zip([*values, places], truncates.schema.types, strict=True)
            truncates = pa.table([pa.array(*one) for one in columns], schema=truncates.schema)
        report = ReadReport(truncates, fingerprint, self.keys.ends, self.keys.values, hashes)
        yield ReadBatch(spec, schema, report, fingerprint, parts=self.parts), _Rows(self.jobs.rows)
