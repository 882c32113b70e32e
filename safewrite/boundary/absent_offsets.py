"""Gives Arrow's empty lists the offsets that they may come without, for Arrow (pyarrow 26) crashes where it looks for these.

An array of no values need have no offsets (Arrow's columnar format, "Variable-size List Layout"), and Java sends none where such an
array is deep within others: a frame of Spark with an empty map of lists of maps.  ``nbytes``, casts and concatenation read the
offsets and end the process.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)


def with_offsets(rows: RowsT) -> RowsT:
    """The same rows; only columns that lack offsets are copied."""
    for number, column in enumerate(rows.columns):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if not any(map(_lacks_offsets, chunks)):
            continue
        made = [chunk.take(pa.array(np.arange(len(chunk)))) for chunk in chunks]
        whole = pa.chunked_array(made, column.type) if isinstance(column, pa.ChunkedArray) else made[0]
        rows = rows.set_column(number, rows.schema.field(number), whole)
    return rows


def _lacks_offsets(array: Any) -> bool:
    """Whether an array, or one within it, has no values and no offsets."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _lacks_offsets(array.storage)
    if pa.types.is_struct(kind):
        return any(_lacks_offsets(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _is_bare(array) or _lacks_offsets(array.keys) or _lacks_offsets(array.items)
    if pa.types.is_fixed_size_list(kind):
        return _lacks_offsets(array.values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_bare(array) or _lacks_offsets(array.values)
    return False


def _is_bare(array: Any) -> bool:
    offsets = array.buffers()[1]
    return len(array) == 0 and (offsets is None or offsets.size == 0)
