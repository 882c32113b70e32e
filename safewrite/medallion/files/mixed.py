"""Splits change files of all tables into those of one table each."""

from __future__ import annotations

import csv
import io
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.medallion.config.files import REST, Files
from safewrite.medallion.config.job import Config
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.files.records import (
    RFC_ADVICE,
    TEXT_MAX,
    BadRecord,
    Records,
    any_length,
    ends_in,
    split,
    unpacked,
)
from safewrite.medallion.files.storage import Storage

BYTES_KEPT = 256 * 2**20
"""So much of split files is in memory: each table takes its part of all of them, one table after another."""


@dataclass
class Part:
    """The records of one table in a mixed file, and their numbers in that file."""

    table: str
    data: bytearray = field(default_factory=bytearray, repr=False)
    lines: list[int] = field(default_factory=list, repr=False)
    doubtful: list[int] = field(default_factory=list)
    """Of these numbers those of records that may have swallowed others."""

    def records(
        self, source: SourceFile, files: Files, columns: Sequence[str], owner_columns: Sequence[str]
    ) -> Records:
        """The records, numbered as in the whole file.  Raises InvalidInputError where two readers find others."""
        plain = source.raw.path.removesuffix(".gz").removesuffix(".GZ")  # unpacked already
        source = replace(source, raw=replace(source.raw, path=plain))
        found = split(source, bytes(self.data), files, columns, owner_columns)
        if found.count != len(self.lines):
            raise InvalidInputError(
                f"{source.path} cannot be read: two readers find {found.count} and {len(self.lines)} records of {self.table} in it, "
                f"as where a quote stands within a value that is not in quotes. Nothing of it was written. {RFC_ADVICE}. Else mend the file."
            )
        numbers = np.asarray(self.lines, np.int64)
        bad = [BadRecord(int(numbers[one.line - 1]), one.reason, one.text) for one in found.bad]
        records = replace(found, lines=numbers[found.lines - 1], bad=bad)
        return _without(records, set(self.doubtful)) if self.doubtful else records


def _without(records: Records, doubtful: Set[int]) -> Records:
    """The records, but for those that may have swallowed records of other tables."""
    reason = (
        f"a value in quotes goes over lines that would be records of tables if quotes were text. {RFC_ADVICE}"
    )
    taken = np.asarray([line not in doubtful for line in records.lines.tolist()], np.bool_)
    aside = [
        BadRecord(int(records.lines[row]), reason, records.text(row))
        for row in np.flatnonzero(~taken).tolist()
    ]
    bad = sorted([*records.bad, *aside], key=lambda one: one.line)
    rows = records.rows.filter(pa.array(taken, pa.bool_()))
    return replace(records, rows=rows, lines=records.lines[taken], bad=bad)


@dataclass(frozen=True)
class Mixed:
    """A mixed file, split; ``strangers`` are records of tables that are not configured."""

    tag: str
    parts: dict[str, Part]
    strangers: list[BadRecord]
    ignored: int
    count: int

    @property
    def size(self) -> int:
        """Bytes, about: a line's number takes as much as eight of them, and each part some."""
        return sum(100 + len(part.data) + 8 * len(part.lines) for part in self.parts.values())


class MixedFiles:
    """Reads each mixed file once for all tables."""

    def __init__(self, storage: Storage, config: Config) -> None:
        self._storage, self._config = storage, config
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._kept: OrderedDict[SourceFile, Mixed] = OrderedDict()
        self._size = 0

    def get(self, source: SourceFile) -> Mixed:
        """A file, split.  Raises StorageError, InvalidInputError."""
        with self._guard:
            lock = self._locks.setdefault(source.path, threading.Lock())
        with lock:
            found = self._found(source)
            if found is None:
                found = self._split(source)
                self._keep(source, found)
            return found

    def _found(self, source: SourceFile) -> Mixed | None:
        with self._guard:
            found = self._kept.get(source)
            if found is not None:
                self._kept.move_to_end(source)
            return found

    def _keep(self, source: SourceFile, found: Mixed) -> None:
        with self._guard:
            self._kept[source] = found
            self._size += found.size
            while self._size > BYTES_KEPT and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1].size

    def _split(self, source: SourceFile) -> Mixed:
        content, tag = self._storage.read(source.raw)
        return split_mixed(source, tag, unpacked(source, content), self._config)


def split_mixed(source: SourceFile, tag: str, data: bytes, config: Config) -> Mixed:
    """Give each record to its table, by the columns that name it.

    Raises:
        InvalidInputError: a quote is never closed.
    """
    files = next(iter(config.landed.values())).files
    assert files.order is not None
    order = [name for name in files.order if name != files.op or files.has_op(is_load=False)]
    head = order[: order.index(REST)]
    delimiter = files.delimiter or ","
    at_schema, at_table = (
        head.index(str(name)) for name in (config.raw.schema_column, config.raw.table_column)
    )
    parts: dict[str, Part] = {name: Part(name) for name in config.landed}
    strangers: list[BadRecord] = []
    ignored = line = 0
    is_quoted = files.rfc4180 is not False
    ends = ends_in(source, data, files)
    data = data if ends is None else ends.lines(data)
    for line, record in enumerate(_records(source, data) if is_quoted else _lines(data), 1):
        values = _first(record, delimiter, len(head), is_quoted=is_quoted)
        name = f"{values[at_schema]}.{values[at_table]}" if len(values) == len(head) else ""
        if (part := parts.get(name)) is not None:
            part.data += record + b"\n" if ends is None else ends.back(record + b"\n")
            part.lines.append(line)
            if files.rfc4180 is None and _swallows(record, delimiter, (at_schema, at_table), config):
                part.doubtful.append(line)
        elif name and config.ignores(name):
            ignored += 1
        else:
            reason = f"the table {name} is not configured" if name else "it does not say of which table it is"
            text = record if ends is None else ends.back(record)
            strangers.append(BadRecord(line, reason, text.decode("utf-8", "backslashreplace")[:TEXT_MAX]))
    return Mixed(tag, parts, strangers, ignored, line)


def _lines(data: bytes) -> list[bytes]:
    pieces = data.split(b"\n")
    return pieces[:-1] if pieces[-1] == b"" else pieces


def _swallows(record: bytes, delimiter: str, at: tuple[int, int], config: Config) -> bool:
    """Whether each later line of a record names a table too, where quotes are no more than text."""
    _, *others = record.split(b"\n")
    return bool(others) and all(
        len(values := one.decode("utf-8", "replace").split(delimiter)) > max(at)
        and ((name := f"{values[at[0]]}.{values[at[1]]}") in config.landed or config.ignores(name))
        for one in others
    )


def _records(source: SourceFile, data: bytes) -> Iterator[bytes]:
    """Records as they stand in the file; a value in quotes may hold line ends."""
    pending: list[bytes] = []
    is_open = False
    for piece in _lines(data):
        pending.append(piece)
        is_open ^= bool(piece.count(b'"') % 2)
        if not is_open:
            yield b"\n".join(pending)
            pending = []
    if pending:
        raise InvalidInputError(
            f"{source.path} cannot be read: a quote is not closed. Nothing of it was written. {RFC_ADVICE}. Else mend the file or "
            "take it away."
        )


def _first(record: bytes, delimiter: str, count: int, *, is_quoted: bool) -> list[str]:
    text = record.decode("utf-8", "replace")
    if not is_quoted or '"' not in text:
        return text.split(delimiter, count)[:count]
    with any_length():
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])[:count]
