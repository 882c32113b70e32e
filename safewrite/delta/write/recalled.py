"""Describes a write that the log or the ledger shows to be there already."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from safewrite import receipt
from safewrite.delta.log.actions import checkpoint_version_of, commit_path, version_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import Write
from safewrite.delta.write.conflicts import FINGERPRINT_OF, VERSION_OF
from safewrite.delta.write.members import Entry, Lists, carried, own_info
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import ReplayMismatchError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.delta.commit import Arbiter, check_log
from safewrite.protocol.effects import Effect, Get, List, Missing, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.members import Met
from safewrite.protocol.values import LedgerRecord

_LATER = 100
"""Of so many files behind a version one at least is a commit or a checkpoint, where later ones stand."""


@dataclass(frozen=True, slots=True)
class DeltaDone(receipt.Done):
    """A write that is in the log; ``mixed``: other writers bypass the lock table; ``may_share``: members can be queued here."""

    state: Snapshot | None
    mixed: bool = field(default=False, kw_only=True)
    may_share: bool | None = field(default=None, kw_only=True)


def repeat(
    named: Write, version: int, entry: Entry, state: Snapshot | None = None, *, attempts: int = 0
) -> DeltaDone:
    """A write that a version carries already; ``entry`` is how it describes it, as far as that is known."""
    rows, files = int(entry.get("rows", named.rows)), int(entry.get("files", 0))
    return DeltaDone(version, True, rows, files, attempts, state, changes=entry.get("changes"))


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


def from_the_start(named: Write, table_id: str | None) -> LedgerRecord:
    """A record that leaves every version of the log open."""
    return LedgerRecord(named.key, -1, named.fingerprint, table_id=table_id)


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
    """Whether a commit that is not there was removed by log clean-up: a later one stands, or a checkpoint that has it.

    Other files of the log (``_last_checkpoint``, checksums) also outlive commits that were lost: they show nothing.
    """
    after = f"_delta_log/{version:020d}"
    later = yield from fetch_one(
        List("_delta_log/", start_after=after, limit=_LATER, name="recall.list"), limits
    )
    if not isinstance(later, Ok):
        return False
    assert isinstance(later.value, tuple)
    return any(_is_later(entry.path, version) for entry in later.value)


def _is_later(path: str, version: int) -> bool:
    of_commit, of_checkpoint = version_of(path), checkpoint_version_of(path)
    return (of_commit or 0) > version or (of_checkpoint is not None and of_checkpoint >= version)


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


def _repeat_of_batch(
    named: Write, version: int, state: Snapshot, limits: Limits, lists: Lists
) -> Generator[Effect, Outcome, DeltaDone]:
    """A batch that its app's ``txn`` shows in a version; what became of its changes only the commit itself tells."""
    entry: Entry | None = None
    if named.changes is not None:
        entry = yield from lists.entry(version, named.key, limits)
    return repeat(named, version, entry or {}, state)


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
