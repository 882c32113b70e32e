"""Lets a writer that lost a long try commit next, by a version without rows that asks the others to wait.

Who never loses a version asks no queue, and a table without a service has none.  But whoever changes rows reads the versions before
its own.  One that holds the table says for how many seconds, and they wait so long for the next version, each by its own clock.
It protects nothing: a writer that does not wait, or a dead holder, costs time and no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Sleep
from safewrite.protocol.ticket_queue import HOLD_S_MAX, now

NAP_S_MIN, NAP_S_MAX = 0.02, 0.25


@dataclass(slots=True)
class Holds:
    """What one write knows of versions that hold the table.

    ``passed`` is the last one that it does not wait for: its own, or one that it waits for already.  ``wants`` says whether to ask
    others to wait before the next try; no try took longer than ``longest_s``.
    """

    passed: int | None = None
    wants: bool = False
    longest_s: float = 0.0

    def lost(self, spent_s: float, limits: Limits) -> None:
        """A try is lost, after the time that it took since the look before it: the next one may take as long."""
        self.longest_s = max(self.longest_s, spent_s)
        self.wants = spent_s >= limits.long_s

    def waits(self, version: int | None, attempts: int) -> None:
        """Another writer holds the table.  Who had lost a try goes next: else all who waited would plan at once, and all but one in vain."""
        self.passed, self.wants = version, self.wants or attempts > 0

    def asked(self, version: int | None = None) -> None:
        """Others were asked to wait, in this version."""
        self.wants, self.passed = False, self.passed if version is None else version

    def hold_s(self, limits: Limits) -> float:
        """How long others are to wait: as for a turn, or longer, for the next try may take longer than the last."""
        return min(max(2 * self.longest_s, limits.lease_s), HOLD_S_MAX)


def held_s_of(said: object) -> float:
    """For how many seconds a version holds the table, by what it says; 0 where that is no such number."""
    try:
        held_s = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(held_s, HOLD_S_MAX) if math.isfinite(held_s) and held_s > 0 else 0.0


def stand_aside(
    held_s: float, has_moved: Callable[[], Generator[Effect, Outcome, bool]], until_s: float
) -> Generator[Effect, Outcome, None]:
    """Wait until the next version is there, for ``held_s`` at most, and for half of the time until ``until_s``.

    The other half is for the call itself: else calls that have less time than a dead holder asked for would wait in vain, one after another.
    """
    now_s = yield from now()
    until_s, nap_s = now_s + min(held_s, (until_s - now_s) / 2), NAP_S_MIN
    while now_s < until_s and not (yield from has_moved()):
        yield Sleep(nap_s, name="held.wait")
        nap_s = min(NAP_S_MAX, 1.4 * nap_s)
        now_s = yield from now()
