"""Writes data files of an Iceberg table in a task, by the code that writes those of any other frame."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema

from safewrite.engine.abc import TaskAttempt
from safewrite.frames.tally import DEALT_BYTES, PIECE_BYTES, Tally
from safewrite.frames.task_files import TalliedFiles
from safewrite.iceberg.catalog.addresses import TableAddress
from safewrite.iceberg.data.datafiles import encode_stream
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.data.uuids import with_uuids
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.staging import UploadedFile, uploaded
from safewrite.protocol.ask import Limits
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.stores.world import run


@dataclass(frozen=True)
class IcebergFiles:
    """Makes data files of a table where a task runs; see ``safewrite.frames.task_files.TaskFiles``.

    ``schema`` is the table's, with the columns that come by the same commit.
    """

    table: TableAddress
    schema: Schema
    write_id: str
    target_file_size: int
    limits: Limits

    def write(self, tables: Iterable[pa.Table], at: TaskAttempt) -> tuple[UploadedFile, ...]:
        """See ``safewrite.frames.task_files.TaskFiles``."""
        opened = self.table.open()
        table = table_of(opened.head)
        files = encode_stream(
            tables,
            metadata=table.metadata,
            schema=self.schema,
            location=table.location_provider(),
            write_id=self.write_id,
            attempt=str(at),
            target_file_size=self.target_file_size,
        )
        return run(uploaded(files, self.limits), opened.world)


def piece_bytes(head: TableVersion) -> int:
    """So much of the rows is made into files at once: more where they are divided or sorted."""
    table = table_of(head)
    divided = not (table.spec().is_unpartitioned() and table.sort_order().is_unsorted)
    return DEALT_BYTES if divided else PIECE_BYTES


@dataclass(frozen=True)
class WriteFiles:
    """Writes the rows of an input to new files of a table, and reports them as :class:`TalliedFiles`."""

    files: IcebergFiles
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, TalliedFiles[UploadedFile]]:
        """Write all rows; the names of files tell the attempt."""
        schema, tally = self.files.schema, Tally()
        size = piece_bytes(self.files.table.open().head)
        tables = tally.counted(with_uuids(batches, schema), arrow_schema(schema), size)
        made = self.files.write(tables, at)
        yield from ()
        return TalliedFiles(made, tally)
