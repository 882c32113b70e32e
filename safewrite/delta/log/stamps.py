"""Says what the commits of a table tell of their time and of the ids and versions of its rows.

All of it rests on the version before, so a writer gives it at each try (PROTOCOL.md, "In-Commit Timestamps", "Row Tracking").
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from safewrite.delta.log.actions import Commit, corrupt
from safewrite.values import kept_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
TIME = "inCommitTimestamp"
TIMED = ("delta.enableInCommitTimestamps", "delta.enableInCommitTimestamps-preview")
TRACKING, TRACKED, SUSPENDED = "rowTracking", "delta.enableRowTracking", "delta.rowTrackingSuspended"
ROW_IDS = "delta.rowTracking"
"""The domain that says which row id was given last."""
MARK = "rowIdHighWaterMark"
ID_COLUMN, VERSION_COLUMN = kept_names.DELTA_IDS
"""What files call the columns in which rows that were written again keep their ids, and the versions that changed them last."""
PRESERVED = "delta.rowTracking.preserved"


class Stamped(Protocol):
    """A version of a table, as far as it says what its commits tell."""

    @property
    def version(self) -> int: ...

    @property
    def protocol(self) -> Mapping[str, Any]: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def domains(self) -> Mapping[str, str]: ...

    def derived(self, make: Callable[[Any], T], /) -> T:
        """What follows from protocol, metadata and domains."""


class Stamping(NamedTuple):
    """What commits of a table tell: their time; ids of the rows of new files; and how files call the columns ``kept`` in which rows that
    are written again keep their ids and versions, None where they keep none.
    """

    timed: bool
    numbered: bool
    kept: tuple[str, str] | None


def stamping(state: Stamped) -> Stamping:
    """What the table asks for."""
    return state.derived(_stamping)


def _stamping(state: Stamped) -> Stamping:
    numbered = TRACKING in (state.protocol.get("writerFeatures") or ()) and not is_on(state, SUSPENDED)
    timed = any(is_on(state, name) for name in TIMED)
    names = state.properties.get(ID_COLUMN), state.properties.get(VERSION_COLUMN)
    kept = (names[0], names[1]) if numbered and is_on(state, TRACKED) and names[0] and names[1] else None
    return Stamping(timed, numbered, kept)


def is_on(state: Stamped, name: str) -> bool:
    """Whether a table property is ``true``."""
    return state.properties.get(name, "false").strip().lower() == "true"


def time_of(commit: Commit) -> int | None:
    """The time that a commit tells in itself."""
    told = (commit.commit_info or {}).get(TIME)
    return told if type(told) is int else None


def last_row_id(state: Stamped) -> int:
    """The highest row id that was given; -1 where none was.

    Raises:
        StorageError: CORRUPT_LOG; the domain does not say it.
    """
    text = state.domains.get(ROW_IDS)
    if text is None:
        return -1
    try:
        found = json.loads(text)[MARK]
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if type(found) is not int:
        raise corrupt(
            f"The log does not say which row id was given last: the domain {ROW_IDS} of version {state.version} is {text!r}."
        )
    return found


def marked_at(last: int) -> dict[str, object]:
    """The ``domainMetadata`` action that says which row id was given last."""
    return {"domain": ROW_IDS, "configuration": json.dumps({MARK: last}), "removed": False}
