"""Keeps stores in memory, for stateful tests: the smallest statement of what a store does."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field, replace

from safewrite.protocol.effects import Exists, Missing, Ok, Outcome
from safewrite.protocol.values import Entry, LedgerRecord, Listed, Queue, Tail


@dataclass
class MemoryObjects:
    """Objects in a dict; every method is atomic."""

    root: str = "memory://table"
    blobs: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def get(self, path: str) -> Outcome:
        body = self.blobs.get(path)
        return Missing() if body is None else Ok(body)

    def get_range(self, path: str, start: int, length: int) -> Outcome:
        body = self.blobs.get(path)
        return Missing() if body is None else Ok(body[start : start + length])

    def get_tail(self, path: str, length: int) -> Outcome:
        body = self.blobs.get(path)
        return Missing() if body is None else Ok(Tail(len(body), body[-length:]))

    def list(self, prefix: str, start_after: str, limit: int) -> Outcome:
        with self._lock:
            names = sorted(p for p in self.blobs if p.startswith(prefix) and p > start_after)
            found = tuple(
                Listed(name, len(self.blobs[name]), etag=_md5(self.blobs[name]))
                for name in (names[:limit] if limit else names)
            )
        return Ok(found)

    def put(self, path: str, body: bytes) -> Outcome:
        self.blobs[path] = body
        return Ok()

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        with self._lock:
            if path in self.blobs:
                return Exists()
            self.blobs[path] = body
        return Ok()

    def delete(self, path: str) -> Outcome:
        self.blobs.pop(path, None)
        return Ok()


@dataclass
class MemoryLocks:
    """Lock-table entries in a dict."""

    entries: dict[str, Entry] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def newest(self, *, other_spelling: bool = False) -> Outcome:
        if other_spelling:
            return Missing()
        with self._lock:
            return Ok(self.entries[max(self.entries)]) if self.entries else Missing()

    def entries_after(self, file_name: str) -> Outcome:
        with self._lock:
            return Ok(tuple(self.entries[name] for name in sorted(self.entries) if name > file_name))

    def get_entry(self, file_name: str) -> Outcome:
        entry = self.entries.get(file_name)
        return Missing() if entry is None else Ok(entry)

    def put_entry_if_absent(self, entry: Entry) -> Outcome:
        with self._lock:
            if entry.file_name in self.entries:
                return Exists()
            self.entries[entry.file_name] = entry
        return Ok()

    def complete_entry(self, entry: Entry, expire_time_s: int) -> Outcome:
        with self._lock:
            held = self.entries.get(entry.file_name)
            if held is None or held.temp_path != entry.temp_path:
                return Exists()
            self.entries[entry.file_name] = replace(held, complete=True, expire_time_s=expire_time_s)
        return Ok()


@dataclass
class MemoryLedger:
    """Ledger records in a dict."""

    records: dict[str, LedgerRecord] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def get(self, key: str) -> Outcome:
        record = self.records.get(key)
        return Missing() if record is None else Ok(record)

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        with self._lock:
            if record.key in self.records:
                return Exists()
            self.records[record.key] = record
        return Ok()

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        self.records[record.key] = record
        return Ok()


@dataclass
class MemoryQueue:
    """The ticket queue as two numbers."""

    queue: Queue | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def take(self) -> Outcome:
        with self._lock:
            before = self.queue or Queue(0, 0)
            self.queue = Queue(before.serving, before.next + 1, before.hold_s)
            return Ok((before.next, self.queue))

    def read(self) -> Outcome:
        return Missing() if self.queue is None else Ok(self.queue)

    def pass_turn(self, ticket: int) -> Outcome:
        with self._lock:
            if self.queue is None or self.queue.serving != ticket:
                return Exists()
            self.queue = Queue(ticket + 1, self.queue.next)
        return Ok()

    def hold_turn(self, ticket: int, hold_s: float) -> Outcome:
        with self._lock:
            if self.queue is None or self.queue.serving != ticket:
                return Exists()
            self.queue = Queue(ticket, self.queue.next, hold_s)
        return Ok()


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
