"""Reads the live rows of data files of an Iceberg table, a few files at a time and side by side."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.meaning.positions import Flags
from safewrite.changes.meaning.reading import loose
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, windows
from safewrite.frames.predicate import within
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.pruning import Pruning, SoughtValues
from safewrite.iceberg.data.reading import WHOLE_BYTES, planned, rows_of
from safewrite.iceberg.data.schema import read_schema
from safewrite.iceberg.data.vectors import vector_of
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.lookup import RowFilter
from safewrite.values.unsupported import check_all_read

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask


def rows_with(
    wanted: RowFilter, head: TableVersion, known: KnownManifests, limits: Limits
) -> Generator[Effect, Outcome, pa.Table]:
    """The wanted rows of a table version.

    Raises:
        StorageError: no answer, or a file is gone.
        UnsupportedTableError: a file cannot be read.
    """
    metadata = table_of(head).metadata
    schema, unread = read_schema(metadata.schema())
    if wanted.selected is None:
        check_all_read(unread, schema.names)
    if wanted.predicate is None:
        planned_for = yield from planned(head, within(wanted.values), known, limits)
        tasks = SoughtValues(wanted.values).holding(planned_for, metadata)
    else:
        planned_for = yield from planned(head, wanted.predicate, known, limits)
        pruning = Pruning(wanted.predicate, metadata, schema)
        tasks = [task for task in planned_for if pruning.may_match(task.file)]
    names = [*schema.names] if wanted.selected is None else [*wanted.selected]
    found = [loose(schema).empty_table().select(names)]

    def of(table: pa.Table, flags: Flags) -> pa.Table:
        return table.filter(pa.array(flags)).select(names)

    small = [task for task in tasks if task.file.file_size_in_bytes <= WHOLE_BYTES]
    for some in windows(small, _size, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        tables = yield from rows_of(head, some, schema, limits, wanted.needed, name="read.rows", stored=True)
        found += [of(table, wanted.flags(table.select(wanted.columns))) for table in tables]
    large = [task for task in tasks if task.file.file_size_in_bytes > WHOLE_BYTES]
    for some in windows(large, _size, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        looked = yield from rows_of(head, some, schema, limits, wanted.columns, name="read.rows", stored=True)
        flags = [wanted.flags(table) for table in looked]
        there = [number for number, hits in enumerate(flags) if hits.any()]
        tables = yield from rows_of(
            head,
            [some[number] for number in there],
            schema,
            limits,
            wanted.needed,
            name="read.rows",
            stored=True,
        )
        found += [of(table, flags[number]) for number, table in zip(there, tables, strict=True)]
    return pa.concat_tables(found)


def row_count(head: TableVersion, known: KnownManifests, limits: Limits) -> Generator[Effect, Outcome, int]:
    """How many live rows a table version has; files with position delete files are read.  Raises as :func:`rows_with`."""
    tasks = yield from planned(head, EVERYTHING, known, limits)
    vectors = {task.file.file_path: one for task in tasks if (one := vector_of(task)) is not None}
    others = [task for task in tasks if task.delete_files and task.file.file_path not in vectors]
    schema, _ = read_schema(table_of(head).metadata.schema())
    read = yield from read_files(others, head, limits, tuple(schema.names[:1]))
    gone = sum(one.record_count for one in vectors.values())
    counted: int = sum(task.file.record_count for task in tasks) - sum(
        task.file.record_count for task in others
    )
    return counted - gone + int(read.num_rows)


def read_files(
    tasks: Sequence[FileScanTask], head: TableVersion, limits: Limits, columns: tuple[str, ...] | None
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of files, with all columns or some.  Raises as :func:`rows_with`."""
    schema, unread = read_schema(table_of(head).metadata.schema())
    if columns is None:
        check_all_read(unread, schema.names)
    wide = loose(schema) if columns is None else loose(pa.schema([schema.field(name) for name in columns]))
    found = [wide.empty_table()]
    for some in windows(tasks, _size, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        found += yield from rows_of(head, some, schema, limits, columns, name="read.rows", stored=True)
    return pa.concat_tables(found)


def _size(task: FileScanTask) -> int:
    return int(task.file.file_size_in_bytes)
