"""Names the effects that a protocol asks for, and the outcomes that answer them.

A protocol is a generator: it *yields* an :class:`Effect` and is *sent* an outcome.  Nothing in
``safewrite.protocol`` does I/O, sleeps, reads a clock or draws a random number, so the same code runs on S3
and DynamoDB, on local files and SQLite, in memory under Hypothesis, and under an exhaustive explorer of
interleavings and faults.

Paths are relative to the table's root, with ``/`` between parts.  ``name`` labels the step
(``"commit.put_commit"``): kill points, fault plans and traces go by it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from safewrite.protocol.values import Entry, LedgerRecord


# --- outcomes ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ok:
    """Performed.  ``value`` is what was read, if anything."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Exists:
    """A conditional write was refused because its condition does not hold (412, conditional check)."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A read found nothing (404); ``detail`` may say which of several files."""

    detail: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Busy:
    """Not performed; ask again (409 ConditionalRequestConflict, throttling).  Never means 'exists'.

    ``advice``, ``asks_max`` and ``throttled`` as in :class:`Unknown`.
    """

    detail: str = ""
    advice: str = ""
    asks_max: int | None = None
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Certainly not performed, and asking again does not help (400, 401, 403 on a write, ...).

    ``advice`` is what the caller should do, in sentences, where the store can tell.  ``unsupported``: what was asked for is
    there, and is nothing that safewrite reads or writes; ``detail`` says all of it.
    """

    detail: str = ""
    advice: str = ""
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Performed or not: unknown (5xx, timeout, cut connection; 403 on a read).

    ``advice`` as in :class:`Failed`.  ``asks_max`` limits how often it is worth asking: a refused credential does not
    become a good one; None is as often as a write's limits allow.  ``throttled``: the store asks to be asked less often, so
    that it is worth asking for longer than after a lost answer.
    """

    detail: str = ""
    advice: str = ""
    asks_max: int | None = None
    throttled: bool = False


Outcome: TypeAlias = Ok | Exists | Missing | Busy | Failed | Unknown


# --- effects ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One request of a protocol."""

    SAYS: ClassVar = "A request to the store"
    """What is being done, in the user's words, as the subject of a sentence; ``{0}`` is the effect."""

    name: str = ""

    def __str__(self) -> str:
        return self.SAYS.format(self)


@dataclass(frozen=True, slots=True)
class Get(Effect):
    """Read a whole object: ``Ok(bytes) | Missing | Unknown``."""

    SAYS = "Reading {0.path}"
    path: str


@dataclass(frozen=True, slots=True)
class GetRange(Effect):
    """Read ``length`` bytes from ``start``: ``Ok(bytes) | Missing | Unknown``."""

    SAYS = "Reading {0.path}"
    path: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class GetTail(Effect):
    """Read the last ``length`` bytes: ``Ok(Tail) | Missing | Unknown``."""

    SAYS = "Reading the end of {0.path}"
    path: str
    length: int


@dataclass(frozen=True, slots=True)
class List(Effect):
    """List objects under ``prefix`` after ``start_after``, in name order.

    ``Ok(tuple[Listed, ...]) | Unknown``; ``limit`` 0 means all.
    """

    prefix: str
    start_after: str = ""
    limit: int = 0

    def __str__(self) -> str:
        return f"Listing {self.prefix or 'the table'}"


PROVED = "proved"
"""What ``Ok`` of an upload has where the store's answer shows that it holds these bytes: its checksum of them is ours."""


@dataclass(frozen=True, slots=True)
class Put(Effect):
    """Write an object whose name no other writer uses: ``Ok(PROVED | None) | Busy | Failed | Unknown``; repeatable."""

    SAYS = "Writing {0.path}"
    path: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PutIfAbsent(Effect):
    """Create an object, or be refused: ``Ok(PROVED | None) | Exists | Busy | Failed | Unknown`` (S3 If-None-Match: *)."""

    SAYS = "Creating {0.path}"
    path: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delete(Effect):
    """Remove an object that no commit can name: ``Ok | Unknown``."""

    SAYS = "Deleting {0.path}"
    path: str


@dataclass(frozen=True, slots=True)
class NewestEntry(Effect):
    """The lock-table entry of the highest version, read consistently: ``Ok(Entry) | Missing | Unknown``.

    ``other_spelling`` asks for entries under the other spelling of the table's path, which would be
    another lock domain for the same table (A15).
    """

    SAYS = "Reading the lock table"
    other_spelling: bool = False


@dataclass(frozen=True, slots=True)
class EntriesAfter(Effect):
    """Lock-table entries after ``file_name``, oldest first, read consistently.

    ``Ok(tuple[Entry, ...]) | Unknown``; ``file_name`` ``""`` means all.
    """

    SAYS = "Reading the lock table"
    file_name: str


@dataclass(frozen=True, slots=True)
class GetEntry(Effect):
    """One lock-table entry, read consistently: ``Ok(Entry) | Missing | Unknown``."""

    SAYS = "Reading the entry {0.file_name} of the lock table"
    file_name: str


@dataclass(frozen=True, slots=True)
class PutEntryIfAbsent(Effect):
    """Claim a version in the lock table: ``Ok | Exists | Busy | Failed | Unknown``."""

    SAYS = "Claiming version {0.entry.version} in the lock table"
    entry: Entry


@dataclass(frozen=True, slots=True)
class CompleteEntry(Effect):
    """Mark an entry complete, if it still names ``entry.temp_path``.

    ``Ok | Exists | Busy | Failed | Unknown``.

    The world sets ``expireTime`` to ``entry_ttl_s`` after its own (server-checked) time.
    """

    SAYS = "Completing the entry of version {0.entry.version} in the lock table"
    entry: Entry
    entry_ttl_s: int


@dataclass(frozen=True, slots=True)
class LedgerGet(Effect):
    """Read the record of a key, consistently: ``Ok(LedgerRecord) | Missing | Unknown``.

    ``of_main``: in the main branch's ledger, where the table is open on another one.
    """

    SAYS = "Looking the key up in the ledger"
    key: str
    of_main: bool = False


@dataclass(frozen=True, slots=True)
class LedgerIntend(Effect):
    """Record INTENT if the key is new: ``Ok | Exists | Busy | Failed | Unknown``."""

    SAYS = "Recording the key in the ledger"
    record: LedgerRecord


@dataclass(frozen=True, slots=True)
class LedgerCommit(Effect):
    """Record COMMITTED for a key whose commit is verified: ``Ok | Busy | Failed | Unknown``; repeatable.

    ``anew``: all that the ledger keeps of the key, for some or all of it may be gone, or go sooner.
    """

    SAYS = "Recording the commit in the ledger"
    record: LedgerRecord
    anew: bool = False


@dataclass(frozen=True, slots=True)
class TakeTicket(Effect):
    """Join the table's queue: ``Ok((ticket, Queue)) | Busy | Failed | Unknown``."""

    SAYS = "Joining the queue of writers"


@dataclass(frozen=True, slots=True)
class ReadQueue(Effect):
    """Look at the queue: ``Ok(Queue) | Missing | Unknown``."""

    SAYS = "Reading the queue of writers"


@dataclass(frozen=True, slots=True)
class PassTurn(Effect):
    """Serve the ticket after ``ticket``, if ``ticket`` is being served: ``Ok | Exists | Unknown``."""

    SAYS = "Ending a turn in the queue of writers"
    ticket: int


@dataclass(frozen=True, slots=True)
class HoldTurn(Effect):
    """Ask the other writers to wait ``hold_s`` seconds for ``ticket``, if it is being served: ``Ok | Exists | Missing | Unknown``.

    ``Missing``: this queue has no place for it, and its writers wait as long as for any turn.
    """

    SAYS = "Holding a turn in the queue of writers"
    ticket: int
    hold_s: float


@dataclass(frozen=True, slots=True)
class Together(Effect):
    """Several independent effects at once: ``Ok(tuple[Outcome, ...])`` in the order asked."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Sleep(Effect):
    """Wait about ``seconds``: ``Ok``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Backoff(Effect):
    """Wait a random time of full jitter: ``Ok``.

    Up to ``ceiling_s`` where that is known, else longer with each ``attempt`` (from 1).
    """

    attempt: int
    ceiling_s: float | None = None


@dataclass(frozen=True, slots=True)
class Now(Effect):
    """Monotonic seconds, for limits of patience only: ``Ok(float)``."""


@dataclass(frozen=True, slots=True)
class WallClock(Effect):
    """Epoch milliseconds, for labels in the log only; no decision may rest on it: ``Ok(int)``."""


@dataclass(frozen=True, slots=True)
class NewId(Effect):
    """A name that no other writer has: ``Ok(str)``."""


Steps: TypeAlias = Generator[Effect, Outcome, object]
