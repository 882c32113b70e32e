"""Declares the rows of an exchange: those of one key come together, whichever task gave them.

A task gives tables.  How they travel is the engine's matter: threads of one process hand them on as they are, and Spark packs
them, cut by part, into rows of :data:`CHUNKS`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.uint64]

PART, DATA = "part", "data"
CHUNKS = pa.schema([(PART, pa.int32()), (DATA, pa.binary())])
"""The rows of an exchange as they are packed: the part that they go to, NULL if they go to none, and many rows of any schema.

A task whose ``columns`` these are gives :class:`Dealt` and :class:`Aside`, and one behind it or behind an exchange is given
:class:`Share`.
"""
BUCKETS = 128
"""Keys are dealt to so many buckets, a power of two, and a part has the same number of them as any other: so how many parts
there are may be decided once the rows are counted."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_HEAD = struct.Struct(">BH")
_MANY = 2**31
"""More parts than an exchange has: rows that are packed are cut before it is known how many there are."""


def parts_for(rows: int, rows_a_part: int) -> int:
    """How many parts so many rows are dealt to: a power of two."""
    return min(BUCKETS, 1 << max(0, -(-rows // rows_a_part) - 1).bit_length())


class Share(Protocol):
    """Rows that came to a part; ``name`` and ``kind`` say whose and which they are."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> int: ...

    def table(self) -> pa.Table:
        """The rows, which may lack columns that are NULL in all of them."""


class Travelling(Protocol):
    """Rows on their way to parts."""

    def to_parts(self, parts: int) -> Iterator[tuple[int, Share]]:
        """The rows of each part that has some, of so many parts."""


@dataclass(frozen=True)
class Whole:
    """Rows that were handed on as they are."""

    rows: pa.Table
    name: str = ""
    kind: int = 0

    def table(self) -> pa.Table:
        """See :class:`Share`."""
        return self.rows


@dataclass(frozen=True)
class Dealt:
    """Rows that go to buckets by the hashes of their keys, or all to one.

    The rows of bucket ``i`` go to part ``first + i``, modulo the number of parts.
    """

    rows: pa.Table
    hashes: Hashes | None
    buckets: int = BUCKETS
    first: int = 0
    name: str = ""
    kind: int = 0

    def table(self) -> pa.Table:
        """See :class:`Share`: a task may follow another one in the same place."""
        return self.rows

    def to_parts(self, parts: int) -> Iterator[tuple[int, Share]]:
        """See :class:`Travelling`; the order of the rows stays."""
        for number, rows in self._cut(parts):
            yield number, Whole(rows, self.name, self.kind)

    def packed(self) -> pa.RecordBatch:
        """The rows as chunks, one for each bucket."""
        head = _HEAD.pack(self.kind, len(coded := self.name.encode())) + coded
        shares = [*self._cut(_MANY)]
        data = [head + bytes(_packed(rows)) for _, rows in shares]
        return pa.record_batch(
            [pa.array([number for number, _ in shares], pa.int32()), pa.array(data, pa.binary())],
            schema=CHUNKS,
        )

    def _cut(self, parts: int) -> Iterator[tuple[int, pa.Table]]:
        if not self.rows.num_rows:
            return
        if self.hashes is None or self.buckets == 1 or parts == 1:
            yield self.first % parts, self.rows
            return
        numbers = (self.hashes % np.uint64(self.buckets)).astype(np.int64) + self.first
        yield from by_number(self.rows, numbers % parts)


@dataclass(frozen=True)
class Aside:
    """Something for the process that runs the tasks; it goes to no part.  ``sent`` makes bytes of it, where another process does."""

    what: Any
    sent: Callable[[Any], bytes] = bytes

    def packed(self) -> pa.RecordBatch:
        """It as a chunk."""
        data = pa.array([self.sent(self.what)], pa.binary())
        return pa.record_batch([pa.nulls(1, pa.int32()), data], schema=CHUNKS)


@dataclass(frozen=True)
class Packed:
    """Rows that were packed, on their way and where they came to."""

    name: str
    kind: int
    data: memoryview
    number: int = 0

    @classmethod
    def of(cls, data: memoryview, number: int = 0) -> Packed:
        """Those of a value of :data:`CHUNKS`."""
        kind, length = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        return cls(bytes(data[_HEAD.size : start]).decode(), kind, data[start:], number)

    def table(self) -> pa.Table:
        """See :class:`Share`."""
        with pa.ipc.open_stream(pa.py_buffer(self.data)) as stream:
            return stream.read_all()

    def to_parts(self, parts: int) -> Iterator[tuple[int, Share]]:
        """See :class:`Travelling`."""
        yield self.number % parts, self


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[Packed]:
    """The chunks of batches that go to a part."""
    for batch in batches:
        for number, data in zip(batch.column(PART).to_pylist(), batch.column(DATA), strict=True):
            if number is not None:
                yield Packed.of(memoryview(data.as_buffer()), number)


def by_number(rows: pa.Table, numbers: npt.NDArray[np.int64]) -> list[tuple[int, pa.Table]]:
    """The rows of each number that has some, in their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1)).tolist()
    moved = (rows if len(starts) == 1 else rows.take(pa.array(order))).combine_chunks()
    shares = zip(ordered[starts].tolist(), starts, [*starts[1:], rows.num_rows], strict=True)
    return [(number, moved.slice(at, end - at)) for number, at, end in shares]


def _packed(rows: pa.Table) -> pa.Buffer:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue()
