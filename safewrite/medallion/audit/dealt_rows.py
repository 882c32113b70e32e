"""Deals rows to shares by their keys, in a temporary file where they are many, so that one share at a time is in memory."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from types import TracebackType
from typing import IO, Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SHARE_ROWS = 100_000
"""About this many rows are looked at together: as values of Python a row takes some kilobytes."""
_MEMORY_BYTES = 32 * 2**20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
Shares = npt.NDArray[np.int64]


class DealtRows:
    """Rows by share; a context manager."""

    def __init__(self) -> None:
        self._file: IO[bytes] = cast("IO[bytes]", tempfile.SpooledTemporaryFile(_MEMORY_BYTES))  # noqa: SIM115 - __exit__ closes it
        self._places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: pa.Table, shares: Shares) -> None:
        """Take rows in, each with its share."""
        self.rows += rows.num_rows
        order = np.argsort(shares, kind="stable")
        numbers, starts = np.unique(shares[order], return_index=True)
        ordered = rows.take(pa.array(order)).combine_chunks()
        ends = np.append(starts, rows.num_rows)[1:]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
                writer.write_table(ordered.slice(start, end - start))
            data = sink.getvalue()
            self._places[number].append((self._file.seek(0, 2), data.size))
            self._file.write(data)

    def share(self, number: int) -> list[dict[str, Any]]:
        """The rows of a share, in the order in which they came."""
        found: list[dict[str, Any]] = []
        for place, size in self._places[number]:
            self._file.seek(place)
            with pa.ipc.open_stream(self._file.read(size)) as stream:
                found += stream.read_all().to_pylist()
        return found
