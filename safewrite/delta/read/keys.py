"""Reads the rows of a Delta table that have one of some keys."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import pyarrow as pa

from safewrite.changes.positions import meeting, values_of
from safewrite.changes.reading import loose
from safewrite.delta.data.pruning import Pruning
from safewrite.delta.data.rows import check_within, contents, size_of, whole_rows
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.snapshot import Snapshot
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, all_of, windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome


def rows_with(
    keys: pa.Table, state: Snapshot, known: KnownFiles, vectors: Vectors, limits: Limits
) -> Generator[Effect, Outcome, pa.Table]:
    """The live rows of a version that are equal to a row of ``keys`` in its columns.

    Raises:
        StorageError: no answer, or a file that is not what the log says.
        UnsupportedTableError: a file lies outside the table.
    """
    replay = yield from known.load(state, limits)
    pruning = Pruning(values_of(keys, keys.column_names), state.partition_by, state.schema)
    adds = [add for add in replay.adds.values() if pruning.may_hold(add)]
    for add in adds:
        check_within(add)
    yield from vectors.fetch(adds, limits)
    found = [loose(state.schema).empty_table()]
    for some in windows(adds, size_of, files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES):
        bodies = yield from contents(some, limits, name="read.get_data")
        found += all_of(
            [partial(_found, keys, body, add, state, vectors) for add, body in zip(some, bodies, strict=True)]
        )
    return pa.concat_tables(found)


def _found(keys: pa.Table, body: bytes, add: Action, state: Snapshot, vectors: Vectors) -> pa.Table:
    """The rows of one file; columns besides the keys are decoded only where a row has one.  Pure: it runs in a thread."""
    gone = vectors.of(add)
    flags = meeting(keys, whole_rows(body, add, state, keys.column_names, gone)[0])
    if not flags.any():
        return loose(state.schema).empty_table()
    return whole_rows(body, add, state, None, gone)[0].filter(pa.array(flags))
