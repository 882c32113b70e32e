"""Writes and reads which rows of a data file are gone: position delete files, from format version 3 on deletion vectors.

One delete file per data file, with equal bounds of its path, so that readers take it for that file alone.  A data file has one vector at
most, which stands instead of all that took rows before (Iceberg spec, "Position Delete Files", "Deletion Vectors").
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)

from safewrite.changes.lookup.key_index import ascending
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.changes.meaning.row_vectors import bitmap, framed, serialized
from safewrite.iceberg.data.datafiles import StagedFile
from safewrite.iceberg.data.manifests import entry, manifest_of
from safewrite.iceberg.data.manifests_v3 import VERSION, NumberedFile
from safewrite.iceberg.data.schema import unread_columns
from safewrite.iceberg.data.vectors import gone_rows
from safewrite.iceberg.write import puffin

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

MODE, DELETE_MODE = "write.merge.mode", "write.delete.mode"
"""The table properties by which Spark chooses, too: for changes by key, and for rows that match a condition."""
PATH_ID, POS_ID = 2147483546, 2147483545
_VECTOR, _POS_OF_ROW = "deletion-vector-v1", 2147483645
"""The type of a vector's blob, and the field that it is about."""
_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in (("file_path", pa.string(), PATH_ID), ("pos", pa.int64(), POS_ID))
    ]
)


def is_asked(metadata: TableMetadata, mode: str = MODE) -> bool:
    """Whether the table wants rows to be marked as gone, and its format version knows delete files.

    From format version 3 on rows that match a condition are marked, too, where their file could not be written again.
    """
    if metadata.format_version >= 2 and metadata.properties.get(mode) == "merge-on-read":
        return True
    return (
        mode == DELETE_MODE and metadata.format_version >= VERSION and bool(unread_columns(metadata.schema()))
    )


def encoded(file: DataFile, positions: Numbers, path: str) -> StagedFile:
    """The delete file of some rows of a data file; ``positions`` are their places in it, in order."""
    table = pa.table([pa.repeat(pa.scalar(file.file_path), len(positions)), pa.array(positions)], _SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    bound = file.file_path.encode()
    ends = [int(end).to_bytes(8, "little", signed=True) for end in (positions[0], positions[-1])]
    described = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=sink.tell(),
        lower_bounds={PATH_ID: bound, POS_ID: ends[0]},
        upper_bounds={PATH_ID: bound, POS_ID: ends[1]},
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    described.spec_id = file.spec_id
    return StagedFile(path, sink.getvalue(), described)


@dataclass(frozen=True, slots=True)
class Vector:
    """The deletion vector of a data file: how many of its rows are gone, and the bytes."""

    file: DataFile
    rows: int
    blob: bytes

    @classmethod
    def of(cls, file: DataFile, positions: Numbers) -> Vector:
        """The vector of all rows of a file that are gone, by their places in it, in order."""
        return cls(file, len(positions), framed(serialized(bitmap(positions))))


def encoded_vectors(vectors: Sequence[Vector], path: str) -> list[StagedFile]:
    """The deletion vectors of data files, in one file whose body all of them have."""
    made = puffin.encoded(
        [
            puffin.Blob(
                one.blob, _VECTOR, -1, -1, (_POS_OF_ROW,),
                {"referenced-data-file": one.file.file_path, "cardinality": str(one.rows)},
            )
            for one in vectors
        ]
    )  # fmt: skip
    places = zip(vectors, made.offsets, strict=True)
    return [StagedFile(path, made.body, described(one, path, at, len(made.body))) for one, at in places]


def described(vector: Vector, path: str, offset: int, size: int) -> DataFile:
    """A vector as a manifest names it: at ``offset`` of a file of ``size`` bytes."""
    named = NumberedFile.from_args(
        _table_format_version=VERSION,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN,
        partition=vector.file.partition,
        record_count=vector.rows,
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        referenced_data_file=vector.file.file_path,
        content_offset=offset,
        content_size_in_bytes=len(vector.blob),
    )
    named.spec_id = vector.file.spec_id
    return named


@dataclass(frozen=True)
class UnmarkedRows:
    """The rows of a data file that its delete files leave; ``gone`` are the places of the others, ascending.

    A batch of few changes asks for few places, and must not cost by the rows of the file.
    """

    in_file: int
    gone: Numbers

    def __len__(self) -> int:
        return self.in_file - len(self.gone)

    def flags(self) -> Flags:
        """Which rows of the file are live."""
        live = np.ones(self.in_file, np.bool_)
        live[self.gone] = False
        return live

    def places(self, numbers: Numbers) -> Numbers:
        """The places in the file of the live rows with these numbers."""
        live_before = self.gone - np.arange(len(self.gone))
        return numbers + np.searchsorted(live_before, numbers, side="right")


def live_rows(task: FileScanTask, bodies: Sequence[bytes]) -> UnmarkedRows:
    """Which rows of a data file its delete files, ``bodies``, leave.

    Raises:
        ValueError: a deletion vector is damaged.
    """
    gone = [np.zeros(0, np.int64)]
    for file, body in zip(task.delete_files, bodies, strict=True):
        if file.file_format == FileFormat.PUFFIN:
            gone.append(gone_rows(file, body, task.file.record_count))
            continue
        read = pq.ParquetFile(pa.BufferReader(body)).read
        if _is_of(file, task.file.file_path):
            table = read(["pos"], use_threads=False)
        else:
            table = read(["file_path", "pos"], use_threads=False)
            table = table.filter(pc.equal(table.column("file_path"), task.file.file_path))
        gone.append(np.asarray(table.column("pos").to_numpy(), np.int64))
    places = ascending(*gone)
    return UnmarkedRows(task.file.record_count, places[places < task.file.record_count])


def file_of(deletes: DataFile) -> str | None:
    """The data file that all rows of a delete file are of, as it says itself or by its bounds; one that was cut off says nothing."""
    if isinstance(deletes, NumberedFile) and deletes.referenced is not None:
        return deletes.referenced
    low, high = ((ends or {}).get(PATH_ID) for ends in (deletes.lower_bounds, deletes.upper_bounds))
    return low.decode() if low is not None and low == high else None


def _is_of(deletes: DataFile, path: str) -> bool:
    return file_of(deletes) == path


def rows_taken(deletes: DataFile, path: str) -> int:
    """How many rows of a data file a delete file takes, if it is of that file alone; else 0, for it does not say."""
    return int(deletes.record_count) if is_plain_delete(deletes) and _is_of(deletes, path) else 0


def is_plain(task: FileScanTask) -> bool:
    """Whether rows have places that a delete file can name, and no deletion is of another kind."""
    return task.file.file_format == FileFormat.PARQUET and all(map(is_plain_delete, task.delete_files))


def is_plain_delete(file: DataFile) -> bool:
    """Whether this is a position delete file in Parquet, or a deletion vector."""
    known = file.file_format in {FileFormat.PARQUET, FileFormat.PUFFIN}
    return file.content == DataFileContent.POSITION_DELETES and known


def manifest(
    metadata: TableMetadata, schema: Schema, snapshot_id: int, files: Sequence[DataFile], location: str
) -> tuple[ManifestFile, bytes]:
    """A manifest that adds delete files of one partition spec, and its bytes."""
    added = [entry(ManifestEntryStatus.ADDED, snapshot_id, file) for file in files]
    spec = metadata.specs()[files[0].spec_id]
    content = ManifestContent.DELETES
    return manifest_of(
        metadata, schema, added, spec=spec, snapshot_id=snapshot_id, location=location, content=content
    )
