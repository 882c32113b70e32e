"""Translates between bronze's columns as the code calls them and as its table does: an Iceberg table has ``_raw_file`` for ``_file``.

An Iceberg bronze of an earlier release has ``_file``: it is renamed by the next run, and read as it is until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from safewrite.medallion.config.bronze_columns import FILE, STORED_FILE


class _Pieces(Protocol):
    def __call__(self, columns: Sequence[str] | None, /) -> Iterable[pa.Table]: ...


def stored(name: str, table_format: str) -> str:
    """What a column of bronze is called in a table that this release makes."""
    return STORED_FILE if name == FILE and table_format == "iceberg" else name


def pieces_of(
    read: _Pieces, there: Collection[str], columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Pieces of bronze's rows by the code's names; ``read`` gives all columns, or some, of a table that has the columns ``there``."""
    names = columns
    if columns is not None and FILE not in there:
        names = [STORED_FILE if one == FILE else one for one in columns]
    for piece in read(names):
        yield piece if columns is not None and FILE not in columns else as_called(piece)


def as_called(rows: pa.Table) -> pa.Table:
    """Rows of bronze with the path of their file, by the code's names."""
    names = rows.column_names
    if FILE in names or STORED_FILE not in names:
        return rows
    return rows.rename_columns([FILE if one == STORED_FILE else one for one in names])


def named_as_there(wanted: pa.Schema, there: Collection[str]) -> pa.Schema:
    """The columns that a bronze is to have, as an earlier release named them where it is not renamed yet."""
    if FILE not in there or FILE in wanted.names:
        return wanted
    return pa.schema([one.with_name(FILE) if one.name == STORED_FILE else one for one in wanted])
