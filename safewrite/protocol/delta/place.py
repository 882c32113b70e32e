"""Commits what another engine made: exactly these bytes at exactly this version, or not at all.

Spark's Delta library decides what a commit holds and at which version it is valid.  Safewrite decides whose
the version is, by the steps of every commit: REPAIR, PREPARE, COMMIT, VERIFY, ACKNOWLEDGE
(``safewrite.protocol.delta.commit``).  An engine that was outrun reads what came before it and asks for a
later version.  Between its two tries it keeps its turn in the queue: pandas writers commit ten times as often
and would outrun it for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import (
    Anchor,
    Arbiter,
    Try,
)
from safewrite.protocol.delta.catch_up import catch_up, leave_queue, queue
from safewrite.protocol.delta.commit import check_patience, look, try_version
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.member_queue import Steps
from safewrite.protocol.members import Found


@dataclass(frozen=True, slots=True)
class Placed:
    """Whose the version is.

    ``ticket`` is a turn in the queue that is still ours: the next try comes in it, or it is given back.
    ``mixed``: writers that know no lock table were met; from now on claims must be sealed.
    """

    landed: bool
    ticket: int | None = None
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A candidate of one body and one version, which no other commit affects."""

    fixed: bytes
    version: int
    table_id: str | None
    is_ours: Callable[[bytes], bool]
    anchor: Anchor | None = None
    rebases: bool = False
    rebased: int = 0

    @property
    def accounted(self) -> int:
        return self.version - 1

    def body(self, version: int) -> bytes:
        return self.fixed

    def examine(self, version: int, body: bytes) -> Found | None:
        return Found(version, own=True) if version == self.version and self.is_ours(body) else None

    def summary(self, version: int) -> str | None:
        return None

    def suffices(self, summary: str) -> bool:
        return True  # ours has none, so a commit with one is another's

    def examine_summary(self, version: int, summary: str, digest: str) -> Found | None:
        return None

    def renew(self) -> Steps:
        """There is no plan."""
        yield from ()

    def recheck(self) -> Steps:
        """Do nothing: the engine has just written its files."""
        yield from ()


def place(
    body: bytes,
    version: int,
    table_id: str | None,
    *,
    arbiter: Arbiter,
    limits: Limits,
    ticket: int | None = None,
    fresh: bool = False,
    anchor: Anchor | None = None,
) -> Generator[Effect, Outcome, Placed]:
    """Make ``body`` the commit of ``version``.  The caller has read every version before it.

    ``fresh`` guesses that no other writer is active: the first try is made without reading entries and
    commits.  ``anchor`` proves the log that the caller has read.

    ``body`` must be unlike any other commit's (it holds a transaction's id).  ``table_id`` is None where
    it is not known.  If the version is another's, that commit stands in the log when this returns.

    Raises:
        NotCommittedError: a subclass; nothing landed and nothing can land later.
        CommitUnknownError: an answer stayed lost; the commit may stand or come to stand.
        ForeignWriterError: our bytes were replaced after the store had accepted them.
    """
    candidate = _Fixed(body, version, table_id, lambda there: there == body, anchor)
    state = Try(
        candidate,  # type: ignore[arg-type]
        version - 1,
        arbiter,
        limits,
        ticket=ticket,
        fresh=fresh,
        anchor=anchor,
    )
    try:
        landed = yield from _place(state, version)
        if landed or ticket is not None:
            # Outrun in our own turn: by a writer that does not queue, or because the turn was over.
            yield from leave_queue(state)
        if not landed:
            yield from queue(state)
    except Exception:
        yield from leave_queue(state)
        raise
    return Placed(landed, state.ticket, state.mixed)


def settle(
    version: int, is_ours: Callable[[bytes], bool], *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, bool | None]:
    """Whether a commit whose answer was lost became ``version``; finishes it if it was left half-way.

    None while no writer has that version: a request still under way may take it, and the next commit decides.
    """
    candidate = _Fixed(b"", version, None, is_ours)
    found, seen = yield from look(candidate, version - 1, arbiter=arbiter, limits=limits)  # type: ignore[arg-type]
    if found is not None:
        return True
    return False if seen >= version else None


def _place(state: Try, version: int) -> Generator[Effect, Outcome, bool]:
    state.started_s = yield from ticket_queue.now()
    while True:
        if not state.fresh:
            if (yield from catch_up(state)) is not None:
                return True
            if state.seen >= version:
                return False
        now_s = yield from ticket_queue.now()
        check_patience(state, now_s - state.started_s)
        state.attempts += 1
        if (yield from try_version(state, version, now_s)):
            return True
        state.fresh = False
