"""Splits a file into records: columns of raw values, and the records that cannot be read."""

from __future__ import annotations

import csv
import gzip
import io
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from safewrite.errors import InvalidInputError
from safewrite.medallion.config.files import REST, Files
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.parquet import ParquetRows
from safewrite.medallion.files.row_ends import RowEnds, returns_in_lines, row_ends
from safewrite.medallion.files.text_parsing import plain_value

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
TEXT_MAX = 100_000
"""At most this many characters of a record are kept in quarantine."""
RFC_ADVICE = "If the DMS endpoint says Rfc4180=false, set files.rfc4180 to false; if it does not, and values stand in quotes, to true"


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
    null: str = ""
    """What stands for NULL in the file, without quotes."""

    @property
    def count(self) -> int:
        return len(self.lines) + len(self.bad)

    def text(self, row: int) -> str:
        """One row as a line of CSV, for people."""
        values = [plain_value(column, row) for column in self.rows.columns]
        return ",".join(map(self._cell, values))[:TEXT_MAX]

    def _cell(self, value: object) -> str:
        """A value, in quotes where it would be another one without."""
        if value is None:
            return self.null
        text = str(_shown(value))
        in_quotes = text == self.null or any(letter in text for letter in ',"\r\n')
        return '"' + text.replace('"', '""') + '"' if in_quotes else text


def _shown(value: object) -> object:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def split(
    source: SourceFile,
    content: bytes,
    files: Files,
    columns: Sequence[str],
    owner_columns: Sequence[str] = (),
) -> Records:
    """The records of a file of one table, which has ``columns``; ``owner_columns`` name the table in mixed files only.

    Raises:
        InvalidInputError: the file cannot be read as a whole.
    """
    if source.kind != files.kind:
        raise unreadable(source, f"it is a {source.kind} file, and files.kind says {files.kind}")
    if files.kind == "parquet":
        return _parquet(source, content) if content else _nothing(_needed(source, files, columns))
    data = unpacked(source, content)
    ends = ends_in(source, data, files)
    if ends is None:
        return _texts(source, data, files, (columns, owner_columns))
    return _as_in_file(_texts(source, ends.lines(data), files, (columns, owner_columns)), ends)


def _as_in_file(found: Records, ends: RowEnds) -> Records:
    """Records that were read as lines, with the values that they have in the file."""
    rows = pa.table([ends.values(column) for column in found.rows.columns], schema=found.rows.schema)
    return replace(found, rows=rows, bad=[replace(one, text=ends.text(one.text)) for one in found.bad])


def ends_in(source: SourceFile, data: bytes, files: Files) -> RowEnds | None:
    """How the records of a CSV file end; None where each ends with a line end.  Raises InvalidInputError."""
    return _ends(row_ends, source, data, files)


def _ends(
    find: Callable[[Files, bytes], RowEnds | None], source: SourceFile, data: bytes, files: Files
) -> RowEnds | None:
    try:
        return find(files, data)
    except ValueError as error:
        raise unreadable(source, f"files.row_delimiter: {error}") from error


def _texts(
    source: SourceFile, data: bytes, files: Files, names: tuple[Sequence[str], Sequence[str]]
) -> Records:
    columns, owner_columns = names
    if files.order is not None:
        return csv_records(source, data, files, names_of(source, files, columns, owner_columns))
    if not data:
        return _nothing(_needed(source, files, columns))
    found, length = header_of(source, data, files)
    return csv_records(source, data[length:], files, found)


def names_of(
    source: SourceFile, files: Files, columns: Sequence[str], owner_columns: Sequence[str] = ()
) -> list[str]:
    """The columns of a CSV file without header."""
    assert files.order is not None
    left_out = set() if source.is_mixed else set(owner_columns)
    if not files.has_op(is_load=source.is_load):
        left_out.add(files.op)
    order = [name for name in files.order if name not in left_out]
    return [name for part in order for name in (columns if part == REST else [part])]


def unpacked(source: SourceFile, content: bytes) -> bytes:
    """The text of a CSV file.  Raises InvalidInputError if it is packed and damaged."""
    if source.raw.name.lower().endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(source, str(error)) from error
    return content.removeprefix(BYTE_ORDER_MARK)


def _parquet(source: SourceFile, content: bytes) -> Records:
    try:
        rows = ParquetRows(lambda: pa.BufferReader(content)).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(source, str(error)) from error
    return of_parquet(source, rows, 1)


def of_parquet(source: SourceFile, rows: pa.Table, line: int) -> Records:
    """Rows of a Parquet file as records, of which the first has a number.  Raises InvalidInputError."""
    check_names(source, rows.column_names)
    return Records(rows, np.arange(line, line + rows.num_rows, dtype=np.int64), False)


def header_of(source: SourceFile, data: bytes, files: Files) -> tuple[list[str], int]:
    """The columns that the first record of a CSV file names, and its bytes.  Raises InvalidInputError."""
    end = data.find(b"\n")
    head = data if end < 0 else data[: end + 1]
    try:
        lines = [head.decode("utf-8")]
        if files.rfc4180 is False:
            found = lines[0].rstrip("\r\n").split(_delimiter(files))
        else:
            found = next(csv.reader(lines, delimiter=_delimiter(files), strict=True), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise unreadable(source, f"its header: {error}") from error
    return found, len(head)


def csv_records(source: SourceFile, data: bytes, files: Files, names: list[str]) -> Records:
    """The records of a text that begins and ends as records do.  Raises InvalidInputError."""
    check_names(source, names)
    ends = _ends(returns_in_lines, source, data, files)
    if ends is None:
        return _of_lines(source, data, files, names)
    return _as_in_file(_of_lines(source, ends.lines(data), files, names), ends)


def _of_lines(source: SourceFile, data: bytes, files: Files, names: list[str]) -> Records:
    """The records of lines without a carriage return of a value."""
    schema = pa.schema([(name, pa.binary()) for name in names])
    if not data:
        return _nothing(names)
    count, ends = _count(source, data, files)
    bad: list[BadRecord] = []

    def note(row: pacsv.InvalidRow) -> str:
        reason = f"{row.actual_columns} values, and there are {row.expected_columns} columns"
        bad.append(BadRecord(int(row.number), reason, row.text[:TEXT_MAX]))
        return "skip"

    is_quoted = files.rfc4180 is not False
    null = "NULL" if files.null_value is None else files.null_value
    try:
        rows = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 16),
            parse_options=pacsv.ParseOptions(
                delimiter=_delimiter(files), quote_char='"' if is_quoted else False, newlines_in_values=is_quoted,
                ignore_empty_lines=False, invalid_row_handler=note,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=schema, check_utf8=False, strings_can_be_null=True, quoted_strings_can_be_null=False,
                null_values=[null],
            ),
        )  # fmt: skip
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise unreadable(source, str(error)) from error
    lines = np.setdiff1d(np.arange(1, rows.num_rows + len(bad) + 1), [one.line for one in bad])
    records = Records(rows, lines.astype(np.int64), True, bad, null)
    if records.count != count or len(lines) != rows.num_rows:
        raise unreadable(source, f"two readers find {records.count} and {count} records in it")
    if files.rfc4180 is not None or not ends or ends[-1] == count:
        return records
    return without_doubtful(records, data.splitlines(keepends=True), ends, _delimiter(files))


def _needed(source: SourceFile, files: Files, columns: Sequence[str]) -> list[str]:
    """The columns of a file without a byte, which names none."""
    op = [files.op] if files.has_op(is_load=source.is_load) else []
    return [*op, *columns, *(name for name in (files.timestamp, files.change_seq) if name is not None)]


def _nothing(names: Sequence[str]) -> Records:
    return Records(
        pa.schema([(name, pa.binary()) for name in names]).empty_table(), np.zeros(0, np.int64), True
    )


def _count(source: SourceFile, data: bytes, files: Files) -> tuple[int, list[int]]:
    """Count records by another reader: Arrow takes a quote that is never closed to the end of the file as one value.

    Also the line on which each ends; nothing where each is a line.
    """
    is_plain = files.rfc4180 is False or b'"' not in data
    if is_plain and b"\r" not in data:
        return data.count(b"\n") + (not data.endswith(b"\n")), []
    if is_plain:
        return len(data.splitlines()), []
    texts = io.StringIO(data.decode("latin-1"), newline="")
    try:
        with any_length():
            reader = csv.reader(texts, delimiter=_delimiter(files), strict=True)
            ends = [reader.line_num for _ in reader]
    except csv.Error as error:
        why = f"a quote is not closed, or something follows it ({error})"
        raise unreadable(source, f"{why}. {RFC_ADVICE}") from error
    return len(ends), ends


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


def without_doubtful(
    records: Records, lines: Sequence[bytes], ends: Sequence[int], delimiter: str
) -> Records:
    """Put aside a record of several lines of which the first and the last would be records where quotes are no more than text.

    So looks what DMS writes with ``Rfc4180=false`` where a value begins with a quote: it swallows the records after it.  A
    value in quotes with line ends and delimiters may look so too.
    """
    marks = records.rows.num_columns - 1
    spans = zip([0, *ends], ends, strict=False)
    doubtful = {
        number: lines[start:end]
        for number, (start, end) in enumerate(spans, 1)
        if end - start > 1
        and all(one.count(delimiter.encode()) == marks for one in (lines[start], lines[end - 1]))
    }
    taken = np.asarray([line not in doubtful for line in records.lines.tolist()], np.bool_)
    bad = [
        BadRecord(
            line,
            f"a value in quotes goes over {len(doubtful[line])} lines, of which the first and the last would be records if quotes were text. "
            f"{RFC_ADVICE}",
            b"".join(doubtful[line]).decode("utf-8", "backslashreplace").rstrip("\r\n")[:TEXT_MAX],
        )
        for line in records.lines[~taken].tolist()
    ]
    rows = records.rows.filter(pa.array(taken, pa.bool_()))
    together = sorted([*records.bad, *bad], key=lambda one: one.line)
    return replace(records, rows=rows, lines=records.lines[taken], bad=together)


def check_names(source: SourceFile, names: Sequence[str]) -> None:
    """Refuse columns without names, or with one twice."""
    if not names or "" in names or len(set(names)) < len(names):
        raise unreadable(source, f"its columns have no name each, or one twice: {list(names)}")


def _delimiter(files: Files) -> str:
    return files.delimiter or ","


def unreadable(source: SourceFile, why: str) -> InvalidInputError:
    """The error for a file that cannot be read as a whole."""
    return InvalidInputError(
        f"{source.path} cannot be read: {why}. Nothing of it was written, and nothing of the files that came with it. "
        "Mend the file or take it away, or correct the table's files settings."
    )
