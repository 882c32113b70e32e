"""Runs one write from its key to its receipt: recall, stage, commit, remember."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace

from safewrite import receipt
from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.log.actions import commit_path, parse, version_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.staging import stage
from safewrite.delta.write.transaction import (
    FINGERPRINT_OF,
    VERSION_OF,
    Transaction,
    Write,
)
from safewrite.errors import CommitUnknownError, ReplayMismatchError
from safewrite.operation import keyed_until_landed
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.delta.commit import (
    Arbiter,
    Found,
    Landed,
    check_log,
    commit,
    look,
)
from safewrite.protocol.effects import Effect, Get, List, Missing, NewestEntry, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.values import Entry, LedgerRecord

log = logging.getLogger("safewrite")


@dataclass(frozen=True, slots=True)
class Done(receipt.Done):
    """A write that is in the log; ``mixed``: other writers bypass the lock table."""

    state: Snapshot | None
    mixed: bool = field(default=False, kw_only=True)


def write(
    candidate: Transaction,
    encode: Callable[[], Iterable[DataFile]],
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
    fresh: bool = False,
) -> Generator[Effect, Outcome, Done]:
    """Write once, whatever happened to earlier calls with the same key.

    ``encode`` is called only if there is something to upload; ``queue_first`` and ``fresh`` are those of
    ``safewrite.protocol.delta.commit.commit``.

    Raises:
        NotCommittedError: a subclass; nothing of this write is or will be in the table.
        CommitUnknownError: carries the key that decides it.
        ForeignWriterError: another writer replaced our commit.
    """
    steps = _write(candidate, encode, arbiter, limits, queue_first, fresh)
    return (yield from keyed_until_landed(steps, candidate))


def _write(  # noqa: PLR0917 - one caller, just above
    candidate: Transaction,
    encode: Callable[[], Iterable[DataFile]],
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool,
    fresh: bool,
) -> Generator[Effect, Outcome, Done]:
    recalled = yield from recall(candidate, arbiter=arbiter, limits=limits)
    if recalled.done is not None:
        return recalled.done
    files = yield from stage(encode(), candidate.timestamp_ms, limits)
    candidate.files = files
    candidate.write = named = replace(candidate.write, files=len(files))
    record = replace(recalled.record, fingerprint=named.fingerprint)
    try:
        landed = yield from commit(
            candidate,
            recalled.seen,
            arbiter=arbiter,
            limits=limits,
            queue_first=queue_first,
            fresh=fresh or recalled.looked,
        )
    except CommitUnknownError as error:
        if error.version is not None:
            yield from keys.doubt(record, error.version, limits)
        raise
    if landed.already:
        found = Found(landed.version, own=False)
        return (yield from found_again(candidate, found, record, limits, attempts=landed.attempts))
    return (yield from committed(candidate, landed, record, limits))


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is known of a write before its first upload.

    ``done`` says that it was written before.  Else any commit after ``seen`` may still be it; ``looked`` says
    that ``seen`` was the newest version a moment ago.
    """

    record: LedgerRecord
    seen: int
    looked: bool = False
    done: Done | None = None


def recall(
    candidate: Transaction, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Recalled]:
    """Find out whether an earlier call wrote this, and record in the ledger that this one is about to."""
    named = candidate.write
    generated_base = keys.base_of_generated(named.key)
    seen = candidate.accounted if generated_base is None else min(generated_base, candidate.accounted)
    record = LedgerRecord(named.key, seen, named.fingerprint, table_id=candidate.table_id)
    if named.txn is not None:
        return Recalled(record, seen, done=(yield from _recall_txn(candidate, arbiter, limits)))
    if generated_base == candidate.accounted:
        return Recalled(record, seen)
    record, ours = yield from keys.intend(record, limits)
    if not ours and is_of_another(record, candidate.table_id):
        record = _from_the_start(candidate)
    if record.version is not None:
        if (yield from stands(record, record.version, limits)):
            keys.must_match(named.key, record.fingerprint, named.fingerprint, record.version)
            done = Done(record.version, True, named.rows, 0, 0, candidate.state)
            return Recalled(record, seen, done=done)
        record = _from_the_start(candidate)
    if ours and generated_base is None:
        return Recalled(record, seen)
    # An earlier call began under this key: look for its commit before uploading anything.
    found, seen = yield from look(candidate, min(seen, record.base_version), arbiter=arbiter, limits=limits)
    if found is None:
        return Recalled(record, seen, looked=True)
    done = yield from found_again(candidate, found, record, limits, attempts=0)
    return Recalled(record, seen, looked=True, done=done)


def is_of_another(record: LedgerRecord, table_id: str | None) -> bool:
    """Whether a record tells of a table that was dropped: its versions are not this table's (A17)."""
    return record.table_id is not None and table_id is not None and record.table_id != table_id


def _from_the_start(candidate: Transaction) -> LedgerRecord:
    """A record that leaves every version of the log open."""
    named = candidate.write
    return LedgerRecord(named.key, -1, named.fingerprint, table_id=candidate.table_id)


def committed(
    candidate: Transaction, landed: Landed, record: LedgerRecord, limits: Limits
) -> Generator[Effect, Outcome, Done]:
    """Record this call's commit, which stands, and describe it."""
    named = candidate.write
    if _in_ledger(named):
        yield from keys.remember(record, landed.version, limits)
    state = candidate.landed(landed.version)
    return Done(
        landed.version,
        False,
        named.rows,
        named.files,
        landed.attempts,
        state,
        contended=landed.contended,
        mixed=landed.mixed,
        removed_rows=receipt.removed_rows(candidate),
    )


def found_again(
    candidate: Transaction, found: Found, record: LedgerRecord, limits: Limits, *, attempts: int
) -> Generator[Effect, Outcome, Done]:
    """Record an earlier call's commit, which stands, and describe it."""
    if _in_ledger(candidate.write):
        # The intent may be an earlier call's with other rows, which never landed; the log confirms ours.
        landed = replace(record, fingerprint=candidate.write.fingerprint)
        yield from keys.remember(landed, found.version, limits)
    rows = int(candidate.found.get("rows", candidate.write.rows))
    files = int(candidate.found.get("files", 0))
    return Done(found.version, True, rows, files, attempts, None)


def stands(record: LedgerRecord, version: int, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """False if the ledger speaks of a table that was dropped: the log is the truth, and does not confirm it
    (A17).

    Where a version is gone and later ones stand, log clean-up removed it, and the ledger is believed.
    """
    found = yield from fetch_one(Get(commit_path(version), name="recall.get_commit"), limits)
    if isinstance(found, Ok):
        assert isinstance(found.value, bytes)
        return any(write["key"] == record.key for write in writes_of(found.value, version))
    later = yield from fetch_one(
        List("_delta_log/", start_after=commit_path(version), limit=1, name="recall.list"), limits
    )
    return isinstance(later, Ok) and bool(later.value)


def _in_ledger(named: Write) -> bool:
    return named.txn is None and keys.base_of_generated(named.key) is None


def _base(key: str, otherwise: int) -> int:
    base = keys.base_of_generated(key)
    return otherwise if base is None else base


# --- (app_id, version) --------------------------------------------------------------------------------
def _recall_txn(
    candidate: Transaction, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Done | None]:
    """A batch at or below the app's last version was written before: show that it was this one (E1, E2)."""
    named, state = candidate.write, candidate.state
    assert named.txn is not None
    app_id, app_version = named.txn
    last = state.txns.get(app_id) if state is not None else None
    if state is None or last is None or last < app_version:
        return None
    yield from check_log(candidate, arbiter=arbiter, limits=limits)
    if last == app_version and FINGERPRINT_OF + app_id in state.txns:
        landed_in = state.txns.get(VERSION_OF + app_id, state.version)
        if state.txns[FINGERPRINT_OF + app_id] == named.fingerprint_int63:
            return Done(landed_in, True, named.rows, 0, 0, state)
        raise _skipped(
            named, f"it was committed in version {landed_in} with {keys.other_rows(named.fingerprint)}"
        )
    found = yield from _search(named.key, state.version, limits)
    if found is None:
        raise _skipped(named, f"the app's last version is {last}, and no commit in the log shows these rows")
    version, fingerprint = found
    keys.must_match(named.key, fingerprint, named.fingerprint, version)
    return Done(version, True, named.rows, 0, 0, state)


def _skipped(named: Write, why: str) -> ReplayMismatchError:
    assert named.txn is not None
    app_id, app_version = named.txn
    return ReplayMismatchError(
        f"Batch {app_version} of app {app_id!r} counts as written before, but {why}: skipping it would lose "
        "rows, writing it could double some. Nothing was written. If the stream's checkpoint was deleted or "
        "replaced, start it under a new app id.",
        key=named.key,
    )


def _search(key: str, newest: int, limits: Limits) -> Generator[Effect, Outcome, tuple[int, str] | None]:
    """Look for a key in the log, newest commit first, as far back as commits are kept."""
    for top in range(newest, -1, -64):
        versions = range(top, max(-1, top - 64), -1)
        gets = tuple(Get(commit_path(version), name="recall.get_commit") for version in versions)
        answers = yield Together(gets, name="recall.read")
        assert isinstance(answers, Ok)
        assert isinstance(answers.value, tuple)
        for version, get, first in zip(versions, gets, answers.value, strict=True):
            outcome = first if isinstance(first, Ok | Missing) else (yield from ask(get, limits))
            if isinstance(outcome, Missing):
                return None
            if not isinstance(outcome, Ok):
                raise unanswered(get, outcome)
            assert isinstance(outcome.value, bytes)
            for entry in writes_of(outcome.value, version):
                if entry["key"] == key:
                    return version, str(entry["fingerprint"])
    return None


def writes_of(body: bytes, version: int) -> list[dict[str, object]]:
    """The writes that a commit carries, as safewrite records them; none for other engines' commits."""
    info = parse(body, version).commit_info or {}
    return list((info.get("safewrite") or {}).get("writes", ()))


# --- resolve -------------------------------------------------------------------------------------------
def resolve(
    key: str, table_id: str | None, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[int, dict[str, object]] | None]:
    """Find out, without writing, whether a key was committed; ``(version, write)`` or None.

    ``table_id`` is that of the table that is there now; None if there is none.

    Raises:
        CommitUnknownError: an attempt may still land: a commit under the key is claimed in the lock table
            and not yet finished, or an attempt ended in doubt at a version that nobody has taken yet.
        StorageError: the store gave no answer.
    """
    record = yield from keys.recall(key, limits)
    if record is not None and is_of_another(record, table_id):
        record = None
    if (
        record is not None
        and record.version is not None
        and not (yield from stands(record, record.version, limits))
    ):
        record = None
    if record is not None and record.version is not None:
        rows = record.fingerprint.split(":")[1]
        return record.version, {"key": key, "fingerprint": record.fingerprint, "rows": int(rows), "files": 0}
    # The claim is read before the log: what is finished in between then shows in the log.
    pending = (yield from _pending(key, limits)) if arbiter.lock_table else None
    base = record.base_version if record is not None else _base(key, -1)
    head, found = yield from _scan(key, base, limits)
    if found is not None:
        return found
    in_doubt = record is not None and record.in_doubt_at is not None and record.in_doubt_at > head
    if pending or in_doubt:
        raise CommitUnknownError(
            f"The write with key {key!r} is not in the table, and may still land at version {head + 1}. Append "
            "the same rows with the same key, or run `safewrite repair` on the table, to decide.",
            key=key,
            version=head + 1,
        )
    return None


def _pending(key: str, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """True if the newest lock-table entry is unfinished and its temp file carries the key."""
    effect = NewestEntry(name="resolve.newest")
    newest = yield from ask(effect, limits)
    if isinstance(newest, Missing):
        return False
    if not isinstance(newest, Ok):
        raise unanswered(effect, newest)
    entry = newest.value
    if not isinstance(entry, Entry) or entry.settled:
        return False
    get = Get(f"_delta_log/{entry.temp_path}", name="resolve.get_temp")
    temp = yield from ask(get, limits)
    if isinstance(temp, Ok):
        assert isinstance(temp.value, bytes)
        return any(write["key"] == key for write in writes_of(temp.value, -1))
    if isinstance(temp, Missing):
        return False
    raise unanswered(get, temp)


def _scan(
    key: str, base: int, limits: Limits
) -> Generator[Effect, Outcome, tuple[int, tuple[int, dict[str, object]] | None]]:
    """The newest version, and the commit after ``base`` that carries the key."""
    effect = List(
        "_delta_log/", start_after=commit_path(base) if base >= 0 else "_delta_log//", name="resolve.list"
    )
    listed = yield from ask(effect, limits)
    if not isinstance(listed, Ok):
        raise unanswered(effect, listed)
    assert isinstance(listed.value, tuple)
    versions = [v for item in listed.value if (v := version_of(item.path)) is not None]
    for start in range(0, len(versions), 64):
        part = versions[start : start + 64]
        gets = tuple(Get(commit_path(version), name="resolve.get_commit") for version in part)
        answers = yield Together(gets, name="resolve.read")
        assert isinstance(answers, Ok)
        assert isinstance(answers.value, tuple)
        for version, get, first in zip(part, gets, answers.value, strict=True):
            outcome = first if isinstance(first, Ok) else (yield from ask(get, limits))
            if not isinstance(outcome, Ok):
                raise unanswered(get, outcome)
            assert isinstance(outcome.value, bytes)
            for entry in writes_of(outcome.value, version):
                if entry["key"] == key:
                    return versions[-1], (version, entry)
    return max(versions, default=base), None
