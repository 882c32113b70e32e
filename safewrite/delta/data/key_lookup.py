"""Looks through data files for the rows that have keys of a batch: by key indexes that are kept, else by key columns.

Works on any list of live files, so that it serves a whole table or the share of one task.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import FoundRows, KeySearch
from safewrite.changes.lookup.key_index import IndexName, KeyIndex
from safewrite.changes.meaning.positions import Numbers
from safewrite.delta.data.column_reads import FILES_PLANNED, Body, bodies, planned_reads
from safewrite.delta.data.julian_dates import check_days
from safewrite.delta.data.mapping import in_files
from safewrite.delta.data.rows import contents, live_rows, size_of, whole_rows
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, stats_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import InvalidInputError, UnsupportedTableError, WouldAlterError
from safewrite.frames.parallel import LOOKED_AT_ONCE, LOOKED_BYTES, all_of, windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    from pyroaring import BitMap64

KEY_BYTES = 4 * LOOKED_BYTES
"""Key columns of at most this many bytes are fetched together; decoded they are hardly larger."""


def look_through(
    files: Mapping[str, Action],
    touched: KeySearch,
    state: Snapshot,
    vectors: Vectors,
    limits: Limits,
) -> Generator[Effect, Outcome, None]:
    """Note in ``touched`` the rows of these files that have keys of its batch.

    Raises:
        StorageError: a file is gone or not what the log says, or the store gave no answer.
    """
    yield from vectors.fetch(files.values(), limits)
    names = {key: _name(add, state, vectors, touched.columns) for key, add in files.items()}
    unread, whole = list[str](), list[str]()
    for key, add in files.items():
        index = touched.known_index(names[key])
        if index is None:
            unread.append(key)
        elif touched.suffices(hits := touched.search_index(index, _gone(vectors, add, index))):
            touched.note(key, hits)
        else:
            whole.append(key)
    for first in range(0, len(unread), FILES_PLANNED):
        some = unread[first : first + FILES_PLANNED]
        reads = yield from planned_reads(
            [files[key] for key in some], in_files(touched.columns, state), limits
        )
        planned = [*zip(some, reads, strict=True)]
        for part in windows(planned, lambda one: one[1].nbytes, files=LOOKED_AT_ONCE, bytes_max=KEY_BYTES):
            found = yield from bodies([read for _, read in part], limits, name="apply.get_data")
            looks = [
                partial(_looked, touched, body, (names[key], files[key]), state, vectors)
                for (key, _), body in zip(part, found, strict=True)
            ]
            for (key, _), body, seen in zip(part, found, all_of(looks), strict=True):
                if seen is None:
                    whole.append(key)
                elif isinstance(body, bytes):
                    touched.note(key, seen, body, len(body))
                else:
                    touched.note(key, seen)
            del found, looks  # before the next ones are fetched
        del reads, planned
    yield from _read_whole({key: files[key] for key in whole}, touched, state, vectors, limits)


def _read_whole(
    files: Mapping[str, Action],
    touched: KeySearch,
    state: Snapshot,
    vectors: Vectors,
    limits: Limits,
) -> Generator[Effect, Outcome, None]:
    """Note the rows of files by which nothing can be decided without all of their columns."""
    for some in windows(
        [*files], lambda key: size_of(files[key]), files=LOOKED_AT_ONCE, bytes_max=LOOKED_BYTES
    ):
        found = yield from contents([files[key] for key in some], limits, name="apply.get_data")
        looks = [
            partial(_searched, touched, body, files[key], state, vectors)
            for key, body in zip(some, found, strict=True)
        ]
        for key, body, hits in zip(some, found, all_of(looks), strict=True):
            touched.note(key, hits, body, len(body))
        del found, looks


def _looked(
    touched: KeySearch, body: Body, named: tuple[IndexName, Action], state: Snapshot, vectors: Vectors
) -> FoundRows | None:
    """The rows of a file by its key columns; None if these are not enough, and no others were fetched.  It runs in a thread."""
    _, add = named
    index = _index(touched, body, named, state)
    if index is None:
        hits = touched.search(_keys(touched, body, add, state, vectors.of(add)))
    else:
        hits = touched.search_index(index, _gone(vectors, add, index))
    if touched.suffices(hits):
        return hits
    return _searched(touched, body, add, state, vectors) if isinstance(body, bytes) else None


def _index(
    touched: KeySearch, body: Body, named: tuple[IndexName, Action], state: Snapshot
) -> KeyIndex | None:
    """The index of a file's rows, deleted ones too, if it is worth one; None where one of these rows cannot be read."""
    name, add = named
    if not touched.wants_index(name, stats_of(add).get("numRecords")):
        return None
    try:
        return touched.kept_index(name, _keys(touched, body, add, state, None))
    except (WouldAlterError, InvalidInputError, UnsupportedTableError):
        return None


def _keys(touched: KeySearch, body: Body, add: Action, state: Snapshot, gone: BitMap64 | None) -> pa.Table:
    """The keys and sequences of a file's rows, without those that are ``gone``.

    Raises:
        UnsupportedTableError: they have days that some engine reads otherwise: such keys would not be found.
    """
    rows, footer = whole_rows(body, add, state, touched.columns, gone)
    check_days(footer, rows.select(_in_file(rows, state)), add["path"])
    return rows


def _searched(touched: KeySearch, body: bytes, add: Action, state: Snapshot, vectors: Vectors) -> FoundRows:
    rows, footer = whole_rows(body, add, state, None, vectors.of(add))
    check_days(
        footer, rows.select([name for name in touched.columns if name in _in_file(rows, state)]), add["path"]
    )
    hits = touched.search(rows)
    check_days(footer, hits.rows.select(_in_file(hits.rows, state)), add["path"])
    return hits


def _in_file(rows: pa.Table, state: Snapshot) -> list[str]:
    """The columns that are in a file, and not in the log."""
    return [name for name in rows.column_names if name not in state.partition_by]


def _gone(vectors: Vectors, add: Action, index: KeyIndex) -> Numbers | None:
    """The rows that the vector of a file takes away.  Raises StorageError if it names others than the file has."""
    gone = vectors.of(add)
    if gone is None:
        return None
    numbers = np.frombuffer(gone.to_array(), np.uint64).astype(np.int64)
    if len(numbers) and numbers[-1] >= index.rows.num_rows:
        live_rows(add["path"], gone, index.rows.num_rows)
    return numbers


def _name(add: Action, state: Snapshot, vectors: Vectors, columns: Sequence[str]) -> IndexName:
    """Binds an index to one file of one table, and to the columns as the table has them now."""
    values = tuple(sorted((add.get("partitionValues") or {}).items()))
    kinds = tuple((state.physical[name], str(state.schema.field(name).type)) for name in columns)
    said = stats_of(add).get("numRecords"), add.get("size"), add.get("modificationTime")
    return (vectors.root, state.table_id, add["path"], *said, values, kinds)
