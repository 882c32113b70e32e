"""Parquet data files of a Delta table, made one at a time in memory, with their add actions."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.delta.partitions import directory, groups
from safewrite.delta.stats import INDEXED_COLUMNS, FileStats
from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.prepare import Prepared
from safewrite.frames.types import is_bytes, is_text

TARGET_FILE_BYTES = 128 * 2**20

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
        """The ``add`` action of the log; there the path is a URL, so it is encoded once more."""
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
    indexed_columns: int = INDEXED_COLUMNS,
) -> Iterator[DataFile]:
    """The data files of ``prepared``, one at a time, each of about ``target_file_size`` bytes.

    ``write_id`` makes the paths unique (B1, C10); ``indexed_columns`` is how many leaf columns get
    statistics (table property ``delta.dataSkippingNumIndexedCols``).  One file and one slice of rows
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
    written = ordinal = 0
    for values, tables in _partitions(prepared, partition_by):
        folder = directory(values, partition_by)
        rolled = _files(tables, schema, target_file_size, compression, indexed_columns)
        for body, stats in rolled:
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
        yield group.values, _rows_of(prepared, group.rows)


def _rows_of(prepared: Prepared, rows: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """The rows with these numbers, in slices; a run without gaps is cut out instead of gathered."""
    for start in range(0, len(rows), prepared.slice_rows):
        part = rows[start : start + prepared.slice_rows]
        first, last = int(part[0]), int(part[-1])
        yield prepared.piece(first, last + 1) if last - first + 1 == len(part) else prepared.take(part)


def _files(
    tables: Iterable[pa.Table], schema: pa.Schema, target: int, compression: Compression, indexed: int
) -> Iterator[tuple[bytes, FileStats]]:
    """Encoded files; a new one is begun once the last has ``target`` bytes."""
    current: _Writer | None = None
    for table in tables:
        stored = pa.Table.from_arrays([table.column(n) for n in schema.names], schema=schema)
        for part in _parts(stored, target):
            if current is None:
                current = _Writer(schema, compression, indexed)
            current.write(part)
            if current.size >= target:
                full, current = current, None
                yield full.close()
                del full
    if current is not None:
        yield current.close()


def _parts(table: pa.Table, target: int) -> Iterator[pa.Table]:
    """A slice in row groups of at most about ``target`` bytes before encoding."""
    rows = table.num_rows
    step = max(min(rows, rows * target // max(table.nbytes, 1)), 1)
    for start in range(0, rows, step):
        yield table.slice(start, step)


class _Writer:
    """One Parquet file in memory: microseconds, standard list names, no Arrow schema of its own.

    Columns of floats have no statistics and no dictionary there: Spark leaves out row groups by them as if
    NaN were in none and as if -0.0 were not 0.0, and so loses rows of ``WHERE x > 5`` and ``WHERE x = 0``
    (H7).  Bounds for whole files are in the log, where they are right.
    """

    def __init__(self, schema: pa.Schema, compression: Compression, indexed: int) -> None:
        self._sink = io.BytesIO()
        leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
        prunable = [path for path, kind in leaves if not pa.types.is_floating(kind)]
        self._stats = FileStats(schema, indexed)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            # Numbers are mostly distinct in small appends, where a dictionary costs more than it saves.
            use_dictionary=[path for path, kind in leaves if is_text(kind) or is_bytes(kind)],
            write_statistics=prunable,
            version="2.6",
            store_schema=False,
            use_compliant_nested_type=True,
        )

    @property
    def size(self) -> int:
        return self._sink.tell()

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._stats.update(table)

    def close(self) -> tuple[bytes, FileStats]:
        """The file and its statistics, after its footer was read back."""
        self._writer.close()
        found = pq.read_metadata(self._sink).num_rows
        body = self._sink.getvalue()
        if found != self._stats.rows:
            raise InternalError(
                f"A Parquet footer counts {found} rows of the {self._stats.rows} written; please report this."
            )
        return body, self._stats


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Parquet's names and types of the leaf columns."""
    if pa.types.is_struct(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
