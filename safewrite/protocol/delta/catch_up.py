"""Finishes unfinished commits, then examines every commit that came before a try (REPAIR)."""

from __future__ import annotations

import hashlib
from collections.abc import Generator

from safewrite.errors import CommitUnknownError, ConflictError, Kind, StorageError, UnsafeConfigError
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import ask, unanswered
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import (
    Anchor,
    LogSharer,
    Try,
)
from safewrite.protocol.effects import (
    Effect,
    EntriesAfter,
    Get,
    List,
    Missing,
    Ok,
    Outcome,
    Together,
    Unknown,
)
from safewrite.protocol.member_queue import Share, Steps
from safewrite.protocol.members import Found
from safewrite.protocol.values import Entry, Listed

READ_MAX = 64
"""How many versions are read at once by their names."""
FEW = 2
"""After more new versions than these the next one is looked for once more: to examine them took time."""


# --- the queue ----------------------------------------------------------------------------------
def queue(state: Try) -> Generator[Effect, Outcome, bool]:
    """Wait for our turn, if there is a queue and we hold none; True if we just got it."""
    if state.arbiter.lease and state.ticket is None:
        state.ticket = yield from ticket_queue.wait_turn(state.limits)
        return state.ticket is not None
    return False


def leave_queue(state: Try) -> Steps:
    if state.ticket is not None:
        yield ticket_queue.pass_turn(state.ticket)
        state.ticket = None


# --- REPAIR and reading what came before ----------------------------------------------------------
def catch_up(state: Try) -> Generator[Effect, Outcome, Found | None]:
    """Finish what is unfinished, then examine every commit after ``state.seen``."""
    if not state.arbiter.lock_table:
        has_looked = state.attempts or (state.share is not None and state.share.offers)
        if has_looked and state.anchor is not None and proves(state.anchor, state):
            return (yield from _read_on(state, state.anchor))
        listed = yield from _list(state)
        yield from _prove(state, listed)
        return (yield from _examine_new(state, (), listed))
    entries, listed = yield from _look_around(state)
    state.mixed |= _some_unclaimed(state, entries, listed)  # since the last proof
    yield from _prove(state, listed)
    newest = entries[-1] if entries else None
    if newest is None:
        return (yield from _examine_new(state, entries, listed))
    undecided = not newest.settled and newest.version > _head(state, listed)
    if undecided and state.share is not None and state.share.follows:
        return (
            yield from _examine_new(state, entries, listed)
        )  # who waits repairs nothing: whoever leads does
    if undecided and state.share is not None and _makes_way(state, state.share):
        state.made_way = state.contended = True
        return (yield from _examine_new(state, entries, listed))
    if not newest.settled:
        state.contended = True
        # Another writer is in the middle of a commit, or died there: wait for our turn before repairing.  Writers that
        # share wait in a queue of their own.
        if (undecided or state.share is None) and (yield from queue(state)):
            return (yield from catch_up(state))
    if newest.version > _head(state, listed):
        listed = yield from _list(state)  # the first listing may be older than the entry
    if newest.settled:
        if newest.version > _head(state, listed):
            raise _stale(newest)
    elif newest.version <= _head(state, listed):
        yield claims.complete(newest)  # decided by the log, and left open or about to be closed
    else:
        listed = yield from _repair(state, newest, listed)
    return (yield from _examine_new(state, entries, listed))


def _makes_way(state: Try, share: Share[LogSharer]) -> bool:
    """Whether a write goes to those that share and wait: one by one, in the ticket queue, a crowd would take a minute."""
    return not state.made_way and state.ticket is None and share.offers == 0


def _some_unclaimed(state: Try, entries: tuple[Entry, ...], listed: tuple[Listed, ...]) -> bool:
    """Whether a new version stands that no writer claimed in the lock table."""
    claimed = {entry.version for entry in entries}
    return not claimed.issuperset(range(_proven(state) + 1, _head(state, listed) + 1))


def _repair(
    state: Try, newest: Entry, listed: tuple[Listed, ...]
) -> Generator[Effect, Outcome, tuple[Listed, ...]]:
    # A creator of a table meets the ids of its other creators (A20): only a table that exists has one id.
    ours = state.candidate.table_id if state.candidate.accounted >= 0 else None
    foreign = ours is not None and newest.table_id not in (None, ours)
    if newest.version > _head(state, listed) + 1 or foreign:
        raise _stale(newest)
    yield from claims.finish(newest, state.limits)
    return (yield from _list(state))


def _look_around(state: Try) -> Generator[Effect, Outcome, tuple[tuple[Entry, ...], tuple[Listed, ...]]]:
    """Entries and commits after the last proof.  An unfinished entry at or before it is decided: we read it."""
    proven = _proven(state)
    after = claims.file_name(proven) if proven >= 0 else ""
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


def _list_effect(state: Try) -> List:
    """Files of the log from the last proof on, that version included: it proves which table's log this is."""
    # "/" sorts after ".tmp" and before every digit: a new table's listing skips its temp files.
    proven = _proven(state)
    after = f"{claims.LOG}{proven:020d}" if proven >= 0 else claims.LOG + "/"
    return List(claims.LOG, start_after=after, name="commit.list")


def _list(state: Try) -> Generator[Effect, Outcome, tuple[Listed, ...]]:
    effect = _list_effect(state)
    outcome = yield from ask(effect, state.limits)
    if not isinstance(outcome, Ok):
        raise unanswered(effect, outcome)
    return _listing(outcome)


# --- the same log ---------------------------------------------------------------------------------
def prove(state: Try) -> Steps:
    """Make sure that the log still is the one that the candidate was made for (A17).

    For a try before which nothing else looks at the log.

    Raises:
        ConflictError: kind TABLE_REPLACED.
    """
    anchor = state.anchor
    if anchor is not None and proves(anchor, state):
        yield from read_anchor(state, anchor)  # a read costs a twelfth of a listing on S3, and is exact
    elif state.seen >= 0:
        yield from _prove(state, (yield from _list(state)))


def _prove(state: Try, listed: tuple[Listed, ...]) -> Steps:
    """As ``prove``, by a listing from ``state.seen`` on.

    The next version is tried only where the one before it stands and is the one that was examined.  Versions
    of another table, or a hole in the log, would hide the commit from readers or break the log for all.
    """
    anchor = state.anchor
    if anchor is None or (state.beyond or anchor).version < state.seen:
        if state.candidate.accounted <= state.seen and not _stands(state.seen, listed):
            raise replaced(state.seen)
        return
    item = next((one for one in listed if one.path == anchor.path), None)
    if item is None:
        raise replaced(anchor.version)
    if not anchor.is_shown_by(item) and (anchor.digest or anchor.listed):
        yield from read_anchor(state, anchor)
    state.anchor, state.beyond = state.beyond or anchor, None


def _proven(state: Try) -> int:
    """The last version that was examined with a proof of the log, and with the claims of the lock table."""
    return state.seen if state.beyond is None or state.anchor is None else state.anchor.version


def proves(anchor: Anchor, state: Try) -> bool:
    """Whether the anchor alone, read again, proves the log up to what was examined."""
    return anchor.digest != "" and (state.beyond or anchor).version >= state.seen


def read_anchor(state: Try, anchor: Anchor, first: Outcome | None = None) -> Steps:
    """Read the proof of the log, unless it was read already."""
    answer = yield from _clear(state, _get_anchor(anchor), first)
    if isinstance(answer, Missing) or digest_of(answer.value) != anchor.digest:
        raise replaced(anchor.version)
    state.anchor, state.beyond = state.beyond or anchor, None


def _get_anchor(anchor: Anchor) -> Get:
    return Get(anchor.path, name="commit.get_anchor")


def _clear(state: Try, get: Get, first: Outcome | None) -> Generator[Effect, Outcome, Ok | Missing]:
    """The answer to a read, asked for again if the first one was unclear."""
    answer = first if isinstance(first, Ok | Missing) else (yield from ask(get, state.limits))
    if not isinstance(answer, Ok | Missing):
        raise unanswered(get, answer)
    return answer


def _stands(version: int, listed: tuple[Listed, ...]) -> bool:
    name = f"{claims.LOG}{version:020d}."
    return version < 0 or any(item.path.startswith(name) for item in listed)


def digest_of(body: object) -> str:
    """The MD5 of a file's bytes in hexadecimal digits, which is the ETag of a plain upload."""
    assert isinstance(body, bytes)
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def replaced(version: int) -> ConflictError:
    """The error for a log that is not the one that was read before."""
    return ConflictError(
        f"Version {version} of the log is gone, or is another one than this object has read: the table was dropped, replaced or "
        "restored meanwhile. Nothing of this call is in it. Open it again, and look at the table before you write.",
        kind=Kind.TABLE_REPLACED,
    )


# --- what came before -----------------------------------------------------------------------------
def _examine_new(
    state: Try, entries: tuple[Entry, ...], listed: tuple[Listed, ...]
) -> Generator[Effect, Outcome, Found | None]:
    """Examine commits in order: by summary where the log proves that it is the commit's, else by reading.

    The proof is the digest.  Where a listing shows ``N.json`` with the MD5 that E(N) names, the commit at N
    is the one that E(N) sums up, whoever copied it there.
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
            summary, digest = summaries[version]
            found = state.candidate.examine_summary(version, summary, digest)
        else:
            body = yield from _body(state, gets[version], bodies[version])
            found, digest = state.candidate.examine(version, body), digest_of(body)
        if found is not None:
            return found
        _examined(state, version, digest)
    return None


def _read_on(state: Try, anchor: Anchor) -> Generator[Effect, Outcome, Found | None]:
    """Examine the versions that came since the last look, read by their names, with the proof of the log in the same trip.

    After a listing they would be read one trip later, in which other writers commit.  How many came is a guess.
    """
    proof: tuple[Get, ...] = (_get_anchor(anchor),)
    guess, standing = (_expected(state) if state.attempts else FEW), -1
    while True:
        new = range(state.seen + 1, state.seen + 1 + guess)
        gets = [Get(claims.commit_path(version), name="commit.get_commit") for version in new]
        state.looked_s = yield from ticket_queue.now()
        together = yield Together((*proof, *gets), name="commit.read_on")
        assert isinstance(together, Ok)
        assert isinstance(together.value, tuple)
        if proof:
            yield from read_anchor(state, anchor, together.value[0])
        answers = together.value[len(proof) :]
        stood = [version for version, one in zip(new, answers, strict=True) if isinstance(one, Ok)]
        there, came = max(stood, default=-1), len(stood)
        for version, get, first in zip(new, gets, answers, strict=True):
            answer = yield from _clear(state, get, first)
            if isinstance(answer, Missing):
                if version <= standing:
                    raise _hole(state, get.path)
                if version > there and came <= FEW:
                    return None
                break  # it came between two reads, or more may have come while we examined so many
            assert isinstance(answer.value, bytes)
            found = state.candidate.examine(version, answer.value)
            if found is not None:
                return found
            _examined(state, version, digest_of(answer.value))
        proof, standing, guess = (), max(there, standing), min(2 * guess, READ_MAX) if came == guess else 2


def _expected(state: Try) -> int:
    """How many versions to read: one more than those that came, if as many came as in a like time since we began."""
    took_s = state.looked_s - state.started_s
    came = (state.seen + 1 - state.first) * state.apart_s / took_s if took_s > 0 else 0.0
    return min(2 + round(came), READ_MAX)


def _examined(state: Try, version: int, digest: str) -> None:
    state.seen = version
    if state.anchor is None or state.anchor.version < version:
        state.anchor = Anchor(version, claims.commit_path(version), digest)


def _summaries(
    state: Try, entries: tuple[Entry, ...], listed: tuple[Listed, ...]
) -> dict[int, tuple[str, str]]:
    """Summary and digest of the commits that are proved to match their entries."""
    etags = {item.path: item.etag for item in listed}
    return {
        entry.version: (entry.summary, entry.digest)
        for entry in entries
        if entry.summary is not None
        and entry.digest is not None
        and entry.digest == etags.get(claims.LOG + entry.file_name)
        and state.candidate.suffices(entry.summary)
    }


def _body(state: Try, get: Get, first: Outcome) -> Generator[Effect, Outcome, bytes]:
    outcome = first if isinstance(first, Ok) else (yield from ask(get, state.limits))
    if isinstance(outcome, Missing):
        raise _hole(state, get.path)
    if not isinstance(outcome, Ok):
        raise unanswered(get, outcome)
    assert isinstance(outcome.value, bytes)
    return outcome.value


# --- small readers -----------------------------------------------------------------------------------
def _head(state: Try, listed: tuple[Listed, ...]) -> int:
    """The highest version that a listing after ``state.seen`` shows."""
    versions = [v for item in listed if (v := version_of(item.path)) is not None]
    return max(state.seen, *versions, -1)


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


def _hole(state: Try, path: str) -> StorageError | CommitUnknownError:
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
