"""Waits for a turn in the queue of tickets, and prepares for it while another writer still has one."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import side_by_side
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import Steps, Try
from safewrite.protocol.effects import (
    Delete,
    Effect,
    EntriesAfter,
    List,
    Ok,
    Outcome,
    ReadQueue,
    Together,
)
from safewrite.protocol.values import Entry, Listed


def queue(state: Try) -> Generator[Effect, Outcome, bool]:
    """Wait for our turn, if there is a queue and we hold none; True if we just got it."""
    if state.arbiter.lease and state.ticket is None:
        ahead = state.arbiter.ahead and state.share is None
        look = (lambda read: _look_ahead(state, read)) if ahead else None
        state.ticket = yield from ticket_queue.wait_turn(state.limits, look)
        state.seen_ahead = state.seen_ahead if state.ticket is not None else None
        return state.ticket is not None
    return False


def leave_queue(state: Try) -> Steps:
    """Give our turn back, if we have one."""
    if state.ticket is not None:
        yield ticket_queue.pass_turn(state.ticket)
        state.ticket = None


# --- while we are next ----------------------------------------------------------------------------
def _look_ahead(state: Try, read: ReadQueue) -> Generator[Effect, Outcome, Outcome]:
    """Read the queue and the log at once, and upload the temp file for the version that will be ours.

    So a turn begins with a claim.  What was seen or guessed here may be stale by then, which costs trips and no row.
    """
    ahead = state.ahead
    upload: tuple[Effect, ...] = ()
    if ahead is not None and not state.uploaded:
        upload, state.uploaded = (claims.put_temp(ahead, state.candidate.body(ahead.version)),), False
    both = yield Together((read, *look_effects(state), *upload), name="lease.read_and_look")
    assert isinstance(both, Ok)
    assert isinstance(both.value, tuple)
    answer, entries, listed, *uploads = both.value
    state.uploaded = isinstance(uploads[0], Ok) if uploads else state.uploaded
    state.seen_ahead = None
    if isinstance(entries, Ok) and isinstance(listed, Ok):
        assert isinstance(entries.value, tuple)
        newest: Entry | None = entries.value[-1] if entries.value else None
        if newest is None or newest.settled:
            state.seen_ahead = entries, listed
            yield from _draw_ahead(state, head_of(state, listing(listed)) + 2)  # the holder has the next
        else:
            yield from _draw_ahead(state, newest.version + 1)
    outcome: Outcome = answer
    return outcome


def _draw_ahead(state: Try, version: int) -> Steps:
    """A commit that others need not read is planned on none of theirs, so its bytes are known."""
    known = state.ahead is not None and state.ahead.version == version
    if known or state.uploaded is not None or state.candidate.summary(version) is None:
        return
    state.ahead = yield from claims.drafted(draft_of(state, version), state.candidate.body(version))


def draft_of(state: Try, version: int) -> Entry:
    """Our entry for a version, which names no temp file yet."""
    return Entry(
        claims.file_name(version),
        temp_path="",
        complete=state.sealed,
        table_id=state.candidate.table_id,
        summary=state.candidate.summary(version),
    )


def entry_for(state: Try, version: int, body: bytes) -> Generator[Effect, Outcome, tuple[Entry, Steps]]:
    """Our entry for a version, and what uploads the temp file that it names, unless that was done ahead."""
    ahead, uploaded, draft = state.ahead, state.uploaded, draft_of(state, version)
    state.ahead = state.uploaded = None
    digest = claims.digest_of(body)
    if ahead is not None and uploaded and replace(ahead, temp_path="") == replace(draft, digest=digest):
        return ahead, _nothing()
    entry = yield from claims.drafted(draft, body)
    upload = claims.write_temp(entry, body, state.limits)
    wasted = ahead if uploaded is not None else None
    return entry, upload if wasted is None else _instead_of(wasted, upload)


def _nothing() -> Steps:
    yield from ()


def _instead_of(wasted: Entry, upload: Steps) -> Steps:
    """No entry names the temp file that was uploaded ahead, nor ever will."""
    yield from side_by_side(upload, _delete_temp(wasted))


def _delete_temp(entry: Entry) -> Steps:
    yield Delete(claims.LOG + entry.temp_path, name="commit.delete_temp")


# --- the log as a look shows it -------------------------------------------------------------------
def look_effects(state: Try) -> tuple[EntriesAfter, List]:
    """What asks for entries and commits after ``state.seen``."""
    after = claims.file_name(state.seen) if state.seen >= 0 else ""
    return EntriesAfter(after, name="commit.entries"), list_effect(state)


def list_effect(state: Try) -> List:
    """Files of the log from ``state.seen`` on, that version included: it proves which table's log this is."""
    # "/" sorts after ".tmp" and before every digit: a new table's listing skips its temp files.
    after = f"{claims.LOG}{state.seen:020d}" if state.seen >= 0 else claims.LOG + "/"
    return List(claims.LOG, start_after=after, name="commit.list")


def head_of(state: Try, listed: tuple[Listed, ...]) -> int:
    """The highest version that a listing after ``state.seen`` shows."""
    versions = [v for item in listed if (v := version_of(item.path)) is not None]
    return max(versions, default=state.seen)


def version_of(path: str) -> int | None:
    """The version that a path relative to the table's root is the commit file of, or None."""
    name = path.removeprefix(claims.LOG)
    stem = name.removesuffix(".json")
    return int(stem) if name != stem and len(stem) == 20 and stem.isdigit() else None


def listing(outcome: Ok) -> tuple[Listed, ...]:
    """What a listing holds."""
    assert isinstance(outcome.value, tuple)
    return outcome.value
