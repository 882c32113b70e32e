"""An Iceberg table with exactly-once writes, committed by its catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from safewrite.boundary.public import public
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.format import IcebergFormat
from safewrite.iceberg.reads import checked_tasks
from safewrite.table.added import AddedRows
from safewrite.table.verbs import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as PyIcebergTable


class IcebergTable(Table):
    """An Iceberg table that many writers share; its verbs are those of :class:`safewrite.Table`."""

    _format: IcebergFormat

    def __init__(self, table_format: IcebergFormat, *, reopen: Callable[[], Table] | None = None) -> None:
        super().__init__(table_format, reopen=reopen)

    def __repr__(self) -> str:
        kind = self._format.connection.kind
        return f"<safewrite.IcebergTable {self.uri} snapshot={self.version} catalog={kind}>"

    @property
    def catalog(self) -> SafeCatalog:
        """The table's catalog, whose commits are safe too."""
        return self._format.catalog

    @property
    @public
    def iceberg(self) -> PyIcebergTable:
        """PyIceberg's own table object, as of the last look; its commits go through :attr:`catalog`."""
        self._own()
        return self._format.table

    def read_files(
        self, tasks: Iterable[FileScanTask], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The live rows of data files, file by file, of all columns or of some.

        ``table.iceberg.scan(...).plan_files()`` gives the tasks; rows that its filter does not take come too.  PyIceberg (0.12.0)
        itself reads a list or map of structs that is NULL as an empty one.

        Raises:
            InvalidInputError: ``tasks`` are none, or a column is not in the table.
            DataFileError: a file is gone.
            UnsupportedTableError: a file cannot be read.
            StorageError: no answer.
        """
        for one in checked_tasks(tasks):
            for rows in AddedRows(self.version, None, (one,), self._read_added).tables(columns):
                there = frozenset(rows.column_names)
                yield rows.select([name for name in self.schema.names if name in there])
