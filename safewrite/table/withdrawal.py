"""Takes changes back that were refused while others may still hold them, by a commit that says so.

Who waits cannot take its member back from a writer that has read it.  So it commits a version without rows that names its key:
whoever leads has examined every commit since a member's base, and carries none whose key is named there.  That holds for what
earlier calls offered under the key as well, so the key is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from safewrite.errors import (
    CommitUnknownError,
    InvalidInputError,
    ReplayMismatchError,
    UnsupportedTableError,
    WouldAlterError,
)
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.members import MemberWrite
from safewrite.table.operation import keyed_until_landed

log = logging.getLogger("safewrite")
REFUSALS = (InvalidInputError, WouldAlterError, UnsupportedTableError)
DoneT = TypeVar("DoneT")
TakenBack = Generator[Effect, Outcome, tuple[DoneT | None, bool]]
"""The commit of another that carries the write, or None; and whether no other commit came since the write was refused."""


class Offered(Protocol):
    """A plan whose write may be with others."""

    @property
    def write(self) -> MemberWrite: ...


def or_withdrawn(
    steps: Generator[Effect, Outcome, DoneT], plan: Offered, take_back: Callable[[], TakenBack[DoneT]]
) -> Generator[Effect, Outcome, DoneT]:
    """Write, and take back what is refused while others may hold it.

    Raises:
        InvalidInputError, WouldAlterError, UnsupportedTableError: the refusal, which no one can undo any more.
        CommitUnknownError: for another reason, or where no version could be had to take it back.
    """
    try:
        return (yield from steps)
    except CommitUnknownError as error:
        return (yield from keyed_until_landed(_withdrawn(error, plan.write.offer, take_back), plan))


def _withdrawn(
    error: CommitUnknownError, offer: str, take_back: Callable[[], TakenBack[DoneT]]
) -> Generator[Effect, Outcome, DoneT]:
    """What became of a write that ended in this doubt: who committed it, if another did."""
    cause = error.__cause__
    if not isinstance(cause, REFUSALS) or not offer:
        raise error
    try:
        done, is_settled = yield from take_back()
    except ReplayMismatchError:
        raise
    except Exception:  # of a library too
        log.info("refused changes could not be taken back: they stay in doubt", exc_info=True)
        raise error from cause
    if done is not None:
        return done
    # Where no other commit came in between, no second plan is made: it would be refused as well, and cost another version.
    cause.is_settled = is_settled
    raise cause
