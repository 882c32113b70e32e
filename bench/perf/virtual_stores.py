"""Keeps stores on a virtual clock, and bills what is asked of them as S3 and DynamoDB would."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from safewrite.protocol import effects as fx
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.catch_up import digest_of
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.member_queue import FOLDER
from safewrite.protocol.values import Entry, Listed
from safewrite.stores.memory import MemoryLedger, MemoryLocks, MemoryObjects, MemoryQueue
from safewrite.stores.world import World

S3_S, DYNAMODB_S = 0.03, 0.005
"""How long a request takes."""
PAGE = 1000
"""So many names has one answer to a listing, and one request that deletes."""
PUT, GET, DELETE = 5.0, 0.4, 0.0
"""Dollars per million requests of S3; a listing costs as much as a PUT."""
WRITE_UNIT, READ_UNIT = 0.625, 0.125
"""Dollars per million units of DynamoDB on demand: 1 KB written, 4 KB read consistently."""
MEMBER_BYTES, ENTRY_BYTES = 1500, 300
"""A member with the statistics of a file of ten columns; an entry of the lock table without its summary."""


@dataclass
class Clock:
    """Virtual seconds; a world that tells no more than them."""

    now_s: float = 0.0

    def perform(self, effect: Effect) -> Outcome:
        """The time, whatever is asked."""
        return Ok(self.now_s)


@cache
def digest(body: bytes) -> str:
    """By which a commit is known again."""
    return digest_of(body)


class Objects(MemoryObjects):
    """Objects whose names are kept in order, each with its time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.names: list[str] = []
        self.listed: dict[str, Listed] = {}

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        """List objects under a prefix."""
        begin = max(bisect_left(self.names, prefix), bisect_right(self.names, start_after))
        end = bisect_left(self.names, prefix + "\x7f")
        names = self.names[begin : min(end, begin + limit) if limit else end]
        return Ok(tuple(map(self.listed.__getitem__, names)))

    def put(self, path: str, body: bytes) -> Outcome:
        """Put an object; its time is in whole seconds, as a listing of S3 has it."""
        if path not in self.listed:
            insort(self.names, path)
        etag = digest(body) if path.startswith(claims.LOG) else ""
        self.listed[path] = Listed(path, len(body), int(self.clock.now_s) * 1000, etag)
        return super().put(path, body)

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        """Put an object where there is none."""
        return fx.Exists() if path in self.blobs else self.put(path, body)

    def delete(self, path: str) -> Outcome:
        """Delete an object, if it is there."""
        if self.listed.pop(path, None) is not None:
            del self.names[bisect_left(self.names, path)]
        return super().delete(path)


class Locks(MemoryLocks):
    """Lock-table entries whose names are kept in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def entries_after(self, file_name: str) -> Outcome:
        """The entries after this one."""
        names = self.names[bisect_right(self.names, file_name) :]
        return Ok(tuple(map(self.entries.__getitem__, names)))

    def put_entry_if_absent(self, entry: Entry) -> Outcome:
        """Claim a version."""
        if entry.file_name not in self.entries:
            insort(self.names, entry.file_name)
        return super().put_entry_if_absent(entry)


@dataclass
class Stores:
    """The stores of one table, with or without a lock table, and their bill.

    ``items``: members of the queue are items of the lock table, not objects.
    """

    clock: Clock
    locks: bool
    items: bool = False
    requests: Counter[str] = field(default_factory=Counter)
    """By what is billed."""
    names: Counter[str] = field(default_factory=Counter)
    """By the protocol's names."""
    dollars_of_million: float = 0.0
    """What a million times as many would cost."""

    def __post_init__(self) -> None:
        self.objects = Objects(self.clock)
        self._world = World(
            self.objects,
            locks=Locks() if self.locks else None,
            ledger=MemoryLedger(),
            queue=MemoryQueue() if self.locks else None,
        )

    def seconds(self, effect: Effect) -> float:
        """How long a request takes."""
        if isinstance(effect, fx.Now):
            return 0.0
        return DYNAMODB_S if self._is_item(effect) else S3_S

    def perform(self, effect: Effect) -> Outcome:
        """Answer a request, and bill it."""
        if isinstance(effect, fx.Now):
            return Ok(self.clock.now_s)
        outcome = self._world.perform(effect)
        self.names[effect.name] += 1
        if self._is_item(effect):
            price, size, unit = _units(effect, outcome)
            self.charge("DynamoDB", price * max(1, -(-size // unit)))
            return outcome
        match effect:
            case fx.Put() | fx.PutIfAbsent() | fx.LedgerIntend() | fx.LedgerCommit():
                self.charge("PUT", PUT)
            case fx.List():
                self.charge("LIST", PUT, max(1, -(-len(_several(outcome)) // PAGE)))
            case fx.Delete():
                self.charge("DELETE", DELETE)
            case fx.Get() | fx.GetTail() | fx.LedgerGet():
                self.charge("GET", GET)
        return outcome

    def of_many(self, effects: Sequence[Effect]) -> None:
        """Count the deletes that go out together as the requests that they are, before each is performed."""
        several = sum(isinstance(effect, fx.Delete) and not self._is_item(effect) for effect in effects)
        if several > 1:
            self.charge("DELETE", DELETE, -(-several // PAGE) - several)

    def charge(self, kind: str, price: float, times: int = 1) -> None:
        """Put requests of one kind on the bill."""
        self.requests[kind] += times
        self.dollars_of_million += price * times

    def _is_item(self, effect: Effect) -> bool:
        """Whether DynamoDB answers."""
        path = getattr(effect, "path", None) or getattr(effect, "prefix", None)
        if path is None:
            return self.locks
        return self.items and path.startswith(FOLDER)


def _units(effect: Effect, outcome: Outcome) -> tuple[float, int, int]:
    """The price of a unit, the bytes, and those of a unit."""
    match effect:
        case fx.List():
            return READ_UNIT, MEMBER_BYTES * len(_several(outcome)), 4096
        case fx.Put() | fx.Delete():
            return WRITE_UNIT, MEMBER_BYTES, 1024
        case fx.PutEntryIfAbsent(entry) | fx.CompleteEntry(entry):
            return WRITE_UNIT, _size(entry), 1024
        case fx.EntriesAfter():
            return READ_UNIT, sum(map(_size, _several(outcome))), 4096
        case fx.Get() | fx.GetEntry() | fx.LedgerGet() | fx.ReadQueue() | fx.NewestEntry():
            return READ_UNIT, 1, 4096
    return WRITE_UNIT, 1, 1024


def _size(entry: object) -> int:
    assert isinstance(entry, Entry)
    return ENTRY_BYTES + len(entry.summary or "")


def _several(outcome: Outcome) -> tuple[object, ...]:
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, tuple)
    return outcome.value
