"""The commit: one candidate becomes version N of the log, or the caller learns why not.

Steps and what a lost answer means at each (design, section 3):

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
can never both land.  An attempt at N is never left for N+1 while N is in doubt.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from safewrite.errors import (
    CommitUnknownError,
    ForeignWriterError,
    Kind,
    RetriesExhaustedError,
    StorageError,
    UnsafeConfigError,
)
from safewrite.protocol import claim as claims
from safewrite.protocol import lease
from safewrite.protocol.ask import Limits, ask, side_by_side, unanswered
from safewrite.protocol.effects import (
    Backoff,
    Effect,
    EntriesAfter,
    Entry,
    Exists,
    Failed,
    Get,
    List,
    Listed,
    Missing,
    Ok,
    Outcome,
    PutIfAbsent,
    Together,
    Unknown,
)

Steps = Generator[Effect, Outcome, None]


@dataclass(frozen=True, slots=True)
class Found:
    """A commit in the log that already carries this write."""

    version: int
    own: bool
    """True if it is this very attempt (its commit id), False if an earlier one under the same key."""


class Candidate(Protocol):
    """What wants to become the next version: staged writes with their actions and keys."""

    table_id: str | None
    accounted: int
    """The version whose state the candidate was made from; earlier commits are examined for its key only."""

    def body(self, version: int) -> bytes:
        """The bytes of ``version``'s commit file; the same bytes whenever asked for that version."""

    def examine(self, version: int, body: bytes) -> Found | None:
        """Look at a commit that landed before us.

        Returns Found if it carries this write.  Raises a ``NotCommittedError`` if it makes this
        write invalid.  Else remembers it and returns None.
        """

    def summary(self, version: int) -> str | None:
        """What other writers must know of this commit, if that is little; None if they must read it."""

    def suffices(self, summary: str) -> bool:
        """Whether another commit's summary tells all that this candidate must know of it."""

    def examine_summary(self, version: int, summary: str) -> Found | None:
        """As ``examine``, for a commit whose summary suffices."""

    def recheck(self) -> Steps:
        """Make sure that every file this commit will name is still there, whole (B1, G5)."""


@dataclass(frozen=True, slots=True)
class Arbiter:
    """Who decides which writer gets a version: the object store alone, or a lock table before it."""

    lock_table: bool
    lease: bool = False


@dataclass(slots=True)
class Landed:
    """Where the candidate's rows are."""

    version: int
    attempts: int
    already: bool
    contended: bool
    """Other writers were met on the way: the next write had better queue at once."""


@dataclass(slots=True)
class _Try:
    """What one commit knows while it goes on."""

    candidate: Candidate
    seen: int
    arbiter: Arbiter
    limits: Limits
    queue_first: bool = False
    fresh: bool = False
    attempts: int = 0
    contended: bool = False
    ticket: int | None = None
    checked_s: float | None = None


def commit(
    candidate: Candidate,
    seen: int,
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
    fresh: bool = False,
) -> Generator[Effect, Outcome, Landed]:
    """Commit a candidate that has taken every version up to ``seen`` into account (-1: no table).

    ``queue_first`` waits for a turn before the first try.  ``fresh`` says that ``seen`` was the
    newest version a moment ago and nothing was unfinished: the first try is made without looking
    again.  Both are guesses about what is quicker; a wrong one costs an attempt.

    Raises:
        NotCommittedError: a subclass; nothing landed and nothing can land later.
        CommitUnknownError: an answer stayed lost; the rows may be or become part of the table.
        ForeignWriterError: our bytes were replaced after the store had accepted them.
    """
    state = _Try(candidate, seen, arbiter, limits, queue_first, fresh and not queue_first)
    try:
        landed = yield from _commit(state)
    except Exception:
        if state.ticket is not None:
            yield lease.pass_turn(state.ticket)
        raise
    return landed


def look(
    candidate: Candidate, seen: int, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[Found | None, int]]:
    """Repair what is unfinished, and look for the candidate's key in every commit after ``seen``.

    A retry does so before it uploads anything.  Returns what was found, and the last version examined.
    """
    state = _Try(candidate, seen, Arbiter(arbiter.lock_table, lease=False), limits)
    found = yield from _catch_up(state)
    return found, state.seen


def _commit(state: _Try) -> Generator[Effect, Outcome, Landed]:
    started_s = yield from lease.now()
    if not state.fresh:
        yield from _recheck(state, started_s)
    if state.queue_first:
        yield from _queue(state)
    while True:
        found = None if state.fresh else (yield from _catch_up(state))
        if found is not None:
            yield from _leave_queue(state)
            return Landed(found.version, state.attempts, not found.own, state.contended)
        now_s = yield from lease.now()
        _check_patience(state, now_s - started_s)
        state.attempts += 1
        version = state.seen + 1
        if (yield from _try_version(state, version, now_s)):
            return Landed(version, state.attempts, False, state.contended)
        state.contended, state.fresh = True, False
        if state.ticket is None:
            yield from _queue(state)
            if state.ticket is None:
                yield Backoff(state.attempts, name="commit.backoff")


def _check_patience(state: _Try, elapsed_s: float) -> None:
    """Give up only between attempts, when nothing is in doubt (C8, M28)."""
    if state.attempts >= state.limits.attempts or elapsed_s > state.limits.timeout_s:
        raise RetriesExhaustedError(
            f"Gave up after {state.attempts} attempts in {elapsed_s:.1f} s: other writers took every "
            f"version up to {state.seen}. Nothing was committed. Call again with the same key, "
            "raise the limits, or write less often."
        )


# --- the queue ----------------------------------------------------------------------------------
def _queue(state: _Try) -> Generator[Effect, Outcome, bool]:
    """Wait for our turn, if there is a queue and we have none; True if we have one since now."""
    if state.arbiter.lease and state.ticket is None:
        state.ticket = yield from lease.wait_turn(state.limits)
        return state.ticket is not None
    return False


def _leave_queue(state: _Try) -> Steps:
    if state.ticket is not None:
        yield lease.pass_turn(state.ticket)
        state.ticket = None


# --- REPAIR and reading what came before ----------------------------------------------------------
def _catch_up(state: _Try) -> Generator[Effect, Outcome, Found | None]:
    """Finish what is unfinished, then examine every commit after ``state.seen``."""
    if not state.arbiter.lock_table:
        return (yield from _examine_new(state, (), (yield from _list(state))))
    entries, listed = yield from _look_around(state)
    newest = entries[-1] if entries else None
    if newest is None:
        return (yield from _examine_new(state, entries, listed))
    if not newest.complete:
        state.contended = True
        # Someone is in the middle of a commit, or died there: wait for our turn before repairing.
        if (yield from _queue(state)):
            return (yield from _catch_up(state))
    if _version(newest) > _head(state, listed):
        listed = yield from _list(state)  # the first listing may be older than the entry
    if newest.complete:
        if _version(newest) > _head(state, listed):
            raise _stale(newest)
    elif _version(newest) <= _head(state, listed):
        yield claims.complete(newest)  # decided by the log, and left open or about to be closed
    else:
        listed = yield from _repair(state, newest, listed)
    return (yield from _examine_new(state, entries, listed))


def _repair(
    state: _Try, newest: Entry, listed: tuple[Listed, ...]
) -> Generator[Effect, Outcome, tuple[Listed, ...]]:
    # Who creates a table meets the ids of its other creators (A20): only a table that is there has one id.
    ours = state.candidate.table_id if state.candidate.accounted >= 0 else None
    foreign = ours is not None and newest.table_id not in (None, ours)
    if _version(newest) > _head(state, listed) + 1 or foreign:
        raise _stale(newest)
    yield from claims.finish(newest, state.limits)
    return (yield from _list(state))


def _look_around(state: _Try) -> Generator[Effect, Outcome, tuple[tuple[Entry, ...], tuple[Listed, ...]]]:
    """Entries and commits after ``state.seen``.  An unfinished entry at or before it is decided: we read it."""
    after = claims.file_name(state.seen) if state.seen >= 0 else ""
    entries_effect, list_effect = EntriesAfter(after, name="commit.entries"), _list_effect(state)
    both = yield Together((entries_effect, list_effect), name="commit.look")
    entries, listed = _pair(both)
    if not isinstance(entries, Ok):
        entries = yield from ask(entries_effect, state.limits)
        listed = Unknown("older than the entries")
    if not isinstance(entries, Ok):
        raise unanswered(entries_effect, entries)
    assert isinstance(entries.value, tuple)
    if not isinstance(listed, Ok):
        return entries.value, (yield from _list(state))
    return entries.value, _listing(listed)


def _list_effect(state: _Try) -> List:
    # "/" sorts after ".tmp" and before every digit: a new table's listing skips its temp files.
    after = claims.commit_path(state.seen) if state.seen >= 0 else claims.LOG + "/"
    return List(claims.LOG, start_after=after, name="commit.list")


def _list(state: _Try) -> Generator[Effect, Outcome, tuple[Listed, ...]]:
    effect = _list_effect(state)
    outcome = yield from ask(effect, state.limits)
    if not isinstance(outcome, Ok):
        raise unanswered(effect, outcome)
    return _listing(outcome)


def _examine_new(
    state: _Try, entries: tuple[Entry, ...], listed: tuple[Listed, ...]
) -> Generator[Effect, Outcome, Found | None]:
    """Examine commits in order: by summary where the log proves that it is the commit's, else by reading.

    The proof is the digest: a listing that shows ``N.json`` with the MD5 that E(N) names shows that
    the commit at N is the one that E(N) sums up, whoever copied it there.
    """
    new = range(state.seen + 1, _head(state, listed) + 1)
    summaries = _summaries(state, entries, listed)
    gets = {v: Get(claims.commit_path(v), name="commit.get_commit") for v in new if v not in summaries}
    answers: Outcome = Ok(())
    if gets:
        answers = yield Together(tuple(gets.values()), name="commit.read_new")
    assert isinstance(answers, Ok)
    assert isinstance(answers.value, tuple)
    bodies = dict(zip(gets, answers.value, strict=True))
    for version in new:
        if version in summaries:
            found = state.candidate.examine_summary(version, summaries[version])
        else:
            body = yield from _body(state, gets[version], bodies[version])
            found = state.candidate.examine(version, body)
        if found is not None:
            return found
        state.seen = version
    return None


def _summaries(state: _Try, entries: tuple[Entry, ...], listed: tuple[Listed, ...]) -> dict[int, str]:
    etags = {item.path: item.etag for item in listed}
    return {
        _version(entry): entry.summary
        for entry in entries
        if entry.summary is not None
        and entry.digest == etags.get(claims.LOG + entry.file_name)
        and state.candidate.suffices(entry.summary)
    }


def _body(state: _Try, get: Get, first: Outcome) -> Generator[Effect, Outcome, bytes]:
    outcome = first if isinstance(first, Ok) else (yield from ask(get, state.limits))
    if isinstance(outcome, Missing):
        raise _hole(state, get.path)
    if not isinstance(outcome, Ok):
        raise unanswered(get, outcome)
    assert isinstance(outcome.value, bytes)
    return outcome.value


# --- PREPARE, COMMIT, VERIFY, ACKNOWLEDGE -----------------------------------------------------------
def _recheck(state: _Try, now_s: float) -> Steps:
    """Check the data files unless that was done lately; always once before the first claim (M27)."""
    if state.checked_s is None or now_s - state.checked_s > state.limits.recheck_s:
        yield from state.candidate.recheck()
        state.checked_s = now_s


def _try_version(state: _Try, version: int, now_s: float) -> Generator[Effect, Outcome, bool]:
    """Try to become ``version``: True if we are, False if it is certainly another's."""
    body = state.candidate.body(version)
    if not state.arbiter.lock_table:
        yield from _recheck(state, now_s)
        return (yield from _put_commit(state, version, body, None))
    summary = state.candidate.summary(version)
    temp = claims.write_temp(version, body, state.candidate.table_id, summary, state.limits)
    _, entry = yield from side_by_side(_recheck(state, now_s), temp)
    assert isinstance(entry, Entry)
    held = yield from claims.claim(entry, state.limits)
    if held is claims.Claim.OTHERS:
        return False
    return (yield from _put_commit(state, version, body, entry))


def _put_commit(
    state: _Try, version: int, body: bytes, entry: Entry | None
) -> Generator[Effect, Outcome, bool]:
    """COMMIT: create ``N.json``; after any answer but a clear one, read whose it is (A2, A18)."""
    path = claims.commit_path(version)
    # Once E(N) stands, a repairer may commit it at any time: from here on "failed" is "unknown".
    in_doubt = entry is not None
    put = PutIfAbsent(path, body, name="commit.put_commit")
    outcome: Outcome = Unknown("never asked")
    for attempt in range(1, state.limits.asks + 1):
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
                yield from ask(claims.complete(entry), state.limits)
            return False
        if isinstance(outcome, Failed):
            break
        if attempt < state.limits.asks:
            yield Backoff(attempt, name="commit.put_commit.backoff")
    if in_doubt:
        raise CommitUnknownError(
            f"The store did not say whether version {version} is ours. The rows may be, or become, part "
            "of the table. Call again with the same key, or resolve(key), to decide.",
            version=version,
        )
    raise unanswered(put, outcome)


def _verify(state: _Try, version: int, body: bytes, entry: Entry | None) -> Steps:
    """VERIFY before the ack: what stands under our version must be our bytes (A11, A12, A19, M3)."""
    get = Get(claims.commit_path(version), name="commit.verify")
    closing = _closing(state, entry)
    answers = yield Together((get, *closing), name="commit.verify_and_close")
    assert isinstance(answers, Ok)
    assert isinstance(answers.value, tuple)
    state.ticket = None
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


def _closing(state: _Try, entry: Entry | None) -> tuple[Effect, ...]:
    closing: tuple[Effect, ...] = () if entry is None else (claims.complete(entry),)
    return closing if state.ticket is None else (*closing, lease.pass_turn(state.ticket))


def _acknowledge(state: _Try, entry: Entry | None) -> Steps:
    closing = _closing(state, entry)
    state.ticket = None
    if closing:
        yield Together(closing, name="commit.close")


# --- small readers -----------------------------------------------------------------------------------
def _version(entry: Entry) -> int:
    return int(entry.file_name.removesuffix(".json"))


def _head(state: _Try, listed: tuple[Listed, ...]) -> int:
    """The highest version that a listing after ``state.seen`` shows."""
    versions = [v for item in listed if (v := version_of(item.path)) is not None]
    return max(versions, default=state.seen)


def version_of(path: str) -> int | None:
    """The version that a path relative to the table's root is the commit file of, or None."""
    name = path.removeprefix(claims.LOG)
    stem = name.removesuffix(".json")
    return int(stem) if name != stem and len(stem) == 20 and stem.isdigit() else None


def _listing(outcome: Ok) -> tuple[Listed, ...]:
    assert isinstance(outcome.value, tuple)
    return outcome.value


def _pair(outcome: Outcome) -> tuple[Outcome, Outcome]:
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, tuple)
    first, second = outcome.value
    return first, second


def _hole(state: _Try, path: str) -> StorageError | CommitUnknownError:
    if state.seen < state.candidate.accounted:
        return CommitUnknownError(
            f"{path} is gone, so it cannot be seen whether an earlier attempt with this key landed there: "
            "the log is kept for less time than keys are retried. This call committed nothing. Look for the "
            "rows in the table; then raise delta.logRetentionDuration."
        )
    return StorageError(
        f"{path} is gone although later versions stand: the log has a hole. Nothing was committed. "
        "Run `safewrite doctor` on the table.",
        kind=Kind.CORRUPT_LOG,
    )


def _stale(entry: Entry) -> UnsafeConfigError:
    return UnsafeConfigError(
        f"The lock table holds an entry for {entry.file_name}, beyond the end of this table's log: it was "
        "left by a table that was dropped and created anew, or the log was cut. Nothing was committed. "
        "Run `safewrite doctor` on the table; `safewrite locks clear` removes entries of a dropped table.",
        kind=Kind.STALE_LOCK_ENTRIES,
    )
