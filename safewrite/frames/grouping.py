"""Groups rows by the codes of their values, and leaves none out (H5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InternalError
from safewrite.frames.columns import Indices
from safewrite.frames.prepare import Prepared
from safewrite.values import compute as pc

Codes = npt.NDArray[np.int32]


def rows_by_code(codes: Sequence[Codes], sizes: Sequence[int]) -> list[Indices]:
    """The numbers of the rows, ascending, of each combination of codes, as the combinations first occur.

    ``codes`` has a code below ``sizes[i]`` for every row, for each of one or more columns.
    """
    combined = _combined(codes, sizes)
    counts = np.bincount(combined)
    order = np.argsort(combined, kind="stable")
    parts = np.split(order, np.cumsum(counts)[:-1])  # codes count up from the first row, none is unused
    if sum(len(part) for part in parts) != len(combined):
        raise InternalError("Partitions do not add up to the rows; please report this.")
    return parts


def _combined(codes: Sequence[Codes], sizes: Sequence[int]) -> Codes:
    """One number for each combination of codes, from 0 in the order in which they first occur.

    Renumbered at every step, so that the products cannot overflow.
    """
    result = codes[0]
    for more, size in zip(codes[1:], sizes[1:], strict=True):
        products = pa.array(result.astype(np.int64) * size + more)
        result = pc.dictionary_encode(products).indices.to_numpy(zero_copy_only=False)
    return result


def tables_of(prepared: Prepared, rows: Indices) -> Iterator[pa.Table]:
    """The rows with these numbers, in slices; a run without gaps is cut out instead of gathered."""
    for start in range(0, len(rows), prepared.slice_rows):
        part = rows[start : start + prepared.slice_rows]
        first, last = int(part[0]), int(part[-1])
        is_run = last - first + 1 == len(part) and bool((np.diff(part) == 1).all())
        yield prepared.piece(first, last + 1) if is_run else prepared.take(part)
