"""Reads the rows of data files for whoever follows a table: nested values as the files have them, unlike PyIceberg's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.iceberg.catalog.effects import ReadRows
from safewrite.iceberg.catalog.rows import read_rows
from safewrite.iceberg.metadata import head_of
from safewrite.iceberg.write.reading import unplanned
from safewrite.protocol.effects import Ok

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as PyIcebergTable


class Reads(ABC):
    """What a table can tell of its rows; PyIceberg plans which files these are in."""

    @property
    @abstractmethod
    def iceberg(self) -> PyIcebergTable:
        """PyIceberg's own table object."""

    def read_files(
        self, tasks: Iterable[FileScanTask], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The live rows of data files, file by file, of all columns or of some.

        ``table.iceberg.scan(...).plan_files()`` gives the tasks; rows that its filter does not take come too.  PyIceberg (0.12.0)
        itself reads a list or map of structs that is NULL as an empty one.

        Raises:
            DataFileError: a file is gone.
            UnsupportedTableError: a file cannot be read.
            StorageError: no answer.
        """
        table = self.iceberg
        for task in tasks:
            outcome = read_rows(table.metadata, table.io, task, columns)
            if not isinstance(outcome, Ok):
                named = None if columns is None else tuple(columns)
                raise unplanned(ReadRows(head_of(table), task, named, name="read.rows"), outcome)
            assert isinstance(outcome.value, pa.Table)
            yield outcome.value
