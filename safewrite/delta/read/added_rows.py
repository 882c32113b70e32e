"""Tells what came into a Delta table since a version, by the actions of its log (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator

from safewrite.delta.data.rows import size_of
from safewrite.delta.log.actions import Action, Commit, commit_path, parse, rows_of
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import commits_since
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.table.added_rows import AddedFile, AddedRows, Followed
from safewrite.values.limits import utc

COMMITS_AT_ONCE = 64
"""At most this many commit files are in memory."""


def added_since(
    position: int, state: Snapshot, limits: Limits, table: Followed
) -> Generator[Effect, Outcome, list[AddedRows]]:
    """What the commits after a version brought, without those that brought nothing.

    Raises:
        HistoryGapError: rows went since, or a commit is gone.
        StorageError: no answer, or a commit that cannot be read.
    """
    if position > state.version:
        raise table.gap(
            f"it has only version {state.version}, not {position}: it was set back, or is another"
        )
    found: list[AddedRows] = []
    for at in range(position, state.version, COMMITS_AT_ONCE):
        commits = yield from commits_since(at, min(at + COMMITS_AT_ONCE, state.version), limits)
        if commits is None:
            raise table.gap(f"the log no longer has all versions after {position}: some were cleaned up")
        found += [_brought(one, state, table) for one in commits]
        check_newest(commits[-1], state, table)
    return [one for one in found if one.files]


def check_newest(commit: Commit, state: Snapshot, table: Followed) -> None:
    """Refuse a log in which the newest commit is another one than the state was read of: all are another table's (decision 0018).

    Raises:
        HistoryGapError: it is.
    """
    anchor = state.anchor
    if anchor is None or anchor.path != commit_path(commit.version) or not (anchor.digest and commit.digest):
        return
    if commit.version == state.version and commit.digest != anchor.digest:
        raise table.gap(
            f"version {state.version} is another one than before: the table was dropped and made again, or set back"
        )


def added_by(
    version: int, state: Snapshot, limits: Limits, table: Followed
) -> Generator[Effect, Outcome, AddedRows]:
    """What one commit brought.  Raises as :func:`added_since`."""
    if not 0 <= version <= state.version:
        raise table.gap(f"it has versions up to {state.version}, and none {version}")
    answer = yield from fetch_one(Get(commit_path(version), name="read.get_commit"), limits)
    if isinstance(answer, Missing):
        raise table.gap(f"the log no longer has version {version}: it was cleaned up")
    assert isinstance(answer.value, bytes)
    return _brought(parse(answer.value, version), state, table)


def everything(
    state: Snapshot, known: KnownFiles, limits: Limits, table: Followed
) -> Generator[Effect, Outcome, AddedRows]:
    """All live rows.  Raises as ``KnownFiles.load``."""
    replay = yield from known.load(state, limits)
    return table.brought(state.version, None, map(file_of, replay.adds.values()))


def check_table(commit: Commit, state: Snapshot, table: Followed) -> None:
    """Refuse a commit that made another table.

    Raises:
        HistoryGapError: it did.
    """
    metadata = commit.metadata
    if metadata is not None and metadata.get("id") != state.table_id:
        raise table.gap(f"version {commit.version} made another table of it")


def time_of(commit: Commit) -> dt.datetime | None:
    """When a commit was made, as its writer says."""
    info = commit.commit_info or {}
    return utc(info.get("inCommitTimestamp")) or utc(info.get("timestamp"))


def _brought(commit: Commit, state: Snapshot, table: Followed) -> AddedRows:
    check_table(commit, state, table)
    if any(one.get("dataChange", True) for one in commit.removes()):
        by = (commit.commit_info or {}).get("operation") or "an unnamed operation"
        raise table.gap(f"version {commit.version} removed rows ({by})")
    files = (file_of(one) for one in commit.adds() if one.get("dataChange", True))
    return table.brought(commit.version, time_of(commit), files)


def file_of(add: Action) -> AddedFile:
    """A data file that brought rows."""
    return AddedFile(size_of(add), rows_of(add), add)
