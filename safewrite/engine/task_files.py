"""Declares how tasks write rows of a table that the driver commits afterwards, as members of one commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from safewrite.engine.abc import TaskAttempt
from safewrite.engine.exchange import Share


class MemberCount(Protocol):
    """How many rows of a member there are so far, and what they are known by."""

    @property
    def rows(self) -> int: ...


@dataclass(frozen=True)
class WrittenRows:
    """What a task wrote: its files, which several members may share, and what it counted of each member."""

    files: tuple[Any, ...] = field(repr=False)
    members: Mapping[str, MemberCount]


Again = Callable[[Sequence[str]], Sequence[WrittenRows]]
"""Writes the rows of some members once more, to files without those of others."""


class WrittenMembers(Protocol):
    """Members whose rows are in files."""

    def member(self, name: str) -> Any:
        """The rows of a member, as ``append_many`` takes them."""


class TaskReader(Protocol):
    """Reads data files of one table in a task; picklable."""

    def __call__(self, files: Sequence[Any], columns: tuple[str, ...] | None, /) -> pa.Table:
        """The live rows of files that ``added_since`` names, or of parts of them, with all columns or some.

        Raises:
            StorageError: a file is gone, or the store gave no answer.
        """

    def cut(self, file: Any, rows_max: int) -> list[Any]:
        """Parts of a file with about so many rows, or more where it can be cut nowhere else; together they are the file."""


@dataclass(frozen=True)
class TableInTasks:
    """How tasks reach a table."""

    writer: TaskWriter
    reader: TaskReader


class TaskWriter(Protocol):
    """Writes rows of one table in a task; picklable."""

    def write(self, rows: Iterable[tuple[str, pa.Table]], at: TaskAttempt) -> WrittenRows:
        """Write pieces of members' rows, each with the member's name, as they come.

        Raises:
            WouldAlterError: the table's schema does not hold them.
            StorageError: the store gave no answer.
        """

    def group(self, written: Sequence[WrittenRows], again: Again) -> WrittenMembers:
        """What all tasks wrote, for one commit of those members that the table has not yet.

        Raises:
            InternalError: tasks wrote one file, or not the rows that they counted.
        """


@dataclass(frozen=True)
class WriteMembers:
    """Writes the rows of members that other tasks gave to data files, whose names tell the attempt."""

    writer: TaskWriter
    wanted: frozenset[str]
    """Names of the shares that are to be written."""
    columns: None = None

    def __call__(
        self, given: Iterable[Share], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, WrittenRows]:
        """Write all rows."""
        yield from ()
        return self.writer.write(((one.name, one.table()) for one in given if one.name in self.wanted), at)
