"""Reads large files in parts and parts in pieces: CSV by bytes that end where a record ends, Parquet by row groups.

Where a record ends is found by counting quotes.  That errs where a quote stands within a value that is not in quotes; but a
piece that is read from the beginning of a record tells whether it ends with one, and so each piece proves the place at which
the next one begins.  A file of which a piece proves otherwise is read at once, as small files are.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.medallion.config.files import Files
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.mixed import Part
from safewrite.medallion.files.parquet import ParquetRows
from safewrite.medallion.files.records import (
    BYTE_ORDER_MARK,
    Records,
    csv_records,
    header_of,
    names_of,
    of_parquet,
    split,
    unreadable,
)
from safewrite.medallion.files.row_ends import are_lines
from safewrite.medallion.files.storage import RawFile, Storage

PART_BYTES = 64 * 2**20
"""About so much of a file is read by one task."""
PIECE_BYTES = 8 * 2**20
"""About so much is converted at once."""
_FETCHED = 4 * 2**20
_PIECE_ROWS = 2**17
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file that a task reads: bytes of a CSV file, row groups of a Parquet file.

    ``names`` are the columns of a part that comes after the header; ``at_once``: all of the file, in memory.  ``share``: the records
    of one table in a file of all tables, which this process has split.
    """

    source: SourceFile
    start: int
    end: int
    first_line: int = 1
    names: tuple[str, ...] | None = None
    at_once: bool = False
    share: Part | None = None

    @classmethod
    def whole(cls, source: SourceFile, *, at_once: bool = False, share: Part | None = None) -> FilePart:
        """All of a file, or of what it has of a table."""
        return cls(
            source, 0, source.raw.size if source.kind == "csv" else 2**31, at_once=at_once, share=share
        )

    @property
    def nbytes(self) -> int:
        """About what is read for it."""
        if self.share is not None:
            return len(self.share.data)
        return self.end - self.start if self.source.kind == "csv" else self.source.raw.size


class RawStream(io.RawIOBase):
    """Bytes ``start`` to ``end`` of a raw file, fetched as they are asked for."""

    def __init__(self, storage: Storage, file: RawFile, start: int = 0, end: int | None = None) -> None:
        super().__init__()
        self._storage, self._file, self._start = storage, file, start
        self._size = (file.size if end is None else end) - start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        length = max(0, min(len(view), self._size - self._at))
        data = self._storage.read_part(self._file, self._start + self._at, length) if length else b""
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def stream_of(storage: Storage, file: RawFile, start: int = 0, end: int | None = None) -> IO[bytes]:
    """Bytes of a raw file, some megabytes at a time."""
    return cast("IO[bytes]", io.BufferedReader(RawStream(storage, file, start, end), _FETCHED))


def records_of_part(
    storage: Storage,
    part: FilePart,
    files: Files,
    columns: Sequence[str],
    owner_columns: Sequence[str] = (),
) -> Iterator[Records]:
    """The records of a part, a piece at a time; ``lines`` number them within the file.

    Raises:
        InvalidInputError: the file cannot be read, or not in parts.
        StorageError: it is gone, or is no longer what was listed.
    """
    source = part.source
    if part.share is not None:
        yield part.share.records(source, files, columns, owner_columns)
    elif part.at_once or source.kind != files.kind or not may_be_cut(source, files) or _is_small(part):
        content = storage.read_part(source.raw, 0, source.raw.size)
        yield split(source, content, files, columns, owner_columns)
    elif files.kind == "parquet":
        yield from _parquet(storage, part)
    else:
        yield from _csv(storage, part, files, columns, owner_columns)


def _parquet(storage: Storage, part: FilePart) -> Iterator[Records]:
    line = part.first_line
    try:
        file = ParquetRows(lambda: stream_of(storage, part.source.raw), pre_buffer=False)
        rows = max(
            1, min(_PIECE_ROWS, 2 * PIECE_BYTES * file.metadata.num_rows // _unpacked_bytes(file.metadata))
        )
        groups = range(part.start, min(part.end, file.metadata.num_row_groups))
        if not sum(file.metadata.row_group(group).num_rows for group in groups):
            yield of_parquet(part.source, file.none(), line)
            return
        for some in file.batches(rows, groups):
            yield of_parquet(part.source, some, line)
            line += some.num_rows
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part.source, str(error)) from error


def _unpacked_bytes(metadata: pq.FileMetaData) -> int:
    return max(
        1, sum(int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))
    )


def _csv(
    storage: Storage, part: FilePart, files: Files, columns: Sequence[str], owner_columns: Sequence[str]
) -> Iterator[Records]:
    source = part.source
    stream = stream_of(storage, source.raw, part.start, part.end)
    if _is_packed(source):
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    names = None if part.names is None else [*part.names]
    line, is_first = part.first_line, part.start == 0
    try:
        for piece in pieces(stream, is_quoted=files.rfc4180 is not False):
            data = piece.removeprefix(BYTE_ORDER_MARK) if is_first else piece
            is_first = False
            if names is None and files.order is not None:
                names = names_of(source, files, columns, owner_columns)
            elif names is None:
                names, length = header_of(source, data, files)
                data = data[length:]
            records = _moved(csv_records(source, data, files, names), line)
            yield records
            line += records.count
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(source, str(error)) from error
    if names is None:  # a packed file of nothing
        yield split(source, b"", files, columns, owner_columns)


def may_be_cut(source: SourceFile, files: Files) -> bool:
    """Whether a file can be read in parts and pieces: one whose records end otherwise than with line ends cannot."""
    return source.kind == "parquet" or are_lines(files)


def _is_small(part: FilePart) -> bool:
    """Whether a part is a whole CSV file of one piece."""
    size = part.source.raw.size
    is_whole = part.source.kind == "csv" and part.start == 0 and part.end == size
    return is_whole and size <= (PIECE_BYTES // 16 if _is_packed(part.source) else PIECE_BYTES)


def _is_packed(source: SourceFile) -> bool:
    return source.raw.name.lower().endswith(".gz")


def _moved(records: Records, first_line: int) -> Records:
    """The records of a piece, numbered as in the file."""
    by = first_line - 1
    bad = [replace(one, line=one.line + by) for one in records.bad]
    return replace(records, lines=records.lines + by, bad=bad) if by else records


# --- where records end ------------------------------------------------------------------------------------
def pieces(stream: IO[bytes], *, is_quoted: bool, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """The bytes of a stream in pieces of about ``size``, which end where records do, as far as quotes tell."""
    pending = b""
    while block := stream.read(size):
        data = pending + block
        end = _last_end(data, is_quoted=is_quoted)
        pending = data[end:]
        if end:
            yield data[:end]
    if pending:
        yield pending


def _last_end(data: bytes, *, is_quoted: bool) -> int:
    """Where the last record of some bytes ends that a newline ends; 0 if there is none."""
    end = data.rfind(b"\n") + 1
    before = data.count(b'"', 0, end) if is_quoted else 0
    while end and before % 2:
        start = data.rfind(b"\n", 0, end - 1) + 1
        before -= data.count(b'"', start, end)
        end = start
    return end


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Where records end in a range of a CSV file: if it begins outside quotes, and if within.

    ``first`` is the place after the first end, ``count`` how many there are; ``turns``: whether the range ends otherwise than it
    begins.  ``head`` is the first line, of a range that begins with the file.
    """

    first: tuple[int | None, int | None]
    count: tuple[int, int]
    turns: bool
    head: bytes | None = None


def ends_of(storage: Storage, file: RawFile, start: int, end: int, *, is_quoted: bool) -> RangeEnds:
    """Look through a range of a file for ends of records.  Raises StorageError."""
    stream = stream_of(storage, file, start, end)
    first: list[int | None] = [None, None]
    count, parity, at = [0, 0], 0, start
    head: bytes | None = None
    while block := stream.read(PIECE_BYTES):
        if at == 0:
            head = block[: block.find(b"\n") + 1] or None
        for state, places in enumerate(_ends_by_state(block, is_quoted=is_quoted)):
            now = state ^ parity
            count[now] += len(places)
            if first[now] is None and len(places):
                first[now] = at + int(places[0]) + 1
        parity ^= (block.count(b'"') % 2) if is_quoted else 0
        at += len(block)
    return RangeEnds((first[0], first[1]), (count[0], count[1]), bool(parity), head)


def _ends_by_state(block: bytes, *, is_quoted: bool) -> tuple[Places, Places]:
    """The newlines that stand outside quotes if the block begins so, and those that do if it begins within."""
    letters = np.frombuffer(block, np.uint8)
    newlines = np.flatnonzero(letters == ord("\n"))
    if not is_quoted or b'"' not in block:
        return newlines, newlines[:0]
    quotes = np.flatnonzero(letters == ord('"'))
    within = np.searchsorted(quotes, newlines) % 2 == 1
    return newlines[~within], newlines[within]


def csv_parts(
    source: SourceFile, files: Files, starts: Sequence[int], found: Sequence[RangeEnds]
) -> list[FilePart] | None:
    """The parts of a CSV file of which ranges were looked through; None where its header does not stand in one line.

    Raises:
        InvalidInputError: its header cannot be read.
    """
    names: tuple[str, ...] | None = None
    if files.order is None:
        if found[0].head is None:
            return None
        names = tuple(header_of(source, found[0].head.removeprefix(BYTE_ORDER_MARK), files)[0])
    begins, ends = [(0, 1)], 1 if names is None else 0
    parity = 0
    for number, one in enumerate(found):
        place = one.first[parity]
        if number and place is not None:
            begins.append((place, ends + 1))
        ends += one.count[parity]
        parity ^= one.turns
    places = [*begins[1:], (source.raw.size, 0)]
    return [
        FilePart(source, start, end, line, names if start else None)
        for (start, line), (end, _) in zip(begins, places, strict=True)
        if start < end or not start
    ]


def parquet_parts(source: SourceFile, groups: Sequence[tuple[int, int]], part_bytes: int) -> list[FilePart]:
    """The parts of a Parquet file whose row groups have so many rows and bytes."""
    parts: list[FilePart] = []
    start = size = rows = line = 0
    for number, (count, length) in enumerate(groups):
        if number > start and size + length > part_bytes:
            parts.append(FilePart(source, start, number, line + 1))
            start, size, line = number, 0, line + rows
            rows = 0
        size += length
        rows += count
    return [*parts, FilePart(source, start, len(groups), line + 1)]


def row_groups_of(storage: Storage, source: SourceFile) -> list[tuple[int, int]]:
    """The rows and stored bytes of each row group of a Parquet file.

    Raises:
        InvalidInputError: it is none.
        StorageError: it is gone, or is no longer what was listed.
    """
    try:
        metadata = pq.ParquetFile(stream_of(storage, source.raw), pre_buffer=False).metadata
    except (pa.ArrowException, OSError) as error:
        raise unreadable(source, str(error)) from error
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        (one.num_rows, sum(one.column(at).total_compressed_size for at in range(one.num_columns)))
        for one in groups
    ]
