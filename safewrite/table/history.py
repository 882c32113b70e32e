"""Describes the commits of a table to a reader of its history."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown

SHOWN_MAX = 10
"""An entry has at most this many members of a list that the table keeps in a file of its own."""


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """One write that a commit carries.

    ``key`` is None for another engine's write, which is known by its ``txn`` ``(app_id, version)`` alone;
    ``rows`` and ``fingerprint`` are None where nothing records them.
    """

    key: str | None
    rows: int | None = None
    txn: tuple[str, int] | None = None
    fingerprint: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> CommittedWrite:
        """The write that safewrite recorded as ``entry``."""
        txn = entry.get("txn")
        return cls(
            str(entry["key"]),
            int(entry["rows"]),
            (str(txn[0]), int(txn[1])) if txn else None,
            str(entry["fingerprint"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit of a table, as its log or its metadata records it; None stands for what is not recorded.

    ``version`` is a Delta version or an Iceberg snapshot id.  ``timestamp`` is in UTC, by the clock of the
    committing writer or, where it left none, of the store.  ``operation`` and ``engine`` are in the words of
    the engine.

    ``rows_added - rows_removed`` is by how many rows the table grew; an updated row counts in both.  Where an
    engine records what its files hold and no more, rows that it kept while it rewrote their file count in
    both too.

    ``write_count`` writes share the commit.  ``writes`` has all of them, or the first ten of a list that is
    too long for the log; ``Table.committed_writes(version)`` reads such a list.  ``properties`` are those
    that callers gave (``properties=``), ``details`` all that the engine recorded: Delta's ``commitInfo``,
    Iceberg's snapshot summary.
    """

    version: int
    timestamp: dt.datetime | None
    operation: str | None
    engine: str | None
    rows_added: int | None
    rows_removed: int | None
    writes: tuple[CommittedWrite, ...] = ()
    write_count: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the timestamp in ISO 8601."""
        return {
            "version": self.version,
            "timestamp": None
            if self.timestamp is None
            else self.timestamp.isoformat(timespec="milliseconds"),
            "operation": self.operation,
            "engine": self.engine,
            "rows_added": self.rows_added,
            "rows_removed": self.rows_removed,
            "writes": [write.to_dict() for write in self.writes],
            "write_count": self.write_count,
            "properties": dict(self.properties),
            "details": dict(self.details),
        }


def checked_limit(limit: Any) -> int | None:
    """``limit=`` as it was given.

    Raises:
        InvalidInputError: it is neither None nor a whole number from 1.
    """
    if limit is not None and not (type(limit) is int and limit >= 1):
        raise InvalidInputError(
            f"limit is None or a whole number of commits from 1, not {shown(limit)}. Nothing was written."
        )
    return limit


def checked_version(version: Any) -> int:
    """``version`` as it was given.

    Raises:
        InvalidInputError: it is no whole number.
    """
    if type(version) is not int:
        raise InvalidInputError(
            f"version is a Delta version or an Iceberg snapshot id, not {shown(version)}. Nothing was written. Take that "
            "of an entry of history()."
        )
    return version


def no_version(version: int, uri: str) -> InvalidInputError:
    """The error where a table does not have a version, or no longer."""
    return InvalidInputError(
        f"{uri} has no version {shown(version)}, or no longer: logs are cleaned up and snapshots expire. Nothing was written. "
        "history() lists those that are there."
    )


def there(found: list[CommittedWrite] | None, version: int, uri: str) -> list[CommittedWrite]:
    """What was found of a version.  Raises as :func:`no_version`."""
    if found is None:
        raise no_version(version, uri)
    return found


def first_of(entries: Sequence[Mapping[str, Any]]) -> tuple[CommittedWrite, ...]:
    """The first few of a long list, as an entry of the history shows them."""
    return tuple(CommittedWrite.of(entry) for entry in entries[:SHOWN_MAX])


def count(value: object) -> int | None:
    """A count as engines record it, as a number or as text; None if it is none."""
    text = str(value)
    return int(text) if text.isdecimal() else None
