"""Reads the live rows of data files of a Delta table, a few files at a time and side by side."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

import pyarrow as pa

from safewrite.changes.reading import loose
from safewrite.delta.data.pruning import Pruning, may_match
from safewrite.delta.data.rows import check_within, contents, size_of, stored_rows
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, rows_of
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.snapshot import Snapshot
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, all_of, windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.lookup import RowFilter


def rows_with(
    wanted: RowFilter, state: Snapshot, known: KnownFiles, vectors: Vectors, limits: Limits
) -> Generator[Effect, Outcome, pa.Table]:
    """The wanted rows of a version.  Raises as :func:`read_files`."""
    replay = yield from known.load(state, limits)
    if wanted.predicate is None:
        may_hold = Pruning(wanted.values, state.partition_by, state.schema).may_hold
    else:
        may_hold = partial(may_match, wanted.predicate, state=state)
    adds = [add for add in replay.adds.values() if may_hold(add)]
    return (yield from read_files(adds, state, vectors, limits, wanted=wanted))


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
    wanted: RowFilter | None = None,
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of these files, all or those that are wanted, with all columns or some.

    Raises:
        StorageError: no answer, or a file that is not what the log says.
        UnsupportedTableError: a file lies outside the table, or cannot be read.
    """
    for add in adds:
        check_within(add)
    yield from vectors.fetch(adds, limits)
    schema = loose(state.schema)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    found = [schema.empty_table()]
    for some in windows(adds, size_of, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        bodies = yield from contents(some, limits, name="read.get_data")
        some_rows = all_of(
            [
                partial(_rows, partial(stored_rows, body, add, state, gone=vectors.of(add)), columns, wanted)
                for add, body in zip(some, bodies, strict=True)
            ]
        )
        found += [table for tables in some_rows for table in tables]
    return pa.concat_tables(found)


def _rows(
    read: Callable[[Sequence[str] | None], pa.Table], columns: Sequence[str] | None, wanted: RowFilter | None
) -> list[pa.Table]:
    """The rows of one file; other columns are decoded only where a row is wanted.  Pure: it runs in a thread."""
    if wanted is None:
        return [read(columns)]
    flags = wanted.flags(read(wanted.columns))
    return [read(columns).filter(pa.array(flags))] if flags.any() else []
