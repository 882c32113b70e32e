"""Writes one row with safewrite's own code as a writer that shares commits, as the explorer's processes do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from safewrite.delta.write.abc import Write
from safewrite.delta.write.resolve import resolve
from safewrite.errors import CommitUnknownError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter, Found
from safewrite.protocol.effects import Now, Ok
from safewrite.protocol.member_queue import Offer
from safewrite.protocol.members import hashed
from safewrite.testing.explorer.automaton import TICK_S, Place, Program, waits
from safewrite.testing.explorer.rows import LIMITS, RowCandidate, anchored, entries_of, opened, parse, written


@lru_cache(maxsize=256)
def _hashes(keys: tuple[str, ...]) -> frozenset[str]:
    """The keys of a commit as its list has them; thousands of writers ask for the same ones."""
    return frozenset(map(hashed, keys))


@dataclass(slots=True)
class SharedRow(RowCandidate):
    """A write of one row that other writers may commit, and that carries theirs."""

    reached: int = -1
    carried: tuple[tuple[str, str], ...] = ()
    known: dict[int, tuple[str, ...]] = field(default_factory=dict)
    member_file: None = None
    kind: str = ""
    left_out: frozenset[str] = frozenset()

    followed: None = None

    @property
    def sharer(self) -> Any:
        return self

    @property
    def key(self) -> str:
        return self.write.key

    def member(self, base: int) -> bytes | None:
        self.write = replace(self.write, offer=self.write.offer or self.attempt)
        return json.dumps({"key": self.write.key, "offer": self.write.offer, "base": base}).encode()

    def note(self, version: int, body: bytes) -> None:
        self.known[version] = tuple(parse(body)[0].split("+"))

    def is_in(self, version: int, body: bytes) -> bool:
        return self.key in parse(body)[0].split("+")

    def carried_by(self, version: int) -> frozenset[str] | None:
        return _hashes(self.known[version]) if version in self.known else None

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        taken: dict[str, tuple[str, str]] = {}
        refused: set[str] = set()
        for member in offered:
            offered_row = json.loads(member.body)
            key, offer, base = offered_row["key"], offered_row["offer"], offered_row["base"]
            since = range(base + 1, self.reached + 1)
            if any(key in self.known.get(version, ()) for version in since):
                refused.add(member.path)
            elif key not in {self.write.key, *(name for name, _ in taken.values())}:
                taken[member.path] = (key, offer)
        if taken or self.carried:
            self.attempt = commit_id
        self.carried = tuple(taken.values())
        return tuple(taken), frozenset(refused)

    def body(self, version: int) -> bytes:
        own = (self.write.key, self.write.offer)
        return entries_of((own, *self.carried), self.attempt)

    def examine(self, version: int, body: bytes) -> Found | None:
        self.note(version, body)
        found = RowCandidate.examine(self, version, body)
        if found is not None:
            keys, offers = (text.split("+") for text in parse(body))
            found = replace(found, members=len(keys))
            own = self.write.offer in offers
            self.found = {
                "fingerprint": self.write.fingerprint,
                "rows": 1,
                "offer": self.write.offer if own else "",
            }
        self.reached = max(self.reached, version)
        return found

    def summary(self, version: int) -> str | None:
        return self.body(version).decode()


def sharing(
    key: str,
    attempt: str,
    arbiter: Arbiter,
    *,
    again: bool,
    fresh: bool = False,
    queue_first: bool = False,
    light: bool = True,
    limits: Limits = LIMITS,
) -> Program:
    """One call of ``append``; a first call has opened the table long ago, at version 0."""
    seen, table_id = (yield from opened(attempt)) if again else (0, "table")
    row = SharedRow(
        Write(key, "1:0", 1),
        attempt,
        seen,
        is_light=light,
        table_id=table_id,
        anchor=anchored(seen, table_id),
        reached=seen,
    )
    return (
        yield from written(row, arbiter, limits=limits, queue_first=queue_first, fresh=fresh and not again)
    )


def resolving(key: str, attempt: str, arbiter: Arbiter, *, again: bool) -> Program:
    """A call of ``append`` that gives up soon, and one of ``resolve`` where it ends in doubt or was killed."""
    if not again:
        hurried = replace(LIMITS, timeout_s=TICK_S)
        steps = sharing(key, attempt, arbiter, again=False, queue_first=True, limits=hurried)
        try:
            return (yield from clocked(steps))
        except CommitUnknownError:
            pass
    found = yield from resolve(key, "table", arbiter=arbiter, limits=LIMITS)
    return None if found is None else found[0]


def clocked(steps: Program) -> Program:
    """Let time pass with each look at others, and never turn it back, so that a writer that waits gives up."""
    ticks = 0
    place: Place | None = None
    try:
        effect = next(steps)
        while True:
            if isinstance(effect, Now):
                effect = steps.send(Ok(ticks * TICK_S))
                continue
            ticks += waits(effect)
            answer = yield effect
            effect = steps.send(answer)
    except StopIteration as stop:
        place = stop.value
    return place
