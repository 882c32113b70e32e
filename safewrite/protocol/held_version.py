"""Lets a writer that lost a long try commit next, by a version without rows that asks the others to wait.

Who never loses a version asks no queue, and a table without a service has none.  But whoever changes rows reads the versions before
its own.  One that holds the table says for how many seconds, and they wait so long for the next version, each by its own clock.
It protects nothing: a writer that does not wait, or a dead holder, costs time and no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from safewrite.errors import RetriesExhaustedError, SafewriteError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, NewId, Ok, Outcome, Sleep
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


def let_pass(
    held_s: float, has_moved: Callable[[], Generator[Effect, Outcome, bool]], limits: Limits
) -> Generator[Effect, Outcome, None]:
    """Wait for who holds the table before work that it would make vain, and that would make its own vain."""
    until_s = min((yield from now()) + limits.timeout_s, limits.until_s)
    yield from stand_aside(held_s, has_moved, until_s)


class HoldingTry(Protocol):
    """What a commit that may hold the table, or wait for who does, has of it."""

    holds: Holds
    started_s: float

    @property
    def limits(self) -> Limits:
        """Those of the call."""


def made_room(
    state: HoldingTry,
    *,
    held_s: float,
    newest: int | None,
    attempts: int,
    has_moved: Callable[[], Generator[Effect, Outcome, bool]],
    hold: Callable[[str, float], Generator[Effect, Outcome, int | None]],
) -> Generator[Effect, Outcome, bool]:
    """Wait where the ``newest`` version holds the table, or hold it; True if the table is to be looked at again.

    ``hold`` commits a version of this id that asks for so many seconds, once, and gives it; None where the write itself was found.
    A rival that is first leaves it to be tried again.
    """
    holds, limits = state.holds, state.limits
    if held_s and holds.passed != newest:
        holds.waits(newest, attempts)
        until_s = min(state.started_s + limits.timeout_s, limits.until_s)
        yield from stand_aside(held_s, has_moved, until_s)
        return True
    if not holds.wants:
        return False
    drawn = yield NewId(name="held.id")
    assert isinstance(drawn, Ok)
    try:
        holds.asked((yield from hold(str(drawn.value), holds.hold_s(limits))))
    except RetriesExhaustedError:
        pass
    except SafewriteError:
        holds.asked()  # what it means to us the next look tells
    return True
