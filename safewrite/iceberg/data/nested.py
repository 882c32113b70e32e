"""Reads nested columns of a data file under the table's schema, by field ids at every depth.

PyIceberg (0.12.0) reads a list or map of structs that is NULL as an empty one, finds no renamed field of a struct in a list of
lists or in a map of lists, and takes a struct for NULL whose file has none of the fields that it has now.  Source of the rules:
Iceberg table specification, "Column Projection".
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, promote
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)

from safewrite.frames.conform import entries_of
from safewrite.iceberg.catalog.files import MemoryFile
from safewrite.iceberg.data.schema import arrow_type
from safewrite.values.types import is_uuid

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_ZONES = (None, "UTC", "+00:00", "Etc/UTC", "Z")
"""Zones of a file's times that are instants in UTC, or none."""


def nested_columns(
    metadata: TableMetadata, file_io: FileIO, task: FileScanTask, columns: Sequence[NestedField]
) -> pa.Table:
    """These columns of all rows of a data file, deleted ones too, with NULL allowed at every depth.

    Raises:
        ValueError: a column of the file cannot be read as the table has it.
        pa.ArrowInvalid: a value does not fit it.
    """
    kind = ds.OrcFileFormat() if task.file.file_format == FileFormat.ORC else ds.ParquetFileFormat()
    with file_io.new_input(task.file.file_path).open() as stream:
        fragment = kind.make_fragment(stream)
        physical = _named(fragment.physical_schema, columns)
        known = pyarrow_to_schema(
            physical,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=metadata.format_version <= 2,
            format_version=metadata.format_version,
        )
        held = {one.field_id: (physical.field(at).name, one) for at, one in enumerate(known.fields)}
        there = [column for column in columns if column.field_id in held]
        rows = fragment.to_table(schema=physical, columns=[held[column.field_id][0] for column in there])
        count = rows.num_rows if there else fragment.count_rows()
    projected = _Projection(_constants(metadata, task))
    found = {}
    for number, column in enumerate(there):
        kept = held[column.field_id][1].field_type
        found[column.field_id] = pa.chunked_array(
            [projected.values(chunk, kept, column, column.name) for chunk in rows.column(number).chunks],
            _loose(arrow_type(column.field_type, column.name)),
        )
    arrays = [
        found[column.field_id] if column.field_id in found else projected.missing(column, count, column.name)
        for column in columns
    ]
    return pa.table(arrays, [column.name for column in columns])


def _named(physical: pa.Schema, columns: Sequence[NestedField]) -> pa.Schema:
    """The columns of a file that have one of these ids, or none: PyIceberg maps no others whose types it does not know."""
    wanted = {str(column.field_id).encode() for column in columns}
    return pa.schema(
        [one for one in physical if (one.metadata or {}).get(b"PARQUET:field_id") in {None, *wanted}]
    )


def live_rows(file_io: FileIO, metadata: TableMetadata, task: FileScanTask) -> pa.Array:
    """The numbers of the rows that the delete files of a data file leave: PyIceberg applies them to a file of row numbers."""
    number = NestedField(1, "number", LongType(), required=True)
    rows = pa.table(
        [pa.array(np.arange(task.file.record_count))],
        pa.schema([pa.field("number", pa.int64(), False, {"PARQUET:field_id": "1"})]),
    )
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    stand_in = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=task.file.file_path,
        file_format=FileFormat.PARQUET,
        partition=task.file.partition,
        record_count=task.file.record_count,
        file_size_in_bytes=sink.tell(),
    )
    stand_in.spec_id = task.file.spec_id
    shown = _StandIn(file_io, task.file.file_path, sink.getvalue())
    scan = ArrowScan(metadata, shown, Schema(number), AlwaysTrue())
    return scan.to_table([FileScanTask(stand_in, task.delete_files)]).column(0)


class _StandIn(FileIO):
    """A FileIO that shows another content for one file."""

    def __init__(self, file_io: FileIO, location: str, body: bytes) -> None:
        super().__init__(file_io.properties)
        self._file_io, self._location, self._body = file_io, location, body

    def new_input(self, location: str) -> InputFile:
        if location == self._location:
            return MemoryFile(location, self._body).to_input_file()
        return self._file_io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError("it is read from")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError("it is read from")


def _constants(metadata: TableMetadata, task: FileScanTask) -> Mapping[int, Any]:
    """Values of columns that files need not have: those by which the table is partitioned as they are."""
    spec = metadata.specs().get(task.file.spec_id)
    if spec is None:
        return {}
    return {
        field.source_id: task.file.partition[at]
        for at, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }


@dataclass(frozen=True)
class _Projection:
    """Brings what a file has under the types that the table has now."""

    constants: Mapping[int, Any]

    def values(self, found: pa.Array, kept: IcebergType, wanted: NestedField, path: str) -> pa.Array:
        """Values of a file, of the type ``kept``, as the field ``wanted``."""
        kind = wanted.field_type
        if isinstance(kind, StructType) and isinstance(kept, StructType):
            return self._struct(found, kept, kind, path)
        if isinstance(kind, ListType) and isinstance(kept, ListType):
            return self._list(found, kept, kind, path)
        if isinstance(kind, MapType) and isinstance(kept, MapType):
            return self._map(found, kept, kind, path)
        if not kind.is_primitive or not kept.is_primitive:
            raise ValueError(f"column {path!r} is {kept} in the file, and {kind} in the table")
        return _leaf(found, kept, kind, path)

    def missing(self, wanted: NestedField, count: int, path: str) -> pa.Array:
        """What stands for a field that the file does not have."""
        kind = _loose(arrow_type(wanted.field_type, path))
        value = self.constants.get(wanted.field_id)
        if value is None:
            value = wanted.initial_default
        if value is not None:
            return pa.repeat(pa.scalar(value, kind), count)
        if wanted.required:
            raise ValueError(f"column {path!r} must not be NULL, and the file does not have it")
        return pa.nulls(count, kind)

    def _struct(self, found: pa.StructArray, kept: StructType, kind: StructType, path: str) -> pa.Array:
        places = {field.field_id: at for at, field in enumerate(kept.fields)}
        arrays = []
        for field in kind.fields:
            inner, at = f"{path}.{field.name}", places.get(field.field_id)
            if at is None:
                arrays.append(self.missing(field, len(found), inner))
            else:
                arrays.append(self.values(found.field(at), kept.fields[at].field_type, field, inner))
        fields = [pa.field(one.name, array.type) for one, array in zip(kind.fields, arrays, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(found))

    def _list(self, found: pa.Array, kept: ListType, kind: ListType, path: str) -> pa.Array:
        element = self.values(found.flatten(), kept.element_type, kind.element_field, f"{path}.element")
        made = pa.list_(pa.field("element", element.type))
        return pa.ListArray.from_arrays(_offsets(found), element, type=made, mask=pc.is_null(found))

    def _map(self, found: pa.MapArray, kept: MapType, kind: MapType, path: str) -> pa.Array:
        entries = entries_of(found)
        keys, items = entries.flatten().flatten()
        keys = self.values(keys, kept.key_type, kind.key_field, f"{path}.key")
        items = self.values(items, kept.value_type, kind.value_field, f"{path}.value")
        made = pa.map_(keys.type, pa.field("value", items.type))
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=made, mask=pc.is_null(found))


def _offsets(lists: pa.Array) -> pa.Array:
    """Where each list begins among the elements of all."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _leaf(found: pa.Array, kept: IcebergType, kind: IcebergType, path: str) -> pa.Array:
    """Values of a type as a wider one: what Iceberg allows, and exactly."""
    if is_uuid(found.type):
        found = found.storage
    times = (TimestampType, TimestamptzType)
    is_time = isinstance(kept, times) and isinstance(kind, times)
    if kept != kind and not (is_time and getattr(found.type, "tz", None) in _ZONES):
        try:
            promote(kept, kind)
        except ResolveError as error:
            raise ValueError(f"column {path!r}: {error}") from error
    return found.cast(arrow_type(kind, path))


def _loose(kind: pa.DataType) -> pa.DataType:
    """A type with NULL allowed at every depth."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _loose(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _loose(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type), pa.field("value", _loose(kind.item_type)))
    return kind
