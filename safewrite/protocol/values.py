"""Defines the values that stores answer with: listed objects, lock entries, ledger records, the queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing; ``modified_ms`` is the store's own clock, epoch milliseconds.

    ``etag`` is the MD5 of the content in hexadecimal digits where the store says so, else any text that
    differs between objects.
    """

    path: str
    size: int
    modified_ms: int = 0
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of an object, and its whole size in bytes."""

    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of the commit lock table, in the schema of Delta's ``S3DynamoDBLogStore``.

    ``file_name`` is ``"%020d.json"``; ``temp_path`` is relative to ``_delta_log``;
    ``expire_time_s`` is epoch seconds (only completed entries carry it).  Only safewrite writes the
    others: ``table_id`` is the Delta table id, ``digest`` the MD5 of the commit's bytes, ``summary``
    what other writers must know of the commit if they need not read it.
    """

    file_name: str
    temp_path: str
    complete: bool = False
    expire_time_s: int | None = None
    table_id: str | None = None
    digest: str | None = None
    summary: str | None = None

    @property
    def version(self) -> int:
        """The version that the entry claims."""
        return int(self.file_name.removesuffix(".json"))

    @property
    def settled(self) -> bool:
        """Whether the commit file stands.

        A claim of safewrite's that is complete and has no expiry is sealed: it looks complete to others,
        so that no other writer finishes it, and is not.
        """
        return self.complete and (self.expire_time_s is not None or self.digest is None)


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What the ledger holds of an idempotency key: INTENT, and COMMITTED once ``version`` is set.

    ``in_doubt_at`` is the version at which an attempt ended without knowing whether it landed.
    Where an Iceberg snapshot is known that carries the write, ``base_version`` is its sequence number, see ``noted_sequence``:
    a branch that began later is asked whether it came before.
    ``table_id`` is the Delta table id that the versions count in (None in records of before 0.1): a ledger
    outlives the table, and another one at the same address counts from 0 again.
    """

    key: str
    base_version: int
    fingerprint: str
    version: int | None = None
    in_doubt_at: int | None = None
    table_id: str | None = None


_FIRST_SEQUENCE = -2
"""A record of an Iceberg table names snapshots, whose ids are positive, or -1 for a table without one; what is lower is a sequence number."""


def noted_sequence(sequence: int) -> int:
    """How a ledger's record names a sequence number where it names a snapshot else."""
    return _FIRST_SEQUENCE - sequence


def sequence_noted(noted: int | None) -> int | None:
    """The sequence number that a field of a record names; None where it names a snapshot, or nothing."""
    return _FIRST_SEQUENCE - noted if noted is not None and noted <= _FIRST_SEQUENCE else None


@dataclass(frozen=True, slots=True)
class Queue:
    """The ticket queue of a table: ``serving`` is the ticket whose turn it is, ``next`` the next ticket.

    ``hold_s`` is for how many seconds who has the turn asked to be waited for; 0 if it did not ask.
    """

    serving: int
    next: int
    hold_s: float = 0.0
