"""Commits one candidate as version N of the log, or says why not.

Steps and what a lost answer means at each:

==========  =======================================================  ==============================
step        what                                                     on a lost or bad answer
==========  =======================================================  ==============================
REPAIR      finish the newest lock-table entry if it is incomplete   idempotent
PREPARE     T(N), then E(N) if absent                                read who holds E(N)
COMMIT      create ``N.json``                                        read ``N.json``: mine, or not
VERIFY      read ``N.json`` back and compare                         differs: foreign writer
ACKNOWLEDGE complete E(N)                                            harmless
==========  =======================================================  ==============================

REPAIR, PREPARE and ACKNOWLEDGE exist only where the arbiter is a lock table.  Every attempt at N
has examined every commit between the candidate's base and N-1, so a paused writer and its retry
can never both land.  No attempt leaves N for N+1 while N is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    ForeignWriterError,
    RetriesExhaustedError,
    SafewriteError,
)
from safewrite.protocol import held_version, keys, sharing, ticket_queue
from safewrite.protocol.ask import Limits, Patience, ask, overdue, side_by_side, unanswered
from safewrite.protocol.contention import BaseMovedError, spread
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import (
    Arbiter,
    Candidate,
    Landed,
    LogSharer,
    Try,
)
from safewrite.protocol.delta.catch_up import catch_up, leave_queue, prove, queue, version_of
from safewrite.protocol.delta.log_try import LogTry
from safewrite.protocol.effects import (
    Backoff,
    Delete,
    Effect,
    Exists,
    Failed,
    Get,
    Missing,
    Ok,
    Outcome,
    PutIfAbsent,
    Together,
    Unknown,
)
from safewrite.protocol.member_queue import Share, Steps, Terms
from safewrite.protocol.members import Found
from safewrite.protocol.values import Entry, LedgerRecord
from safewrite.text.rendering import said

__all__ = [
    "Arbiter",
    "Candidate",
    "Found",
    "Landed",
    "check_log",
    "check_patience",
    "commit",
    "let_pass",
    "look",
    "try_version",
    "version_of",
]


SPARSE = 2.0
"""With so many times the pause after which one writer tries at a time, as many commits land, and each takes two or three tries."""


def commit(
    candidate: Candidate,
    seen: int,
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
    fresh: bool = False,
    records: Sequence[LedgerRecord] = (),
    opening: Steps | None = None,
    sharer: LogSharer | None = None,
    doubting: Callable[[int], Generator[Effect, Outcome, bool]] | None = None,
) -> Generator[Effect, Outcome, Landed]:
    """Commit a candidate that has taken every version up to ``seen`` into account (-1: no table).

    ``queue_first`` waits for a turn before the first try.  ``fresh`` says that ``seen`` was the
    newest version a moment ago and nothing was unfinished: the first try is made without reading entries
    and commits again.  Both are guesses about what is quicker; a wrong one costs an attempt.  ``records`` are the ledger's of the
    candidate's keys: the commit is put there while it is read back, for whoever believes the ledger asks the log as well.
    ``opening`` runs with the first check of the files; nothing is claimed or committed before it has ended, and what it
    raises ends the commit.
    ``sharer`` is the candidate, where it may share a commit with other writers that wait.
    ``doubting`` records the version up to which a commit is in doubt, and says whether it could.  A member leaves the queue of those
    who wait after that alone, for ``resolve`` believes one of the two.

    Raises:
        NotCommittedError: a subclass; nothing landed and nothing can land later.
        CommitUnknownError: an answer stayed lost; the rows may be or become part of the table.
        ForeignWriterError: our bytes were replaced after the store had accepted them.
    """
    terms = Terms(arbiter.shares, arbiter.names_max, arbiter.queue_known, arbiter.listens)
    share = None if sharer is None or not terms.shares else Share(sharer, terms)
    state = LogTry(
        candidate,
        seen,
        arbiter,
        limits,
        queue_first,
        fresh and (not queue_first or share is not None),
        anchor=candidate.anchor,
        records=tuple(records),
        opening=opening,
        share=share,
    )
    try:
        landed = yield from _commit(state)
    except Exception as error:
        if state.ticket is not None:
            yield ticket_queue.pass_turn(state.ticket)
        tried = None if isinstance(error, SafewriteError) else state.in_doubt_at
        error_seen = error if tried is None else _interrupted(tried, error)
        ended = sharing.in_doubt(state.share, state.seen, error_seen)
        version = ended.version if isinstance(ended, CommitUnknownError) else None
        if version is None or doubting is None or (yield from doubting(version)):
            yield from sharing.leave(state.share)
        if ended is not error:
            raise ended from error
        raise
    return landed


def _interrupted(version: int, error: Exception) -> CommitUnknownError:
    """The error for a library's exception while a version is being tried: that version is in doubt."""
    return CommitUnknownError(
        f"The commit of version {version} ended in {type(error).__name__}: {said(error)}. The rows may be, or become, "
        "part of the table. Call again with the same key, or resolve(key), to decide.",
        version=version,
    )


def look(
    candidate: Candidate, seen: int, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[Found | None, int]]:
    """Repair what is unfinished, and look for the candidate's key in every commit after ``seen``.

    A retry does so before it uploads anything.  Returns what was found, and the last version examined.
    """
    state = Try(candidate, seen, Arbiter(arbiter.lock_table, lease=False), limits, anchor=candidate.anchor)
    found = yield from catch_up(state)
    return found, state.seen


def check_log(candidate: Candidate, *, arbiter: Arbiter, limits: Limits) -> Steps:
    """Make sure that the log still is the one that the candidate was made for, before its state answers for it.

    Raises:
        ConflictError: kind TABLE_REPLACED.
    """
    yield from prove(Try(candidate, candidate.accounted, arbiter, limits, anchor=candidate.anchor))


def _commit(state: LogTry) -> Generator[Effect, Outcome, Landed]:
    state.started_s = yield from ticket_queue.now()
    if not state.fresh or state.queue_first:
        yield from _recheck(state, state.started_s)
    waits = state.queue_first and state.share is not None
    if state.queue_first and not waits:
        yield from queue(state)
    state.looked_s, looks = state.started_s, not state.fresh
    while True:
        had_made_way = state.made_way
        found = (yield from _looked(state)) if looks else None
        looks, waits = True, waits or state.made_way != had_made_way
        if found is None and waits:
            waits, state.fresh = False, False
            turn = yield from sharing.wait_turn(state)
            if turn is True:
                continue
            found = turn or None
        if found is not None:
            yield from leave_queue(state)
            return state.landed(found.version, found)
        now_s = yield from ticket_queue.now()
        check_patience(state, now_s - state.started_s)
        yield from ticket_queue.hold_turn(state.ticket, state.spent_s, state.limits)
        if state.candidate.rebases and (yield from _made_room(state)):
            state.fresh = False
            continue
        yield from sharing.gather(state)
        is_whole = yield from _renewed(state)
        if state.share is not None:
            state.share.leave_out()
        if state.attempts == 0:  # what was taken over before any try made none vain
            state.first, state.candidate.rebased = state.seen, 0
        state.attempts += 1
        version = state.seen + 1
        if is_whole and (yield from try_version(state, version, now_s)):
            return state.landed(version)
        state.contended, state.fresh = True, False
        yield from _leave_lost_turn(state, now_s)
        waits = state.share is not None
        looks = not waits or sharing.leads(state.share)  # who waits is to look when it is its turn
        waits_alone = state.ticket is None and (
            sharing.leads(state.share) if waits else not (yield from queue(state))
        )
        if waits_alone and is_whole and not state.holds.wants:
            # else a rival has just committed: it is overtaken at once, or never
            yield _spread(state, version, (yield from ticket_queue.now()))


def _renewed(state: Try) -> Generator[Effect, Outcome, bool]:
    """Plan on the newest base; False if others overtook that, which is a lost try."""
    try:
        yield from state.candidate.renew()
    except BaseMovedError:
        return False
    return True


def _made_room(state: LogTry) -> Generator[Effect, Outcome, bool]:
    """See :func:`safewrite.protocol.held_version.made_room`."""

    def hold(commit_id: str, held_s: float) -> Generator[Effect, Outcome, int | None]:
        holder = state.candidate.holding(commit_id, held_s)
        alone, once = replace(state.arbiter, lease=False, shares=0), replace(state.limits, attempts=1)
        landed = yield from commit(holder, state.seen, arbiter=alone, limits=once, fresh=True)
        return None if landed.already else landed.version

    return held_version.made_room(
        state,
        held_s=state.candidate.held_s,
        newest=state.seen,
        attempts=state.attempts,
        has_moved=partial(_has_moved, state.seen),
        hold=hold,
    )


def let_pass(version: int, held_s: float, limits: Limits) -> Steps:
    """See :func:`safewrite.protocol.held_version.let_pass`."""
    yield from held_version.let_pass(held_s, partial(_has_moved, version), limits)


def _has_moved(version: int) -> Generator[Effect, Outcome, bool]:
    return isinstance((yield Get(claims.commit_path(version + 1), name="held.look")), Ok)


def _leave_lost_turn(state: Try, began_s: float) -> Steps:
    """Leave a turn that was passed over while we planned: the next one is held for as long as a plan takes."""
    if state.candidate.rebases:
        state.holds.lost((yield from ticket_queue.now()) - began_s, state.limits)
    if state.arbiter.lease:
        state.spent_s = (yield from ticket_queue.now()) - began_s
        if ticket_queue.outlasted(state.spent_s, state.limits):
            yield from leave_queue(state)


def _looked(state: LogTry) -> Generator[Effect, Outcome, Found | None]:
    now_s = yield from ticket_queue.now()
    state.apart_s, state.looked_s = now_s - state.looked_s, now_s
    return (yield from sharing.examine(state))


def _spread(state: Try, version: int, now_s: float) -> Backoff:
    """A commit of another between our look and our try is what makes us lose, so that time is what is to be spread out."""
    rivals = max(version - state.tried - 1, 0) if state.tried >= 0 else 0
    state.tried = version
    left_s = min(state.started_s + state.limits.timeout_s, state.limits.until_s) - now_s
    lost_s, rebases = (now_s - state.looked_s) * SPARSE, state.candidate.rebases
    return spread(state.attempts, rivals, lost_s, "commit.backoff", rebases=rebases, left_s=left_s)


def check_patience(state: Try, elapsed_s: float) -> None:
    """Give up only between attempts, when nothing is in doubt (C8)."""
    late = elapsed_s > state.limits.timeout_s or state.started_s + elapsed_s > state.limits.until_s
    if state.attempts - state.candidate.rebased >= state.limits.attempts or late:
        why = (
            f"other writers took every version up to {state.seen}"
            if state.attempts
            else f"the time was used up before the first attempt (timeout_s={state.limits.timeout_s:g})"
        )
        raise RetriesExhaustedError(
            f"Gave up after {state.attempts} attempt{'s' * (state.attempts != 1)} in {elapsed_s:.1f} s: {why}. Nothing was "
            "committed. Call again with the same key, raise attempts_max= or timeout_s=, or write less often."
        )


# --- PREPARE, COMMIT, VERIFY, ACKNOWLEDGE -----------------------------------------------------------
def _recheck(state: Try, now_s: float) -> Steps:
    """Check the data files unless that was done lately; always once before the first claim (B1)."""
    if state.checked_s is None or now_s - state.checked_s > state.limits.recheck_s:
        opening, state.opening = state.opening, None
        recheck = state.candidate.recheck()
        yield from side_by_side(recheck, opening) if opening is not None else recheck
        state.checked_s = now_s


def try_version(state: Try, version: int, now_s: float) -> Generator[Effect, Outcome, bool]:
    """Try to become ``version``: True if we are, False if it is certainly another's."""
    body = state.candidate.body(version)
    if not state.arbiter.lock_table:
        yield from side_by_side(_recheck(state, now_s), _prove_unseen(state))
        return (yield from _decided(state, version, _put_commit(state, version, body, None)))
    draft = Entry(
        claims.file_name(version),
        temp_path="",
        complete=state.sealed,
        table_id=state.candidate.table_id,
        summary=state.candidate.summary(version),
    )
    entry = yield from claims.drafted(draft, body)
    temp = claims.write_temp(entry, body, state.limits)
    try:
        yield from side_by_side(_recheck(state, now_s), _prove_unseen(state), temp)
    except (ConflictError, keys.KeysKnownError):
        # No entry names it, and in another table it would look like another writer's claim.
        yield Delete(claims.LOG + entry.temp_path, name="commit.delete_temp")
        raise
    return (yield from _decided(state, version, _claim_and_put(state, version, body, entry)))


def _prove_unseen(state: Try) -> Steps:
    """Prove the log, unseen since ``fresh`` was guessed: it may be another table's by now."""
    if state.fresh:
        yield from prove(state)


def _decided(
    state: Try, version: int, steps: Generator[Effect, Outcome, bool]
) -> Generator[Effect, Outcome, bool]:
    """Note that the version is in doubt until the steps say whose it is."""
    state.in_doubt_at = version
    ours = yield from steps
    state.in_doubt_at = None
    return ours


def _claim_and_put(state: Try, version: int, body: bytes, entry: Entry) -> Generator[Effect, Outcome, bool]:
    held = yield from claims.claim(entry, state.limits, state.started_s)
    if held is claims.Claim.OTHERS:
        return False
    return (yield from _put_commit(state, version, body, entry))


def _put_commit(
    state: Try, version: int, body: bytes, entry: Entry | None
) -> Generator[Effect, Outcome, bool]:
    """COMMIT: create ``N.json``; after any answer but a clear one, read whose it is (A2, A18)."""
    path = claims.commit_path(version)
    # Once E(N) stands, a repairer may commit it at any time: from here on "failed" is "unknown".
    in_doubt = entry is not None
    put = PutIfAbsent(path, body, name="commit.put_commit")
    patience = Patience(state.limits)
    while True:
        outcome = yield put
        if isinstance(outcome, Ok):
            yield from _verify(state, version, body, entry)
            return True
        # "Exists" may be our own create, which a proxy sent twice: what stands there decides.
        in_doubt = in_doubt or isinstance(outcome, Unknown | Exists)
        if isinstance(outcome, Failed) and not in_doubt:
            raise unanswered(put, outcome)
        standing = yield from ask(Get(path, name="commit.read_back"), state.limits)
        if isinstance(standing, Ok):
            if standing.value == body:
                yield from _acknowledge(state, entry)
                return True
            if entry is not None:
                state.mixed = True
                yield from ask(claims.complete(entry), state.limits)
            return False
        if isinstance(outcome, Failed) or not (yield from patience.again(outcome, standing)):
            break
        if (yield from overdue(state.limits, state.started_s)):
            break
        yield Backoff(patience.tries, name="commit.put_commit.backoff")
    if in_doubt:
        raise CommitUnknownError(
            f"The store did not say whether version {version} is ours. The rows may be, or become, part "
            "of the table. Call again with the same key, or resolve(key), to decide.",
            version=version,
        )
    raise unanswered(put, outcome)


def _verify(state: Try, version: int, body: bytes, entry: Entry | None) -> Steps:
    """VERIFY before the ack: what stands under our version must be our bytes (A11, A12, A19)."""
    get = Get(claims.commit_path(version), name="commit.verify")
    remembering = [keys.committing(record, version) for record in state.records]
    closing = _closing(state, entry)
    try:
        answers = yield Together((get, *closing, *remembering), name="commit.verify_and_close")
    except Exception:
        if not remembering:
            raise
        state.records = ()  # what the ledger raises takes no ack back
        yield from _verify(state, version, body, entry)
        return
    assert isinstance(answers, Ok)
    assert isinstance(answers.value, tuple)
    state.ticket = None
    sharing.closed(state.share, dict(zip(closing, answers.value[1:], strict=False)))
    last = answers.value[len(answers.value) - len(remembering) :]
    state.remembered = frozenset(
        record.key for record, answer in zip(state.records, last, strict=True) if isinstance(answer, Ok)
    )
    standing = answers.value[0]
    if not isinstance(standing, Ok):
        standing = yield from ask(get, state.limits)
    if isinstance(standing, Ok) and standing.value == body:
        return
    if isinstance(standing, Ok | Missing):
        raise ForeignWriterError(
            f"Version {version} was accepted by the store and does not hold our bytes now: another "
            "writer replaces commit files (unsafe rename, or a store that ignores conditions). The rows "
            "of this write may be lost. Stop the other writers and run `safewrite doctor` on the table."
        )
    raise CommitUnknownError(
        f"Version {version} was accepted by the store but could not be read back. Call again with the "
        "same key, or resolve(key), to decide.",
        version=version,
    )


def _closing(state: Try, entry: Entry | None) -> tuple[Effect, ...]:
    closing: tuple[Effect, ...] = () if entry is None else (claims.complete(entry),)
    closing = (*closing, *sharing.closing(state.share))
    return closing if state.ticket is None else (*closing, ticket_queue.pass_turn(state.ticket))


def _acknowledge(state: Try, entry: Entry | None) -> Steps:
    closing = _closing(state, entry)
    state.ticket = None
    if closing:
        yield Together(closing, name="commit.close")
