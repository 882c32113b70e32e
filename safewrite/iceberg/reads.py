"""Reads the rows of data files for callers that follow a table; nested values are as the files have them, unlike PyIceberg's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.catalog.rows import read_rows
from safewrite.iceberg.data.reading import unplanned
from safewrite.iceberg.metadata import head_of
from safewrite.protocol.effects import Ok
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as PyIcebergTable


def read_files(
    table: PyIcebergTable, tasks: Iterable[FileScanTask], columns: Sequence[str] | None
) -> Iterator[pa.Table]:
    """The live rows of data files, of all columns or of some; see ``IcebergTable.read_files``."""
    return _read(table, _tasks(tasks), _columns(columns, table))


def _tasks(given: object) -> list[FileScanTask]:
    from pyiceberg.table import FileScanTask

    every = list(given) if isinstance(given, Iterable) else [given]
    found = [one for one in every if isinstance(one, FileScanTask)]
    if len(found) < len(every):
        raise InvalidInputError(
            f"read_files() takes what a scan of PyIceberg's plans, not {shown(given)}. Nothing was written. Give "
            "table.iceberg.scan().plan_files()."
        )
    return found


def _columns(given: object, table: PyIcebergTable) -> tuple[str, ...] | None:
    known = dict.fromkeys(table.schema().as_arrow().names)
    if given is None:
        return None
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not found or not all(one in known for one in found):
        raise InvalidInputError(
            f"read_files() takes names of columns of {'.'.join(table.name())}, not {shown(given)}. Nothing was written. "
            f"It has: {', '.join(map(shown, known))}."
        )
    return found


def _read(
    table: PyIcebergTable, tasks: list[FileScanTask], columns: tuple[str, ...] | None
) -> Iterator[pa.Table]:
    for task in tasks:
        outcome = read_rows(table.metadata, table.io, task, columns)
        if not isinstance(outcome, Ok):
            raise unplanned(ReadRows(head_of(table), task, columns, name="read.rows"), outcome)
        assert isinstance(outcome.value, pa.Table)
        yield outcome.value
