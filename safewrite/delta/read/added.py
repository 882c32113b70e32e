"""Tells what came into a Delta table since a version, by the actions of its log (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

from collections.abc import Callable, Generator

from safewrite.delta.data.rows import size_of
from safewrite.delta.log.actions import Action, Commit, commit_path, parse, rows_of
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.replay import commits_since
from safewrite.delta.log.snapshot import Snapshot
from safewrite.errors import HistoryGapError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.table.added import AddedFile

COMMITS_AT_ONCE = 64
"""So many commit files are in memory."""

Gap = Callable[[str], HistoryGapError]
Brought = dict[int, tuple[AddedFile, ...]]
"""The files that commits brought, by version; commits that brought none are left out."""


def added_since(
    position: int, state: Snapshot, limits: Limits, gap: Gap
) -> Generator[Effect, Outcome, Brought]:
    """The files of the commits after a version.

    Raises:
        HistoryGapError: rows went since, or a commit is gone.
        StorageError: no answer, or a commit that cannot be read.
    """
    if position > state.version:
        raise gap(
            f"the table has only version {state.version}, not {position}: it was set back, or is another"
        )
    found: Brought = {}
    for at in range(max(position, -1), state.version, COMMITS_AT_ONCE):
        commits = yield from commits_since(at, min(at + COMMITS_AT_ONCE, state.version), limits)
        if commits is None:
            raise gap(f"the log no longer has all versions after {position}: some were cleaned up")
        found |= {one.version: files for one in commits if (files := _brought(one, state, gap))}
    return found


def added_by(
    version: int, state: Snapshot, limits: Limits, gap: Gap
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    """The files of one commit.  Raises as :func:`added_since`."""
    answer = yield from fetch_one(Get(commit_path(version), name="read.get_commit"), limits)
    if isinstance(answer, Missing):
        raise gap(f"the log no longer has version {version}: it was cleaned up")
    assert isinstance(answer.value, bytes)
    return _brought(parse(answer.value, version), state, gap)


def everything(
    state: Snapshot, known: KnownFiles, limits: Limits
) -> Generator[Effect, Outcome, tuple[AddedFile, ...]]:
    """All live files.  Raises as ``KnownFiles.load``."""
    replay = yield from known.load(state, limits)
    return tuple(map(_file, replay.adds.values()))


def _brought(commit: Commit, state: Snapshot, gap: Gap) -> tuple[AddedFile, ...]:
    metadata = commit.metadata
    if metadata is not None and metadata.get("id") != state.table_id:
        raise gap(f"version {commit.version} made another table of it")
    if any(one.get("dataChange", True) for one in commit.removes()):
        by = (commit.commit_info or {}).get("operation") or "an unnamed operation"
        raise gap(f"version {commit.version} removed rows ({by})")
    return tuple(_file(one) for one in commit.adds() if one.get("dataChange", True))


def _file(add: Action) -> AddedFile:
    return AddedFile(size_of(add), rows_of(add), add)
