"""Marks values that the source's log lacks and silver keeps: bronze lists for each update the columns without a value.

DMS writes a text of its own for them (``CsvNoSupValue``) where a database's log has changed columns and keys alone, such as
Oracle's with supplemental logging of keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.config.bronze_columns import UNCHANGED, UNCHANGED_FIELD

Flags = npt.NDArray[np.bool_]


def is_said(raw: pa.ChunkedArray, no_value: str | None) -> Flags:
    """Which values are the text that stands for none."""
    if no_value is None or not pa.types.is_binary(raw.type):
        return np.zeros(len(raw), np.bool_)
    return np.asarray(pc.fill_null(pc.equal(raw, no_value.encode()), False).to_numpy(), np.bool_)


def listed(lacking: dict[str, Flags], count: int) -> pa.ChunkedArray:
    """For each row the columns that it lacks; NULL for none."""
    found: list[list[str] | None] = [None] * count
    for name, flags in lacking.items():
        for row in np.flatnonzero(flags).tolist():
            found[row] = [*(found[row] or []), name]
    return pa.chunked_array([pa.array(found, UNCHANGED_FIELD.type)])


def lacks(rows: pa.Table, column: str) -> Flags:
    """Which rows of bronze bring no value of a column."""
    flags = np.zeros(rows.num_rows, np.bool_)
    if UNCHANGED in rows.column_names:
        lists = rows[UNCHANGED].combine_chunks()
        mine = pc.equal(pc.list_flatten(lists), column)
        flags[np.asarray(pc.list_parent_indices(lists).filter(mine))] = True
    return flags


def lacks_any(rows: pa.Table) -> Flags:
    """Which rows of bronze lack some value."""
    if UNCHANGED not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    lengths = pc.fill_null(pc.list_value_length(rows[UNCHANGED]), 0)
    return np.asarray(pc.greater(lengths, 0).to_numpy(), np.bool_)


def names_of(row: dict[str, object]) -> Sequence[str]:
    """The columns that one row lacks."""
    found = row.get(UNCHANGED)
    return found if isinstance(found, list) else ()
