"""Keeps the place of a commit in the queue of writers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome


@dataclass(slots=True)
class CommitTurn:
    """One commit's place in the queue, if it has one."""

    limits: Limits
    lease_queue: bool
    ticket: int | None = None
    spent_s: float = 0.0
    """How long the last attempt that outlasted a turn took, its plan included."""

    def wait(self) -> Generator[Effect, Outcome, bool]:
        """Wait for our turn once; False without a queue, or where it was waited for before."""
        if not self.lease_queue:
            return False
        self.lease_queue = False
        self.ticket = yield from ticket_queue.wait_turn(self.limits)
        return True

    def hold(self) -> Generator[Effect, Outcome, None]:
        """Ask for our turn to be kept, where the last attempt outlasted it."""
        yield from ticket_queue.hold_turn(self.ticket, self.spent_s, self.limits)

    def lost(self, spent_s: float) -> Generator[Effect, Outcome, None]:
        """An attempt is lost.  If it outlasted a turn, we wait for another one, which is held for as long as such an attempt takes."""
        if ticket_queue.outlasted(spent_s, self.limits):
            self.spent_s = spent_s
            yield from self.leave()

    def closing(self) -> tuple[Effect, ...]:
        """The effects that end our turn, to be performed once."""
        return () if self.ticket is None else (ticket_queue.pass_turn(self.ticket),)

    def close(self) -> Generator[Effect, Outcome, None]:
        """End our turn, where no answer of the catalog came to end it with."""
        if self.ticket is not None:
            try:
                yield ticket_queue.pass_turn(self.ticket)
            except Exception:  # noqa: BLE001 - a library's: it costs the next writer ``lease_s`` at most
                return

    def leave(self) -> Generator[Effect, Outcome, None]:
        """End our turn, and wait for another one before an attempt."""
        if self.ticket is not None:
            yield from self.close()
            self.ticket, self.lease_queue = None, True
