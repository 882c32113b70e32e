"""Holds the stores of a model as one immutable value, so that a search may go on from any of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from safewrite.protocol.delta.commit import version_of
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.values import Entry, LedgerRecord, Queue
from safewrite.stores.memory import MemoryLedger, MemoryLocks, MemoryObjects, MemoryQueue
from safewrite.stores.world import World
from safewrite.testing.explorer.automaton import TICK_S


@dataclass(frozen=True, slots=True)
class OverwriteEntry(Effect):
    """Put a lock-table entry without a condition, as Spark completes one."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Copy(Effect):
    """Copy an object over another inside the store, whatever is there: ``Ok | Missing``."""

    source: str
    target: str


class Store(NamedTuple):
    """Everything that outlives a process, as one immutable value."""

    objects: tuple[tuple[str, bytes], ...] = ()
    entries: tuple[Entry, ...] = ()
    records: tuple[LedgerRecord, ...] = ()
    queue: Queue | None = None

    def world(self) -> tuple[World, Callable[[], Store]]:
        """Memory stores with this content, and a function that takes their content."""
        objects = MemoryObjects(blobs=dict(self.objects))
        locks = MemoryLocks({entry.file_name: entry for entry in self.entries})
        ledger = MemoryLedger({record.key: record for record in self.records})
        queue = MemoryQueue(self.queue)
        clock = itertools.count(0.0, TICK_S)

        def taken() -> Store:
            return Store(
                tuple(sorted(objects.blobs.items())),
                tuple(entry for _, entry in sorted(locks.entries.items())),
                tuple(record for _, record in sorted(ledger.records.items())),
                queue.queue,
            )

        def peers(effect: Effect) -> Outcome | None:
            match effect:
                case OverwriteEntry(entry):
                    locks.entries[entry.file_name] = entry
                    return Ok()
                case Copy(source, target):
                    found = objects.get(source)
                    if isinstance(found, Ok) and isinstance(found.value, bytes):
                        return objects.put(target, found.value)
                    return found
            return None

        world = _World(
            objects,
            locks=locks,
            ledger=ledger,
            queue=queue,
            wall_ms=lambda: 0,
            sleep=lambda _: None,
            monotonic=lambda: next(clock),
        )
        world.peers = peers
        return world, taken

    def perform(self, effect: Effect) -> tuple[Outcome, Store]:
        """Perform an effect: its outcome, and the store afterwards."""
        world, taken = self.world()
        outcome = world.perform(effect)
        after = taken()
        return outcome, self if after == self else after

    def log(self) -> dict[int, bytes]:
        """Bodies of the commit files by version."""
        return {v: body for path, body in self.objects if (v := version_of(path)) is not None}


class _World(World):
    """A world that also performs effects that only peers ask for."""

    peers: Callable[[Effect], Outcome | None]

    def perform(self, effect: Effect) -> Outcome:
        return self.peers(effect) or super().perform(effect)
