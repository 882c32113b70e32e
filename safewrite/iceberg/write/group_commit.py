"""Commits many writes in one snapshot, each of them once, whatever group it is delivered in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from safewrite.errors import CommitUnknownError, ReplayMismatchError, SafewriteError
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.earlier_writes import (
    Resolved,
    all_landed_and_expired,
    base_of,
    before_branch,
    described,
    landed,
    newest,
    stands,
)
from safewrite.iceberg.write.members import Lists
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.write import IcebergDone, Ledgers, committed, repeated
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import commit
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import MembersMetError, Met
from safewrite.protocol.values import LedgerRecord
from safewrite.table.group_commit import GroupWork
from safewrite.table.operation import GroupDone, keyed_until_landed

if TYPE_CHECKING:
    from safewrite.iceberg.data.datafiles import StagedFile

Encode = Callable[[Sequence[Write]], "Iterable[StagedFile]"]
Answer = IcebergDone | SafewriteError


Group: TypeAlias = GroupDone[IcebergDone, Write]


@dataclass(slots=True, kw_only=True)
class _State(GroupWork[AppendPlan, IcebergDone]):
    """The same, with the newest table version."""

    head: TableVersion
    helpers: Ledgers
    lists: Lists = field(default_factory=Lists)
    _is_fresh: bool = False
    """Whether the head was loaded in this call."""

    def forget_stale_faults(self) -> None:
        """Let members be judged again that are at fault on a table version of before the call, once it is not the newest."""
        bound, met = self.plan.bound, self.plan.met
        if not self._is_fresh and bound is not None and bound.location != self.head.location:
            self.plan.met = {key: one for key, one in met.items() if isinstance(one, Met)}
        self._is_fresh = True


def write_many(
    plan: AppendPlan,
    encode: Encode,
    head: TableVersion,
    *,
    helpers: Ledgers,
    limits: Limits,
    queue_first: bool = False,
) -> Generator[Effect, Outcome, Group]:
    """Write each member once, whatever happened to earlier calls with its key, in whatever group.

    The plan's write is the group.  ``encode`` makes the files of the members that it is given, and is called
    again where other writers committed some of them meanwhile.  The rest is as for
    ``safewrite.iceberg.write.write.write``; what is raised concerns every member.
    """
    state = _State(plan, limits, head=head, helpers=helpers)
    return (yield from keyed_until_landed(_write_many(state, encode, queue_first), state))


def _write_many(state: _State, encode: Encode, queue_first: bool) -> Generator[Effect, Outcome, Group]:
    plan, limits = state.plan, state.limits
    yield from _recall(state)
    while True:
        yield from _examine(state)
        yield from state.leave_out(partial(_repeated, state))
        if not plan.write.members:
            yield from state.remember(None)
            return GroupDone(None, (), state.known)
        plan.check_positions(state.head)
        yield from plan.staging.upload(encode(plan.write.members))
        plan.write = Write.group(plan.write.key, plan.write.members, len(plan.staging.data_files))
        try:
            swapped = yield from commit(
                plan, state.head, limits=limits, lease_queue=state.helpers.queue, queue_first=queue_first
            )
        except MembersMetError:
            state.head, queue_first = (yield from newest(state.head, limits)), False
            state.forget_stale_faults()
            continue
        except CommitUnknownError as error:
            error.version = plan.snapshot_id
            if plan.bound is not None:
                yield from keys.doubt_all(state.own_records(), base_of(plan.bound), limits)
            raise
        state.records |= {
            key: landed(one, swapped.head, plan.snapshot_id) for key, one in state.records.items()
        }
        yield from state.remember(plan.snapshot_id)
        done = yield from committed(plan, swapped, None, limits)
        return GroupDone(done, plan.write.members, state.known)


def _examine(state: _State) -> Generator[Effect, Outcome, None]:
    """Find the members that the known table version carries, and make sure that the newest one does too."""
    try:
        state.plan.examine(state.head)
    except MembersMetError:
        # The known version may be a moment old: one that was dropped or rolled back since answers for no rows.
        state.head = yield from newest(state.head, state.limits)
        gone = [
            key
            for key, met in state.plan.met.items()
            if isinstance(met, Met) and not stands(met.version, state.head)
        ]
        for key in gone:
            del state.plan.met[key]


def _repeated(state: _State, write: Write, met: Met) -> Generator[Effect, Outcome, IcebergDone]:
    return (
        yield from repeated(write, met.version, state.head, state.limits, met=met.entry, lists=state.lists)
    )


# --- what earlier calls may have done ---------------------------------------------------------------
def _recall(state: _State) -> Generator[Effect, Outcome, None]:
    """Find the members that earlier calls wrote and whose snapshots may be expired: the ledger knows them."""
    named = [write for write in state.plan.write.members if write.txn is None]
    if not state.helpers.ledger or not named:
        return
    base = base_of(state.head)
    offered = [LedgerRecord(write.key, base, write.fingerprint) for write in named]
    answers = yield from keys.intend_all(offered, state.limits)
    if not all(ours for _, ours in answers):
        state.head = yield from newest(state.head, state.limits)
    earlier = [(write, record) for write, (record, ours) in zip(named, answers, strict=True) if not ours]
    for write, (record, _) in zip(named, answers, strict=True):
        state.records[write.key] = replace(record, fingerprint=write.fingerprint)
    bases = {record.key: record.base_version for _, record in earlier if record.version is None}
    expired = yield from all_landed_and_expired(bases, state.head, state.limits, state.lists)
    for write, record in earlier:
        found = expired[record.key] if record.version is None else (yield from _noted(state, write, record))
        if isinstance(found, CommitUnknownError):
            state.known[write.key] = found
        elif found is not None:
            state.known[write.key] = _as_known(write, found, state.head)
    noted = {record.key for _, record in earlier if record.version is not None}
    left = [write for write in named if write.key not in state.known and write.key not in noted]
    came, state.head = yield from before_branch([write.key for write in left], state.head, state.limits)
    for write in left:
        if (known := came.get(write.key)) is not None:
            state.known[write.key] = (
                known if isinstance(known, CommitUnknownError) else _as_known(write, known, state.head)
            )


def _noted(state: _State, write: Write, record: LedgerRecord) -> Generator[Effect, Outcome, Resolved | None]:
    """The write that the ledger knows a snapshot of; None where that was rolled back."""
    assert record.version is not None
    if stands(record.version, state.head, record.base_version):
        if (
            write.changes is not None and record.version in state.head.summaries
        ):  # only the snapshot tells of them
            return (yield from described(state.head, record.version, write.key, state.limits, state.lists))
        return Resolved(record.version, record.fingerprint, int(record.fingerprint.split(":")[1]), 0)
    # It was rolled back, so whatever comes instead is what the ledger is to know.
    state.records[write.key] = LedgerRecord(write.key, base_of(state.head), write.fingerprint)
    return None


def _as_known(write: Write, found: Resolved, head: TableVersion) -> Answer:
    try:
        keys.must_match(write.key, found.fingerprint, write.fingerprint, found.snapshot_id)
    except ReplayMismatchError as error:
        return error
    return IcebergDone(found.snapshot_id, True, found.rows, found.files, 0, head, changes=found.changes)
