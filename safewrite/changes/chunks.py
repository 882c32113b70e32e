"""Packs rows by their keys into the chunks of an exchange: those of one key come together, wherever they were.

A chunk is an Arrow stream, which may lack columns that are NULL in all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from safewrite.changes.key_index import Hashes
from safewrite.engine.abc import CHUNKS, DATA
from safewrite.frames.columns import filled

BUCKETS = 128
"""Keys are dealt to so many buckets, a power of two, and a part has the same number of them as any other: so how many parts
there are may be decided once the rows are counted."""

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def parts_for(rows: int, rows_a_part: int) -> int:
    """How many parts so many rows are dealt to: a power of two."""
    return min(BUCKETS, 1 << max(0, -(-rows // rows_a_part) - 1).bit_length())


def dealt(table: pa.Table, hashes: Hashes, buckets: int = BUCKETS) -> Iterator[pa.RecordBatch]:
    """Rows as chunks, by the hashes of their keys; one batch."""
    if not table.num_rows:
        return
    shares = by_part(table, hashes, buckets)
    numbers, data = [number for number, _ in shares], [bytes(packed(rows)) for _, rows in shares]
    yield pa.record_batch([pa.array(numbers, pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS)


def by_part(table: pa.Table, hashes: Hashes, parts: int) -> list[tuple[int, pa.Table]]:
    """The rows of each part that has some, by the hashes of their keys, in their order."""
    numbers = (hashes % np.uint64(parts)).astype(np.int32)
    order = np.argsort(numbers, kind="stable")
    rows = (table if parts == 1 else table.take(pa.array(order))).combine_chunks()
    found, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), table.num_rows]
    shares = zip(found.tolist(), starts.tolist(), ends, strict=True)
    return [(number, rows.slice(at, end - at)) for number, at, end in shares]


def packed(rows: pa.Table) -> pa.Buffer:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue()


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of chunks under a schema, NULL in columns that a chunk lacks."""
    found = [schema.empty_table()]
    for batch in batches:
        for data in batch.column(DATA):
            with pa.ipc.open_stream(data.as_buffer()) as stream:
                found.append(filled(stream.read_all(), schema))
    return pa.concat_tables(found).combine_chunks()
