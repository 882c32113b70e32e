"""Reads the commits of a Delta table as a history: its own, and those of other engines.

``commitInfo`` is what every engine tells in its own words (PROTOCOL.md, "Commit Provenance Information"), and
what some leave out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from safewrite.arguments.properties import is_free
from safewrite.delta.log import actions, segment
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.conflicts import FINGERPRINT_OF, VERSION_OF
from safewrite.delta.write.members import ENGINE, all_writes, known_writes
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.table.history import CommittedWrite, HistoryEntry, count, first_of
from safewrite.values.limits import utc

COMMITS_AT_ONCE = 64
"""At most this many commit files are in memory."""

Counts = tuple[int | None, int | None]
"""Rows that a commit added, and rows that it removed."""


def history(
    state: Snapshot, limit: int | None, limits: Limits
) -> Generator[Effect, Outcome, list[HistoryEntry]]:
    """The commits up to a snapshot's that the log still has, newest first.

    Raises:
        StorageError: the store gave no answer; kind CORRUPT_LOG for a commit that cannot be read.
    """
    since = None if limit is None else max(state.version - limit + 1, 0)
    answer = yield from fetch_one(segment.effect(since), limits)
    listed = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(listed, tuple)
    found = segment.read(listed, whole=since is None)
    versions = [version for version in reversed(found.commits) if version <= state.version][:limit]
    entries: list[HistoryEntry] = []
    for at in range(0, len(versions), COMMITS_AT_ONCE):
        some = versions[at : at + COMMITS_AT_ONCE]
        gets = [Get(actions.commit_path(version), name="history.get_commit") for version in some]
        bodies = yield from fetch(gets, limits, name="history.get_commits")
        commits = [
            actions.parse(body.value, version)
            for version, body in zip(some, bodies, strict=True)
            if isinstance(body, Ok) and isinstance(body.value, bytes)  # others were cleaned up since
        ]
        lists = yield from known_writes([_own(commit) for commit in commits], limits)
        for commit, writes in zip(commits, lists, strict=True):
            modified_ms = found.files[actions.commit_path(commit.version)].modified_ms
            entries.append(_entry(commit, writes, modified_ms))
    return entries


def committed_writes(version: int, limits: Limits) -> Generator[Effect, Outcome, list[CommittedWrite] | None]:
    """Every write that a commit carries; None if the log does not have it.

    Raises:
        StorageError: the store gave no answer, or the list of the commit's writes is gone.
    """
    got = yield from fetch_one(Get(actions.commit_path(version), name="history.get_commit"), limits)
    if isinstance(got, Missing):
        return None
    assert isinstance(got.value, bytes)
    commit = actions.parse(got.value, version)
    writes = yield from all_writes(_own(commit), limits)
    return [CommittedWrite.of(write) for write in writes] or _batches(commit)


def _own(commit: Commit) -> Mapping[str, Any]:
    return (commit.commit_info or {}).get(ENGINE) or {}


def _entry(commit: Commit, writes: Sequence[Mapping[str, Any]], modified_ms: int) -> HistoryEntry:
    info = commit.commit_info or {}
    pointer = _own(commit).get("members")
    shown = first_of(writes) if pointer else tuple(map(CommittedWrite.of, writes))
    shown = shown or (() if pointer else tuple(_batches(commit)))
    added, removed = _rows(commit)
    return HistoryEntry(
        version=commit.version,
        timestamp=utc(info.get("inCommitTimestamp")) or utc(info.get("timestamp")) or utc(modified_ms),
        operation=_text(info.get("operation")),
        engine=_text(info.get("engineInfo")) or _text(info.get("clientVersion")),
        rows_added=added,
        rows_removed=removed,
        writes=shown,
        write_count=int(pointer["count"]) if pointer else len(shown),
        properties={name: value for name, value in info.items() if isinstance(value, str) and is_free(name)},
        details={name: value for name, value in info.items() if name != ENGINE},
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _batches(commit: Commit) -> list[CommittedWrite]:
    """The batches that another engine's commit names."""
    return [
        CommittedWrite(None, txn=(str(txn["appId"]), int(txn["version"])))
        for txn in commit.txns
        if not str(txn["appId"]).startswith((FINGERPRINT_OF, VERSION_OF))
    ]


# --- rows -----------------------------------------------------------------------------------------------
def _rows(commit: Commit) -> Counts:
    """What the engine counted, completed by what its files hold."""
    added, removed = _measured(commit)
    if added is None or removed is None:
        in_files, out_of_files = _in_files(commit)
        if None not in (added, in_files, out_of_files):
            assert added is not None
            assert in_files is not None
            assert out_of_files is not None
            removed = added - (in_files - out_of_files)
        elif added is None:
            added, removed = in_files, out_of_files
    return added, removed


def _measured(commit: Commit) -> Counts:
    """``operationMetrics`` in the names of Spark and of deltalake."""
    info = commit.commit_info or {}
    found = info.get("operationMetrics")
    metrics: Mapping[str, Any] = found if isinstance(found, dict) else {}

    def metric(*names: str) -> int | None:
        return next((number for name in names if (number := count(metrics.get(name))) is not None), None)

    operation = info.get("operation")
    if operation == "MERGE":
        updated = metric("numTargetRowsUpdated", "num_target_rows_updated")
        inserted = metric("numTargetRowsInserted", "num_target_rows_inserted")
        deleted = metric("numTargetRowsDeleted", "num_target_rows_deleted")
        if updated is None or inserted is None or deleted is None:
            return None, None
        return inserted + updated, deleted + updated
    if operation == "UPDATE":
        updated = metric("numUpdatedRows", "num_updated_rows")
        return updated, updated
    deleted = metric("numDeletedRows", "num_deleted_rows")
    if operation == "DELETE":
        return (None, None) if deleted is None else (0, deleted)
    written = metric("numOutputRows", "num_added_rows")
    return written, deleted if commit.removes() else 0 if written is not None else None


def _in_files(commit: Commit) -> Counts:
    """Rows of the files that a commit brings and takes, by their statistics; none where they are only rearranged."""
    return _sum(commit.adds()), _sum(commit.removes())


def _sum(files: Sequence[actions.Action]) -> int | None:
    counts = [actions.rows_of(file) for file in files if file.get("dataChange", True)]
    return None if None in counts else sum(number for number in counts if number is not None)
