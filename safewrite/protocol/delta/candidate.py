"""Defines the commit candidate, and the state of one commit attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from safewrite.protocol.ask import Limits
from safewrite.protocol.held_version import Holds
from safewrite.protocol.member_queue import Share, Sharer, Steps
from safewrite.protocol.members import Found
from safewrite.protocol.values import LedgerRecord, Listed


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


class Candidate(Protocol):
    """A candidate for the next version: staged writes with their actions and keys."""

    table_id: str | None
    accounted: int
    """The version that the candidate was made from; earlier commits are examined for its key only."""
    rebases: bool
    """Whether it is brought to a newer base at the cost of what others changed, so that the next try is shorter than the first."""
    rebased: int
    """How often it was renewed, from the first try on, for what the commits of others changed alone; such a conflict may be met as often
    as it comes."""

    @property
    def held_s(self) -> float:
        """For how many seconds the newest version that was examined asks those that change rows to wait for the next one."""

    def holding(self, commit_id: str, held_s: float) -> Candidate:
        """A version without rows that asks so."""

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
        long is not made in vain.  Raises a ``NotCommittedError`` if this write became invalid, and BaseMovedError where another commit
        came while much was being done.
        """

    def recheck(self) -> Steps:
        """Make sure that every file this commit will name is there, whole; upload what is not there yet (B1, G5)."""


class LogSharer(Sharer, Protocol):
    """A candidate as one that other writers may commit."""

    def note(self, version: int, body: bytes) -> None:
        """Remember the keys of a commit that was not examined."""

    def is_in(self, version: int, body: bytes) -> bool:
        """Whether a commit carries its own write."""


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
    shares: int = 0
    """Up to how many versions after its base others may commit a member (``safewrite.protocol.sharing``); 0: no commits are
    shared."""
    names_max: int = 100
    """A writer that waits asks for at most this many names of the queue."""
    listens: bool = False
    """Whether a writer that did not wait looks, with its read-back, whether others do: it is quick, and might outrun them for ever."""
    queue_known: bool = True
    """Whether the queue of members is known to be usable; else a writer asks before it waits there."""


@dataclass(slots=True)
class Landed:
    """Where the candidate's rows are."""

    version: int
    attempts: int
    already: bool
    contended: bool
    """Other writers were met on the way: the next write should queue at once."""
    mixed: bool = False
    """Writers that know no lock table were met: from now on claims must be sealed."""
    remembered: frozenset[str] = frozenset()
    """Keys for which the ledger has the commit already."""
    members: int = 1
    """How many writes the commit carries."""
    waited_s: float = 0.0
    """How long the write waited for another writer to commit it, or for its turn to lead."""
    may_share: bool | None = None
    """Whether the queue of members can be used with these permissions; None if that was not seen."""


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
    """How long the last attempt took, its plan included."""
    contended: bool = False
    ticket: int | None = None
    checked_s: float | None = None
    first: int = -1
    """The last version that was examined before the first try."""
    tried: int = -1
    looked_s: float = 0.0
    """When the last look at the log began."""
    apart_s: float = 0.0
    """How long before it the look before it began."""
    anchor: Anchor | None = None
    beyond: Anchor | None = None
    """The last version that was examined, where it was read without a proof of the log: the next proof of ``anchor`` is its proof."""
    in_doubt_at: int | None = None
    """The version being tried: from the first request on, only an answer says whose it is."""
    records: tuple[LedgerRecord, ...] = ()
    """Put into the ledger with the read-back; the keys of those that it took are ``remembered``."""
    remembered: frozenset[str] = frozenset()
    opening: Steps | None = None
    """Runs with the first check of the files, before anything is claimed."""
    share: Share[LogSharer] | None = None
    """What this write knows of the queue of members; None if it shares no commit."""
    made_way: bool = False
    """Before its first try it met a commit under way, and went to wait with those that share."""
    holds: Holds = field(default_factory=Holds)
    mixed: bool = False
    """A version was met that no writer claimed in the lock table: others commit by conditional PUT."""

    @property
    def sealed(self) -> bool:
        """Whether claims must be sealed; see ``Arbiter``."""
        return self.arbiter.sealed or self.mixed

    def landed(self, version: int, found: Found | None = None) -> Landed:
        """What the write came to; ``found`` is the commit that carries it, unless it is one that we made now."""
        share = self.share
        return Landed(
            version,
            self.attempts,
            found is not None and not found.own,
            self.contended or (share is not None and share.meets),
            self.mixed,
            self.remembered,
            found.members if found is not None else 1 + len(share.carried if share is not None else ()),
            share.waited_s if share is not None else 0.0,
            share.usable if share is not None else None,
        )
