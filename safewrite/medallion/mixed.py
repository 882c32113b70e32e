"""Splits change files of all tables into those of one table each."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from safewrite.errors import InvalidInputError
from safewrite.medallion.config import REST, Config
from safewrite.medallion.layout import SourceFile
from safewrite.medallion.records import TEXT_MAX, BadRecord, any_length, unpacked
from safewrite.medallion.storage import Storage

FILES_KEPT = 64
"""So many split files are in memory."""


@dataclass
class Part:
    """The records of one table in a mixed file, and their numbers in that file."""

    data: bytearray = field(default_factory=bytearray)
    lines: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Mixed:
    """A mixed file, split; ``strangers`` are records of tables that are not configured."""

    tag: str
    parts: dict[str, Part]
    strangers: list[BadRecord]
    ignored: int
    count: int


class MixedFiles:
    """Reads each mixed file once for all tables."""

    def __init__(self, storage: Storage, config: Config) -> None:
        self._storage, self._config = storage, config
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()
        self._read = lru_cache(FILES_KEPT)(self._split)

    def get(self, source: SourceFile) -> Mixed:
        """A file, split.  Raises StorageError, InvalidInputError."""
        with self._guard:
            lock = self._locks.setdefault(source.path, threading.Lock())
        with lock:
            return self._read(source)

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
    head = files.order[: files.order.index(REST)]
    delimiter = files.delimiter or ","
    at_schema, at_table = (
        head.index(str(name)) for name in (config.raw.schema_column, config.raw.table_column)
    )
    parts: dict[str, Part] = {name: Part() for name in config.landed}
    strangers: list[BadRecord] = []
    ignored = line = 0
    for line, record in enumerate(_records(source, data), 1):
        values = _first(record, delimiter, len(head))
        name = f"{values[at_schema]}.{values[at_table]}" if len(values) == len(head) else ""
        if (part := parts.get(name)) is not None:
            part.data += record + b"\n"
            part.lines.append(line)
        elif name in config.ignored_tables:
            ignored += 1
        else:
            reason = f"the table {name} is not configured" if name else "it does not say of which table it is"
            strangers.append(BadRecord(line, reason, record.decode("utf-8", "backslashreplace")[:TEXT_MAX]))
    return Mixed(tag, parts, strangers, ignored, line)


def _records(source: SourceFile, data: bytes) -> Iterator[bytes]:
    """Records as they stand in the file; a value in quotes may hold line ends."""
    pending: list[bytes] = []
    is_open = False
    pieces = data.split(b"\n")
    if pieces[-1] == b"":
        pieces.pop()
    for piece in pieces:
        pending.append(piece)
        is_open ^= bool(piece.count(b'"') % 2)
        if not is_open:
            yield b"\n".join(pending)
            pending = []
    if pending:
        raise InvalidInputError(
            f"{source.path} cannot be read: a quote is not closed. Nothing of it was written. Mend the file or take it away."
        )


def _first(record: bytes, delimiter: str, count: int) -> list[str]:
    text = record.decode("utf-8", "replace")
    if '"' not in text:
        return text.split(delimiter, count)[:count]
    with any_length():
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])[:count]


def numbered(lines: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers of records as an array."""
    return np.asarray(lines, np.int64)
