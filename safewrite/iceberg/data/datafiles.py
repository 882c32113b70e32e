"""Makes Parquet data files of an Iceberg table in memory, one at a time, with their manifest entries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType, UUIDType

from safewrite.errors import InternalError, InvalidInputError, UnsupportedTableError
from safewrite.frames.columns import Indices
from safewrite.frames.grouping import tables_of
from safewrite.frames.parquet import ParquetDraft, dealt, rolled
from safewrite.frames.prepare import Prepared
from safewrite.iceberg.data.grouping import groups, sorted_rows
from safewrite.iceberg.data.metrics import FileMetrics, Plan, plan
from safewrite.iceberg.data.partitions import check, typed
from safewrite.iceberg.data.schema import arrow_schema, arrow_type, known_columns

_WRITE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_FIELD_ID = b"PARQUET:field_id"
_CODEC = "write.parquet.compression-codec"
_LEVEL = "write.parquet.compression-level"
_CODECS = ("zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed")
_WITH_LEVEL = ("zstd", "gzip", "brotli")
_PATH_PART_MAX = 150
_TARGET = "write.target-file-size-bytes"
TARGET_FILE_BYTES = 128 * 2**20


@dataclass(frozen=True)
class StagedFile:
    """One encoded file: its location, its bytes, and what a manifest says of it."""

    path: str
    body: bytes = field(repr=False)
    data_file: DataFile = field(repr=False)


def encode(
    prepared: Prepared,
    *,
    metadata: TableMetadata,
    schema: Schema | None = None,
    location: LocationProvider,
    write_id: str,
    target_file_size: int,
) -> Iterator[StagedFile]:
    """The data files of ``prepared``, one at a time, each of about ``target_file_size`` bytes.

    ``metadata`` gives the partition spec, the sort order and the properties; ``schema`` is the schema to write
    if it is not the table's current one (new columns in the same commit).  ``write_id`` makes the paths
    unique (B1, C10).  One file and one slice of rows are in memory, if the caller drops each file before it
    asks for the next; sorted tables also need the values that they are sorted by.  A frame without rows gives
    no file.

    Raises, before the first file: UnsupportedTableError for a table that cannot be written by these rules,
    WouldAlterError for a value without a partition value.  At the end: InternalError if the rows in the
    footers are not the rows given (G5, H10).
    """
    schema = schema or metadata.schema()
    if not prepared.schema.equals(arrow_schema(schema), check_metadata=False):
        raise InternalError(
            f"The rows were prepared for {prepared.schema}, the table has {arrow_schema(schema)}; please report this."
        )
    spec, layout = _checked(metadata, schema, write_id, target_file_size)
    written = ordinal = 0
    for values, tables in _partitions(prepared, metadata, schema):
        key = _Key.of(spec, schema, values)
        for body, arguments in rolled(tables, target_file_size, lambda: _Draft(layout)):
            name = f"{ordinal:05d}-0-{write_id}.parquet"
            path = location.new_data_location(name, None if spec.is_unpartitioned() else key)
            yield StagedFile(path, body, _data_file(path, body, key, metadata, arguments))
            written += arguments["record_count"]
            ordinal += 1
            del body
    if written != prepared.rows:
        raise InternalError(f"{prepared.rows} rows were given and {written} encoded; please report this.")


def encode_stream(
    tables: Iterable[pa.Table],
    *,
    metadata: TableMetadata,
    schema: Schema,
    location: LocationProvider,
    write_id: str,
    attempt: str,
    target_file_size: int,
) -> Iterator[StagedFile]:
    """The data files of rows that come in any order and are never in memory together.

    Each table should have many rows of each of its partitions: they become a row group.  Where the table has a sort order, no
    file has rows of two of them, for it would not be sorted.  ``attempt`` is the try of the task that makes the files.  Raises
    as :func:`encode`.
    """
    spec, layout = _checked(metadata, schema, write_id, target_file_size)
    rows = written = 0

    def groups(table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        nonlocal rows
        rows += table.num_rows
        for values, some in _partitions(Prepared.kept(table), metadata, schema):
            yield from ((values, one) for one in some)

    runs: Iterable[Iterable[tuple[tuple[Any, ...], pa.Table]]] = map(groups, tables)
    if metadata.sort_order().is_unsorted:
        runs = [chain.from_iterable(runs)]
    made = chain.from_iterable(dealt(run, target_file_size, lambda: _Draft(layout)) for run in runs)
    for ordinal, (values, (body, arguments)) in enumerate(made):
        key = _Key.of(spec, schema, values)
        name = f"{attempt}-{write_id}-{ordinal:05d}.parquet"
        path = location.new_data_location(name, None if spec.is_unpartitioned() else key)
        yield StagedFile(path, body, _data_file(path, body, key, metadata, arguments))
        written += arguments["record_count"]
        del body
    if written != rows:
        raise InternalError(f"{rows} rows were given and {written} encoded; please report this.")


def _checked(
    metadata: TableMetadata, schema: Schema, write_id: str, target_file_size: int
) -> tuple[PartitionSpec, _Layout]:
    if not _WRITE_ID.fullmatch(write_id):
        raise InvalidInputError(
            f"write_id {write_id!r} must be letters, digits, '.', '_' or '-' (at most 100)."
        )
    if target_file_size < 1:
        raise InvalidInputError(f"target_file_size is {target_file_size}; it must be at least 1 byte.")
    check([metadata.spec()], schema)
    return typed(metadata.spec(), metadata), _Layout.of(metadata, schema)


def _partitions(
    prepared: Prepared, metadata: TableMetadata, schema: Schema
) -> Iterator[tuple[tuple[Any, ...], Iterator[pa.Table]]]:
    """Partition values with their rows, in the table's sort order."""
    spec = metadata.spec()
    ranks = sorted_rows(prepared, metadata.sort_order(), schema)
    if spec.is_unpartitioned():
        yield (), prepared.tables() if ranks is None else tables_of(prepared, ranks)
        return
    places = None if ranks is None else np.argsort(ranks)
    for group in groups(prepared, spec, schema):
        rows: Indices = group.rows if places is None else group.rows[np.argsort(places[group.rows])]
        yield group.values, tables_of(prepared, rows)


def _data_file(
    path: str, body: bytes, key: PartitionKey, metadata: TableMetadata, metrics: Mapping[str, Any]
) -> DataFile:
    order = metadata.sort_order()
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition,
        file_size_in_bytes=len(body),
        sort_order_id=None if order.is_unsorted else order.order_id,
        spec_id=key.partition_spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **metrics,
    )
    described.spec_id = key.partition_spec.spec_id
    return described


@dataclass(frozen=True)
class _Key(PartitionKey):
    """A partition for the location provider; PyIceberg's own refuses two fields of one column."""

    record: Record

    @classmethod
    def of(cls, spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> _Key:
        named = [PartitionFieldValue(f, value) for f, value in zip(spec.fields, values, strict=True)]
        return cls(named, spec, schema, Record(*values))

    @cached_property
    def partition(self) -> Record:
        return self.record

    def to_path(self) -> str:
        """The folder, ``a=1/b=x``.  Only a name; long ones are hashed, since names of files are limited."""
        return "/".join(_short(part) for part in super().to_path().split("/"))


def _short(part: str) -> str:
    if len(part) <= _PATH_PART_MAX:
        return part
    name = part.partition("=")[0][: _PATH_PART_MAX // 2]
    return f"{name}=long-{hashlib.blake2b(part.encode(), digest_size=16).hexdigest()}"


@dataclass(frozen=True)
class _Layout:
    """How the files of a table are laid out: columns with their field ids, compression, and which metrics."""

    schema: Schema
    arrow: pa.Schema
    compression: str
    level: int | None
    modes: Plan

    @classmethod
    def of(cls, metadata: TableMetadata, schema: Schema) -> _Layout:
        """The layout that the table's properties ask for; raises UnsupportedTableError."""
        codec = metadata.properties.get(_CODEC, "zstd").lower()
        level = metadata.properties.get(_LEVEL)
        if codec not in _CODECS or not (level is None or level.lstrip("-").isdigit()):
            raise UnsupportedTableError(
                f"The table asks for {_CODEC}={codec!r} and {_LEVEL}={level!r}, which cannot be written. Nothing "
                f"was written. Set the codec to one of {', '.join(_CODECS)}, and the level to a number or remove it."
            )
        has_level = level is not None and codec in _WITH_LEVEL
        kept = [one for one in known_columns(schema).fields if not isinstance(one.field_type, UnknownType)]
        schema = schema if len(kept) == len(schema.fields) else Schema(*kept)  # no file has the others
        return cls(
            schema,
            _with_ids(schema),
            "none" if codec == "uncompressed" else codec,
            int(level) if level is not None and has_level else None,
            plan(schema, metadata.properties),
        )

    def stored(self, table: pa.Table) -> pa.Table:
        """Rows under the names and types that the file has."""
        there = [table.column(field.name) for field in self.schema.fields]
        columns = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(there, self.arrow.types, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.arrow)


def check_layout(metadata: TableMetadata) -> None:
    """Raise UnsupportedTableError where a table's properties ask for files that cannot be written."""
    _Layout.of(metadata, metadata.schema())
    target_file_size(metadata.properties)


def target_file_size(properties: Mapping[str, str]) -> int:
    """The bytes after which another data file begins; raises UnsupportedTableError."""
    text = str(properties.get(_TARGET, TARGET_FILE_BYTES))
    if not text.isdecimal() or not int(text):
        raise UnsupportedTableError(
            f"The table asks for {_TARGET}={text!r}, which is no number of bytes. Nothing was written. Set it to a whole "
            "number, or remove it."
        )
    return int(text)


class _Draft:
    """A Parquet file and the metrics of its rows."""

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self._metrics = FileMetrics(layout.schema, layout.modes)
        self._file = ParquetDraft(
            layout.arrow, layout.compression, compression_level=layout.level, store_decimal_as_integer=True
        )

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, table: pa.Table) -> None:
        self._file.write(self._layout.stored(table))
        self._metrics.update(table)

    def close(self) -> tuple[bytes, dict[str, Any]]:
        body, footer = self._file.close()
        return body, self._metrics.to_arguments(footer)


def _with_ids(schema: Schema) -> pa.Schema:
    """The Arrow schema of the file: field ids at every level, by which Iceberg's readers find columns.

    Column names are those of Iceberg's own writers: engines take a dot in a name for a path.
    """
    fields: list[pa.Field] = []
    taken: set[str] = set()
    for column in schema.fields:
        name = make_compatible_name(column.name)
        while name in taken:
            name = f"{name}_{column.field_id}"
        taken.add(name)
        fields.append(_field(column, column.name).with_name(name))
    return pa.schema(fields)


def _field(iceberg: NestedField, column: str) -> pa.Field:
    kind = _type(iceberg.field_type, column)
    metadata = {_FIELD_ID: str(iceberg.field_id)}
    return pa.field(iceberg.name, kind, nullable=not iceberg.required, metadata=metadata)


def _type(kind: IcebergType, column: str) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_field(inner, f"{column}.{inner.name}") for inner in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_field(kind.element_field, f"{column}.element"))
    if isinstance(kind, MapType):
        return pa.map_(_field(kind.key_field, f"{column}.key"), _field(kind.value_field, f"{column}.value"))
    if isinstance(kind, UUIDType) and hasattr(pa, "uuid"):  # so that Parquet says what the bytes are
        return pa.uuid()
    return arrow_type(kind, column)
