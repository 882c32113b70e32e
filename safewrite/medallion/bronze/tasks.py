"""Reads raw files in tasks, which convert their records and report what they read; once that is judged, the rows are written.

The engine says where tasks run, and rows stay there: those in this process are appended as frames, for others tasks write data files.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from safewrite.engine.abc import Engine, TaskAttempt, bodies
from safewrite.engine.exchange import CHUNKS, Dealt
from safewrite.engine.local import LocalEngine
from safewrite.engine.task_files import WriteMembers, WrittenRows
from safewrite.errors import InvalidInputError
from safewrite.medallion.config.job import TableConfig
from safewrite.medallion.config.quality_rules import Quality
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import MixedFiles, Part
from safewrite.medallion.files.parts import (
    PART_BYTES,
    FilePart,
    RangeEnds,
    csv_parts,
    ends_of,
    may_be_cut,
    parquet_parts,
    records_of_part,
    row_groups_of,
)
from safewrite.medallion.files.records import BadRecord
from safewrite.medallion.files.rows import BronzeRows, FileRows, Span, bronze_rows, bronze_schema, span_of
from safewrite.medallion.files.storage import Storage
from safewrite.medallion.tables.job import TableJob

log = logging.getLogger("safewrite")
_OVERHEAD_BYTES = 2**16
"""What a file costs beyond its bytes: so that a task has not too many small ones."""
SMALL_BYTES = 2**22
"""Files of so few bytes together are read by tasks in this process: a job of Spark's costs more."""
BYTES_MAX = 128 * 2**20
"""The rows of files of so many bytes are in the memory of this process at once."""


@dataclass(frozen=True)
class FileElsewhere:
    """What becomes of a file whose rows are where tasks read them; see ``safewrite.medallion.files.rows.FileRows``."""

    source: SourceFile
    tag: str
    count: int
    bad: list[BadRecord]
    span: Span | None
    again: Callable[[], BronzeRows] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a task read of a part: ``records`` are ``rows`` and ``bad``."""

    part: FilePart
    records: int
    rows: int
    bad: tuple[BadRecord, ...]
    span: Span | None


@dataclass(frozen=True, slots=True)
class NotRead:
    """A file that could not be read, or not in parts: reading it at once tells which."""

    path: str


@dataclass(frozen=True)
class LookThrough:
    """Finds out where a large file may be cut: reports a range's ends of records, or the row groups of a Parquet file."""

    storage: Storage
    source: SourceFile
    start: int
    end: int
    is_quoted: bool
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, RangeEnds | list[tuple[int, int]]]:
        """Look, and write nothing."""
        yield from ()
        if self.source.kind == "parquet":
            return row_groups_of(self.storage, self.source)
        return ends_of(self.storage, self.source.raw, self.start, self.end, is_quoted=self.is_quoted)


Parts = tuple[tuple[FilePart, str], ...]
"""What a task reads, each part with the tag of its file's content."""


@dataclass(frozen=True)
class ReadParts:
    """Reads parts of files, converts their records, and gives those that can be taken; its input are numbers of ``parts``."""

    storage: Storage
    parts: tuple[Parts, ...]
    table: TableConfig
    source_columns: pa.Schema
    owner_columns: tuple[str, ...]
    """Columns of files of all tables, which those of one table do not have."""
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[Dealt, None, list[PartRead] | NotRead]:
        """Read, and write nothing."""
        read: list[PartRead] = []
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for part, tag in self.parts[number]:
                try:
                    read.append((yield from self._read(part, tag, number)))
                except InvalidInputError:
                    if part.at_once:
                        raise
                    return NotRead(part.source.path)
        return read

    def _read(self, part: FilePart, tag: str, number: int) -> Generator[Dealt, None, PartRead]:
        records, rows, bad, span = 0, 0, list[BadRecord](), None
        source, names = part.source, self.source_columns.names
        owners = self.owner_columns if source.is_mixed else ()
        for some in records_of_part(self.storage, part, self.table.files, names, self.owner_columns):
            piece = bronze_rows(source, tag, some, self.table, self.source_columns, owner_columns=owners)
            records += some.count
            rows += piece.count
            bad += piece.bad
            span = _joined(span, span_of(piece.rows))
            yield Dealt(piece.rows, None, first=number, name=source.path)
        return PartRead(part, records, rows, tuple(bad), span)


def _joined(one: Span | None, other: Span | None) -> Span | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True)
class FilesRead:
    """Files that tasks read, and their rows, which are where the tasks ran until they are committed."""

    files: list[FileRows]
    engine: Engine[Any] = field(repr=False)
    rows: Any = field(repr=False)

    def members(self, job: TableJob, wanted: Sequence[FileRows]) -> list[Any]:
        """The rows of some of the files, as ``append_many`` takes them; those of another process tasks write there.

        They are read again here where bronze was made since, and tasks cannot reach it.

        Raises:
            EngineError: the rows are gone with an executor, or the tasks could not be run.
            SafewriteError: the table does not hold them, or its store gave no answer.
        """
        is_here = not any(isinstance(one, FileElsewhere) for one in wanted)
        way = None if is_here else job.bronze.in_tasks()
        if way is None:
            return [one.again().rows for one in wanted]
        writer = way.writer

        def written(paths: Sequence[str]) -> list[WrittenRows]:
            with self.engine.map(self.rows, WriteMembers(writer, frozenset(paths))) as done:
                return done.bodies()

        group = writer.group(written([one.source.path for one in wanted if one.count]), written)
        nothing = bronze_schema(job.config, job.columns).empty_table()
        return [group.member(one.source.path) if one.count else nothing for one in wanted]


@dataclass(frozen=True)
class FileTasks:
    """Reads files of one table by an engine's tasks."""

    job: TableJob
    engine: Engine[Any]
    storage: Storage
    mixed: MixedFiles

    @contextmanager
    def read(self, files: Sequence[tuple[SourceFile, str]]) -> Iterator[FilesRead]:
        """Let tasks read files, each with the tag of its content; what they gave is kept until the end of the block.

        Raises:
            InvalidInputError: a file cannot be read, or has other columns.
            StorageError: a file is gone or no longer what was listed, or a task could not be run.
        """
        parts = self._parts([source for source, _ in files])
        tags = {source.path: tag for source, tag in files}
        while True:
            task = self._task(parts, tags)
            engine = self._engine(parts)
            with engine.map(engine.numbers(len(task.parts)), task) as mapped:
                read = mapped.bodies()
                wrong = _wrongly_cut(read)
                if not wrong:
                    yield self._read(files, read, engine, mapped.rows)
                    return
            log.info("medallion: %s: %s is read at once", self.job.name, ", ".join(sorted(wrong)))
            parts = {
                path: [FilePart.whole(own[0].source, at_once=True, share=own[0].share)]
                if path in wrong
                else own
                for path, own in parts.items()
            }

    def _read(
        self,
        files: Sequence[tuple[SourceFile, str]],
        read: Sequence[list[PartRead]],
        engine: Engine[Any],
        rows: Any,
    ) -> FilesRead:
        by_path, here = _by_path(read), engine.at_hand(rows)
        if here is None:
            return FilesRead(
                [self._elsewhere(one, tag, by_path[one.path]) for one, tag in files], engine, rows
            )
        pieces: dict[str, list[pa.Table]] = {}
        for one in here:
            pieces.setdefault(one.name, []).append(one.rows)
        found = [
            BronzeRows(one, tag, pa.concat_tables(pieces[one.path]), _bad(by_path[one.path]))
            for one, tag in files
        ]
        return FilesRead([*found], engine, rows)

    def _elsewhere(self, source: SourceFile, tag: str, parts: Sequence[PartRead]) -> FileElsewhere:
        span: Span | None = None
        for one in parts:
            span = _joined(span, one.span)
        count = sum(one.rows for one in parts)

        def again() -> BronzeRows:
            return rows_here(self.job, self.mixed, [(source, tag)])[0]

        return FileElsewhere(source, tag, count, _bad(parts), span, again)

    def _engine(self, parts: dict[str, list[FilePart]]) -> Engine[Any]:
        """What reads: this process what takes less here, and what it has split already."""
        own = [*itertools.chain.from_iterable(parts.values())]
        is_here = type(self.engine) is LocalEngine or any(one.share is not None for one in own)
        return (
            LocalEngine()
            if is_here or not is_there(self.job, sum(one.nbytes for one in own))
            else self.engine
        )

    def _parts(self, sources: Sequence[SourceFile]) -> dict[str, list[FilePart]]:
        """The parts of each file; large ones are looked through by tasks first."""
        files = self.job.config.files
        parts = {source.path: [FilePart.whole(source, share=self._share(source))] for source in sources}
        looks = [look for source in sources if source.kind == files.kind for look in self._looks(source)]
        found: dict[str, list[tuple[int, Any]]] = {}
        for look, report in zip(looks, bodies(self.engine.run(looks)), strict=True):
            found.setdefault(look.source.path, []).append((look.start, report))
        for source in (one for one in sources if one.path in found):
            starts, reports = zip(*found[source.path], strict=True)
            if source.kind == "parquet":
                parts[source.path] = parquet_parts(source, reports[0], PART_BYTES)
            else:
                parts[source.path] = csv_parts(source, files, starts, reports) or parts[source.path]
        return parts

    def _share(self, source: SourceFile) -> Part | None:
        return self.mixed.get(source).parts[self.job.name] if source.is_mixed else None

    def _looks(self, source: SourceFile) -> Iterator[LookThrough]:
        size, is_quoted = source.raw.size, self.job.config.files.rfc4180 is not False
        is_whole = source.is_mixed or source.raw.name.lower().endswith(".gz")
        if size <= PART_BYTES * 3 // 2 or is_whole or not may_be_cut(source, self.job.config.files):
            return
        if source.kind == "parquet":
            yield LookThrough(self.storage, source, 0, size, is_quoted)
            return
        count = -(-size // PART_BYTES)
        places = [size * number // count for number in range(count + 1)]
        for start, end in itertools.pairwise(places):
            yield LookThrough(self.storage, source, start, end, is_quoted)

    def _task(self, parts: dict[str, list[FilePart]], tags: dict[str, str]) -> ReadParts:
        table = self.job.config.model_copy(update={"quality": Quality()})  # functions of rules may not travel
        dealt = _dealt([(part, tags[path]) for path, own in parts.items() for part in own])
        owner_columns = self.job.places.config.owner_columns
        return ReadParts(self.storage, tuple(map(tuple, dealt)), table, self.job.columns, owner_columns)


def is_there(job: TableJob, nbytes: int) -> bool:
    """Whether raw files of so many bytes are for executors."""
    return job.places.work.files.is_there(nbytes, small=SMALL_BYTES, most=BYTES_MAX)


def rows_here(job: TableJob, mixed: MixedFiles, files: Sequence[tuple[SourceFile, str]]) -> list[BronzeRows]:
    """The rows of files, each with the tag of its content, which tasks of this process read.  Raises as :meth:`FileTasks.read`."""
    with FileTasks(job, LocalEngine(), job.places.raw, mixed).read(files) as found:
        return [one.again() for one in found.files]


def _dealt(parts: Sequence[tuple[FilePart, str]]) -> Iterator[list[tuple[FilePart, str]]]:
    """The parts of each task: one that is large, or several small ones that follow one another."""
    some: list[tuple[FilePart, str]] = []
    size = 0
    for part, tag in parts:
        length = _OVERHEAD_BYTES + part.nbytes
        if some and size + length > PART_BYTES:
            yield some
            some, size = [], 0
        some.append((part, tag))
        size += length
    if some:
        yield some


def _bad(parts: Iterable[PartRead]) -> list[BadRecord]:
    return [*itertools.chain.from_iterable(one.bad for one in parts)]


def _by_path(read: Iterable[list[PartRead]]) -> dict[str, list[PartRead]]:
    found: dict[str, list[PartRead]] = {}
    for one in itertools.chain.from_iterable(read):
        found.setdefault(one.part.source.path, []).append(one)
    for parts in found.values():
        parts.sort(key=lambda one: one.part.first_line)
    return found


def _wrongly_cut(read: Iterable[list[PartRead] | NotRead]) -> set[str]:
    """The files of which a part could not be read, or did not begin where the one before it ends."""
    read = [*read]
    found = {one.path for one in read if isinstance(one, NotRead)}
    if found:
        return found  # tasks that broke off say nothing of their other files
    for path, parts in _by_path(one for one in read if not isinstance(one, NotRead)).items():
        for one, following in itertools.pairwise(parts):
            if one.part.first_line + one.records != following.part.first_line:
                found.add(path)
    return found
