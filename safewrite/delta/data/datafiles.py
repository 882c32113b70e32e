"""Makes Parquet data files of a Delta table in memory, one at a time, with their add actions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import pyarrow as pa

from safewrite.delta.data.partitions import Room, directory, groups
from safewrite.delta.data.stats import FileStats
from safewrite.delta.log.indexing import Indexed, Path
from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.grouping import tables_of
from safewrite.frames.parquet import ParquetDraft, rolled
from safewrite.frames.prepare import Prepared

TARGET_FILE_BYTES = 128 * 2**20

FIRST_COLUMNS = Indexed()
Compression = Literal["zstd", "snappy", "none"]
_WRITE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class DataFile:
    """One encoded file.  ``path`` is relative to the table, as the store names it (not URL-encoded)."""

    path: str
    body: bytes = field(repr=False)
    rows: int
    partition_values: dict[str, str | None]
    stats: str

    @property
    def size(self) -> int:
        """Length of ``body`` in bytes."""
        return len(self.body)

    def add_action(self, modification_time_ms: int) -> dict[str, Any]:
        """The ``add`` action of the log, where the path is a URL and so is encoded once more."""
        return {
            "add": {
                "path": quote(self.path, safe="/="),
                "partitionValues": dict(self.partition_values),
                "size": self.size,
                "modificationTime": modification_time_ms,
                "dataChange": True,
                "stats": self.stats,
            }
        }


def encode(
    prepared: Prepared,
    *,
    partition_by: Sequence[str],
    write_id: str,
    target_file_size: int = TARGET_FILE_BYTES,
    compression: Compression = "snappy",
    indexed: Indexed = FIRST_COLUMNS,
    room: Room | None = None,
) -> Iterator[DataFile]:
    """The data files of ``prepared``, one at a time, each of about ``target_file_size`` bytes.

    ``write_id`` makes the paths unique (B1, C10); ``room`` is how long they may be; ``indexed`` chooses the columns that get statistics.  One file and one slice of rows
    are in memory, if the caller drops each file before it asks for the next.  A frame without rows gives no file.  Raises InternalError if the
    rows in the footers are not the rows given (G5, H10).
    """
    if not _WRITE_ID.fullmatch(write_id):
        raise InvalidInputError(
            f"write_id {write_id!r} must be letters, digits, '.', '_' or '-' (at most 100)."
        )
    if tuple(partition_by) != prepared.partition_by:
        raise InvalidInputError(
            f"The rows were prepared for partitions {list(prepared.partition_by)}, not {list(partition_by)}. "
            "Pass the same partition_by to prepare()."
        )
    if target_file_size < 1:
        raise InvalidInputError(f"target_file_size is {target_file_size}; it must be at least 1 byte.")
    names = [n for n in prepared.schema.names if n not in set(partition_by)]
    schema = pa.schema([prepared.schema.field(n).remove_metadata() for n in names])
    leaves = indexed.leaves(schema)
    written = ordinal = 0
    for values, tables in _partitions(prepared, partition_by):
        folder = directory(values, partition_by)
        if room is not None:  # a value that a change carries on was not among those that the caller gave
            room.check_folder(folder)
        stored = (pa.Table.from_arrays([t.column(n) for n in names], schema=schema) for t in tables)
        files = rolled(stored, target_file_size, lambda: _Draft(schema, compression, leaves))
        for body, stats in files:
            path = f"{folder}part-{ordinal:05d}-{write_id}-c000.{_suffix(compression)}"
            yield DataFile(path, body, stats.rows, values, stats.to_json())
            written += stats.rows
            ordinal += 1
            del body
    if written != prepared.rows:
        raise InternalError(f"{prepared.rows} rows were given and {written} encoded; please report this.")


def _suffix(compression: Compression) -> str:
    return "parquet" if compression == "none" else f"{compression}.parquet"


def _partitions(
    prepared: Prepared, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], Iterator[pa.Table]]]:
    if not partition_by:
        yield {}, prepared.tables()
        return
    for group in groups(prepared, partition_by):
        yield group.values, tables_of(prepared, group.rows)


class _Draft:
    """A Parquet file and the statistics of its rows."""

    def __init__(self, schema: pa.Schema, compression: Compression, indexed: Container[Path]) -> None:
        self._file = ParquetDraft(schema, compression)
        self._stats = FileStats(schema, indexed)

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, table: pa.Table) -> None:
        self._file.write(table)
        self._stats.update(table)

    def close(self) -> tuple[bytes, FileStats]:
        body, _ = self._file.close()
        return body, self._stats
