"""Reads the rows of an Iceberg table that have one of some keys."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.positions import meeting, values_of
from safewrite.changes.reading import loose
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, windows
from safewrite.iceberg.data.known import KnownManifests
from safewrite.iceberg.data.pruning import within
from safewrite.iceberg.data.reading import WHOLE_BYTES, planned, rows_of
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask


def rows_with(
    keys: pa.Table, head: TableVersion, known: KnownManifests, limits: Limits
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of a table version that are equal to a row of ``keys`` in its columns.

    Raises:
        StorageError: no answer, or a file is gone.
        UnsupportedTableError: a file cannot be read.
    """
    schema, names = arrow_schema(table_of(head).metadata.schema()), tuple(keys.column_names)
    tasks = yield from planned(head, within(values_of(keys, names)), known, limits)
    found = [loose(schema).empty_table()]
    small = [task for task in tasks if task.file.file_size_in_bytes <= WHOLE_BYTES]
    for some in windows(small, _size, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        tables = yield from rows_of(head, some, schema, limits, name="read.rows")
        found += [table.filter(pa.array(meeting(keys, table.select(names)))) for table in tables]
    large = [task for task in tasks if task.file.file_size_in_bytes > WHOLE_BYTES]
    for some in windows(large, _size, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        looked = yield from rows_of(head, some, schema, limits, names, name="read.rows")
        flags = [meeting(keys, table) for table in looked]
        there = [number for number, hits in enumerate(flags) if hits.any()]
        tables = yield from rows_of(
            head, [some[number] for number in there], schema, limits, name="read.rows"
        )
        found += [table.filter(pa.array(flags[number])) for number, table in zip(there, tables, strict=True)]
    return pa.concat_tables(found)


def _size(task: FileScanTask) -> int:
    return int(task.file.file_size_in_bytes)
