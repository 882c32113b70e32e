"""Splits a file into records: columns of raw values, and those records that are none."""

from __future__ import annotations

import csv
import gzip
import io
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from safewrite.errors import InvalidInputError
from safewrite.medallion.config import REST, Files
from safewrite.medallion.layout import SourceFile

TEXT_MAX = 100_000
"""So many characters of a record are kept in quarantine."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was not taken; ``line`` counts a file's records from 1, without the header."""

    line: int
    reason: str
    text: str | None


@dataclass(frozen=True)
class Records:
    """The records of a file: ``lines`` numbers the rows of ``rows``; the others are ``bad``."""

    rows: pa.Table
    lines: npt.NDArray[np.int64]
    texts: bool
    """Whether values are the bytes of a CSV file; else they have types."""
    bad: list[BadRecord] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.lines) + len(self.bad)

    def text(self, row: int) -> str:
        """One row as a line of CSV, for people."""
        values = [column[row].as_py() for column in self.rows.columns]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow(map(_shown, values))
        return buffer.getvalue()[:TEXT_MAX]


def _shown(value: object) -> object:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def split(
    source: SourceFile, content: bytes, files: Files, columns: Sequence[str], beside: Sequence[str] = ()
) -> Records:
    """The records of a file of one table, which has ``columns``; ``beside`` name the table in mixed files only.

    Raises:
        InvalidInputError: the file cannot be read as a whole.
    """
    if source.kind != files.kind:
        raise _unreadable(source, f"it is a {source.kind} file, and files.kind says {files.kind}")
    if files.kind == "parquet":
        return _parquet(source, content)
    data = unpacked(source, content)
    if files.order is None:
        return _with_header(source, data, files)
    return _without_header(source, data, files, names_of(source, files, columns, beside))


def names_of(
    source: SourceFile, files: Files, columns: Sequence[str], beside: Sequence[str] = ()
) -> list[str]:
    """The columns of a CSV file without header."""
    assert files.order is not None
    left_out = set() if source.is_mixed else set(beside)
    if source.is_load and not files.op_in_full_load:
        left_out.add(files.op)
    order = [name for name in files.order if name not in left_out]
    return [name for part in order for name in (columns if part == REST else [part])]


def unpacked(source: SourceFile, content: bytes) -> bytes:
    """The text of a CSV file.  Raises InvalidInputError if it is packed and damaged."""
    if source.raw.name.lower().endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise _unreadable(source, str(error)) from error
    return content.removeprefix(b"\xef\xbb\xbf")


def _parquet(source: SourceFile, content: bytes) -> Records:
    try:
        rows = pq.ParquetFile(pa.BufferReader(content)).read()
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(source, str(error)) from error
    return Records(rows, np.arange(1, rows.num_rows + 1, dtype=np.int64), False)


def _with_header(source: SourceFile, data: bytes, files: Files) -> Records:
    end = data.find(b"\n")
    head = data if end < 0 else data[: end + 1]
    try:
        found = next(csv.reader([head.decode("utf-8")], delimiter=_delimiter(files), strict=True), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unreadable(source, f"its header: {error}") from error
    return _csv(source, data[len(head) :], files, found)


def _without_header(source: SourceFile, data: bytes, files: Files, names: list[str]) -> Records:
    return _csv(source, data, files, names)


def _csv(source: SourceFile, data: bytes, files: Files, names: list[str]) -> Records:
    check_names(source, names)
    schema = pa.schema([(name, pa.binary()) for name in names])
    if not data:
        return Records(schema.empty_table(), np.zeros(0, np.int64), True)
    count = _count(source, data, files)
    bad: list[BadRecord] = []

    def note(row: pacsv.InvalidRow) -> str:
        reason = f"{row.actual_columns} values, and there are {row.expected_columns} columns"
        bad.append(BadRecord(int(row.number), reason, row.text[:TEXT_MAX]))
        return "skip"

    try:
        rows = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 16),
            parse_options=pacsv.ParseOptions(
                delimiter=_delimiter(files), newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=note
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=schema, check_utf8=False, strings_can_be_null=True, quoted_strings_can_be_null=False,
                null_values=["NULL" if files.null_value is None else files.null_value],
            ),
        )  # fmt: skip
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(source, str(error)) from error
    lines = np.setdiff1d(np.arange(1, rows.num_rows + len(bad) + 1), [one.line for one in bad])
    records = Records(rows, lines.astype(np.int64), True, bad)
    if records.count != count or len(lines) != rows.num_rows:
        raise _unreadable(source, f"two readers find {records.count} and {count} records in it")
    return records


def _count(source: SourceFile, data: bytes, files: Files) -> int:
    """Count records by another reader: Arrow takes a quote that is never closed to the end of the file as one value."""
    if b'"' not in data and b"\r" not in data:
        return data.count(b"\n") + (not data.endswith(b"\n"))
    texts = io.StringIO(data.decode("latin-1"), newline="")
    try:
        with any_length():
            return sum(1 for _ in csv.reader(texts, delimiter=_delimiter(files), strict=True))
    except csv.Error as error:
        raise _unreadable(source, f"a quote is not closed, or something follows it ({error})") from error


_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def any_length() -> Iterator[None]:
    """The limit of a field's length is the process's own, and is put back."""
    with _ONE_AT_A_TIME:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def check_names(source: SourceFile, names: Sequence[str]) -> None:
    """Refuse a header without names, or with one twice."""
    if not names or "" in names or len(set(names)) < len(names):
        raise _unreadable(source, f"its columns have no name each, or one twice: {list(names)}")


def _delimiter(files: Files) -> str:
    return files.delimiter or ","


def _unreadable(source: SourceFile, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{source.path} cannot be read: {why}. Nothing of it was written, and nothing of the files that came with it. "
        "Mend the file or take it away, or correct the table's files settings."
    )
