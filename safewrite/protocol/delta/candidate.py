"""Defines the commit candidate, and the state of one commit attempt."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.values import LedgerRecord, Listed

Steps = Generator[Effect, Outcome, None]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A log file that proves that the log is still the same one (A17).

    Delta numbers versions from 0 in every table, so a table that was dropped and created again at one address
    has the same names with other contents.

    ``path`` is the commit file of ``version``, or its checkpoint where the commit file was cleaned up.
    ``digest`` is the MD5 of its bytes in hexadecimal digits ("" if they were not read), and ``listed`` is
    what a listing showed of it.
    """

    version: int
    path: str
    digest: str = ""
    listed: Listed | None = None

    def is_shown_by(self, listed: Listed) -> bool:
        """Whether a listing alone proves that the file is still the same one."""
        return (self.digest != "" and listed.etag == self.digest) or listed == self.listed


@dataclass(frozen=True, slots=True)
class Found:
    """A commit in the log that already carries this write."""

    version: int
    own: bool
    """True if it is this very attempt (its commit id), False if an earlier one under the same key."""


class Candidate(Protocol):
    """A candidate for the next version: staged writes with their actions and keys."""

    table_id: str | None
    accounted: int
    """The version that the candidate was made from; earlier commits are examined for its key only."""

    @property
    def anchor(self) -> Anchor | None:
        """What proves that the log is the one that the candidate was made for; None if there was none."""

    def body(self, version: int) -> bytes:
        """The bytes of ``version``'s commit file; the same bytes whenever asked for that version."""

    def examine(self, version: int, body: bytes) -> Found | None:
        """Look at a commit that landed before us.

        Returns Found if it carries this write.  Raises a ``NotCommittedError`` if it makes this
        write invalid.  Else remembers it and returns None.
        """

    def summary(self, version: int) -> str | None:
        """What other writers must know of this commit; None if they must read it."""

    def suffices(self, summary: str) -> bool:
        """Whether another commit's summary tells this candidate all that it needs."""

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        """As ``examine``, for a commit whose summary suffices; ``digest`` is the MD5 of its bytes."""

    def renew(self) -> Steps:
        """Plan again on the commits that were examined since the last plan; asked for before each try.

        It is known then that none of them carries this write, and where writers take turns it is ours: a plan that takes
        long is not made in vain.  Raises a ``NotCommittedError`` if this write became invalid.
        """

    def recheck(self) -> Steps:
        """Make sure that every file this commit will name is there, whole; upload what is not there yet (B1, G5)."""


@dataclass(frozen=True, slots=True)
class Arbiter:
    """Who decides which writer gets a version: the object store alone, or a lock table before it.

    ``sealed``: claims look complete from the start, so that no other engine finishes them.  Engines
    that do (Spark, deltalake before 1.6) copy over ``N.json`` without a condition; where writers that
    know no lock table may have taken version N first, such a copy would double rows that safewrite has
    committed elsewhere by then.
    """

    lock_table: bool
    lease: bool = False
    sealed: bool = False


@dataclass(slots=True)
class Try:
    """The state of one commit attempt."""

    candidate: Candidate
    seen: int
    arbiter: Arbiter
    limits: Limits
    queue_first: bool = False
    fresh: bool = False
    started_s: float = 0.0
    attempts: int = 0
    spent_s: float = 0.0
    """How long the last attempt in a turn took, its plan included."""
    contended: bool = False
    ticket: int | None = None
    checked_s: float | None = None
    tried: int = -1
    anchor: Anchor | None = None
    in_doubt_at: int | None = None
    """The version being tried: from the first request on, only an answer says whose it is."""
    records: tuple[LedgerRecord, ...] = ()
    """Put into the ledger with the read-back; the keys of those that it took are ``remembered``."""
    remembered: frozenset[str] = frozenset()
    opening: Steps | None = None
    """Runs with the first check of the files, before anything is claimed."""
    mixed: bool = False
    """A version was met that no writer claimed in the lock table: others commit by conditional PUT."""

    @property
    def sealed(self) -> bool:
        """Whether claims must be sealed; see ``Arbiter``."""
        return self.arbiter.sealed or self.mixed
