"""Stamps a commit with its time and its rows with ids and versions, as of the version before it: each try does so, for a rival may have come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from safewrite.delta.log.actions import stats_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.log.stamps import PRESERVED, TIME, last_row_id, marked_at, stamping
from safewrite.errors import UnsupportedTableError

LAST = 2**63 - 1
"""The greatest number of Delta's type long."""
_FULL = (
    "The table has no {} left: the log says one that is about the greatest that there is, which no writer came to by itself. Nothing was "
    "committed. Restore the log from a versioned copy."
)
ID, VERSION = "baseRowId", "defaultRowCommitVersion"


Files: TypeAlias = tuple[Iterable[dict[str, Any]], Iterable[dict[str, Any]]]
"""Actions of new files, and those of what becomes of files that are there."""


class Stamps(NamedTuple):
    """What one try of a commit begins with: its time and the row id that was given last, where the table has them."""

    time_ms: int | None = None
    last: int | None = None
    keeps: bool = False

    @property
    def info(self) -> dict[str, Any]:
        """What ``commitInfo`` tells of it."""
        time = {} if self.time_ms is None else {TIME: self.time_ms}
        return time | ({"tags": {PRESERVED: "true"}} if self.keeps else {})

    def summary(self, files: Files, version: int) -> dict[str, Any]:
        """What a summary of the commit tells of it."""
        time = {} if self.time_ms is None else {TIME: self.time_ms}
        if self.last is None:
            return time
        told = [one["domainMetadata"] for one in numbered(files, version, self) if "domainMetadata" in one]
        return time | {"domains": told}


NONE = Stamps()


@dataclass
class Stamper:
    """Stamps the tries of a write; one that is asked for its bytes again has the same stamps."""

    clock: Callable[[], int] | None = field(default=None, repr=False)
    """Tells the time of a try, in milliseconds since 1970; where there is none, tries have that of the write."""
    _known: dict[tuple[int, str], Stamps] = field(default_factory=dict, repr=False)

    def at(self, version: int, commit_id: str, before: Snapshot | None, began_ms: int) -> Stamps:
        """The stamps of a try at a version.

        No decision rests on the clock: it only names a time, which is later than that of the commit before.

        Raises:
            StorageError: CORRUPT_LOG; the table does not say which row id was given last.
            UnsupportedTableError: there is no later time.
        """
        attempt = (version, commit_id)
        if attempt not in self._known:
            self._known[attempt] = NONE if before is None else self._after(before, began_ms)
        return self._known[attempt]

    def _after(self, state: Snapshot, began_ms: int) -> Stamps:
        timed, numbered, kept = stamping(state)
        if not timed and not numbered:
            return NONE
        now_ms = began_ms if self.clock is None else self.clock()
        time_ms = max(now_ms, -1 if state.told_ms is None else state.told_ms + 1) if timed else None
        if (time_ms or 0) > LAST:
            raise UnsupportedTableError(_FULL.format("times of commits"))
        return Stamps(time_ms, last_row_id(state) if numbered else None, kept is not None)


def numbered(files: Files, version: int, stamps: Stamps) -> list[dict[str, Any]]:
    """Actions of a commit with row ids: new files get theirs, files that were there keep them; then what is given last.

    Raises:
        UnsupportedTableError: a new file does not say how many rows it has, or there are no ids left.
    """
    new, there = files
    if stamps.last is None:
        return [*new, *there]
    found, last = list[dict[str, Any]](), stamps.last
    for action, is_new in (*((one, True) for one in new), *((one, False) for one in there)):
        add = action.get("add")
        if add is None or not (is_new or add.get(ID) is None):
            found.append(action)
        else:
            found.append({"add": {**add, ID: last + 1, VERSION: version}})
            last += _rows(add)
    if last > LAST:
        raise UnsupportedTableError(_FULL.format("row ids"))
    return found if last == stamps.last else [*found, {"domainMetadata": marked_at(last)}]


def _rows(add: dict[str, Any]) -> int:
    """All rows of a file, also those that its deletion vector takes away."""
    rows = stats_of(add).get("numRecords")
    if type(rows) is not int:
        raise UnsupportedTableError(
            f"The log does not say how many rows {add['path']} has, and each is to have an id (rowTracking). Nothing was committed. "
            "Let Spark compute the statistics: ANALYZE TABLE t COMPUTE DELTA STATISTICS."
        )
    return rows
