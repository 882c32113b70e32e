"""Tells which rows an overwrite replaces, and checks that the new ones are among them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.arguments.volatile import check_where
from safewrite.errors import InvalidInputError
from safewrite.frames.predicate import Constant, Predicate, columns, truths
from safewrite.text.rendering import shortened

if TYPE_CHECKING:
    from safewrite.frames.prepare import Prepared

EVERYTHING: Predicate = Constant(True)
NOWHERE: Predicate = Constant(False)


def digest(predicate: Predicate, operation: str) -> bytes:
    """Eight bytes that identify what is removed, so that a repeat can be told from another operation."""
    return hashlib.blake2b(f"{operation} {predicate}".encode(), digest_size=8).digest()


def check_rows(prepared: Prepared, predicate: Predicate) -> None:
    """Make sure that the overwrite would replace every new row (as Delta's replaceWhere does).

    Raises:
        InvalidInputError: for some row the predicate is not TRUE, or it is on a volatile column.
    """
    named = sorted(columns(predicate))
    check_where(prepared.volatile, named)
    outside = 0
    for table in prepared.tables(named or None):
        outside += table.num_rows - _true_count(truths(predicate, table))
    if outside:
        raise InvalidInputError(
            f"{outside} of {prepared.rows} rows do not satisfy where= ({shortened(str(predicate), 300)}), so a repeat would not replace "
            "them. Nothing was written. Filter the rows, or widen where=."
        )


def _true_count(result: pa.ChunkedArray[Any]) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(result.cast(pa.int64())).as_py() or 0)
