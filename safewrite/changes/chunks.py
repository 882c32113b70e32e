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
    numbers = (hashes % np.uint64(buckets)).astype(np.int32)
    order = np.argsort(numbers, kind="stable")
    rows = table if buckets == 1 else table.take(pa.array(order))
    rows = rows.combine_chunks()
    found, starts = np.unique(numbers[order], return_index=True)
    ends = [*starts[1:].tolist(), table.num_rows]
    data = [_packed(rows.slice(at, end - at)) for at, end in zip(starts.tolist(), ends, strict=True)]
    yield pa.record_batch([pa.array(found, pa.int32()), pa.array(data, pa.binary())], schema=CHUNKS)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The rows of chunks under a schema, NULL in columns that a chunk lacks."""
    found = [schema.empty_table()]
    for batch in batches:
        for data in batch.column(DATA):
            with pa.ipc.open_stream(data.as_buffer()) as stream:
                found.append(filled(stream.read_all(), schema))
    return pa.concat_tables(found).combine_chunks()
