"""Refuses data files whose days are those of the calendar before 1582, which only Spark translates.

Spark 2, and later ones in a session that is set to, write dates and times in the hybrid Julian calendar and
say so in the footer.  Spark translates them when it reads (DataSourceUtils.datetimeRebaseSpec).  Arrow does
not: rows that it rewrote would be other days for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_VERSION = b"org.apache.spark.version"
_FIRST_WITHOUT = (3, 1)
"""Before this version Spark wrote INT96 in the old calendar, and before 3.0 everything."""
FIRST_DAY = -141_427
"""1582-10-15: from then on both calendars agree on days."""
FIRST_US = -2_208_988_800_000_000
"""1900-01-01: from then on both agree on local times as well."""


def check_calendar(footer: pq.FileMetaData, kept: pa.Table, path: str) -> None:
    """Refuse to rewrite rows of a file whose days some engine reads otherwise.

    Raises:
        UnsupportedTableError: the file is in the old calendar, and a row with an old day is to stay.
    """
    if is_old(footer) and any(_has_old_day(leaf) for column in kept.columns for leaf in leaves(column)):
        raise UnsupportedTableError(
            f"{path} has days in the calendar before 1582 (Spark 2, or a session with datetimeRebaseModeInWrite=LEGACY), "
            "and rows with such days are to stay: rewritten they would be other days. Nothing was committed. Remove "
            "whole files or partitions, or delete these rows with Spark."
        )


def check_days(footer: pq.FileMetaData, rows: pa.Table, path: str) -> None:
    """Refuse rows of a file in which keys are looked for, or whose values are carried on, if some engine reads their days otherwise.

    Raises:
        UnsupportedTableError: the file is in the old calendar, and a row has an old day.
    """
    if is_old(footer) and any(_has_old_day(leaf) for column in rows.columns for leaf in leaves(column)):
        raise UnsupportedTableError(
            f"{path} has days in the calendar before 1582 (Spark 2, or a session with datetimeRebaseModeInWrite=LEGACY) in columns "
            "that changes are compared with: read here they are other days. Nothing was committed. Let Spark write the file again "
            "(OPTIMIZE), or apply these changes as a Spark DataFrame."
        )


def is_old(footer: pq.FileMetaData) -> bool:
    """Whether a file says that its days are in the old calendar, or comes from a Spark that wrote no others."""
    said = footer.metadata or {}
    version = re.match(rb"(\d+)\.(\d+)", said.get(_VERSION, b""))
    early = version is not None and (int(version[1]), int(version[2])) < _FIRST_WITHOUT
    return early or any(mark in said for mark in _MARKS)


def leaves(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """The arrays of simple values in a column."""
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        kind = chunk.type
        if pa.types.is_struct(kind):
            for inner in chunk.flatten():
                yield from leaves(inner)
        elif pa.types.is_map(kind):
            yield from leaves(chunk.keys)
            yield from leaves(chunk.items)
        elif pa.types.is_list(kind):
            yield from leaves(chunk.flatten())
        else:
            yield chunk


def _has_old_day(leaf: pa.Array) -> bool:
    if pa.types.is_date32(leaf.type):
        least = pc.min(leaf.view(pa.int32())).as_py()
        return least is not None and least < FIRST_DAY
    if pa.types.is_timestamp(leaf.type):
        least = pc.min(leaf.cast(pa.timestamp("us", leaf.type.tz)).view(pa.int64())).as_py()
        return least is not None and least < FIRST_US
    return False
