"""Moves the main branch of a table to a snapshot of another branch, by compare-and-set.

The request requires where both branches are.  So it lands at most once, and after a lost answer the main branch has the snapshot in
its line, or is elsewhere and can no longer get it by that request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from safewrite.errors import RetriesExhaustedError
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Backoff, Effect, Outcome
from safewrite.protocol.iceberg.change import TableChange
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import settle


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Where the main branch is now; ``base``: what the move landed on, None where it was there before, or further on the same line."""

    head: TableVersion
    base: TableVersion | None
    attempts: int

    @property
    def already(self) -> bool:
        """Whether nothing was to be moved."""
        return self.base is None


def fast_forward(
    audited: int, stage: Callable[[TableVersion], Generator[Effect, Outcome, TableChange]], limits: Limits
) -> Generator[Effect, Outcome, Forwarded]:
    """Move the main branch to a snapshot; ``stage`` makes the change on a table version of the main branch, or refuses it.

    Raises:
        CommitUnknownError: it may have landed; the same call decides.
        RetriesExhaustedError, StorageError, TableNotFoundError, and what ``stage`` raises: nothing was committed.
    """
    started_s = yield from ticket_queue.now()
    attempts = 0
    while True:
        head = yield from load(limits)
        if audited in head.ancestors():
            return Forwarded(head, base=None, attempts=attempts)
        change = yield from stage(head)
        if attempts >= limits.attempts:
            raise RetriesExhaustedError(
                f"Gave up on the fast-forward after {attempts} attempts: other writers changed the table before each of them. Nothing "
                "was committed. Call again."
            )
        attempts += 1
        settled = yield from settle(change, limits, started_s)
        if settled.landed:
            return Forwarded(settled.head, base=head, attempts=attempts)
        yield Backoff(attempts, name="forward.backoff")
