"""Finds commits that were claimed in the lock table and are not in the log, and which were acknowledged.

Spark's ``S3DynamoDBLogStore`` claims version N in DynamoDB and then copies its temp file to
``N.json``.  If a conditional-PUT writer was there first, the LogStore takes the refusal for its own earlier
success and acknowledges.  The commit has vanished, and the temp file is the proof (A12).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from safewrite.delta.log import actions
from safewrite.delta.log.actions import Commit, FileKey
from safewrite.delta.maintenance.inspection import Attempt, Inspection
from safewrite.delta.write.members import ENGINE, keys_by_hash


class CommitStatus(StrEnum):
    """What became of the commit that a temp file holds."""

    LANDED = "landed"  # its bytes, its key or its files are in the log
    REPLAYED = "replayed"  # the same batch of its stream landed in another commit
    PENDING = "pending"  # it may still land: its version is the next one
    STALE = "stale"  # it belongs to a table that stood here before
    VANISHED = "vanished"  # its writer took it for committed, and it is not in the log
    UNFINISHED = "unfinished"  # as VANISHED, but its entry is open: perhaps nobody acknowledged it
    UNCLAIMED = "unclaimed"  # no entry names it (any more), and none of its rows is in the log
    REFUSED = "refused"  # a safewrite attempt that lost its version; it was not acknowledged there
    EXPIRED = "expired"  # the log was cleaned up past its version: its status is lost
    UNREADABLE = "unreadable"  # no whole commit


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt with its commit status.  ``rows`` counts what its files hold, as far as statistics tell."""

    attempt: Attempt
    fate: CommitStatus

    @property
    def commit(self) -> Commit:
        """The commit that the temp file holds."""
        assert self.attempt.commit is not None
        return self.attempt.commit

    @property
    def rows(self) -> int | None:
        """Rows of the files it adds; None if one of them has no statistics."""
        counts = [actions.rows_of(action) for action in self.commit.adds()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {
            "version": self.attempt.version,
            "temp": self.attempt.temp_path,
            "engine": engine(self.commit),
            "operation": (self.commit.commit_info or {}).get("operation"),
            "files": [action["path"] for action in self.commit.adds()],
            "rows": self.rows,
            "fate": str(self.fate),
        }


class LogIndex:
    """What the log holds, by path, by key and by batch, to look attempts up in."""

    def __init__(self, commits: Iterable[Commit]) -> None:
        self.files: set[FileKey] = set()
        self.keys: set[str] = set()
        self.txns: dict[tuple[str, int], int] = {}
        self.ids: set[str] = set()
        for commit in commits:
            self.files.update(map(actions.file_key, commit.adds()))
            self.keys.update(hashes_of(commit))
            self.txns.update({(txn["appId"], txn["version"]): commit.version for txn in commit.txns})
            self.ids.update(filter(None, [_commit_id(commit)]))
        self.paths = {path for path, _ in self.files}

    def holds(self, commit: Commit) -> bool:
        """Whether a commit's key, id or any of its files is in the log."""
        # A file that only got another deletion vector was in the log before.
        files = set(map(actions.file_key, commit.adds()))
        return bool(
            self.keys.intersection(hashes_of(commit))
            or self.files.intersection(files)
            or _commit_id(commit) in self.ids
        )

    def replayed(self, commit: Commit) -> bool:
        """Whether the same batch of the same stream is in the log."""
        return any((txn["appId"], txn["version"]) in self.txns for txn in commit.txns)


def judge(found: Inspection, attempts: Sequence[Attempt]) -> list[Lost]:
    """The commit status of every attempt."""
    index = LogIndex(found.commits.values())
    return [Lost(attempt, _fate(found, index, attempt)) for attempt in attempts]


def _fate(found: Inspection, index: LogIndex, attempt: Attempt) -> CommitStatus:
    if attempt.landed:
        return CommitStatus.LANDED
    if attempt.entry is not None and found.stale(attempt.entry):
        return CommitStatus.STALE
    cleaned = attempt.version < min(found.listing.commits, default=0)
    commit = attempt.commit
    if commit is None:
        return CommitStatus.EXPIRED if cleaned else CommitStatus.UNREADABLE
    if index.holds(commit):
        return CommitStatus.LANDED
    if index.replayed(commit):
        return CommitStatus.REPLAYED
    if attempt.version > found.head:
        return CommitStatus.PENDING
    if commit.commit_info and ENGINE in commit.commit_info:
        return CommitStatus.REFUSED
    if attempt.version not in found.digests:
        return CommitStatus.EXPIRED if cleaned else CommitStatus.UNREADABLE
    if attempt.entry is None:
        return CommitStatus.UNCLAIMED
    return CommitStatus.VANISHED if attempt.entry.complete else CommitStatus.UNFINISHED


def keys_of(commit: Commit) -> list[str]:
    """Idempotency keys of the writes that a commit carries, as it shows them; none for other engines' commits."""
    return list(hashes_of(commit).values())


def hashes_of(commit: Commit) -> dict[str, str]:
    """The same by their hashes, by which they are compared."""
    return keys_by_hash((commit.commit_info or {}).get(ENGINE) or {})


def engine(commit: Commit) -> str:
    """The engine that wrote a commit, as the commit says."""
    info = commit.commit_info or {}
    return str(info.get("engineInfo") or info.get("clientVersion") or "unknown")


def _commit_id(commit: Commit) -> str | None:
    info = (commit.commit_info or {}).get(ENGINE) or {}
    return info.get("commitId")
