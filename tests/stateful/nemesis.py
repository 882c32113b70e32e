"""A world in which a call's faults happen, effect by effect, and that keeps a trace of all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from safewrite.protocol import effects as fx
from safewrite.protocol.effects import Busy, Effect, Ok, Outcome, Unknown
from safewrite.stores.world import World
from tests.stateful.calls import Fault

CLOCKS = (fx.Now, fx.WallClock, fx.Sleep, fx.Backoff, fx.NewId)
READS = (fx.Get, fx.GetRange, fx.GetTail, fx.List, fx.NewestEntry, fx.EntriesAfter, fx.GetEntry)
READS_TOO = (fx.LedgerGet, fx.ReadQueue)
NEVER_BUSY = (*READS, *READS_TOO, fx.Delete, fx.PassTurn)


class Crash(BaseException):
    """The process is gone: nothing of the call goes on, not even its handlers of errors."""


class Trace(Protocol):
    """Something that takes in bytes, as a hash does."""

    def update(self, data: bytes, /) -> None:
        """Take in some bytes."""


class Nemesis:
    """Performs effects one after the other on ``world``; at some of them a fault happens.

    ``late`` takes what will only be performed after the call; ``rival`` runs another writer's call in the
    midst of this one, which is how a paused writer looks to the others.
    """

    def __init__(
        self,
        world: World,
        faults: tuple[Fault, ...],
        *,
        late: list[Effect],
        rival: Callable[[], None],
        trace: Trace | None,
    ) -> None:
        self.world = world
        self.faults = faults
        self.late = late
        self.rival = rival
        self.trace = trace
        self.count = 0
        self.writes = 0
        self.happened = 0

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect, or the parts of a ``Together`` in their order."""
        if isinstance(effect, fx.Together):
            return Ok(tuple(self.perform(part) for part in effect.effects))
        if isinstance(effect, CLOCKS):
            return self.world.perform(effect)
        at, self.count = self.count, self.count + 1
        self.writes += not isinstance(effect, READS + READS_TOO)
        fault = next((f for f in self.faults if f.at <= at < f.at + f.times), None)
        self._note(effect, fault)
        outcome = (
            self.world.perform(effect) if fault is None else self._befall(fault, effect, first=at == fault.at)
        )
        self._note(outcome)
        return outcome

    def _befall(self, fault: Fault, effect: Effect, *, first: bool) -> Outcome:
        if fault.kind == "rival":
            if first:
                self.happened += 1
                self.rival()
            return self.world.perform(effect)
        self.happened += 1
        match fault.kind:
            case "crash_before":
                raise Crash
            case "crash_after":
                self.world.perform(effect)
                raise Crash
            case "lost":
                self.world.perform(effect)
                return Unknown("the answer was lost")
            case "late":
                if not isinstance(effect, READS + READS_TOO):
                    self.late.append(effect)
                return Unknown("no answer in time")
            case "busy" if not isinstance(effect, NEVER_BUSY):
                return Busy("ask again")
            case _:
                return Unknown("the request was lost")

    def _note(self, *things: object) -> None:
        if self.trace is None:
            return
        for thing in things:
            self.trace.update(repr(thing).encode())
            body = getattr(thing, "body", b"")
            self.trace.update(hashlib.sha256(body).digest())
