"""Reads CSV whose records end with another text than a line end: readers are shown lines, and values get back what they had."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.config.files import Files


@dataclass(frozen=True, slots=True)
class RowEnds:
    """The text that ends a record, and a byte that is nowhere else in the data, for line ends within values."""

    end: bytes
    line: bytes

    def lines(self, data: bytes) -> bytes:
        """The data with a line end after each record."""
        return b"\n".join(part.replace(b"\n", self.line) for part in data.split(self.end))

    def back(self, data: bytes) -> bytes:
        """What was written, of data with lines."""
        return self.end.join(part.replace(self.line, b"\n") for part in data.split(b"\n"))

    def text(self, text: str | None) -> str | None:
        """A record as it stands in the file."""
        return None if text is None else self.back(text.encode()).decode()

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column of values as they stand in the file."""
        has_any = [pc.any(pc.match_substring(column, one)).as_py() for one in (b"\n", self.line)]
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
    if len(end) == 1:
        return RowEnds(end, end)  # where records are lines no such byte is left
    taken = {*end, *b"\n\r", *(files.delimiter or ",").encode()}
    free = (bytes([one]) for one in range(1, 32) if one not in taken)
    line = next((one for one in free if one not in data), None)
    if line is None:
        raise ValueError("every control character is in it, and none is free to stand for a line end")
    return RowEnds(end, line)
