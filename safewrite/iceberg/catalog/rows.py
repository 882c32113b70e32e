"""Reads the live rows of a data file: through a table's FileIO, or a few columns at a time from bytes in memory.

PyIceberg reads plain columns, we read nested ones (``safewrite.iceberg.data.nested``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from safewrite.frames.parallel import windows
from safewrite.iceberg.catalog.files import MemoryIO
from safewrite.iceberg.catalog.outcomes import classify_file_error
from safewrite.iceberg.data.schema import known_columns, unread_columns
from safewrite.protocol.effects import Failed, Ok, Outcome
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.changes.meaning.positions import Flags

GROUP_BYTES = 8 * 2**20
"""Columns of which a file has at most this many bytes are decoded together: what each needs for its pages is held until all are done."""


def read_rows(
    metadata: TableMetadata,
    file_io: FileIO,
    task: FileScanTask,
    columns: Sequence[str] | None = None,
    *,
    with_ids: bool = False,
    without: FileScanTask | None = None,
) -> Outcome:
    """The live rows of a file under the table's schema, of all columns or of some: outcomes as of ``ReadRows``."""
    try:
        schema = known_columns(metadata.schema()) if columns is None else metadata.schema().select(*columns)
        if without is not None:
            return Ok(_rows_between(schema, metadata, file_io, (task, without)))
        read = _rows_with_ids if with_ids else _rows_under
        return Ok(read(schema, metadata, file_io, task))
    except Exception as error:  # noqa: BLE001 - what each means is decided in one place
        return scan_meaning(error)


def _rows_under(schema: Schema, metadata: TableMetadata, file_io: FileIO, task: FileScanTask) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data import vectors
    from safewrite.iceberg.data.manifests_v3 import VERSION
    from safewrite.iceberg.data.nested import live_rows, nested_columns
    from safewrite.iceberg.data.schema import is_nested

    if (vector := vectors.vector_of(task)) is not None:
        whole = _rows_under(schema, metadata, file_io, FileScanTask(task.file))
        return whole.filter(pa.array(vectors.live_rows(vector, file_io, whole.num_rows)))
    # PyIceberg maps all columns of a file, and fails on those of types that it does not know.
    is_whole = int(metadata.format_version) < VERSION or not unread_columns(metadata.schema())
    ours = [field for field in schema.fields if is_nested(field) or not is_whole]
    theirs = [field for field in schema.fields if field not in ours]
    if not ours:
        return ArrowScan(metadata, file_io, schema, AlwaysTrue()).to_table([task])
    nested = nested_columns(metadata, file_io, task, ours)
    if task.delete_files:
        nested = nested.take(live_rows(file_io, metadata, task))
    if not theirs:
        return nested
    plain = ArrowScan(metadata, file_io, Schema(*theirs), AlwaysTrue()).to_table([task])
    if plain.num_rows != nested.num_rows:
        raise ValueError(f"its plain columns have {plain.num_rows} rows, its nested ones {nested.num_rows}")
    parts = {name: table.column(name) for table in (plain, nested) for name in table.column_names}
    return pa.table({field.name: parts[field.name] for field in schema.fields})


def _rows_between(
    schema: Schema, metadata: TableMetadata, file_io: FileIO, tasks: tuple[FileScanTask, FileScanTask]
) -> pa.Table:
    """The rows of a file that live under the delete files of the first task, and not under those of the second."""
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data.schema import read_schema

    own, others = (_live(metadata, file_io, task) for task in tasks)
    flags = own & ~others
    if not flags.any():
        return read_schema(schema)[0].empty_table()
    rows = _rows_under(schema, metadata, file_io, FileScanTask(tasks[0].file))
    if rows.num_rows != len(flags):
        raise ValueError(f"it has {rows.num_rows} rows, its manifest says {len(flags)}")
    return rows.filter(pa.array(flags))


def _live(metadata: TableMetadata, file_io: FileIO, task: FileScanTask) -> Flags:
    """Which rows of a file its delete files leave."""
    from safewrite.iceberg.data import nested, vectors

    count = task.file.record_count
    if (vector := vectors.vector_of(task)) is not None:
        return vectors.live_rows(vector, file_io, count)
    flags = np.ones(count, np.bool_)
    if task.delete_files:
        flags[:] = False
        flags[nested.live_rows(file_io, metadata, task).to_numpy()] = True
    return flags


def _rows_with_ids(schema: Schema, metadata: TableMetadata, file_io: FileIO, task: FileScanTask) -> pa.Table:
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data import lineage, vectors
    from safewrite.iceberg.data.nested import live_rows, nested_columns

    whole, wanted = FileScanTask(task.file), lineage.with_ids(schema)
    if schema.fields:
        rows = _rows_under(wanted, metadata, file_io, whole)
    else:  # most files have no such columns, and PyIceberg finds no rows without one
        rows = nested_columns(metadata, file_io, whole, wanted.fields)
    rows = lineage.inherited(rows, task.file)
    if (vector := vectors.vector_of(task)) is not None:
        return rows.filter(pa.array(vectors.live_rows(vector, file_io, rows.num_rows)))
    return rows.take(live_rows(file_io, metadata, task)) if task.delete_files else rows


def decoded(
    metadata: TableMetadata, body: bytes, task: FileScanTask, *, with_ids: bool = False
) -> Iterator[Outcome]:
    """All rows of a file without delete files: of some columns, then of the next, the ids of rows last.  Pure: it may run in a thread.

    The last outcome is that of an error, or of columns that have other rows than those before.
    """
    file_io, rows = MemoryIO(body), None
    for columns in (*column_groups(metadata, task), *([()] if with_ids else [])):
        outcome = read_rows(metadata, file_io, task, columns, with_ids=not columns)
        if isinstance(outcome, Ok):
            assert isinstance(outcome.value, pa.Table)
            count = outcome.value.num_rows
            if rows not in (None, count):
                outcome = Failed(f"columns {list(columns)} have {count} rows, those before {rows}")
            rows = count
        yield outcome
        if not isinstance(outcome, Ok):
            return


def column_groups(metadata: TableMetadata, task: FileScanTask) -> Iterator[tuple[str, ...]]:
    """The table's columns, in their order, by how much of a file they take."""
    fields, sizes = metadata.schema().fields, task.file.column_sizes or {}
    # Of nested columns the leaves have sizes, and they have none.
    usual = task.file.file_size_in_bytes // max(len(fields), 1)
    some_at_once = windows(
        fields, lambda field: sizes.get(field.field_id, usual), files=len(fields), bytes_max=GROUP_BYTES
    )
    for some in some_at_once:
        yield tuple(field.name for field in some)


def scan_meaning(error: Exception) -> Outcome:
    """The outcome that an exception of a scan stands for."""
    if isinstance(error, NotImplementedError | ValueError):  # deletes that PyIceberg does not read
        return Failed(f"{type(error).__name__}: {said(error)}")
    return classify_file_error(error)
