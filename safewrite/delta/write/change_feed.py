"""Writes the change files of a commit, where the table's change data feed is on (PROTOCOL.md, "Add CDC File").

A reader of the feed takes the rows of a version from its change files alone, if it has any: so they hold all rows that came
and went.  A commit that only adds files, or only removes whole ones without deletion vectors, needs none: its rows are the
changes.  Of a removed file with a vector deltalake's reader takes the rows that had gone before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from safewrite.changes.meaning.change_types import AFTER, BEFORE, DELETE, INSERT, typed
from safewrite.changes.meaning.positions import meeting
from safewrite.delta.data.datafiles import encode
from safewrite.delta.data.rows import body_of, check_within, whole_rows
from safewrite.delta.data.variants import with_variants
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, FileKey, file_key
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.frames.prepare import Prepared, prepare
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome

FOLDER = "_change_data/"


def change_rows(gone: pa.Table, came: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that go and come, each with its type: those of one key are the two images of an update."""
    again = meeting(came.select(keys), gone.select(keys))
    before = meeting(gone.select(keys), came.select(keys))
    parts = [
        typed(gone, np.where(again, BEFORE, DELETE)),
        typed(came, np.where(before, AFTER, INSERT)),
    ]
    return pa.concat_tables(parts, promote_options="default")


def replaced_rows(gone: Sequence[pa.Table], came: Prepared | None) -> pa.Table:
    """The rows that an overwrite or a delete takes away, and those that it brings, each with its type."""
    parts = [*(typed(rows, DELETE) for rows in gone)]
    parts += [typed(rows, INSERT) for rows in (came.tables() if came is not None else ())]
    return pa.concat_tables(parts, promote_options="default")


def staged_changes(
    rows: pa.Table, state: Snapshot, write_id: str, timestamp_ms: int, limits: Limits
) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload the change files of a commit.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    partition_by = tuple(state.partition_by)
    files = encode(
        prepare(rows, rows.schema, partition_by=partition_by, stored=True),
        partition_by=partition_by,
        write_id=write_id,
        mapped=with_variants(state).mapped,
    )
    staged = yield from stage(
        (replace(file, path=f"{FOLDER}{file.path}") for file in files), timestamp_ms, limits
    )
    return tuple(replace(file, action=_action(file.action["add"])) for file in staged)


class FedCommit(Protocol):
    """A commit that removes rows, as :func:`staged_feed` needs it; ``after`` is the table with the columns that it adds."""

    commit_id: str
    timestamp_ms: int
    limits: Limits
    files: Sequence[StagedFile]
    vectors: Vectors

    @property
    def after(self) -> Snapshot | None: ...


def rows_of_files(
    adds: Sequence[Action], state: Snapshot, vectors: Vectors, limits: Limits
) -> Generator[Effect, Outcome, dict[FileKey, pa.Table]]:
    """The live rows of some files, as a table has them.

    Raises:
        As :func:`safewrite.delta.data.rows.body_of`.
    """
    yield from vectors.fetch(adds, limits)
    found = {}
    for add in adds:
        check_within(add)
        body = yield from body_of(add, limits)
        found[file_key(add)] = whole_rows(body, add, with_variants(state), None, vectors.of(add))[0]
    return found


def staged_feed(
    commit: FedCommit, gone: Sequence[pa.Table], came: Prepared | None, plan: int
) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload the change files of all rows that go and come; without ``came`` these are read of the commit's new files, one by one.

    ``plan`` makes the names of files unique: of the commit's plans each has a number.

    Raises:
        As :func:`staged_changes`.
    """
    after = commit.after
    assert after is not None
    name, how = f"{commit.commit_id}-changes{plan}", (commit.timestamp_ms, commit.limits)
    made = yield from staged_changes(replaced_rows(gone, came), after, name, *how)
    for number, file in enumerate(commit.files if came is None else ()):
        found = yield from rows_of_files([file.action["add"]], after, commit.vectors, commit.limits)
        rows = typed(next(iter(found.values())), INSERT)
        made += yield from staged_changes(rows, after, f"{name}-added{number}", *how)
    return made


def _action(add: Action) -> dict[str, Any]:
    kept = {name: add[name] for name in ("path", "partitionValues", "size")}
    return {"cdc": {**kept, "dataChange": False}}
