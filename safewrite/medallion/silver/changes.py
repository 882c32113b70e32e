"""Makes changes of silver from rows of bronze: upserts, deletes, and truncates, which remove all rows before them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.config.bronze_columns import (
    BEFORE_ALL,
    OLD,
    TRUNCATED_OP,
    UNCHANGED,
    UNCHANGED_FIELD,
)
from safewrite.medallion.files.unavailable_values import lacks_any

DELETE, TRUNCATE = "_delete", "_truncate"


def changes_of(rows: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> tuple[pa.Table, int]:
    """Bronze rows as changes of silver: an update that changes a key is a delete of the old one before it."""
    changes = rows.select(columns).append_column(DELETE, pc.equal(rows["_op"], "D"))
    changes = changes.append_column(TRUNCATE, pc.equal(rows["_op"], TRUNCATED_OP))
    if lacks_any(rows).any():
        changes = changes.append_column(UNCHANGED_FIELD, rows[UNCHANGED])
    moved, before = moved_keys(rows, keys)
    if not moved.any():
        return changes, 0
    deletes = changes.filter(pa.array(moved))
    for key, values in before.items():
        place = deletes.column_names.index(key)
        deletes = deletes.set_column(place, changes.schema.field(key), values.filter(pa.array(moved)))
    place = deletes.column_names.index(DELETE)
    deletes = deletes.set_column(place, DELETE, pa.array(np.ones(deletes.num_rows, np.bool_)))
    order = np.argsort(np.concatenate([np.flatnonzero(moved), np.arange(rows.num_rows)]), kind="stable")
    return pa.concat_tables([deletes, changes]).take(pa.array(order)), int(moved.sum())


def moved_keys(
    rows: pa.Table, keys: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], dict[str, pa.ChunkedArray]]:
    """Which rows are updates that change a key, and the keys of before."""
    there = frozenset(rows.column_names)
    before = {key: pc.coalesce(rows[OLD + key], rows[key]) for key in keys if OLD + key in there}
    moved = np.zeros(rows.num_rows, np.bool_)
    for key, values in before.items():
        moved |= np.asarray(pc.fill_null(pc.not_equal(values, rows[key]), False).to_numpy(), np.bool_)
    return moved & np.asarray(pc.equal(rows["_op"], "U").to_numpy(), np.bool_), before


def with_truncates(changes: pa.Table, epochs: Sequence[int]) -> tuple[pa.Table, int]:
    """The changes, and before them a truncate for each of the epochs; how many."""
    before = [{"_epoch": one, "_seq": BEFORE_ALL, DELETE: False, TRUNCATE: True} for one in epochs]
    if not before:
        return changes, 0
    loose = pa.schema([one.with_nullable(True) for one in changes.schema])
    return pa.concat_tables([pa.Table.from_pylist(before, schema=loose), changes.cast(loose)]), len(before)
