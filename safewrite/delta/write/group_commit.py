"""Commits many writes in one version, each of them once, whatever group it is delivered in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.log.actions import commit_path
from safewrite.delta.write.abc import Write
from safewrite.delta.write.members import Entry, Lists, carried
from safewrite.delta.write.recalled import (
    DeltaDone,
    entry_at,
    from_the_start,
    is_cleaned_up,
    recall_txn,
    repeat,
)
from safewrite.delta.write.staging import StagedFile, are_light, discard, stage
from safewrite.delta.write.transaction import Transaction
from safewrite.delta.write.write import from_log, unmarked
from safewrite.errors import ReplayMismatchError, SafewriteError
from safewrite.protocol import keys, staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter, commit, look
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.protocol.members import MembersMetError, Met
from safewrite.protocol.values import LedgerRecord
from safewrite.table.group_commit import GroupWork
from safewrite.table.operation import GroupDone, keyed_until_landed

Encode = Callable[[Sequence[Write]], Iterable[DataFile | StagedFile]]
Answer = DeltaDone | SafewriteError


Group: TypeAlias = GroupDone[DeltaDone, Write]


@dataclass(slots=True, kw_only=True)
class _State(GroupWork[Transaction, DeltaDone]):
    """The same, with the last version that was examined."""

    arbiter: Arbiter
    seen: int
    lists: Lists = field(default_factory=Lists)


def write_many(
    candidate: Transaction,
    encode: Encode,
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
    fresh: bool = False,
) -> Generator[Effect, Outcome, Group]:
    """Write each member once, whatever happened to earlier calls with its key, in whatever group.

    The candidate's write is the group.  ``encode`` makes the files of the members that it is given, and is
    called again where other writers committed some of them meanwhile.  The rest is as for
    ``safewrite.delta.write.write.write``; what is raised concerns every member.
    """
    state = _State(candidate, limits, arbiter=arbiter, seen=candidate.accounted)
    steps = _write_many(state, encode, queue_first, fresh)
    return (yield from keyed_until_landed(steps, state))


def _write_many(
    state: _State, encode: Encode, queue_first: bool, fresh: bool
) -> Generator[Effect, Outcome, Group]:
    candidate, limits = state.plan, state.limits
    offered = yield from _offered(state)
    light, looked = candidate.is_light, False
    if not light:
        looked = yield from _intend(state, offered)
    while True:
        yield from state.leave_out(partial(_repeated, state))
        if not candidate.write.members:
            yield from state.remember(None)
            return GroupDone(None, (), state.known)
        if not candidate.files:
            yield from candidate.prepare()
            if candidate.met:
                continue  # members whose changes are refused
            yield from _stage(candidate, encode, limits)
        if light and not are_light(candidate.files):
            light = False
            looked = yield from _intend(state, offered)
            continue
        try:
            landed = yield from commit(
                candidate,
                state.seen,
                arbiter=state.arbiter,
                limits=limits,
                queue_first=queue_first,
                fresh=fresh or looked,
                records=_remembering(state),
                opening=keys.intend_new(offered, limits, marked=_unmarked(state)) if light else None,
                doubting=lambda version: keys.doubt_all(state.own_records(), version, limits),
            )
        except keys.KeysKnownError as known:
            files, light = candidate.files, False
            looked = yield from _recall_all(state, known)
            yield from state.leave_out(partial(_repeated, state))
            if not candidate.files:
                yield from discard(files)  # no attempt was begun with them
            continue
        except MembersMetError:
            light, queue_first, fresh, looked = False, False, False, False
            state.seen = candidate.reached
            continue
        candidate.ledger_seen |= light or candidate.accounted < 0
        yield from state.remember(landed.version, landed.remembered)
        done = DeltaDone(
            landed.version,
            False,
            candidate.write.rows,
            candidate.write.files,
            landed.attempts,
            candidate.landed(landed.version),
            contended=landed.contended,
            mixed=landed.mixed,
            removed_rows=candidate.planned_change.removed_rows,
        )
        return GroupDone(done, candidate.write.members, state.known)


def _stage(candidate: Transaction, encode: Encode, limits: Limits) -> Generator[Effect, Outcome, None]:
    members = candidate.write.members
    candidate.files = yield from stage(encode(members), candidate.timestamp_ms, limits, leaves_last=True)
    candidate.write = candidate.regrouped(len(candidate.files))
    put = candidate.member_file
    if put is not None:
        yield from staging.upload([put], limits)


def _repeated(state: _State, write: Write, met: Met) -> Generator[Effect, Outcome, DeltaDone]:
    entry = yield from entry_at(write, met, state.limits, state.lists)
    return repeat(write, met.version, entry)


def _remembering(state: _State) -> list[LedgerRecord]:
    """What the ledger is to have of the commit; that of a table's first version has the mark too."""
    candidate = state.plan
    return [*state.own_records(), *([keys.mark(candidate.table_id, -1)] if candidate.accounted < 0 else [])]


# --- what earlier calls may have done ---------------------------------------------------------------
def _offered(state: _State) -> Generator[Effect, Outcome, list[LedgerRecord]]:
    """Find the batches that earlier calls wrote; returns the records of the keys, as they are for new ones."""
    candidate = state.plan
    for write in candidate.write.members:
        if write.txn is not None:
            yield from _recall_txn(state, write)
    offered = [
        LedgerRecord(write.key, state.seen, write.fingerprint, table_id=candidate.table_id)
        for write in candidate.write.members
        if write.txn is None
    ]
    state.records = {record.key: record for record in offered}
    return offered


def _unmarked(state: _State) -> tuple[str | None] | None:
    """As :func:`safewrite.delta.write.write.unmarked`; a group of stream batches asks no ledger."""
    return unmarked(state.plan) if state.records else None


def _intend(state: _State, offered: Sequence[LedgerRecord]) -> Generator[Effect, Outcome, bool]:
    """Record in the ledger what this call is about to do, and find what earlier calls wrote; as :func:`_recall`."""
    marked = _unmarked(state)
    if marked is None:
        return (yield from _recall(state, (yield from keys.intend_all(offered, state.limits))))
    try:
        answers = yield from keys.intend_marked(offered, *marked, state.limits)
    except keys.LedgerGoneError as gone:
        return (yield from _recall_all(state, gone))
    state.plan.ledger_seen = True
    return (yield from _recall(state, answers))


def _recall_all(state: _State, known: keys.KeysKnownError) -> Generator[Effect, Outcome, bool]:
    """As :func:`_recall`, from the log where the ledger was emptied."""
    if not isinstance(known, keys.LedgerGoneError):
        state.plan.ledger_seen = True
        return (yield from _recall(state, known.answers))
    candidate = state.plan
    _, state.seen, restored = yield from from_log(candidate, known, state.arbiter, state.limits)
    answers: list[tuple[LedgerRecord, bool]] = []
    for record, _ in known.answers:
        told = (yield from keys.recall(record.key, state.limits)) or record
        # The log has been read: what the ledger does not know now has not landed.
        answers.append((told, told.version is None))
        if (at := restored.version_of(record.key)) is not None:
            state.known[record.key] = keys.incomparable(record.key, at)
    yield from _recall(state, answers)
    return True


def _recall(state: _State, answers: Sequence[tuple[LedgerRecord, bool]]) -> Generator[Effect, Outcome, bool]:
    """Find the members that earlier calls wrote; True if the log was read to its end on the way.

    ``answers`` are the ledger's for the keys of the members, in their order.
    """
    candidate, limits = state.plan, state.limits
    named = [write for write in candidate.write.members if write.key in state.records]
    landed: list[tuple[Write, LedgerRecord]] = []
    earliest = None
    for write, (record, ours) in zip(named, answers, strict=True):
        if not ours and keys.is_of_another(record, candidate.table_id):
            record = from_the_start(write, candidate.table_id)  # noqa: PLW2901 - the ledger spoke of another table
        state.records[write.key] = replace(record, fingerprint=write.fingerprint)
        if record.version is not None:
            landed.append((write, record))
        elif not ours:
            earliest = min(record.base_version, state.seen if earliest is None else earliest)
    if landed and not (yield from _recall_landed(state, landed)):
        earliest = -1
    if earliest is None:
        return False
    # Earlier calls began under these keys: look for their commits before uploading anything.
    _, state.seen = yield from look(
        candidate, min(earliest, state.seen), arbiter=state.arbiter, limits=limits
    )
    return True


def _recall_txn(state: _State, write: Write) -> Generator[Effect, Outcome, None]:
    try:
        done = yield from recall_txn(write, state.plan, state.arbiter, state.limits, state.lists)
    except ReplayMismatchError as error:
        state.known[write.key] = error
        return
    if done is not None:
        state.known[write.key] = done


def _recall_landed(
    state: _State, landed: Sequence[tuple[Write, LedgerRecord]]
) -> Generator[Effect, Outcome, bool]:
    """Believe the ledger where the log confirms it, or was cleaned up; False if it did not of some member (A17)."""
    by_version: dict[int, list[tuple[Write, LedgerRecord]]] = {}
    for write, record in landed:
        assert record.version is not None
        by_version.setdefault(record.version, []).append((write, record))
    gets = [Get(commit_path(version), name="recall.get_commit") for version in sorted(by_version)]
    answers = yield from fetch(gets, state.limits, name="recall.read")
    confirmed = True
    for version, answer in zip(sorted(by_version), answers, strict=True):
        confirmed &= yield from _recall_version(state, version, answer, by_version[version])
    return confirmed


def _recall_version(
    state: _State, version: int, answer: Ok | Missing, landed: Sequence[tuple[Write, LedgerRecord]]
) -> Generator[Effect, Outcome, bool]:
    """As :func:`_recall_landed`, for the members that one version is to carry; ``answer`` is its commit file."""
    if isinstance(answer, Ok):
        assert isinstance(answer.value, bytes)
        info = state.lists.keep(version, answer.value)
        there = set(carried(info, {write.key for write, _ in landed}))
    else:
        is_gone = yield from is_cleaned_up(version, state.limits)
        there = {write.key for write, _ in landed} if is_gone else set()
    for write, record in landed:
        if write.key not in there:
            state.records[write.key] = from_the_start(write, state.plan.table_id)
            continue
        entry: Entry | None = None
        if isinstance(answer, Ok) and write.changes is not None:  # only the commit tells what became of them
            entry = yield from state.lists.entry(version, write.key, state.limits)
        try:
            keys.must_match(write.key, record.fingerprint, write.fingerprint, version)
        except ReplayMismatchError as error:
            state.known[write.key] = error
        else:
            state.known[write.key] = repeat(write, version, entry or {})
    return len(there) == len(landed)
