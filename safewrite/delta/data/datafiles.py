"""Makes Parquet data files of a Delta table in memory, one at a time, with their add actions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from safewrite.delta.data.partitions import Room, directory, groups
from safewrite.delta.data.row_ids import tracked
from safewrite.delta.data.stats import FileStats
from safewrite.delta.data.variants import paths_of_variants, with_variants
from safewrite.delta.log import column_names, file_properties, indexing, row_rules
from safewrite.delta.log.file_properties import TARGET_BYTES, Compression
from safewrite.delta.log.iceberg_compat import TAG, materializes, version_of
from safewrite.delta.log.indexing import Indexed, Path
from safewrite.delta.log.stamps import stamping
from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.grouping import tables_of
from safewrite.frames.parquet import ParquetDraft, dealt, rolled
from safewrite.frames.prepare import Prepared
from safewrite.values.column_names import physical_name

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.frames.row_rules import RowRules

FIRST_COLUMNS = Indexed()
_WRITE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class DataFile:
    """One encoded file.  ``path`` is relative to the table, as the store names it (not URL-encoded)."""

    path: str
    body: bytes = field(repr=False)
    rows: int
    partition_values: dict[str, str | None]
    stats: str
    tags: Mapping[str, str] | None = None

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
                **({"tags": dict(self.tags)} if self.tags else {}),
            }
        }


def encode(
    prepared: Prepared,
    *,
    partition_by: Sequence[str],
    write_id: str,
    target_file_size: int = TARGET_BYTES,
    compression: Compression = "snappy",
    indexed: Indexed = FIRST_COLUMNS,
    room: Room | None = None,
    mapped: pa.Schema | None = None,
) -> Iterator[DataFile]:
    """The data files of ``prepared``, one at a time, each of about ``target_file_size`` bytes.

    The settings are those of :class:`FileLayout`.  Raises as :func:`encoded`.
    """
    layout = FileLayout(
        prepared.schema,
        tuple(partition_by),
        write_id,
        "",
        target_file_size,
        compression,
        indexed,
        room,
        mapped,
    )
    return encoded(prepared, layout)


def encoded(prepared: Prepared, layout: FileLayout) -> Iterator[DataFile]:
    """The data files of ``prepared``, one at a time, as a layout says.

    One file and one slice of rows are in memory, if the caller drops each file before it asks for the next.  A frame without rows
    gives no file.  Raises InternalError if the rows in the footers are not the rows given (G5, H10), and WouldAlterError before the
    first file is made for rows that break a rule of the layout and were not checked by it.
    """
    if layout.partition_by != prepared.partition_by:
        raise InvalidInputError(
            f"The rows were prepared for partitions {list(prepared.partition_by)}, not {list(layout.partition_by)}. "
            "Pass the same partition_by to prepare()."
        )
    if layout.rules is not None and prepared.keeps != layout.rules:
        layout.rules.check(prepared.tables())
    return _encoded(prepared, layout)


def _encoded(prepared: Prepared, layout: FileLayout) -> Iterator[DataFile]:
    written = ordinal = 0
    for values, tables in _partitions(prepared, layout.partition_by):
        layout.check(values)
        for body, stats in rolled(map(layout.stored, tables), layout.target_file_size, layout.begin):
            yield layout.file(ordinal, values, body, stats)
            written += stats.rows
            ordinal += 1
            del body
    if written != prepared.rows:
        raise InternalError(f"{prepared.rows} rows were given and {written} encoded; please report this.")


def encode_stream(tables: Iterable[pa.Table], layout: FileLayout) -> Iterator[DataFile]:
    """The data files of rows that come in any order and are never in memory together.

    Each table should have many rows of each of its partitions: they become a row group.  Raises as :func:`encoded`, and looks at rows
    as they come: files before those that break a rule are made by then.
    """
    rows = written = 0

    def groups() -> Iterator[tuple[tuple[tuple[str, str | None], ...], pa.Table]]:
        nonlocal rows
        for table in tables:
            if layout.rules is not None:
                layout.rules.check([table])
            rows += table.num_rows
            part = Prepared.kept(table, layout.partition_by)
            for values, some in _partitions(part, layout.partition_by):
                layout.check(values)
                for one in some:
                    yield tuple(values.items()), layout.stored(one)

    made = dealt(groups(), layout.target_file_size, layout.begin)
    for ordinal, (values, (body, stats)) in enumerate(made):
        yield layout.file(ordinal, dict(values), body, stats)
        written += stats.rows
        del body
    if written != rows:
        raise InternalError(f"{rows} rows were given and {written} encoded; please report this.")


@dataclass(frozen=True)
class FileLayout:
    """How data files of a table are made and named; picklable.

    ``write_id`` makes the paths unique (B1, C10); ``room`` is how long they may be; ``indexed`` chooses the columns that get
    statistics.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...]
    write_id: str
    attempt: str = ""
    """The try of a task that makes the files; '' where a write is no task."""
    target_file_size: int = TARGET_BYTES
    compression: Compression = "snappy"
    indexed: Indexed = FIRST_COLUMNS
    room: Room | None = None
    mapped: pa.Schema | None = None
    """The table's schema, where files call its columns otherwise; None where they do not."""
    hidden: tuple[Path, ...] = ()
    """Columns that have no statistics, by their names in files: those that are not the table's, and variants."""
    rules: RowRules | None = None
    """What new rows must keep; see :meth:`copying`."""
    materialized: bool = False
    """Whether files have the partition columns, too, after the others."""
    tags: Mapping[str, str] | None = None
    """What the log tells other engines of each file."""

    def copying(self) -> FileLayout:
        """The layout of rows that the table has already: engines check new and changed rows only."""
        return self if self.rules is None else replace(self, rules=None)

    def __post_init__(self) -> None:
        if not _WRITE_ID.fullmatch(self.write_id):
            raise InvalidInputError(
                f"write_id {self.write_id!r} must be letters, digits, '.', '_' or '-' (at most 100)."
            )
        if self.target_file_size < 1:
            raise InvalidInputError(
                f"target_file_size is {self.target_file_size}; it must be at least 1 byte."
            )

    @cached_property
    def _columns(self) -> pa.Schema:
        """The columns that are in the files, by the names that users know."""
        fields = [field for field in self.schema if field.name not in self.partition_by]
        if self.materialized:
            fields += [self.schema.field(name) for name in self.partition_by]
        return pa.schema([field.remove_metadata() for field in fields if not pa.types.is_null(field.type)])

    @cached_property
    def _stored(self) -> pa.Schema:
        """The same as files have them."""
        return self._columns if self.mapped is None else column_names.in_files(self._columns, self.mapped)

    @cached_property
    def _leaves(self) -> Container[Path]:
        return self.indexed.leaves(pa.schema(_shown(self._stored, self.hidden)))

    def stored(self, table: pa.Table) -> pa.Table:
        """Rows as a file has them."""
        columns = [table.column(name) for name in self._columns.names]
        if self.mapped is not None:
            columns = [
                column_names.renamed(one, field.type)
                for one, field in zip(columns, self._stored, strict=True)
            ]
        return pa.Table.from_arrays(columns, schema=self._stored)

    def begin(self) -> _Draft:
        """A file without rows."""
        return _Draft(self._stored, self.compression, self._leaves)

    def check(self, values: dict[str, str | None]) -> None:
        """Refuse a partition whose folder is too long: a value that a change carries on was not among those that the caller gave."""
        if self.room is not None:
            self.room.check_folder(directory(values, self.partition_by))

    def file(self, ordinal: int, values: dict[str, str | None], body: bytes, stats: FileStats) -> DataFile:
        """A closed file of a partition."""
        folder = directory(values, self.partition_by)
        name = f"part-{ordinal:05d}-{self.write_id}"
        if self.attempt:  # all files of a write that are in a folder can be listed by their first letters
            name = f"part-{self.write_id}-{self.attempt}-{ordinal:05d}"
        path = f"{folder}{name}-c000.{_suffix(self.compression)}"
        if self.mapped is not None:
            values = {physical_name(self.mapped.field(name)): one for name, one in values.items()}
        return DataFile(path, body, stats.rows, values, stats.to_json(), self.tags)


def indexed_of(state: Snapshot) -> Indexed:
    """The columns that files of a table need statistics of."""
    return indexing.of(state.properties, state.domains, state.mapped)


def hidden_of(state: Snapshot) -> tuple[Path, ...]:
    """The columns of files that have no statistics."""
    return state.derived(_hidden_of)


def _hidden_of(state: Snapshot) -> tuple[Path, ...]:
    there = with_variants(state)
    found: Iterable[Path] = paths_of_variants(there.schema)
    if there.mapped is not None:
        found = column_names.paths_in_files(found, there.mapped)
    names = [*(stamping(state).kept or ()), *(state.physical.get(name, name) for name in state.partition_by)]
    return (*((name,) for name in names), *found)


def tags_of(state: Snapshot) -> Mapping[str, str] | None:
    """What the log tells other engines of each new file."""
    number = version_of(state)
    return {TAG: str(number)} if number > 1 else None


def _shown(fields: Iterable[pa.Field], hidden: Sequence[Path]) -> Iterator[pa.Field]:
    """Fields without those at some paths."""
    for one in fields:
        inner = [path[1:] for path in hidden if path[0] == one.name]
        if not inner:
            yield one
        elif all(inner):
            yield one.with_type(pa.struct([*_shown(one.type.fields, inner)]))


def layout_of(  # noqa: PLR0917 - all of it is what a layout has
    state: Snapshot,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    write_id: str,
    target_file_size: int | None = None,
    room: Room | None = None,
) -> FileLayout:
    """How files of rows of ``schema`` are made for a table, as its metadata says."""
    return FileLayout(
        schema,
        partition_by,
        write_id,
        target_file_size=file_properties.target_bytes(state.properties, target_file_size),
        compression=file_properties.compression(state.properties),
        indexed=indexed_of(state),
        room=room,
        mapped=tracked(state).mapped,
        hidden=hidden_of(state),
        materialized=materializes(state),
        tags=tags_of(state),
        rules=row_rules.rules_of(state),
    )


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
        body, footer = self._file.close()
        self._stats.note_footer(body, footer)
        return body, self._stats
