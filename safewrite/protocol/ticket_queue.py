"""Orders writers of a table by a queue of tickets, which protects nothing.

Writers that take turns do not collide, so each commits at its first try.  A turn is only a
courtesy: what makes a commit safe is the conditional create of its version, so a holder that was paused past
its turn (D1) costs an attempt and no row.  So do two holders that both think the turn is theirs (D2).  A
writer that watched an unmoving holder for ``lease_s`` of its own monotonic time passes it over; no clock of
one machine is compared with another's (D8).  A holder that lost its turn because its plan takes longer than that
(Spark decides in seconds) asks for the time at its next one, or quick writers would starve it.
"""

from __future__ import annotations

from collections.abc import Generator

from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import (
    Effect,
    HoldTurn,
    Now,
    Ok,
    Outcome,
    PassTurn,
    ReadQueue,
    Sleep,
    TakeTicket,
)
from safewrite.protocol.values import Queue

PACE_S = 0.05
"""First guess of how long one turn takes; the queue's own movement corrects it."""
POLL_S_MIN, POLL_S_MAX = 0.01, 1.0
NEXT_S_MAX = 0.05
"""How long the writer that is next may sleep between two looks."""
HOLD_S_MAX = 60.0
"""No holder is waited for longer: it may be dead."""
QUICKEST_S = 0.1
"""No writer sleeps so long that turns of this length would reach its own meanwhile, whatever the pace was."""


def wait_turn(limits: Limits) -> Generator[Effect, Outcome, int | None]:
    """Join the queue and wait for our turn.

    Returns the ticket being served, to be given back with :func:`pass_turn`, or None where the
    queue cannot be used: the write then goes on without it.
    """
    taken = yield TakeTicket(name="lease.take")
    if not isinstance(taken, Ok):
        return None
    ticket, queue = _ticket(taken.value)
    started_s = moved_s = yield from now()
    read_s, first, pace_s = started_s, queue.serving, PACE_S
    while queue.serving < ticket:
        yield Sleep(_pause_s(ticket - queue.serving, pace_s, read_s - moved_s), name="lease.wait")
        answer = yield ReadQueue(name="lease.read")
        read_s = yield from now()
        if read_s > limits.until_s:
            return None  # too late for a commit: our ticket is passed over when its turn comes
        if not isinstance(answer, Ok):
            if read_s - moved_s > limits.lease_s:
                return None
            continue
        seen = answer.value
        assert isinstance(seen, Queue)
        if seen.serving > queue.serving:
            queue, moved_s = seen, read_s
            pace_s = (read_s - started_s) / (seen.serving - first)
        elif read_s - moved_s > max(limits.lease_s, min(seen.hold_s, HOLD_S_MAX)):
            yield PassTurn(queue.serving, name="lease.pass_over")
            moved_s = read_s
    return ticket


def seems_empty(name: str) -> Generator[Effect, Outcome, bool]:
    """Whether no one holds a ticket, as far as can be seen."""
    seen = yield ReadQueue(name=name)
    return isinstance(seen, Ok) and isinstance(seen.value, Queue) and seen.value.next <= seen.value.serving


def _pause_s(ahead: int, pace_s: float, unmoved_s: float) -> float:
    """How long to sleep with so many turns ahead of ours.

    A writer that oversleeps its turn keeps all others waiting, and slows the pace that they guess from. So
    only the next writer takes short naps; the others sleep most of the time until they are next.
    """
    nap_s = max(POLL_S_MIN, 0.15 * pace_s)
    if ahead <= 1:
        return min(NEXT_S_MAX, nap_s)
    guess_s = max(nap_s, 0.7 * (pace_s * (ahead - 1) - unmoved_s))
    return min(POLL_S_MAX, QUICKEST_S * (ahead - 1), guess_s)


def pass_turn(ticket: int) -> PassTurn:
    """The effect that ends our turn; losing its answer costs the next writer ``lease_s`` at most."""
    return PassTurn(ticket, name="lease.pass")


def hold_turn(ticket: int | None, spent_s: float, limits: Limits) -> Generator[Effect, Outcome, None]:
    """Ask for our turn to be kept, where the last attempt took ``spent_s``, longer than a turn is waited for.

    Losing it, or its answer, costs an attempt at most: a turn protects nothing.
    """
    if ticket is not None and outlasted(spent_s, limits):
        yield HoldTurn(ticket, min(2 * spent_s, HOLD_S_MAX), name="lease.hold")


def outlasted(spent_s: float, limits: Limits) -> bool:
    """Whether an attempt took so long that its turn was passed over."""
    return spent_s > limits.lease_s


def now() -> Generator[Effect, Outcome, float]:
    """Monotonic seconds."""
    answer = yield Now()
    assert isinstance(answer, Ok)
    assert isinstance(answer.value, float)
    return answer.value


def _ticket(value: object) -> tuple[int, Queue]:
    assert isinstance(value, tuple)
    ticket, queue = value
    return ticket, queue
