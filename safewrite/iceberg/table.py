"""An Iceberg table with exactly-once writes, committed by its catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from safewrite.boundary.public import public, verb
from safewrite.iceberg import branches, reads
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.format import IcebergFormat
from safewrite.receipt import Receipt
from safewrite.table.verbs import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as PyIcebergTable


class IcebergTable(Table):
    """An Iceberg table that many writers share; its verbs are those of :class:`safewrite.Table`."""

    _format: IcebergFormat

    def __repr__(self) -> str:
        on = self._format.connection
        branch = f" branch={on.branch}" * (on.branch != MAIN)
        return f"<safewrite.IcebergTable {self.uri}{branch} snapshot={self.version} catalog={on.kind}>"

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

    @verb
    def fast_forward(self, version: int | None = None) -> Receipt:
        """Move the main branch, by one commit, to ``version`` of this one: the newest that was seen, and so audited, if None.

        Raises:
            ConflictError: kind BRANCH_CHANGED; others wrote to the main branch since this one began, or to this one since.
            CommitUnknownError: it may have landed; the same call decides, and finds ``already_committed`` if it did.
            InvalidInputError, RetriesExhaustedError, StorageError: nothing was committed.
        """
        return branches.published(self._format, version)

    def read_files(
        self, tasks: Iterable[FileScanTask], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The live rows of data files, file by file, of all columns or of some, of tasks that PyIceberg's ``plan_files()`` gives.

        Rows that a scan's filter does not take come too.  PyIceberg (0.12.0) itself reads a list or map of structs that is NULL as
        an empty one.

        Raises:
            InvalidInputError: ``tasks`` are none, or a column is not in the table.
            DataFileError, UnsupportedTableError, StorageError: a file is gone, or cannot be read; no answer.
        """
        return reads.rows_of(reads.checked_tasks(tasks), columns, self, self._read_added)
