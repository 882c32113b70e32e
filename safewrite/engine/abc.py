"""Declares what runs tasks, what a task is, and the report that each ends with.

A write of any size is a plan, tasks, the union of their reports, and one commit.  A task is a function over Arrow batches:
it reads, decides and writes files, and decides nothing about the table's log.  What it returns is a description, never rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from safewrite.engine.exchange import Aside, Dealt, Travelling
from safewrite.errors import InternalError, InvalidInputError, SafewriteError, StorageError

S = TypeVar("S")
B = TypeVar("B")


class EngineError(StorageError):
    """An engine could not run tasks, or an executor took the rows that they gave with it.  Nothing was committed."""


class ExecutorsLackPythonError(InvalidInputError):
    """Spark's executors cannot run safewrite: they lack it, what it needs, or the driver's Python."""


@dataclass(frozen=True)
class TaskAttempt:
    """A try of a task: ``part`` is its input or its place in a list; ``number`` is another one for every try of every task."""

    part: int
    number: int

    def __str__(self) -> str:
        return f"{self.part:05d}-{self.number}"


@dataclass(frozen=True)
class TaskReport:
    """What one try of a task returned, or the error that ended it."""

    at: TaskAttempt
    body: Any = None
    error: SafewriteError | None = None


TaskOutput: TypeAlias = pa.RecordBatch | Dealt | Aside
"""What a task gives: rows of its ``columns``; or, where these are ``CHUNKS``, what an exchange takes."""


class Task(Protocol):
    """A picklable function over one input.  It may run twice: files that it writes are named by the attempt.

    Its input are batches; behind an exchange :class:`safewrite.engine.exchange.Share`.  It yields rows of ``columns``, if these are
    not None, and returns its report.
    """

    @property
    def columns(self) -> pa.Schema | None:
        """The rows that it gives; None if it gives none."""

    def __call__(self, given: Iterable[Any], at: TaskAttempt, /) -> Generator[TaskOutput, None, Any]:
        """Work through the input."""


@dataclass(frozen=True)
class Mapped(Generic[S]):
    """What tasks made of a source: a report for each input, and their rows, which are where they were made."""

    reports: list[TaskReport]
    rows: S
    ran: S
    """What was run, as the engine asks for its measures."""

    def bodies(self) -> list[Any]:
        """See :func:`bodies`."""
        return bodies(self.reports)


class Engine(Protocol[S]):
    """Runs tasks; every one of them ends in exactly one report."""

    def map(
        self, source: S, task: Task, rows_a_batch: int | None = None
    ) -> AbstractContextManager[Mapped[S]]:
        """Run a task on each input of a source; its rows are kept until the end of the block.

        ``rows_a_batch``: a batch of the task's input has at most this many rows, however many bytes they have; None: as
        many as the engine holds right.

        Raises:
            EngineError: the engine could not run it.
        """

    def taken(self, source: S) -> list[Any]:
        """Take what goes to no part (``Aside``) into this process: as it is, or as bytes where another process sent it.

        Raises:
            EngineError: the engine could not get them.
        """

    def here(self, source: S) -> Sequence[Iterable[Travelling]] | None:
        """Few rows on their way to parts as inputs of ``LocalEngine``; None where they are to stay with this engine.

        Raises:
            EngineError: the engine could not get them.
        """

    def at_hand(self, source: S) -> list[Any] | None:
        """What tasks gave, where it is in this process; None where it is with executors."""

    def collected(self, source: S, columns: pa.Schema) -> pa.Table:
        """All rows of a source, in this process, under the types of these columns.

        Raises:
            EngineError: the engine could not get them.
        """

    def exchange(self, source: S, parts: int) -> S:
        """Bring rows together: input ``i`` of the result has those whose part modulo ``parts`` is ``i``.

        What goes to no part is left out.
        """

    def together(self, sources: Sequence[S]) -> S:
        """The inputs of some sources that have the same columns."""

    def gathered(self, source: S, inputs: int) -> S:
        """A source of at most so many inputs; each input of the source is whole in one of them."""

    def numbers(self, count: int) -> S:
        """A source whose input ``i`` has one row, with the number ``i``: for tasks that find their input by it."""

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        """Run tasks that have no input and give no rows.

        Raises:
            EngineError: the engine could not run them.
        """


def performed(task: Task, given: Iterable[Any], at: TaskAttempt) -> Iterator[TaskOutput | TaskReport]:
    """What a task gives, then its report.

    An error of ours is in the report: as an exception Spark would try it again, and its kind would be lost on its way through
    Java.
    """
    try:
        body = yield from task(given, at)
    except SafewriteError as error:
        yield TaskReport(at, error=error)
    else:
        yield TaskReport(at, body)


def each_once(reports: Sequence[TaskReport], tasks: int | None = None) -> list[TaskReport]:
    """Reports in the order of their parts, one of each; ``tasks``: of so many.

    Raises:
        InternalError: a task reported twice, or not at all; nothing was committed.
    """
    ordered = sorted(reports, key=lambda report: report.at.part)
    for one, other in itertools.pairwise(ordered):
        if one.at.part == other.at.part:
            raise InternalError(
                f"Task {one.at.part} reported twice, by attempts {one.at.number} and {other.at.number}. Nothing was committed. "
                "Please report it."
            )
    if tasks is not None and [one.at.part for one in ordered] != [*range(tasks)]:
        raise InternalError(
            f"{tasks} tasks ran, and {len(ordered)} reported. Nothing was committed. Please report it."
        )
    return ordered


def bodies(reports: Sequence[TaskReport]) -> list[Any]:
    """What tasks returned, in the order of their parts.

    Raises:
        SafewriteError: a task reported it.
        InternalError: a task reported twice; nothing was committed.
    """
    ordered = each_once(reports)
    for report in ordered:
        if report.error is not None:
            raise report.error
    return [report.body for report in ordered]
