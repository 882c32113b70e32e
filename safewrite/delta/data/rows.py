"""Reads the live rows of a data file: those that its deletion vector leaves, under the table's schema."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import filtered
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.changes.meaning.reading import loose
from safewrite.changes.meaning.row_vectors import VectorError, live
from safewrite.delta.data.mapping import by_display_name, in_file, shown
from safewrite.delta.data.row_ids import filled
from safewrite.delta.data.variants import check_whole, has_variants
from safewrite.delta.log.actions import Action, stats_of
from safewrite.errors import (
    DataFileError,
    InvalidInputError,
    Kind,
    StorageError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.frames.parallel import windows
from safewrite.frames.predicate import Predicate, partition_value, truths
from safewrite.frames.prepare import Prepared, prepare
from safewrite.frames.stored import as_stored
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.stores.table_folder import is_inside
from safewrite.values.types import is_list, without_views

_MANY = 10_000
"""Rows of a file whose texts may be worth a second look at its footer."""
_FEW_BYTES = 3
"""Texts that take fewer bytes each are numbers of a dictionary: a length alone takes four."""
_TEXTS_BYTES = 2**31 - 1
"""What the texts of one array have together at most."""

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    from safewrite.delta.log.ranges import RangedFile
    from safewrite.delta.log.snapshot import Snapshot


GROUP_BYTES = 2**21
"""Columns of which the pages have at most this many bytes are decoded together."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The row groups of a file of which the first row is one of ``first`` to ``end``: where ranges adjoin, each group is in one."""

    first: int
    end: int

    def of(self, footer: pq.FileMetaData) -> tuple[range, range]:
        """Their numbers, and those of their rows."""
        if not self.first and self.end == sys.maxsize:
            return range(footer.num_row_groups), range(footer.num_rows)
        rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        starts = [0, *accumulate(rows)]
        numbers = range(
            bisect_left(starts, self.first, hi=len(rows)), bisect_left(starts, self.end, hi=len(rows))
        )
        return numbers, range(starts[numbers.start], starts[numbers.stop])


_ALL = RowGroups(0, sys.maxsize)


def check_within(add: Action) -> None:
    """Refuse a file that another table may have, too.

    Raises:
        UnsupportedTableError: it lies outside the table, by its decoded and normalised path.
    """
    path = add["path"]
    if not is_inside(path):
        raise UnsupportedTableError(
            f"{path} lies outside the table (a shallow clone), and this write would have to rewrite it. Nothing was written."
        )


def size_of(add: Action) -> int:
    """The bytes of a file, as the log says."""
    return int(add.get("size") or 0)


def contents(adds: Sequence[Action], limits: Limits, *, name: str) -> Generator[Effect, Outcome, list[bytes]]:
    """The bytes of live data files, asked for together.

    Raises:
        StorageError: one is gone, or the store gave no answer.
    """
    gets = [Get(unquote(add["path"]), name=name) for add in adds]
    answers = yield from fetch(gets, limits, name="apply.get_all_data")
    bodies = []
    for get, answer in zip(gets, answers, strict=True):
        if isinstance(answer, Missing):
            raise damaged(get.path, "it is gone")
        assert isinstance(answer.value, bytes)
        bodies.append(answer.value)
    return bodies


def body_of(add: Action, limits: Limits) -> Generator[Effect, Outcome, bytes]:
    """The bytes of a live data file.

    Raises:
        StorageError: it is gone, or the store gave no answer.
    """
    path = unquote(add["path"])
    answer = yield from fetch_one(Get(path, name="overwrite.get_data"), limits)
    if isinstance(answer, Missing):
        raise damaged(path, "it is gone")
    assert isinstance(answer.value, bytes)
    return answer.value


def read_rows(
    body: bytes | RangedFile, add: Action, state: Snapshot, names: Sequence[str] | None, gone: BitMap64 | None
) -> tuple[Prepared, pq.FileMetaData]:
    """The live rows of a data file under the table's schema, without partition columns, and its footer.

    ``names`` are the columns to be read (None: all), ``gone`` the rows that its deletion vector takes away.  Values that
    safewrite itself does not write are refused.
    """
    table, schema, footer = _decoded(body, add, state, names, gone)
    return prepare(table, schema, schema_mode="merge", stored=True), footer


def decoded(
    body: bytes, add: Action, state: Snapshot, gone: BitMap64 | None
) -> tuple[pa.Table, pq.FileMetaData]:
    """The live rows of a data file as its columns have them, without partition columns, and its footer: not yet under the table's schema."""
    table, _, footer = _decoded(body, add, state, None, gone)
    return table, footer


def stored_rows(
    body: bytes | RangedFile,
    add: Action,
    state: Snapshot,
    names: Sequence[str] | None,
    gone: BitMap64 | None,
    *,
    part: RowGroups | None = None,
) -> pa.Table:
    """As :func:`whole_rows`, of all row groups or some, with all values as they are in the file: for those who only read.

    Raises:
        UnsupportedTableError: a column has got another type since, and a value does not fit it.
    """
    table, schema, _ = _decoded(body, add, state, names, gone, part=part)
    try:
        return _with_partitions(as_stored(table, schema), add, state, names)
    except (WouldAlterError, InvalidInputError) as error:
        raise UnsupportedTableError(
            f"Data file {add['path']} cannot be read under the table's schema: {error.message} Let the engine that wrote it rewrite it."
        ) from error


def _decoded(
    body: bytes | RangedFile,
    add: Action,
    state: Snapshot,
    names: Sequence[str] | None,
    gone: BitMap64 | None,
    *,
    part: RowGroups | None = None,
) -> tuple[pa.Table, pa.Schema, pq.FileMetaData]:
    """The live rows of a data file as its columns have them, the schema that they are to have, and its footer.

    One thread decodes: several files are read side by side.
    """
    schema = state.derived(_stored_columns)
    if names is not None:
        only = {*names}
        schema = pa.schema([one for one in schema if one.name in only])
    asked = frozenset(schema.names)
    try:
        source = pa.BufferReader(body) if isinstance(body, bytes) else cast("IO[bytes]", body)
        file = _opened(source)
        groups, places = (part or _ALL).of(file.metadata)
        check_whole_variants(add["path"], file, schema, state)
        table = (
            _mapped(file, schema, groups, state) if state.mapping else columns_of(file, schema.names, groups)
        )
    except (pa.ArrowException, OSError) as error:
        raise damaged(add["path"], str(error)) from error
    said, count = stats_of(add).get("numRecords"), file.metadata.num_rows
    if isinstance(said, int) and said != count:
        raise damaged(add["path"], f"it holds {count} rows, not {said}")
    if gone is not None:
        flags = live_rows(add["path"], gone, count)[places.start : places.stop]
        numbers: range | Numbers = np.flatnonzero(flags) + places.start
        columns, read = table.columns, table.schema
        del table  # so that each column is let go once it is copied
        table = filtered(columns, read, flags)
        count = int(flags.sum())
    else:
        count, numbers = len(places), places
    table = filled(table, add, asked, state, numbers)
    for at, name in enumerate(table.column_names):
        wanted, has = schema.field(name).type, table.schema.field(at).type
        if has == wanted:
            continue
        if (zoned := with_zones(has, wanted)) != has:
            # INT96, as Spark writes instants: Parquet keeps no zone there, and it is UTC.
            table = table.set_column(at, name, table.column(at).cast(zoned))
        elif pa.types.is_timestamp(wanted) and pa.types.is_date(has):
            # The column was a date when the file was written (typeWidening), which is its midnight now.
            table = table.set_column(at, name, table.column(at).cast(wanted))
    if not table.column_names:
        first = (
            schema[0] if schema.names else next(f for f in state.schema if f.name not in state.partition_by)
        )
        schema = schema if schema.names else pa.schema([first.with_nullable(True)])
        table = pa.table({first.name: pa.nulls(count, first.type)})
    return table, schema, file.metadata


def _stored_columns(state: Snapshot) -> pa.Schema:
    """The columns that files have: not those of partitions."""
    return pa.schema([one for one in state.schema if one.name not in state.partition_by])


def _has_variants(state: Snapshot) -> bool:
    return any(has_variants(one.type) for one in state.schema)


def with_zones(has: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """A type of a file with UTC for the times in it that are to be instants."""
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(has):
        return pa.timestamp(has.unit, "UTC") if wanted.tz and has.tz is None else has
    if pa.types.is_struct(wanted) and pa.types.is_struct(has):
        kinds = {one.name: one.type for one in wanted.fields}
        return pa.struct(
            [one.with_type(with_zones(one.type, kinds.get(one.name, one.type))) for one in has.fields]
        )
    if is_list(wanted) and (pa.types.is_list(has) or pa.types.is_large_list(has)):
        make = pa.list_ if pa.types.is_list(has) else pa.large_list
        return make(has.value_field.with_type(with_zones(has.value_type, wanted.value_type)))
    if pa.types.is_map(wanted) and pa.types.is_map(has):
        key = has.key_field.with_type(with_zones(has.key_type, wanted.key_type))
        return pa.map_(key, has.item_field.with_type(with_zones(has.item_type, wanted.item_type)))
    return has


def check_whole_variants(path: str, file: pq.ParquetFile, schema: pa.Schema, state: Snapshot) -> None:
    """Refuse variants of a file that are not as those of ``schema``.  Raises UnsupportedTableError."""
    if not state.derived(_has_variants):
        return
    wanted = pa.schema([one for one in schema if has_variants(one.type)])
    there = file.schema_arrow
    named = in_file(there, wanted, state) if state.mapping else {name: name for name in wanted.names}
    known = frozenset(there.names)
    for name, own in named.items():
        if own in known:
            check_whole(path, there.field(own), wanted.field(name))


def _mapped(file: pq.ParquetFile, schema: pa.Schema, groups: Sequence[int], state: Snapshot) -> pa.Table:
    """As :func:`columns_of`, of a file that knows columns by other names, or by ids."""
    there = file.schema_arrow
    named = in_file(there, schema, state)
    read = columns_of(file, [*named.values()], groups)
    columns = {
        name: shown(read.column(own), there.field(own), schema.field(name), state)
        for name, own in named.items()
    }
    return pa.table(columns) if columns else read


def whole_rows(
    body: bytes | RangedFile, add: Action, state: Snapshot, names: Sequence[str] | None, gone: BitMap64 | None
) -> tuple[pa.Table, pq.FileMetaData]:
    """As :func:`read_rows`, with the partition columns."""
    rows, footer = read_rows(body, add, state, names, gone)
    table = pa.concat_tables([rows.schema.empty_table(), *rows.tables()])
    return _with_partitions(table, add, state, names), footer


def _with_partitions(table: pa.Table, add: Action, state: Snapshot, names: Sequence[str] | None) -> pa.Table:
    """All columns of the table's, or those of ``names``, each of which may be NULL."""
    wide = loose(state.schema)
    if names is not None:
        wide = pa.schema([wide.field(name) for name in names])
    there = partition_columns(add, state, table.num_rows)
    return pa.table([there[f.name] if f.name in there else table.column(f.name) for f in wide], schema=wide)


def partition_columns(add: Action, state: Snapshot, rows: int) -> dict[str, pa.ChunkedArray]:
    """The partition columns of so many rows of a file."""
    spelled: Mapping[str, Any] = by_display_name(add.get("partitionValues") or {}, state)
    fields = [state.schema.field(name) for name in state.partition_by]
    values = [pa.scalar(partition_value(spelled.get(one.name), one), one.type) for one in fields]
    return {
        one.name: pa.chunked_array([pa.repeat(value, rows)], one.type)
        for one, value in zip(fields, values, strict=True)
    }


def columns_of(file: pq.ParquetFile, names: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
    """The columns that a file, or some row groups of it, have of these: those that were added to the table later are missing, and read as NULL.

    They are decoded a few after another: what each needs for its pages is held until all are done, and takes more memory
    than the rows.
    """
    schema = file.schema_arrow  # made anew each time it is asked for
    numbers = [*(range(file.num_row_groups) if groups is None else groups)]
    known = {*schema.names}
    there = [name for name in names if name in known]
    if not there:
        return file.read_row_groups(numbers, [], use_threads=False)
    columns: list[pa.ChunkedArray] = []
    for some in _groups(file.metadata, there, len(numbers)):
        table = file.read_row_groups(numbers, some, use_threads=False)
        if some == there == table.column_names and not any(map(_is_odd, table.schema.types)):
            return table.replace_schema_metadata()
        # Files of deltalake's MERGE and UPDATE say that their texts are views.
        columns += [_plain(table.column(name)) for name in some]
        del table
    # INT96 is read in microseconds, whatever the schema says.
    fields = [schema.field(name).with_type(one.type) for name, one in zip(there, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _opened(source: Any) -> pq.ParquetFile:
    """A file of which texts that come again and again are read as their numbers in its dictionary: half the time of reading each."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    few = _few_texts(file) if file.metadata.num_rows >= _MANY else []
    if not few:
        return file
    return pq.ParquetFile(
        source, metadata=file.metadata, read_dictionary=few, coerce_int96_timestamp_unit="us"
    )


def _few_texts(file: pq.ParquetFile) -> list[str]:
    """Columns of texts that take fewer bytes than their lengths would: they are numbers of a dictionary."""
    texts = {one.name for one in file.schema_arrow if pa.types.is_string(one.type) and "." not in one.name}
    group = file.metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    return [
        one.path_in_schema for one in columns
        if one.path_in_schema in texts and one.has_dictionary_page and one.total_uncompressed_size < _FEW_BYTES * one.num_values
    ]  # fmt: skip


def _is_odd(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind)) or without_views(kind) != kind


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array(
            [part for chunk in column.chunks for part in _spelled(chunk)], column.type.value_type
        )
    kind = without_views(column.type)
    return column if kind == column.type else column.cast(kind)


def _spelled(texts: pa.DictionaryArray) -> Iterator[pa.Array]:
    """Texts from their dictionary, in parts of which none is too long for the offsets of texts."""
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts.dictionary)).as_py() or 0
    step = max(_TEXTS_BYTES // (longest + 1), 1)
    for start in range(0, len(texts), step):
        yield texts.slice(start, step).dictionary_decode()


def _groups(footer: pq.FileMetaData, names: Sequence[str], count: int) -> Iterator[list[str]]:
    """Columns that are decoded together, by the size that those of the first of so many row groups have."""
    if footer.num_row_groups and footer.row_group(0).total_byte_size * count <= GROUP_BYTES:
        return iter([[*names]])
    sizes = dict.fromkeys(names, 0)
    for number in range(footer.num_columns if footer.num_row_groups else 0):
        leaf = footer.row_group(0).column(number)
        name = leaf.path_in_schema
        name = name if name in sizes else name.partition(".")[0]
        if name in sizes:
            sizes[name] += leaf.total_uncompressed_size * count
    return windows(names, sizes.__getitem__, files=len(names), bytes_max=GROUP_BYTES)


def live_rows(path: str, gone: BitMap64, count: int) -> Flags:
    """Which of so many rows of a data file are left.  Raises StorageError if its vector names others."""
    try:
        return live(gone, count)
    except VectorError as error:
        raise unreadable(path, str(error)) from error


def matching(rows: Prepared, constants: Mapping[str, Any], predicate: Predicate, schema: pa.Schema) -> Flags:
    """For which rows the predicate is TRUE; ``constants`` are columns that have one value in all of them."""
    import pyarrow.compute as pc

    flags = [np.zeros(0, np.bool_)]
    for piece in rows.tables():
        whole = piece
        for name, value in constants.items():
            column = pa.repeat(pa.scalar(value, schema.field(name).type), piece.num_rows)
            whole = whole.append_column(name, column)
        flags.append(np.asarray(pc.fill_null(truths(predicate, whole), False)))
    return np.concatenate(flags)


def damaged(path: str, why: str) -> StorageError:
    """The error for a data file that is not what the log says."""
    return DataFileError(
        f"Data file {path} is not what the log says: {why}. Nothing was committed. "
        "Run `safewrite doctor` on the table."
    )


def unreadable(path: str, why: str) -> StorageError:
    """The error for a deletion vector that is not what the log says: which rows of its file are gone nobody knows."""
    return StorageError(
        f"The deletion vector of data file {path} cannot be read: {why}. Nothing was committed. Restore the vector's file "
        "from a versioned copy, or let the engine that wrote it purge its vectors (Spark: REORG TABLE ... APPLY (PURGE)).",
        kind=Kind.DATA_FILE_DAMAGED,
    )
