"""Reads data files of an Iceberg table where a task runs, by the code that reads them in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from safewrite.iceberg.catalog.addresses import TableAddress
from safewrite.iceberg.data.schema import read_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.read.files import read_files
from safewrite.protocol.ask import Limits
from safewrite.stores.world import run
from safewrite.table.added_rows import AddedFile, checked_columns


@dataclass(frozen=True)
class IcebergReader:
    """See :data:`safewrite.table.added_rows.Reader`; picklable."""

    table: TableAddress
    limits: Limits

    def __call__(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        """The rows of these files, with all columns or some."""
        opened = self.table.open()
        schema, _ = read_schema(table_of(opened.head).metadata.schema())
        wanted = checked_columns(columns, schema)
        return run(
            read_files([file.handle for file in files], opened.head, self.limits, wanted), opened.world
        )

    def cut(self, file: AddedFile, rows_max: int) -> list[AddedFile]:
        """See :class:`safewrite.engine.task_files.TaskReader`; a file of Iceberg is read whole."""
        return [file]
