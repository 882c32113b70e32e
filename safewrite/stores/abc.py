"""Declares what a store must do to carry the protocol's effects.

Every method returns an outcome and raises nothing: what an exception of a client library *means*
(performed, not performed, unknown) is decided inside the store, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from safewrite.protocol.effects import Outcome
from safewrite.protocol.values import Entry, LedgerRecord


class ObjectStore(Protocol):
    """Objects under one table's root."""

    root: str

    def get(self, path: str) -> Outcome:
        """``Ok(bytes) | Missing | Unknown``."""

    def get_range(self, path: str, start: int, length: int) -> Outcome:
        """``Ok(bytes) | Missing | Unknown``."""

    def get_tail(self, path: str, length: int) -> Outcome:
        """``Ok(Tail) | Missing | Unknown``."""

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        """``Ok(tuple[Listed, ...]) | Unknown``, in name order."""

    def put(self, path: str, body: bytes) -> Outcome:
        """``Ok | Busy | Failed | Unknown``."""

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        """``Ok | Exists | Busy | Failed | Unknown``."""

    def delete(self, path: str) -> Outcome:
        """``Ok | Unknown``."""


@runtime_checkable
class BatchObjects(ObjectStore, Protocol):
    """Objects of which many go by one request; ``deletes_max`` is how many it may name."""

    deletes_max: int

    def delete_many(self, paths: Sequence[str]) -> tuple[Outcome, ...]:
        """As ``delete``, for each; ``Failed`` for all where the store does not know the request."""


class LockTable(Protocol):
    """Commit entries of one table, read consistently."""

    def newest(self, *, other_spelling: bool = False) -> Outcome:
        """``Ok(Entry) | Missing | Unknown``."""

    def entries_after(self, file_name: str) -> Outcome:
        """``Ok(tuple[Entry, ...]) | Unknown``, oldest first."""

    def get_entry(self, file_name: str) -> Outcome:
        """``Ok(Entry) | Missing | Unknown``."""

    def put_entry_if_absent(self, entry: Entry) -> Outcome:
        """``Ok | Exists | Busy | Failed | Unknown``."""

    def complete_entry(self, entry: Entry, expire_time_s: int) -> Outcome:
        """``Ok | Exists | Busy | Failed | Unknown``; ``Exists`` if the entry names another temp file."""


class Ledger(Protocol):
    """The records of one table's idempotency keys."""

    def get(self, key: str) -> Outcome:
        """``Ok(LedgerRecord) | Missing | Unknown``."""

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        """``Ok | Exists | Busy | Failed | Unknown``."""

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        """``Ok | Busy | Failed | Unknown``."""


@runtime_checkable
class BatchLedger(Ledger, Protocol):
    """A ledger that answers for many keys at once; each outcome stands in the place of its record or key.

    ``batch_max`` is how many keys one request may name; no key comes twice.
    """

    batch_max: int

    def get_many(self, names: Sequence[str]) -> tuple[Outcome, ...]:
        """As ``get``, for each."""

    def intend_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        """As ``intend``, for each: one that is refused does not hold up the others."""

    def commit_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        """As ``commit``, for each."""


@runtime_checkable
class LastingStore(Protocol):
    """A store that tells when a rule of its own will remove an object."""

    def get_lasting(self, path: str) -> Outcome:
        """As ``get``; ``Missing`` also where the object is about to go."""


@runtime_checkable
class LedgerOfMany(Ledger, Protocol):
    """A ledger that keeps more than one object of a key."""

    def put_back(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        """Put all that is kept of a key whose commit stands, whatever is there: ``Ok | Busy | Failed | Unknown``."""


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Records that one request tells: one, or those of a group."""

    records: tuple[LedgerRecord, ...]
    group: str | None = None


@runtime_checkable
class GroupLedger(Ledger, Protocol):
    """A ledger that takes a request for each key of a call, and can tell what became of many of them in one.

    ``group_max`` is how many intents may name one group.
    """

    group_max: int

    def intend_in(self, group: str, record: LedgerRecord, expire_time_s: int) -> Outcome:
        """As ``intend``; the name of the group is in no other call."""

    def intended(self, group: str, answers: Mapping[str, Outcome]) -> None:
        """Note what the intents of a group were answered, by key."""

    def parts(self, records: Sequence[LedgerRecord]) -> list[LedgerPart]:
        """The records in parts, each of which ``commit_part`` takes; no key comes twice."""

    def commit_part(self, part: LedgerPart, expire_time_s: int) -> Outcome:
        """As ``commit``, for all records of a part."""


class TicketQueue(Protocol):
    """The ticket queue of one table."""

    def take(self) -> Outcome:
        """``Ok((ticket, Queue)) | Busy | Failed | Unknown``."""

    def read(self) -> Outcome:
        """``Ok(Queue) | Missing | Unknown``."""

    def pass_turn(self, ticket: int) -> Outcome:
        """``Ok | Exists | Unknown``."""

    def hold_turn(self, ticket: int, hold_s: float) -> Outcome:
        """``Ok | Exists | Unknown``; it ends with the turn."""
