"""Runs one write from its key to its receipt: recall, stage, commit, remember."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace

from safewrite import receipt
from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.log.actions import commit_path
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.conflicts import VERSION_OF
from safewrite.delta.write.members import Entry, Lists, carried, own_info
from safewrite.delta.write.staging import are_light, discard, stage
from safewrite.delta.write.transaction import (
    FINGERPRINT_OF,
    Transaction,
    Write,
)
from safewrite.errors import ReplayMismatchError
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
from safewrite.protocol.effects import Effect, Get, List, Missing, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.members import Met
from safewrite.protocol.values import LedgerRecord
from safewrite.table.operation import keyed_until_landed

log = logging.getLogger("safewrite")


@dataclass(frozen=True, slots=True)
class DeltaDone(receipt.Done):
    """A write that is in the log; ``mixed``: other writers bypass the lock table; ``may_share``: members can be queued here."""

    state: Snapshot | None
    mixed: bool = field(default=False, kw_only=True)
    may_share: bool | None = field(default=None, kw_only=True)


def write(
    candidate: Transaction,
    encode: Callable[[], Iterable[DataFile]],
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
    fresh: bool = False,
) -> Generator[Effect, Outcome, DeltaDone]:
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
) -> Generator[Effect, Outcome, DeltaDone]:
    light = candidate.is_light and _in_ledger(candidate.write)
    if light:
        recalled = Recalled(_first_record(candidate), candidate.accounted)
    else:
        recalled = yield from recall(candidate, arbiter=arbiter, limits=limits)
        if recalled.done is not None:
            return recalled.done
    yield from candidate.prepare()
    made = yield from stage(encode(), candidate.timestamp_ms, limits, leaves_last=True)
    candidate.files = files = (*candidate.files, *made)
    candidate.write = replace(candidate.write, files=len(files))
    intends = light and are_light(files)
    if light and not intends:
        recalled = yield from recall(candidate, arbiter=arbiter, limits=limits)
        if recalled.done is not None:
            return recalled.done
    try:
        return (yield from _committed_once(candidate, recalled, arbiter, limits, queue_first, fresh, intends))
    except keys.KeysKnownError as known:
        ((record, _),) = known.answers
    recalled = yield from _recall_known(candidate, record, arbiter, limits)
    if recalled.done is not None:
        yield from discard(files)
        return recalled.done
    return (yield from _committed_once(candidate, recalled, arbiter, limits, queue_first, fresh, False))


def _committed_once(  # noqa: PLR0917 - one caller, just above
    candidate: Transaction,
    recalled: Recalled,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool,
    fresh: bool,
    intends: bool,
) -> Generator[Effect, Outcome, DeltaDone]:
    """Commit what is staged; where it ``intends``, the key goes into the ledger with the upload, and is expected to be new."""
    named = candidate.write
    record = replace(recalled.record, fingerprint=named.fingerprint)
    landed = yield from commit(
        candidate,
        recalled.seen,
        arbiter=arbiter,
        limits=limits,
        queue_first=queue_first,
        fresh=fresh or recalled.looked,
        records=(record,) if _in_ledger(named) else (),
        opening=keys.intend_new([record], limits) if intends else None,
        sharer=candidate.sharer,
        doubting=lambda version: keys.doubt(record, version, limits),
    )
    if landed.already:
        found = Found(landed.version, own=False)
        done = yield from found_again(candidate, found, record, limits, attempts=landed.attempts)
        return replace(done, members=landed.members, waited_s=landed.waited_s, may_share=landed.may_share)
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
    done: DeltaDone | None = None


def recall(
    candidate: Transaction, *, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Recalled]:
    """Find out whether an earlier call wrote this, and record in the ledger that this one is about to."""
    named = candidate.write
    generated_base = keys.base_of_generated(named.key)
    seen = candidate.accounted if generated_base is None else min(generated_base, candidate.accounted)
    record = replace(_first_record(candidate), base_version=seen)
    if named.txn is not None:
        return Recalled(record, seen, done=(yield from recall_txn(named, candidate, arbiter, limits)))
    if generated_base == candidate.accounted:
        return Recalled(record, seen)
    record, ours = yield from keys.intend(record, limits)
    if ours and generated_base is None:
        return Recalled(record, seen)
    return (yield from _recall_known(candidate, record, arbiter, limits))


def _first_record(candidate: Transaction) -> LedgerRecord:
    named = candidate.write
    return LedgerRecord(named.key, candidate.accounted, named.fingerprint, table_id=candidate.table_id)


def _recall_known(
    candidate: Transaction, record: LedgerRecord, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Recalled]:
    """Find out what the call did that put this record into the ledger."""
    named, seen = candidate.write, candidate.accounted
    if is_of_another(record, candidate.table_id):
        record = from_the_start(named, candidate.table_id)
    if record.version is not None:
        entry = yield from standing(record, record.version, limits)
        if entry is not None:
            keys.must_match(named.key, record.fingerprint, named.fingerprint, record.version)
            return Recalled(record, seen, done=repeat(named, record.version, entry, candidate.state))
        record = from_the_start(named, candidate.table_id)
    # An earlier call began under this key: look for its commit before uploading anything.
    found, seen = yield from look(candidate, min(seen, record.base_version), arbiter=arbiter, limits=limits)
    if found is None:
        return Recalled(record, seen, looked=True)
    done = yield from found_again(candidate, found, record, limits, attempts=0)
    return Recalled(record, seen, looked=True, done=done)


def repeat(
    named: Write, version: int, entry: Entry, state: Snapshot | None = None, *, attempts: int = 0
) -> DeltaDone:
    """A write that a version carries already; ``entry`` is how it describes it, as far as that is known."""
    rows, files = int(entry.get("rows", named.rows)), int(entry.get("files", 0))
    return DeltaDone(version, True, rows, files, attempts, state, changes=entry.get("changes"))


def _repeat_of_batch(
    named: Write, version: int, state: Snapshot, limits: Limits, lists: Lists
) -> Generator[Effect, Outcome, DeltaDone]:
    """A batch that its app's ``txn`` shows in a version; what became of its changes only the commit itself tells."""
    entry: Entry | None = None
    if named.changes is not None:
        entry = yield from lists.entry(version, named.key, limits)
    return repeat(named, version, entry or {}, state)


def is_of_another(record: LedgerRecord, table_id: str | None) -> bool:
    """Whether a record tells of a table that was dropped: its versions are not this table's (A17)."""
    return record.table_id is not None and table_id is not None and record.table_id != table_id


def from_the_start(named: Write, table_id: str | None) -> LedgerRecord:
    """A record that leaves every version of the log open."""
    return LedgerRecord(named.key, -1, named.fingerprint, table_id=table_id)


def committed(
    candidate: Transaction, landed: Landed, record: LedgerRecord, limits: Limits
) -> Generator[Effect, Outcome, DeltaDone]:
    """Record this call's commit, which stands, and describe it."""
    named = candidate.write
    if _in_ledger(named) and named.key not in landed.remembered:
        yield from keys.remember(record, landed.version, limits)
    state = candidate.landed(landed.version)
    return DeltaDone(
        landed.version,
        False,
        named.rows,
        named.files,
        landed.attempts,
        state,
        contended=landed.contended,
        mixed=landed.mixed,
        removed_rows=receipt.removed_rows(candidate),
        copied_bytes=receipt.copied_bytes(candidate),
        changes=named.changes,
        members=landed.members,
        waited_s=landed.waited_s,
        may_share=landed.may_share,
    )


def found_again(
    candidate: Transaction, found: Found, record: LedgerRecord, limits: Limits, *, attempts: int
) -> Generator[Effect, Outcome, DeltaDone]:
    """Record an earlier call's commit, which stands, and describe it.

    Raises:
        ReplayMismatchError: it carries the key with other rows; the ledger is not told of ours.
    """
    entry = yield from entry_at(candidate.write, Met(found.version, candidate.found), limits)
    if _in_ledger(candidate.write):
        # The intent may be an earlier call's with other rows, which never landed; the log confirms ours.
        landed = replace(record, fingerprint=candidate.write.fingerprint)
        yield from keys.remember(landed, found.version, limits)
    if candidate.write.offer and entry.get("offer") == candidate.write.offer:
        return _led(candidate, found.version, attempts)
    return repeat(candidate.write, found.version, entry, attempts=attempts)


def _led(candidate: Transaction, version: int, attempts: int) -> DeltaDone:
    """A write that another writer committed with its own, as this call offered it."""
    named = candidate.write
    return DeltaDone(
        version, False, named.rows, named.files, attempts, candidate.followed,
        contended=True, removed_rows=0, led_by_us=False,
    )  # fmt: skip


def entry_at(
    write: Write, at: Met, limits: Limits, lists: Lists | None = None
) -> Generator[Effect, Outcome, Entry]:
    """How a commit that carries a write describes it; ``lists`` are those of commits that were read before.

    Raises:
        ReplayMismatchError: it carries the key with other rows, or is gone since it was met.
    """
    if at.entry is not None:
        return at.entry
    entry = yield from (lists or Lists()).entry(at.version, write.key, limits)
    if entry is None:
        raise keys.incomparable(write.key, at.version)
    keys.must_match(write.key, str(entry["fingerprint"]), write.fingerprint, at.version)
    return entry


def standing(record: LedgerRecord, version: int, limits: Limits) -> Generator[Effect, Outcome, Entry | None]:
    """The write that the ledger tells of, as its commit describes it; None if it speaks of a table that was dropped.

    The log is the truth: None where it does not confirm the ledger (A17).  Where a version is gone and later ones stand,
    log clean-up removed it, and the ledger is believed; then, and where a file lists the commit's writes, nothing more is
    said of it.
    """
    found = yield from fetch_one(Get(commit_path(version), name="recall.get_commit"), limits)
    if isinstance(found, Ok):
        assert isinstance(found.value, bytes)
        there = carried(own_info(found.value, version), (record.key,))
        return (there[record.key] or {}) if record.key in there else None
    return {} if (yield from is_cleaned_up(version, limits)) else None


def is_cleaned_up(version: int, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Whether a commit that is not there was removed by log clean-up: later ones stand."""
    later = yield from fetch_one(
        List("_delta_log/", start_after=commit_path(version), limit=1, name="recall.list"), limits
    )
    return isinstance(later, Ok) and bool(later.value)


def _in_ledger(named: Write) -> bool:
    return named.txn is None and keys.base_of_generated(named.key) is None


# --- (app_id, version) --------------------------------------------------------------------------------
def recall_txn(
    named: Write,
    candidate: Transaction,
    arbiter: Arbiter,
    limits: Limits,
    lists: Lists | None = None,
) -> Generator[Effect, Outcome, DeltaDone | None]:
    """A batch at or below the app's last version was written before: show that it was this one (E1, E2).

    ``lists`` are those of commits that were read before, for another member of a group.
    """
    state = candidate.state
    assert named.txn is not None
    app_id, app_version = named.txn
    last = state.txns.get(app_id) if state is not None else None
    if state is None or last is None or last < app_version:
        return None
    lists = lists or Lists()
    yield from check_log(candidate, arbiter=arbiter, limits=limits)
    if last == app_version and FINGERPRINT_OF + app_id in state.txns:
        landed_in = state.txns.get(VERSION_OF + app_id, state.version)
        if state.txns[FINGERPRINT_OF + app_id] == named.fingerprint_int63:
            return (yield from _repeat_of_batch(named, landed_in, state, limits, lists))
        raise _skipped(
            named,
            f"it was committed in version {landed_in} with {keys.other_rows(named.fingerprint)}",
            landed_in,
        )
    found = yield from _search(named.key, state.version, limits, lists)
    if found is None:
        raise _skipped(named, f"the app's last version is {last}, and no commit in the log shows these rows")
    version, fingerprint = found
    keys.must_match(named.key, fingerprint, named.fingerprint, version)
    return (yield from _repeat_of_batch(named, version, state, limits, lists))


def _skipped(named: Write, why: str, version: int | None = None) -> ReplayMismatchError:
    assert named.txn is not None
    app_id, app_version = named.txn
    return ReplayMismatchError(
        f"Batch {app_version} of app {app_id!r} counts as written before, but {why}: skipping it would lose "
        "rows, writing it could double some. Nothing was written. If the stream's checkpoint was deleted or "
        "replaced, start it under a new app id.",
        key=named.key,
        version=version,
    )


def _search(
    key: str, newest: int, limits: Limits, lists: Lists
) -> Generator[Effect, Outcome, tuple[int, str] | None]:
    """Look for a key in the log, newest commit first, as far back as commits are kept."""
    for top in range(newest, -1, -64):
        versions = range(top, max(-1, top - 64), -1)
        gets = {v: Get(commit_path(v), name="recall.get_commit") for v in versions if v not in lists}
        answers = (yield Together(tuple(gets.values()), name="recall.read")) if gets else Ok(())
        assert isinstance(answers, Ok)
        assert isinstance(answers.value, tuple)
        read = dict(zip(gets, answers.value, strict=True))
        for version in versions:
            if version not in lists:
                get, first = gets[version], read[version]
                outcome = first if isinstance(first, Ok | Missing) else (yield from ask(get, limits))
                if isinstance(outcome, Missing):
                    return None
                if not isinstance(outcome, Ok):
                    raise unanswered(get, outcome)
                assert isinstance(outcome.value, bytes)
                lists.keep(version, outcome.value)
            entry = yield from lists.entry(version, key, limits)
            if entry is not None:
                return version, str(entry["fingerprint"])
    return None
