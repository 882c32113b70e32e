"""Checks what callers ask of the data files of a table: tasks of PyIceberg's plans, and names of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from safewrite.errors import InvalidInputError
from safewrite.table.added_rows import AddedFile, AddedRows
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.table.verbs import Table


def checked_tasks(given: object) -> list[AddedFile]:
    """The files of tasks.

    Raises:
        InvalidInputError: they are none.
    """
    from pyiceberg.table import FileScanTask

    every = list(given) if isinstance(given, Iterable) else [given]
    found = [one for one in every if isinstance(one, FileScanTask)]
    if len(found) < len(every):
        raise InvalidInputError(
            f"read_files() takes what a scan of PyIceberg's plans, not {shown(given)}. Nothing was written. Give "
            "table.iceberg.scan().plan_files()."
        )
    return [AddedFile(one.file.file_size_in_bytes, None, one) for one in found]


def rows_of(
    files: Iterable[AddedFile],
    columns: Sequence[str] | None,
    table: Table,
    reader: Callable[[Sequence[AddedFile], tuple[str, ...] | None], pa.Table],
) -> Iterator[pa.Table]:
    """The rows of files, file by file, with the columns in the table's order."""
    for one in files:
        for rows in AddedRows(table.version, None, (one,), reader).tables(columns):
            there = frozenset(rows.column_names)
            yield rows.select([name for name in table.schema.names if name in there])
