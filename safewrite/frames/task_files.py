"""Writes rows in tasks as a driver would write them, and hands them to the commit of the driver: members by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from safewrite.errors import ConflictError, InternalError, Kind
from safewrite.frames.conform import conform
from safewrite.frames.fingerprint import Fingerprinter
from safewrite.frames.prepare import Prepared, check_partition_values
from safewrite.frames.tally import PIECE_BYTES, Tally
from safewrite.protocol.staging import Mark

if TYPE_CHECKING:
    from safewrite.engine.abc import TaskAttempt
    from safewrite.engine.task_files import Again, WrittenRows
    from safewrite.frames.abc import WrittenPart


class TaskFiles(Protocol):
    """Makes data files of a table in a task; picklable."""

    def write(self, tables: Iterable[pa.Table], at: TaskAttempt) -> tuple[Any, ...]:
        """Write rows to new files, whose names tell the attempt, and describe them."""


class StagedRows(Protocol):
    """A file that a task wrote."""

    @property
    def mark(self) -> Mark: ...

    @property
    def rows(self) -> int: ...


StagedT = TypeVar("StagedT", bound=StagedRows)


@dataclass(frozen=True)
class TalliedFiles(Generic[StagedT]):
    """The files that a task wrote of one frame, and what it counted."""

    files: tuple[StagedT, ...]
    tally: Tally


@dataclass(frozen=True)
class MemberWriter:
    """Checks, counts and writes rows under a table's schema; see ``safewrite.engine.task_files.TaskWriter``."""

    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: TaskFiles
    piece_bytes: int = PIECE_BYTES
    layout: object = None
    """What else files are written by, so that they fit no table that has another."""

    def write(self, rows: Iterable[tuple[str, pa.Table]], at: TaskAttempt) -> WrittenRows:
        """See ``safewrite.engine.task_files.TaskWriter``."""
        from safewrite.engine.task_files import WrittenRows

        counts: dict[str, Fingerprinter] = {}
        files = self.files.write(self._pieces(rows, counts), at)
        return WrittenRows(files, counts)

    def _pieces(
        self, rows: Iterable[tuple[str, pa.Table]], counts: dict[str, Fingerprinter]
    ) -> Iterator[pa.Table]:
        some: list[pa.Table] = []
        size = 0
        for name, table in rows:
            count = counts.setdefault(name, Fingerprinter())
            piece = conform(table, self.schema, first_row=count.rows)
            check_partition_values(piece, self.partition_by, count.rows)
            count.update(piece)
            some.append(piece)
            size += piece.nbytes
            if size >= self.piece_bytes:
                yield pa.concat_tables(some).combine_chunks()
                some, size = [], 0
        if any(piece.num_rows for piece in some):
            yield pa.concat_tables(some).combine_chunks()

    def group(self, written: Sequence[WrittenRows], again: Again) -> WrittenGroup:
        """See ``safewrite.engine.task_files.TaskWriter``."""
        return WrittenGroup(self.schema, self.layout, again, *union(written))


@dataclass(frozen=True)
class WrittenGroup:
    """Members whose rows tasks wrote under a schema, to files that several of them may share."""

    schema: pa.Schema
    layout: object
    again: Again = field(repr=False)
    files: tuple[Any, ...] = field(repr=False)
    counts: dict[str, Fingerprinter] = field(repr=False)

    def member(self, name: str) -> WrittenMember:
        """See ``safewrite.engine.task_files.WrittenMembers``."""
        return WrittenMember(name, self)

    def of(self, names: Sequence[str]) -> tuple[Any, ...]:
        """The files of some members: those that are there, or where others share them, new ones.

        Raises:
            InternalError: the rows were others this time.
        """
        if {name for name, count in self.counts.items() if count.rows} <= {*names}:
            return self.files
        files, counts = union(self.again(names))
        nothing = Fingerprinter()
        unlike = [name for name in names if counts.get(name, nothing).result() != self.counts[name].result()]
        if unlike or counts.keys() - {*names}:
            raise InternalError(
                f"Tasks wrote other rows of {(unlike or sorted(counts))[:3]} the second time. Nothing was committed. Please report it."
            )
        return files


@dataclass(frozen=True)
class WrittenMember:
    """The rows of one member, which ``append_many`` takes in the place of a frame."""

    name: str
    group: WrittenGroup

    def prepared(
        self, schema: pa.Schema, partition_by: tuple[str, ...] = (), *, layout: object = None
    ) -> Prepared:
        """The rows as a checked frame that has none of them.

        Raises:
            ConflictError: the table has another schema or layout by now than the rows were written under.
        """
        there = {one.name: one for one in self.group.schema}
        lacking = [one for one in schema if one.name not in there]
        same = [
            one
            for one in schema  # with what files call it: another column may have its name by now
            if one.name in there and one.equals(there[one.name], check_metadata=True)
        ]
        is_same = len(same) == len(there) and all(one.nullable for one in lacking)
        if not is_same or layout != self.group.layout:
            raise ConflictError(
                "The table's schema or partitioning was changed while tasks wrote rows. Nothing was committed. Call again.",
                kind=Kind.CONFLICT,
            )
        count = self.group.counts[self.name]
        return Prepared(
            schema, count.rows, count.result(), (), partition_by,
            column_digests=count.column_digests(), written=self,
        )  # fmt: skip


def files_of(parts: Iterable[Prepared]) -> Iterator[Any]:
    """The files of those parts that tasks wrote."""
    groups: dict[int, list[WrittenPart]] = {}
    for part in parts:
        if part.written is not None:
            groups.setdefault(id(part.written.group), []).append(part.written)
    for members in groups.values():
        yield from members[0].group.of([one.name for one in members])


def union(written: Sequence[WrittenRows]) -> tuple[tuple[Any, ...], dict[str, Fingerprinter]]:
    """The files that tasks wrote, and the counts of members.

    Raises:
        InternalError: two name one file, or the files do not hold the rows that were counted; nothing was committed.
    """
    files: tuple[StagedRows, ...] = tuple(chain.from_iterable(one.files for one in written))
    counts: dict[str, Fingerprinter] = {}
    for one in written:
        for name, count in one.members.items():
            assert isinstance(count, Fingerprinter)
            counts.setdefault(name, Fingerprinter()).add(count)
    check_files(files, sum(one.rows for one in counts.values()))
    return files, counts


def added_up(reports: Sequence[TalliedFiles[StagedT]]) -> TalliedFiles[StagedT]:
    """What all tasks wrote of one frame.

    Raises:
        InternalError: as :func:`check_files`.
    """
    tally = Tally()
    for report in reports:
        tally.add(report.tally)
    files = tuple(file for report in reports for file in report.files)
    if not tally.faults:  # else nothing is committed, and tasks wrote no more rows after the first fault
        check_files(files, tally.rows)
    return TalliedFiles(files, tally)


def check_files(files: Sequence[StagedRows], counted: int) -> None:
    """Refuse files of tasks that name one path twice, or do not hold the rows that were counted.

    Raises:
        InternalError: nothing was committed.
    """
    rows, paths = sum(one.rows for one in files), {one.mark.path for one in files}
    if len(paths) != len(files) or rows != counted:
        raise InternalError(
            f"Tasks counted {counted} rows and wrote {rows} to {len(files)} files, of {len(paths)} names. Nothing was committed. "
            "Please report it."
        )
