"""Letters: the records that a job could not take.  Says which are meant, what became of each, and what a replay came to.

A job keeps them in a table of its own: dead letters of change data, the quarantine of a medallion job.  It says how its table is
read, and how a record is decoded again and landed (:class:`Letters`).  A letter is never deleted here, so the books add up by its
state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar, get_args

from safewrite.errors import InvalidInputError

LetterState = Literal["waiting", "replaying", "replayed", "overtaken", "retired"]
STATES: tuple[LetterState, ...] = get_args(LetterState)
LEFT: frozenset[LetterState] = frozenset({"waiting", "replaying"})
"""States of letters that nothing is decided about yet; one of a replay that broke off is replaying."""


@dataclass(frozen=True)
class Letter:
    """A record that a job could not take; by its ``name`` a user means it.

    ``stage`` is where it was refused, in a job that has several.  ``state``: replayed, it is taken now; overtaken, a later change of
    its key made it of no use; retired, somebody said that it is not needed (``note``).  ``seen_ns`` is when the job met it last; None
    where the letter does not say so.
    """

    name: str
    table: str | None
    state: LetterState
    reason: str
    note: str | None = None
    stage: str | None = None
    seen_ns: int | None = None

    def brief(self) -> dict[str, Any]:
        """What became of it, ready for JSON."""
        seen = None if self.seen_ns is None else datetime.fromtimestamp(self.seen_ns // 10**9, UTC)
        told = {"letter": self.name, "table": self.table, "stage": self.stage, "state": self.state}
        told |= {"seen": None if seen is None else seen.isoformat(), "reason": self.reason}
        return told | ({"note": self.note} if self.note else {})

    def content(self) -> dict[str, Any]:
        """The record itself, ready for JSON."""
        return {}


LetterT = TypeVar("LetterT", bound=Letter)


@dataclass(frozen=True)
class LetterFilter:
    """Which letters are meant; what is empty or None leaves none out.

    ``reason`` is a part of the reason.  Times are when the job met the record last, from ``since_ns`` on and before ``until_ns``.
    """

    tables: Collection[str] = ()
    reason: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    names: Collection[str] = ()

    def takes(self, letter: Letter) -> bool:
        """Whether a letter is meant; one that does not say when it was met is not left out by time."""
        seen_ns = letter.seen_ns
        return (
            (not self.tables or letter.table in self.tables)
            and (self.reason is None or self.reason in letter.reason)
            and (self.since_ns is None or seen_ns is None or seen_ns >= self.since_ns)
            and (self.until_ns is None or seen_ns is None or seen_ns < self.until_ns)
            and (not self.names or letter.name in self.names)
        )


EVERY = LetterFilter()


@dataclass(frozen=True)
class ReplayedTable:
    """What a replay did in one table; of no table: of letters that go to none."""

    table: str | None
    records: int
    applied: int
    late: int
    ignored: int = 0


@dataclass
class Replayed:
    """What a replay came to: how many letters landed, and why others still cannot, by their names.

    ``open_batch`` counts letters of a batch that the job has not closed, which were left alone.  ``failed`` says why tables failed.
    """

    landed: int = 0
    dead: dict[str, str] = field(default_factory=dict)
    open_batch: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    tables: list[ReplayedTable] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all that were meant have landed, or were left alone."""
        return not self.dead and not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


class Letters(ABC, Generic[LetterT]):
    """The letters of a job."""

    @abstractmethod
    def find(self, wanted: LetterFilter = EVERY, states: Collection[LetterState] = LEFT) -> list[LetterT]:
        """The letters of these states, in the order of their records.

        Raises:
            SafewriteError: a table cannot be read.
        """

    def ready(self, letters: Sequence[LetterT]) -> list[LetterT]:
        """Those that may be decided about now."""
        return list(letters)

    @abstractmethod
    def replay(self, wanted: LetterFilter = EVERY) -> Replayed:
        """Take the letters that are meant through the configuration of today, each once, however often it is tried.

        Raises:
            InvalidInputError: what is meant is of no table that is configured.
            ConflictError: another replay or retirement came between; the same call again goes on.
            SafewriteError: the same call again finds what was committed.
        """

    def retire(self, letters: Sequence[LetterT], note: str) -> int:
        """Keep that these letters are not needed, and why; they stay in their table, and count there.  How many are new.

        Raises:
            InvalidInputError: the note is empty.
            ConflictError: as :meth:`replay`.
            SafewriteError: their table cannot be written.
        """
        if not note.strip():
            raise InvalidInputError(
                "A note says why the records are not needed. Nothing was written. Give one."
            )
        return self._retire(letters, note)

    @abstractmethod
    def _retire(self, letters: Sequence[LetterT], note: str) -> int: ...
