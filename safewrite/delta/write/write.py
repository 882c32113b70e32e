"""Runs one write from its key to its receipt: recall, stage, commit, remember."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace

from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.write.abc import Write
from safewrite.delta.write.ledger_mark import Restored, restore
from safewrite.delta.write.members import Entry
from safewrite.delta.write.recalled import (
    DeltaDone,
    entry_at,
    from_the_start,
    recall_txn,
    repeat,
    standing,
)
from safewrite.delta.write.staging import are_light, discard, stage
from safewrite.delta.write.transaction import Transaction
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import (
    Arbiter,
    Found,
    Landed,
    commit,
    look,
)
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.members import Met
from safewrite.protocol.values import LedgerRecord
from safewrite.table.operation import clean_up, keyed_until_landed


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
    light = candidate.is_light and in_ledger(candidate.write)
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
    except keys.LedgerGoneError as gone:
        recalled = yield from _recall_from_log(candidate, gone, arbiter, limits)
    except keys.KeysKnownError as known:
        ((record, _),) = known.answers
        candidate.ledger_seen = True
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
        fresh=(fresh or recalled.looked) and not candidate.looks_first,
        records=_records(candidate, record),
        opening=keys.intend_new([record], limits, marked=unmarked(candidate)) if intends else None,
        sharer=candidate.sharer,
        doubting=lambda version: keys.doubt(record, version, limits),
    )
    candidate.ledger_seen |= intends or (candidate.accounted < 0 and not landed.already)
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
    marked = unmarked(candidate) if generated_base is None else None
    if marked is None:
        record, ours = yield from keys.intend(record, limits)
    else:
        try:
            ((record, ours),) = yield from keys.intend_marked([record], *marked, limits)
        except keys.LedgerGoneError as gone:
            return (yield from _recall_from_log(candidate, gone, arbiter, limits))
        candidate.ledger_seen = True
    if ours and generated_base is None:
        return Recalled(record, seen)
    return (yield from _recall_known(candidate, record, arbiter, limits))


def _first_record(candidate: Transaction) -> LedgerRecord:
    named = candidate.write
    return LedgerRecord(named.key, candidate.accounted, named.fingerprint, table_id=candidate.table_id)


def unmarked(candidate: Transaction) -> tuple[str | None] | None:
    """The table's id, where the ledger must show its mark before it is believed; None where it need not.

    A write that begins with the first version examines the whole log.
    """
    return None if candidate.ledger_seen or candidate.accounted < 0 else (candidate.table_id,)


def _records(candidate: Transaction, record: LedgerRecord) -> tuple[LedgerRecord, ...]:
    """What the ledger is to have of this commit; that of a table's first version has the mark too, for nothing came before."""
    own = (record,) if in_ledger(candidate.write) else ()
    return (*own, keys.mark(candidate.table_id, -1)) if candidate.accounted < 0 else own


def from_log(
    candidate: Transaction, gone: keys.LedgerGoneError, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, tuple[Found | None, int, Restored]]:
    """Put the keys of the log back into the ledger; what was found of the candidate after its base, and the last version.

    Where another writer began to put them back, versions after its mark are not read again: their writers put their keys into the
    ledger.  One of them may have died between its commit and that, and left what it put there before.
    """
    known = [record for record, ours in gone.answers if not ours and record.version is None]
    bases = [record.base_version for record in known if not keys.is_of_another(record, candidate.table_id)]
    base = min([candidate.accounted, *bases])
    found, seen = yield from look(candidate, base, arbiter=arbiter, limits=limits)
    restored = yield from restore(candidate.table_id, gone.found, limits)
    candidate.ledger_seen = not restored.lost
    return found, seen, restored


def _recall_from_log(
    candidate: Transaction, gone: keys.LedgerGoneError, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Recalled]:
    """Find out from the log what an earlier call did, where the ledger was emptied."""
    named = candidate.write
    found, seen, restored = yield from from_log(candidate, gone, arbiter, limits)
    record = (yield from keys.recall(named.key, limits)) or _first_record(candidate)
    if found is not None:
        done = yield from found_again(candidate, found, record, limits, attempts=0)
        return Recalled(record, seen, looked=True, done=done)
    if record.version is not None and not keys.is_of_another(record, candidate.table_id):
        entry = yield from standing(record, record.version, limits)
        if entry is not None:
            keys.must_match(named.key, record.fingerprint, named.fingerprint, record.version)
            done = repeat(named, record.version, entry, candidate.state)
            return Recalled(record, seen, looked=True, done=done)
    if (at := restored.version_of(named.key)) is not None:
        raise keys.incomparable(named.key, at)
    return Recalled(replace(_first_record(candidate), base_version=seen), seen, looked=True)


def _recall_known(
    candidate: Transaction, record: LedgerRecord, arbiter: Arbiter, limits: Limits
) -> Generator[Effect, Outcome, Recalled]:
    """Find out what the call did that put this record into the ledger."""
    named, seen = candidate.write, candidate.accounted
    if keys.is_of_another(record, candidate.table_id):
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


def committed(
    candidate: Transaction, landed: Landed, record: LedgerRecord, limits: Limits
) -> Generator[Effect, Outcome, DeltaDone]:
    """Record this call's commit, which stands, and describe it."""
    named = candidate.write
    if in_ledger(named) and named.key not in landed.remembered:
        yield from keys.remember(record, landed.version, limits)
    state = candidate.landed(landed.version)
    yield from clean_up(candidate.unused())
    together = landed.members > 1 and named.changes is not None  # what went is counted for all of them
    return DeltaDone(
        landed.version,
        False,
        named.rows,
        named.files,
        landed.attempts,
        state,
        contended=landed.contended,
        mixed=landed.mixed,
        removed_rows=None if together else candidate.planned_change.removed_rows,
        copied_bytes=None if together else candidate.planned_change.copied_bytes,
        changes=named.changes,
        members=landed.members,
        waited_s=landed.waited_s,
        may_share=landed.may_share,
        rebased=candidate.rebased,
    )


def found_again(
    candidate: Transaction, found: Found, record: LedgerRecord, limits: Limits, *, attempts: int
) -> Generator[Effect, Outcome, DeltaDone]:
    """Record an earlier call's commit, which stands, and describe it.

    Raises:
        ReplayMismatchError: it carries the key with other rows; the ledger is not told of ours.
    """
    entry = yield from entry_at(candidate.write, Met(found.version, candidate.found), limits)
    if in_ledger(candidate.write):
        # The intent may be an earlier call's with other rows, which never landed; the log confirms ours.
        landed = replace(record, fingerprint=candidate.write.fingerprint)
        yield from keys.remember(landed, found.version, limits)
    if candidate.write.offer and entry.get("offer") == candidate.write.offer:
        return _led(candidate, found.version, entry, attempts)
    return repeat(candidate.write, found.version, entry, attempts=attempts)


def _led(candidate: Transaction, version: int, entry: Entry, attempts: int) -> DeltaDone:
    """A write that another writer committed with its own, as this call offered it; only the commit tells what changes did."""
    rows, files, changes = int(entry["rows"]), int(entry.get("files", 0)), entry.get("changes")
    return DeltaDone(
        version, False, rows, files, attempts, candidate.followed,
        contended=True, removed_rows=None if changes is not None else 0, changes=changes, led_by_us=False,
    )  # fmt: skip


def in_ledger(named: Write) -> bool:
    """Whether the ledger remembers a write by its key."""
    return named.txn is None and keys.base_of_generated(named.key) is None
