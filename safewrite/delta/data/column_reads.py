"""Fetches of large data files only the bytes of some columns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

from safewrite.delta.data.rows import RowGroups, contents, damaged, size_of
from safewrite.delta.log.actions import Action
from safewrite.delta.log.ranges import TAIL, RangedFile, UnreadableError, missing_footer, open_file, ranges
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, GetRange, GetTail, Missing, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.protocol.values import Tail

WHOLE_BYTES = 2**20
"""Smaller files are fetched whole: one request more costs as much time as so many bytes."""
FILES_PLANNED = 64
"""At most this many footers are in memory together."""
WHOLE_SHARE = 0.7
"""A file of which more is needed is fetched whole."""

Body: TypeAlias = bytes | RangedFile
"""The bytes of a file, all or those of some columns."""


@dataclass(slots=True)
class ColumnRead:
    """A file, and what must be fetched of it: some ranges; None is all of it."""

    add: Action
    file: RangedFile | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """How much is fetched."""
        return size_of(self.add) if self.file is None else sum(length for _, length in self.spans)


def planned_reads(
    adds: Sequence[Action], names: Sequence[str] | None, limits: Limits, part: RowGroups | None = None
) -> Generator[Effect, Outcome, list[ColumnRead]]:
    """What to fetch of files for some columns (None: all), and row groups, by the footers of those that are large.

    Raises:
        StorageError: a file is gone or no Parquet file, or the store gave no answer.
    """
    reads = [ColumnRead(add) for add in adds]
    large = [read for read in reads if size_of(read.add) > WHOLE_BYTES]
    tails = [GetTail(unquote(read.add["path"]), TAIL, name="keys.get_tail") for read in large]
    for read, answer in zip(large, (yield from fetch(tails, limits, name="keys.get_tails")), strict=True):
        if isinstance(answer, Missing):
            raise damaged(read.add["path"], "it is gone")
        assert isinstance(answer.value, Tail)
        read.file = RangedFile(answer.value.size)
        read.file.add(answer.value.size - len(answer.value.data), answer.value.data)
    yield from _fetched(large, lambda _, file: [missing] if (missing := missing_footer(file)) else [], limits)
    for read in large:
        assert read.file is not None
        try:
            file = open_file(read.file)
            footer = file.metadata
            read.spans = ranges(
                footer,
                {*(file.schema_arrow.names if names is None else names)},
                None if part is None else part.of(footer)[0],
            )
        except UnreadableError as error:
            raise damaged(read.add["path"], str(error)) from error
        if read.nbytes > WHOLE_SHARE * size_of(read.add):
            read.file, read.spans = None, []
    return reads


def bodies(
    reads: Sequence[ColumnRead], limits: Limits, *, name: str
) -> Generator[Effect, Outcome, list[Body]]:
    """What was planned, asked for together.

    Raises:
        StorageError: a file is gone, or the store gave no answer.
    """
    whole = [read for read in reads if read.file is None]
    found = iter((yield from contents([read.add for read in whole], limits, name=name)))
    parts = [read for read in reads if read.file is not None]
    yield from _fetched(parts, lambda read, _: read.spans, limits)
    return [next(found) if read.file is None else read.file for read in reads]


def _fetched(
    reads: Sequence[ColumnRead],
    spans_of: Callable[[ColumnRead, RangedFile], list[tuple[int, int]]],
    limits: Limits,
) -> Generator[Effect, Outcome, None]:
    """Fill ranges in, those of all files asked for together."""
    gets: list[GetRange] = []
    into: list[ColumnRead] = []
    for read in reads:
        assert read.file is not None
        path = unquote(read.add["path"])
        try:
            spans = [span for span in spans_of(read, read.file) if read.file.piece(*span) is None]
        except UnreadableError as error:
            raise damaged(read.add["path"], str(error)) from error
        gets += [GetRange(path, *span, name="keys.get_range") for span in spans]
        into += [read] * len(spans)
    answers = yield from fetch(gets, limits, name="keys.get_ranges")
    for get, read, answer in zip(gets, into, answers, strict=True):
        if isinstance(answer, Missing):
            raise damaged(read.add["path"], "it is gone")
        assert read.file is not None
        assert isinstance(answer.value, bytes)
        read.file.add(get.start, answer.value)
