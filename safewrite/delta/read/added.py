"""Tells what came into a Delta table since a version, by the actions of its log (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Generator

from safewrite.delta.data.rows import size_of
from safewrite.delta.log.actions import Action, Commit, commit_path, parse, rows_of
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import commits_since
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.table.added import AddedFile, AddedRows, Followed
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
        if commits[-1].version == state.version and not _is_known(commits[-1], state):
            raise table.gap(
                f"version {state.version} is another one than before: the table was dropped and made again, or set back"
            )
    return [one for one in found if one.files]


def _is_known(newest: Commit, state: Snapshot) -> bool:
    """Whether the newest commit is the one that the state was read of: else all of them are another table's (decision 0018)."""
    anchor = state.anchor
    if anchor is None or anchor.path != commit_path(newest.version) or not (anchor.digest and newest.digest):
        return True
    return newest.digest == anchor.digest


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
    return table.brought(state.version, None, map(_file, replay.adds.values()))


def _brought(commit: Commit, state: Snapshot, table: Followed) -> AddedRows:
    metadata, info = commit.metadata, commit.commit_info or {}
    if metadata is not None and metadata.get("id") != state.table_id:
        raise table.gap(f"version {commit.version} made another table of it")
    if any(one.get("dataChange", True) for one in commit.removes()):
        by = info.get("operation") or "an unnamed operation"
        raise table.gap(f"version {commit.version} removed rows ({by})")
    at = utc(info.get("inCommitTimestamp")) or utc(info.get("timestamp"))
    files = (_file(one) for one in commit.adds() if one.get("dataChange", True))
    return table.brought(commit.version, at, files)


def _file(add: Action) -> AddedFile:
    return AddedFile(size_of(add), rows_of(add), add)
