"""Applies changes of many tables by the same few tasks: what their keys are, chunks that name their table, look-ups, decisions.

A job of Spark's costs as much for one table as for a thousand.  So the rows of all tables are in one exchange, and a task works
on the share that each of them has in its part.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.key_index import Hashes, indexable, key_hashes
from safewrite.engine.abc import CHUNKS

VALUES_MAX = 10_000
"""So many values of a key column are listed one by one, else the lowest and the highest."""
HASHES_MAX = 1_000_000
"""The hashes of so many keys are sent; where there are more, all rows of files that may have one are looked at."""
_NAME = struct.Struct(">BH")
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
CHANGES, ROWS = 0, 1
"""What a chunk has: changes, or rows of the table."""


class UnfitError(Exception):
    """Changes that a task cannot take as they are; their table's writer has another way."""


# --- keys ----------------------------------------------------------------------------------------------
@dataclass
class KeysTold:
    """What the driver must know of the keys of some changes.

    ``ends`` are the lowest and highest value of each column, ``values`` all that it has, or None where they are many; so for
    ``hashes``, which ascend.
    """

    schema: pa.Schema
    is_hashed: bool = True
    """Whether equal keys have equal hashes, so that they can be dealt."""
    ends: dict[str, pa.Array] = field(default_factory=dict)
    values: dict[str, pa.Array | None] = field(default_factory=dict)
    hashes: Hashes | None = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def of(cls, keys: pa.Table, hashes: Hashes | None) -> KeysTold:
        """Those of a table of keys, of which none is NULL."""
        report = cls(keys.schema, hashes is not None)
        for name in keys.column_names:
            column = keys.column(name).combine_chunks()
            report.ends[name], report.values[name] = _ends(column), _few(pc.unique(column))
        report.hashes = None if hashes is None else _some(np.unique(hashes))
        return report

    def add(self, other: KeysTold) -> None:
        """Take in further ones, of the same columns and types."""
        for name, ends in other.ends.items():
            self.ends[name] = _ends(pa.concat_arrays([self.ends.get(name, ends), ends]))
        for name, values in other.values.items():
            known = self.values.get(name, values)
            both = None if known is None or values is None else pa.concat_arrays([known, values])
            self.values[name] = None if both is None else _few(pc.unique(both))
        mine, theirs = self.hashes, other.hashes
        self.hashes = None if mine is None or theirs is None else _some(np.union1d(mine, theirs))


def _ends(values: pa.Array) -> pa.Array:
    least = pc.min_max(values)
    return pa.array([least["min"], least["max"]], values.type)


def _few(values: pa.Array) -> pa.Array | None:
    return values if len(values) <= VALUES_MAX else None


def _some(hashes: Hashes) -> Hashes | None:
    return hashes if len(hashes) <= HASHES_MAX else None


def hashes_of(keys: pa.Table) -> Hashes | None:
    """The hash of each key; None for types whose equal values may have several."""
    return key_hashes(keys, keys.column_names) if indexable(keys.schema, keys.column_names) else None


# --- chunks --------------------------------------------------------------------------------------------
def dealt(
    name: str, kind: int, rows: pa.Table, hashes: Hashes | None, parts: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a table as chunks: dealt to so many parts by the hashes of their keys, or all to one."""
    if not rows.num_rows:
        return
    first = first_part(name)
    if parts == 1 or hashes is None:
        yield _chunks([first], [_packed(name, kind, rows)])
        return
    of = (hashes % np.uint64(parts)).astype(np.int64)
    order = np.argsort(of, kind="stable")
    found, starts = np.unique(of[order], return_index=True)
    ends = [*starts[1:].tolist(), rows.num_rows]
    sorted_rows = rows.take(pa.array(order))
    data = [
        _packed(name, kind, sorted_rows.slice(at, end - at))
        for at, end in zip(starts.tolist(), ends, strict=True)
    ]
    yield _chunks([first + part for part in found.tolist()], data)


def first_part(name: str) -> int:
    """The part that the first share of a table goes to, modulo the number of parts: tables are spread by their names."""
    return zlib.crc32(name.encode()) >> 8


def _chunks(parts: list[int], data: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(parts, pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS)


def _packed(name: str, kind: int, rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_LZ4) as writer:
        writer.write_table(rows.combine_chunks())
    return Chunk(name, kind, memoryview(sink.getvalue())).packed()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table, packed."""

    name: str
    kind: int
    data: memoryview

    @classmethod
    def of(cls, data: memoryview) -> Chunk:
        """A chunk as it was sent."""
        kind, length = _NAME.unpack_from(data)
        start = _NAME.size + length
        return cls(bytes(data[_NAME.size : start]).decode(), kind, data[start:])

    def packed(self) -> bytes:
        """The chunk as it is sent."""
        coded = self.name.encode()
        return _NAME.pack(self.kind, len(coded)) + coded + bytes(self.data)

    def rows(self) -> pa.Table:
        """Its rows."""
        with pa.ipc.open_stream(pa.py_buffer(self.data)) as stream:
            return stream.read_all()
