"""Finds RESTORE commits, and tells whether what a version did is still in effect after them.

RESTORE brings back the files of an earlier version and leaves ``txn`` actions where they are (Delta protocol, "Transaction
Identifiers": nothing takes them back), so what they say of rows may be of rows that went.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from safewrite.delta.log.actions import Commit
from safewrite.protocol import keys

OPERATION = "RESTORE"
NOWHERE = -1
"""The target of a RESTORE that does not tell its version, as Spark's by time: nothing is known to be in effect."""


class Restore(NamedTuple):
    """The version that a RESTORE made, and the one that it brought back."""

    version: int
    target: int


def restore_of(commit: Commit) -> Restore | None:
    """What a commit restored, as deltalake and Spark write it; None if it is another operation."""
    info = commit.commit_info or {}
    if info.get("operation") != OPERATION:
        return None
    parameters = info.get("operationParameters")
    told = parameters.get("version") if isinstance(parameters, dict) else None
    if isinstance(told, str):
        told = int(told) if told.strip().isdecimal() else None
    target = keys.whole_number(told)
    return Restore(commit.version, target if target < commit.version else NOWHERE)


def undone_by(version: int, restores: Iterable[Restore]) -> Restore | None:
    """The RESTORE that took away what a version did; None if it is in effect, also because another brought it back."""
    last: Restore | None = None
    for restore in sorted(restores, reverse=True):
        if last is not None and restore.version > last.target:
            continue  # undone itself
        if restore.version < version:
            break
        last = restore
    return last if last is not None and version > last.target else None
