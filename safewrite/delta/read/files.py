"""Reads the live rows of data files of a Delta table, a few files at a time and side by side."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from safewrite.changes.meaning.positions import Flags
from safewrite.changes.meaning.reading import loose
from safewrite.delta.data.column_reads import (
    FILES_PLANNED,
    WHOLE_BYTES,
    ColumnRead,
    bodies,
    planned_reads,
)
from safewrite.delta.data.mapping import in_files
from safewrite.delta.data.pruning import Pruning, may_match
from safewrite.delta.data.rows import RowGroups, check_within, size_of, stored_rows
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, rows_of
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.snapshot import Snapshot
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, all_of, windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.lookup import RowFilter
from safewrite.values.unsupported import check_all_read

T = TypeVar("T")
Read = Callable[[Sequence[str] | None], pa.Table]
"""Decodes the live rows of one file, with all columns or some."""


def rows_with(
    wanted: RowFilter, state: Snapshot, known: KnownFiles, vectors: Vectors, limits: Limits
) -> Generator[Effect, Outcome, pa.Table]:
    """The wanted rows of a version; of large files the columns to look at are fetched first.  Raises as :func:`read_files`."""
    if wanted.selected is None:
        check_all_read(state.unread, state.schema.names)
    replay = yield from known.load(state, limits)
    if wanted.predicate is None:
        may_hold = Pruning(wanted.values, state).may_hold
    else:
        may_hold = partial(may_match, wanted.predicate, state=state)
    adds = [add for add in replay.adds.values() if may_hold(add)]
    large = [add for add in adds if size_of(add) > WHOLE_BYTES]
    each = partial(_each, state=state, vectors=vectors, limits=limits)
    hits = yield from each(large, lambda read: _flags(read, wanted).any(), columns=wanted.columns)
    left = [add for add in adds if size_of(add) <= WHOLE_BYTES]
    left += [add for add, hit in zip(large, hits, strict=True) if hit]
    found = yield from each(left, lambda read: _wanted_rows(read, wanted), columns=wanted.needed)
    schema = loose(state.schema)
    if wanted.selected is not None:
        schema = pa.schema([schema.field(name) for name in wanted.selected])
    return pa.concat_tables([schema.empty_table(), *(table for table in found if table is not None)])


def row_count(
    state: Snapshot, known: KnownFiles, vectors: Vectors, limits: Limits
) -> Generator[Effect, Outcome, int]:
    """How many live rows a version has; files whose statistics do not tell are read.  Raises as :func:`read_files`."""
    replay = yield from known.load(state, limits)
    counted = [(add, rows_of(add)) for add in replay.adds.values()]
    others = [add for add, rows in counted if rows is None]
    read = yield from read_files(others, state, vectors, limits, columns=state.schema.names[:1])
    return sum(rows or 0 for _, rows in counted) + int(read.num_rows)


def read_files(
    adds: Sequence[Action],
    state: Snapshot,
    vectors: Vectors,
    limits: Limits,
    *,
    columns: Sequence[str] | None = None,
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of these files, with all columns or some; of large files only the bytes of these are fetched.

    Raises:
        StorageError: no answer, or a file that is not what the log says.
        UnsupportedTableError: a file lies outside the table, or cannot be read.
    """
    schema = loose(state.schema)
    if columns is None:
        check_all_read(state.unread, schema.names)
    else:
        schema = pa.schema([schema.field(name) for name in columns])
    read = partial(_each, adds, lambda read: read(columns), columns=columns)
    found = yield from read(state=state, vectors=vectors, limits=limits)
    return pa.concat_tables([schema.empty_table(), *found])


def read_part(
    add: Action,
    part: RowGroups,
    state: Snapshot,
    vectors: Vectors,
    limits: Limits,
    *,
    columns: Sequence[str] | None = None,
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of some row groups of a file, of which only the bytes of these are fetched.  Raises as :func:`read_files`."""
    check_within(add)
    yield from vectors.fetch([add], limits)
    reads = yield from planned_reads([add], in_files(columns or state.schema.names, state), limits, part)
    fetched = yield from bodies(reads, limits, name="read.get_data")
    return stored_rows(fetched[0], add, state, columns, vectors.of(add), part=part)


def _each(
    adds: Sequence[Action],
    use: Callable[[Read], T],
    *,
    state: Snapshot,
    vectors: Vectors,
    limits: Limits,
    columns: Sequence[str] | None = None,
) -> Generator[Effect, Outcome, list[T]]:
    """What ``use`` makes of each file, in threads; ``columns`` are those that it decodes (None: all)."""
    for add in adds:
        check_within(add)
    yield from vectors.fetch(adds, limits)
    found: list[T] = []
    for first in range(0, len(adds), FILES_PLANNED):
        some = adds[first : first + FILES_PLANNED]
        reads = [ColumnRead(add) for add in some]
        if columns is not None:
            reads = yield from planned_reads(some, in_files(columns, state), limits)
        for part in windows(reads, lambda one: one.nbytes, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
            fetched = yield from bodies(part, limits, name="read.get_data")
            found += all_of(
                [
                    partial(use, partial(stored_rows, body, one.add, state, gone=vectors.of(one.add)))
                    for one, body in zip(part, fetched, strict=True)
                ]
            )
    return found


def _flags(read: Read, wanted: RowFilter) -> Flags:
    return wanted.flags(read(wanted.columns))


def _wanted_rows(read: Read, wanted: RowFilter) -> pa.Table | None:
    """The wanted rows of one file; other columns are decoded only where there is one."""
    flags = _flags(read, wanted)
    return read(wanted.selected).filter(pa.array(flags)) if flags.any() else None
