"""Writes down a batch of changes as another process may apply it, and reads such batches.

The rows are plain Arrow, under the table's schema, with what each of them does: who reads them needs no condition of their writer's.
They are not compressed, so that a reader knows from the size of a member how much memory its rows take.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from safewrite.changes.meaning.decide import ChangeBatch
from safewrite.changes.meaning.reading import Changes, fingerprint_of, loose


def packed_batch(batch: ChangeBatch) -> dict[str, Any]:
    """A batch as plain values."""
    flags = [pa.array(flags) for flags in batch.absent.values()]
    names = [f"{number}" for number in range(batch.table.num_columns + 1 + len(flags))]
    rows = pa.table([*batch.table.columns, pa.array(batch.ops), *flags], names=names).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {
        "keys": list(batch.keys),
        "sequenceBy": list(batch.sequence_by),
        "absent": list(batch.absent),
        "rows": base64.b64encode(sink.getvalue()).decode(),
    }


def unpacked_batch(packed: Mapping[str, Any], schema: pa.Schema) -> Changes:
    """The changes of a batch, for a table of this schema.

    Raises:
        ValueError, KeyError, TypeError: it is not a batch of such a table; Arrow's errors are among these.
    """
    wide = loose(schema)
    with pa.ipc.open_stream(base64.b64decode(packed["rows"])) as stream:
        rows = stream.read_all().combine_chunks()
    absent, count = [str(name) for name in packed["absent"]], len(wide)
    expected = [*wide.types, pa.int8(), *[pa.bool_()] * len(absent)]
    if rows.schema.types != expected or any(column.null_count for column in rows.columns[count:]):
        raise ValueError("The rows of the batch are not the table's.")
    ops, *flags = (np.asarray(column.to_numpy()) for column in rows.columns[count:])
    batch = ChangeBatch(
        pa.table(rows.columns[:count], schema=wide),
        ops,
        tuple(map(str, packed["keys"])),
        tuple(map(str, packed["sequenceBy"])),
        dict(zip(absent, flags, strict=True)),
    )
    return Changes(batch, fingerprint_of(batch))
