"""Reads raw files in tasks, which convert their records, write them to data files of bronze, and report what they did."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from safewrite.engine.abc import Engine, TaskAttempt, bodies
from safewrite.engine.local import LocalEngine
from safewrite.engine.written import TaskWriter, WrittenRows
from safewrite.errors import InvalidInputError
from safewrite.medallion.config.job import TableConfig
from safewrite.medallion.config.rules import Quality
from safewrite.medallion.files.layout import SourceFile
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
from safewrite.medallion.files.rows import BronzeRows, Span, bronze_rows, span_of
from safewrite.medallion.files.storage import Storage
from safewrite.medallion.tables.job import TableJob

log = logging.getLogger("safewrite")
_OVERHEAD_BYTES = 2**16
"""What a file costs beyond its bytes: so that a task has not too many small ones."""
SMALL_BYTES = 2**22
"""Files of so few bytes together are landed by the task in this process: a job of Spark's costs more."""


@dataclass(frozen=True)
class WrittenFile:
    """What became of a file whose rows tasks wrote; see ``safewrite.medallion.files.rows.FileRows``."""

    source: SourceFile
    tag: str
    count: int
    bad: list[BadRecord]
    span: Span | None
    data: Any = field(repr=False)
    again: Callable[[], BronzeRows] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PartRead:
    """What a task read of a part: ``records`` are ``rows`` and ``bad``."""

    part: FilePart
    records: int
    rows: int
    bad: tuple[BadRecord, ...]
    span: Span | None


@dataclass(frozen=True)
class PartsLanded:
    """What a task read, and what it wrote."""

    parts: tuple[PartRead, ...]
    written: WrittenRows


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


@dataclass(frozen=True)
class LandParts:
    """Reads parts of files, converts their records, and writes those that can be taken to data files of bronze."""

    storage: Storage
    parts: tuple[tuple[FilePart, str], ...]
    """Each with the tag of its file's content."""
    table: TableConfig
    source_columns: pa.Schema
    owner_columns: tuple[str, ...]
    """Columns of files of all tables, which those of one table do not have."""
    writer: TaskWriter
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, PartsLanded | NotRead]:
        """Write all rows; the names of files tell the attempt."""
        yield from ()
        read: list[PartRead] = []
        try:
            written = self.writer.write(self._rows(read), at)
        except InvalidInputError:
            part, _ = self.parts[len(read)]
            if part.at_once:
                raise
            return NotRead(part.source.path)
        return PartsLanded(tuple(read), written)

    def _rows(self, read: list[PartRead]) -> Iterator[tuple[str, pa.Table]]:
        names = self.source_columns.names
        for part, tag in self.parts:
            records, rows, bad, span = 0, 0, list[BadRecord](), None
            for some in records_of_part(self.storage, part, self.table.files, names, self.owner_columns):
                piece = bronze_rows(part.source, tag, some, self.table, self.source_columns)
                records += some.count
                rows += piece.count
                bad += piece.bad
                span = _joined(span, span_of(piece.rows))
                yield part.source.path, piece.rows
            read.append(PartRead(part, records, rows, tuple(bad), span))


def _joined(one: Span | None, other: Span | None) -> Span | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True)
class FileTasks:
    """Lands files of one table by an engine's tasks."""

    job: TableJob
    engine: Engine[Any]
    storage: Storage
    writer: TaskWriter
    again: Callable[[SourceFile], BronzeRows]
    """Reads a file in this process."""

    def land(self, files: Sequence[tuple[SourceFile, str]]) -> list[WrittenFile]:
        """Let tasks write the rows of files, each with the tag of its content; they are in no table before their commit.

        Raises:
            InvalidInputError: a file cannot be read, or has other columns.
            StorageError: a file is gone or no longer what was listed, or a task could not be run.
        """
        parts = self._parts([source for source, _ in files])
        tags = {source.path: tag for source, tag in files}
        landed = self._landed(parts, tags)
        while wrong := _wrongly_cut(landed):
            log.info("medallion: %s: %s is read at once", self.job.name, ", ".join(sorted(wrong)))
            parts = {
                path: [FilePart.whole(own[0].source, at_once=True)] if path in wrong else own
                for path, own in parts.items()
            }
            landed = self._landed(parts, tags)

        def once_more(paths: Sequence[str]) -> list[WrittenRows]:
            again = self._landed({path: parts[path] for path in paths}, tags)
            return [one.written for one in again if isinstance(one, PartsLanded)]

        done = [one for one in landed if isinstance(one, PartsLanded)]
        group = self.writer.group([one.written for one in done], once_more)
        read = _by_path(done)
        return [
            self._file(source, tag, read[source.path], group.member(source.path)) for source, tag in files
        ]

    def _file(self, source: SourceFile, tag: str, parts: Sequence[PartRead], data: Any) -> WrittenFile:
        span: Span | None = None
        for one in parts:
            span = _joined(span, one.span)
        bad = [*itertools.chain.from_iterable(one.bad for one in parts)]
        return WrittenFile(
            source, tag, sum(one.rows for one in parts), bad, span, data, lambda: self.again(source)
        )

    def _parts(self, sources: Sequence[SourceFile]) -> dict[str, list[FilePart]]:
        """The parts of each file; large ones are looked through by tasks first."""
        files = self.job.config.files
        parts = {source.path: [FilePart.whole(source)] for source in sources}
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

    def _looks(self, source: SourceFile) -> Iterator[LookThrough]:
        size, is_quoted = source.raw.size, self.job.config.files.rfc4180 is not False
        is_packed = source.raw.name.lower().endswith(".gz")
        if size <= PART_BYTES * 3 // 2 or is_packed or not may_be_cut(source, self.job.config.files):
            return
        if source.kind == "parquet":
            yield LookThrough(self.storage, source, 0, size, is_quoted)
            return
        count = -(-size // PART_BYTES)
        places = [size * number // count for number in range(count + 1)]
        for start, end in itertools.pairwise(places):
            yield LookThrough(self.storage, source, start, end, is_quoted)

    def _landed(self, parts: dict[str, list[FilePart]], tags: dict[str, str]) -> list[PartsLanded | NotRead]:
        table = self.job.config.model_copy(update={"quality": Quality()})  # functions of rules may not travel
        owner_columns = self.job.places.config.owner_columns
        tasks = [
            LandParts(self.storage, tuple(some), table, self.job.columns, owner_columns, self.writer)
            for some in _dealt([(part, tags[path]) for path, own in parts.items() for part in own])
        ]
        is_small = sum(map(_nbytes, itertools.chain.from_iterable(parts.values()))) <= SMALL_BYTES
        return bodies((LocalEngine() if is_small else self.engine).run(tasks))


def _nbytes(part: FilePart) -> int:
    """About what is read of a file for a part."""
    return part.end - part.start if part.source.kind == "csv" else part.source.raw.size


def _dealt(parts: Sequence[tuple[FilePart, str]]) -> Iterator[list[tuple[FilePart, str]]]:
    """The parts of each task: one that is large, or several small ones that follow one another."""
    some: list[tuple[FilePart, str]] = []
    size = 0
    for part, tag in parts:
        length = _OVERHEAD_BYTES + _nbytes(part)
        if some and size + length > PART_BYTES:
            yield some
            some, size = [], 0
        some.append((part, tag))
        size += length
    if some:
        yield some


def _by_path(landed: Iterable[PartsLanded]) -> dict[str, list[PartRead]]:
    found: dict[str, list[PartRead]] = {}
    for one in itertools.chain.from_iterable(one.parts for one in landed):
        found.setdefault(one.part.source.path, []).append(one)
    for parts in found.values():
        parts.sort(key=lambda one: one.part.first_line)
    return found


def _wrongly_cut(landed: Iterable[PartsLanded | NotRead]) -> set[str]:
    """The files of which a part could not be read, or did not begin where the one before it ends."""
    landed = [*landed]
    found = {one.path for one in landed if isinstance(one, NotRead)}
    if found:
        return found  # tasks that broke off say nothing of their other files
    for path, parts in _by_path(one for one in landed if isinstance(one, PartsLanded)).items():
        for one, following in itertools.pairwise(parts):
            if one.part.first_line + one.records != following.part.first_line:
                found.add(path)
    return found
