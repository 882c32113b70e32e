"""Reads CSV whose records end with another text than a line end: readers are shown lines, and values get back what they had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.config.files import Files


@dataclass(frozen=True, slots=True)
class RowEnds:
    """The text that ends a record, and bytes that are nowhere else in the data, for line ends within values.

    Readers of CSV take a carriage return for a line end too.
    """

    end: bytes
    line: bytes
    carriage_return: bytes

    def lines(self, data: bytes) -> bytes:
        """The data with a line end after each record."""
        if self.end == b"\n":
            return re.sub(rb"\r(?!\n)", self.carriage_return, data)
        return b"\n".join(self._without_line_ends(part) for part in data.split(self.end))

    def _without_line_ends(self, part: bytes) -> bytes:
        return part.replace(b"\n", self.line).replace(b"\r", self.carriage_return)

    def back(self, data: bytes) -> bytes:
        """What was written, of data with lines."""
        parts = (part.replace(self.carriage_return, b"\r") for part in data.split(b"\n"))
        return self.end.join(part.replace(self.line, b"\n") for part in parts)

    def text(self, text: str | None) -> str | None:
        """A record as it stands in the file."""
        return None if text is None else self.back(text.encode()).decode()

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column of values as they stand in the file."""
        has_any = [
            pc.any(pc.match_substring(column, one)).as_py()
            for one in (b"\n", self.line, self.carriage_return)
        ]
        if not any(has_any):
            return column
        return pa.chunked_array(
            [pa.array([None if one is None else self.back(one) for one in column.to_pylist()], column.type)]
        )


def are_lines(files: Files) -> bool:
    """Whether each record ends with a line end."""
    return files.row_delimiter in (None, "\n")


def row_ends(files: Files, data: bytes) -> RowEnds | None:
    """How the records of a file end; None where each ends with a line end.

    Raises:
        ValueError: no byte is free to stand for line ends within values.
    """
    if are_lines(files):
        return None
    end = str(files.row_delimiter).encode()
    free = _free_bytes(end, files, data)
    # One byte that ends records is nowhere within them, where they are lines.
    line = end if len(end) == 1 and end != b"\r" else _taken_from(free)
    return RowEnds(end, line, _taken_from(free) if b"\r" in data and end != b"\r" else b"\r")


def returns_in_lines(files: Files, data: bytes) -> RowEnds | None:
    """How to read lines that have a carriage return within a value; None where each stands before a line end.

    Raises:
        ValueError: no byte is free to stand for it.
    """
    if data.count(b"\r") == data.count(b"\r\n"):
        return None
    return RowEnds(b"\n", b"\n", _taken_from(_free_bytes(b"\n", files, data)))


def _taken_from(free: Iterator[bytes]) -> bytes:
    one = next(free, None)
    if one is None:
        raise ValueError("every control character is in it, and none is free to stand for a line end")
    return one


def _free_bytes(end: bytes, files: Files, data: bytes) -> Iterator[bytes]:
    """Control characters that are not in the data."""
    taken = {*end, *b"\n\r", *(files.delimiter or ",").encode()}
    return (bytes([one]) for one in range(1, 32) if one not in taken and one not in data)
