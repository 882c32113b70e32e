"""Claims a version in the lock table (PREPARE), and finishes a claim that a writer left (REPAIR).

The item schema and the order of steps are those of Delta's ``S3DynamoDBLogStore`` (Delta issue
1410 and its design document), so its Spark writers share the arbiter; the copy to ``N.json`` is
conditional and read back, which theirs is not (failure modes A3 to A9).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import replace
from enum import Enum

from safewrite.errors import CommitUnknownError, Kind, StorageError
from safewrite.protocol.ask import Limits, Patience, ask, overdue, unanswered
from safewrite.protocol.effects import (
    Backoff,
    CompleteEntry,
    Effect,
    Exists,
    Failed,
    Get,
    GetEntry,
    Missing,
    NewId,
    Ok,
    Outcome,
    Put,
    PutEntryIfAbsent,
    PutIfAbsent,
    Unknown,
)
from safewrite.protocol.values import Entry

LOG = "_delta_log/"
ENTRY_TTL_S = 2 * 24 * 3600
"""Completed entries outlive any pause of a Spark writer, which takes no turn (A9: a day at least)."""


class Claim(Enum):
    """Who holds a version in the lock table."""

    MINE = "mine"
    OTHERS = "others"


def file_name(version: int) -> str:
    """Name of a commit file, ``%020d.json``."""
    return f"{version:020d}.json"


def commit_path(version: int) -> str:
    """Path of a commit file relative to the table's root."""
    return f"{LOG}{file_name(version)}"


def drafted(draft: Entry, body: bytes) -> Generator[Effect, Outcome, Entry]:
    """The entry with a name for T(N) that no other writer has."""
    unique = yield NewId(name="commit.temp_id")
    assert isinstance(unique, Ok)
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return replace(draft, temp_path=f".tmp/{draft.file_name}.{unique.value}", digest=digest)


def write_temp(entry: Entry, body: bytes, limits: Limits) -> Generator[Effect, Outcome, None]:
    """Upload T(N), which the entry will name."""
    put = Put(LOG + entry.temp_path, body, name="commit.put_temp")
    outcome = yield from ask(put, limits)
    if not isinstance(outcome, Ok):
        raise unanswered(put, outcome)


def claim(entry: Entry, limits: Limits, started_s: float) -> Generator[Effect, Outcome, Claim]:
    """Put E(N) if absent; after any answer but a clear one, read who holds it (A3).

    Raises:
        StorageError: the claim was certainly not made.
        CommitUnknownError: the claim may stand, so that a repairer may still commit it.
    """
    in_doubt = False
    put = PutEntryIfAbsent(entry, name="commit.put_entry")
    patience = Patience(limits)
    while True:
        outcome = yield put
        if isinstance(outcome, Ok):
            return Claim.MINE
        # "Exists" may be our own claim, which a proxy sent twice: who holds it decides.
        in_doubt = in_doubt or isinstance(outcome, Unknown | Exists)
        if isinstance(outcome, Failed) and not in_doubt:
            raise unanswered(put, outcome)
        holder = yield from ask(GetEntry(entry.file_name, name="commit.get_entry"), limits)
        if isinstance(holder, Ok):
            held = holder.value
            assert isinstance(held, Entry)
            return Claim.MINE if held.temp_path == entry.temp_path else Claim.OTHERS
        if not (yield from patience.again(outcome, holder)) or (yield from overdue(limits, started_s)):
            break
        yield Backoff(patience.tries, name="commit.put_entry.backoff")
    if in_doubt:
        raise CommitUnknownError(
            f"The lock table did not say who holds {entry.file_name}. The rows may still become "
            "part of the table. Call again with the same key, or resolve(key), to decide.",
            version=entry.version,
        )
    raise unanswered(put, outcome)


def complete(entry: Entry) -> CompleteEntry:
    """The effect that marks an entry complete; losing its answer is harmless."""
    return CompleteEntry(entry, ENTRY_TTL_S, name="commit.complete")


def finish(entry: Entry, limits: Limits) -> Generator[Effect, Outcome, None]:
    """REPAIR: bring an incomplete entry to its end, whoever made it (A5 to A8).

    Idempotent: any number of repairers may run it, also at the same time as the entry's owner.  ``N.json`` is
    never overwritten: where another commit stands, the entry has lost and is only closed.
    """
    temp = yield from ask(Get(LOG + entry.temp_path, name="repair.get_temp"), limits)
    if isinstance(temp, Ok):
        assert isinstance(temp.value, bytes)
        yield from _copy(entry, temp.value, limits)
    elif isinstance(temp, Missing):
        yield from _must_exist(entry, limits)
    else:
        raise unanswered(Get(entry.temp_path, name="repair.get_temp"), temp)
    closing = CompleteEntry(entry, ENTRY_TTL_S, name="repair.complete")
    yield from ask(closing, limits)


def _copy(entry: Entry, body: bytes, limits: Limits) -> Generator[Effect, Outcome, None]:
    put = PutIfAbsent(LOG + entry.file_name, body, name="repair.put_commit")
    outcome = yield from ask(put, limits)
    if not isinstance(outcome, Ok | Exists):
        raise unanswered(put, outcome)


def _must_exist(entry: Entry, limits: Limits) -> Generator[Effect, Outcome, None]:
    """A missing temp file says nothing about ``N.json``: look (A7)."""
    get = Get(LOG + entry.file_name, name="repair.get_commit")
    found = yield from ask(get, limits)
    if isinstance(found, Missing):
        raise StorageError(
            f"The lock table names {entry.file_name} with temp file {entry.temp_path}, and neither "
            "exists: the commit cannot be finished. Nothing was committed by this call. Run "
            "`safewrite doctor` on the table; if it was dropped and created anew, remove its old "
            "entries with `safewrite locks clear`.",
            kind=Kind.CORRUPT_LOG,
        )
    if not isinstance(found, Ok):
        raise unanswered(get, found)
