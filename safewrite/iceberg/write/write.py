"""Runs one write from its key to its receipt: recall, stage, commit, remember; and ``resolve``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from safewrite import receipt
from safewrite.errors import CommitUnknownError, SafewriteError
from safewrite.iceberg.write import in_doubt, members
from safewrite.iceberg.write.earlier_writes import (
    Resolved,
    base_of,
    before_branch,
    landed,
    landed_and_expired,
    newest,
    stands,
)
from safewrite.iceberg.write.summary import Write
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.change import CatalogSharer, Plan
from safewrite.protocol.iceberg.commit import Swapped, commit
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import ALONE, Terms
from safewrite.protocol.members import Met
from safewrite.protocol.positions import Moves
from safewrite.protocol.values import LedgerRecord
from safewrite.table.operation import clean_up, keyed_until_landed

if TYPE_CHECKING:
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.file_changes import IcebergChange
    from safewrite.iceberg.write.staging import Staging


class WritePlan(Plan, Protocol):
    """A plan that carries one named write and its data files."""

    write: Write
    properties: Mapping[str, str]
    """What the caller wants the summary to say."""
    positions: Moves
    """How far the snapshot takes the caller's sources."""
    snapshot_id: int
    planned: TableVersion
    """The table version that it was planned on."""
    staging: Staging
    change: IcebergChange
    """What becomes of the files that are there."""
    bound: TableVersion | None
    """The base of the last attempt."""
    through: int | None
    """The sequence number up to which others may commit it, where it ended in doubt of that."""
    met: dict[str, Met | SafewriteError]
    """Where its writes were found, by key."""

    @property
    def sharer(self) -> CatalogSharer | None:
        """The write as one that others may commit."""

    def check_positions(self, head: TableVersion) -> None:
        """Refuse to move positions that are elsewhere in a table version."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """What a table may have besides its catalog: a ledger of keys, a queue of writers."""

    ledger: bool = False
    queue: bool = False


@dataclass(frozen=True, slots=True)
class IcebergDone(receipt.Done):
    """A write that is in the table.

    ``base`` is what its commit landed on, where this call made that; ``may_share``: members can be queued here.
    """

    head: TableVersion
    base: TableVersion | None = field(default=None, kw_only=True)
    may_share: bool | None = field(default=None, kw_only=True)


def write(
    plan: WritePlan,
    encode: Callable[[], Iterable[StagedFile]],
    head: TableVersion,
    *,
    helpers: Ledgers,
    limits: Limits,
    queue_first: bool = False,
    terms: Terms = ALONE,
) -> Generator[Effect, Outcome, IcebergDone]:
    """Write once, whatever happened to earlier calls with the same key.

    ``head`` is the known table version; ``encode`` is called only if there is something to upload; ``terms`` say how it shares.

    Raises:
        NotCommittedError: a subclass; nothing of this write is or will be in the table.
        CommitUnknownError: carries the key that decides it.
        ForeignWriterError: the commit was accepted and is not in the table.
    """
    steps = _write(plan, encode, head, helpers, limits, queue_first, terms)
    return (yield from keyed_until_landed(steps, plan))


def _write(  # noqa: PLR0917 - one caller, just above
    plan: WritePlan,
    encode: Callable[[], Iterable[StagedFile]],
    head: TableVersion,
    helpers: Ledgers,
    limits: Limits,
    queue_first: bool,
    terms: Terms,
) -> Generator[Effect, Outcome, IcebergDone]:
    record, known = yield from _recall(plan.write, head, helpers, limits)
    if isinstance(known, IcebergDone):
        return known
    head = known
    found = plan.examine(head)
    if found is not None:
        # The table version may be a moment old: a table that was dropped or rolled back since does not answer
        # for its rows.  One whose snapshot was expired since does.
        now = yield from newest(head, limits)
        if stands(found, now):
            done = yield from already_there(plan, found, head, record, limits, attempts=0)
            return replace(done, head=now)
        head = now
    plan.check_positions(head)
    yield from plan.staging.upload(encode())
    plan.write = replace(plan.write, files=len(plan.staging.data_files))
    try:
        swapped = yield from commit(
            plan,
            head,
            limits=limits,
            lease_queue=helpers.queue,
            queue_first=queue_first,
            sharer=plan.sharer if terms.shares else None,
            terms=terms,
            doubting=lambda through: in_doubt.record(record, through, limits),
        )
    except CommitUnknownError as error:
        plan.through = error.version
        error.version = plan.snapshot_id
        if record is not None and plan.bound is not None and plan.through is None:
            yield from keys.doubt(record, base_of(plan.bound), limits)
        raise
    if swapped.already:
        at, attempts = swapped.snapshot_id, swapped.attempts
        assert at is not None
        done = yield from already_there(plan, at, swapped.head, record, limits, attempts=attempts)
        return replace(done, waited_s=swapped.waited_s, may_share=swapped.may_share)
    return (yield from committed(plan, swapped, record, limits))


def committed(
    plan: WritePlan, swapped: Swapped, record: LedgerRecord | None, limits: Limits
) -> Generator[Effect, Outcome, IcebergDone]:
    """Record this call's commit, which stands, and describe it."""
    if record is not None:
        known = landed(record, swapped.head, plan.snapshot_id)
        yield from keys.remember(replace(known, fingerprint=plan.write.fingerprint), plan.snapshot_id, limits)
    # Only files that no commit can name any more: these attempts are known not to have landed (promise 7).
    paths = [path for change in swapped.lost for path in change.written]
    if len(swapped.lost) + swapped.broken_off == swapped.attempts - 1:
        paths += [file.file_path for file in plan.change.unused]
    yield from clean_up(paths)
    together = swapped.members > 1 and plan.write.changes is not None  # what went is counted for all of them
    return IcebergDone(
        plan.snapshot_id,
        already=False,
        rows=plan.write.rows,
        files=plan.write.files,
        attempts=swapped.attempts,
        head=swapped.head,
        base=None if swapped.change is None else swapped.change.base,
        contended=swapped.contended,
        removed_rows=None if together else plan.change.removed_rows,
        copied_bytes=None if together else plan.change.copied_bytes,
        changes=plan.write.changes,
        members=swapped.members,
        waited_s=swapped.waited_s,
        may_share=swapped.may_share,
        rebased=swapped.rebased,
    )


def already_there(
    plan: WritePlan,
    found: int,
    head: TableVersion,
    record: LedgerRecord | None,
    limits: Limits,
    *,
    attempts: int,
) -> Generator[Effect, Outcome, IcebergDone]:
    """Record a commit of an earlier call, or of another writer that carries this write, which stands, and describe it."""
    met = plan.met.get(plan.write.key)
    entry = met.entry if isinstance(met, Met) else None
    done = yield from repeated(plan.write, found, head, limits, attempts=attempts, met=entry)
    if record is not None:
        noted = replace(landed(record, head, found), fingerprint=plan.write.fingerprint)
        yield from keys.remember(noted, found, limits)
    return done


def repeated(
    write: Write,
    found: int,
    head: TableVersion,
    limits: Limits,
    *,
    attempts: int = 0,
    met: members.Entry | None = None,
    lists: members.Lists | None = None,
) -> Generator[Effect, Outcome, IcebergDone]:
    """A write that a snapshot carries already; ``met`` is how a summary that was read and compared describes it.

    ``lists`` are those of snapshots that were read before, for another member of a group.

    Raises:
        ReplayMismatchError: the snapshot carries the key with other rows, or its list is gone with it.
    """
    known = met or (yield from (lists or members.Lists()).entry(head, found, write.key, limits))
    if known is None:
        raise keys.incomparable(write.key, found)
    keys.must_match(write.key, str(known["fingerprint"]), write.fingerprint, found)
    carried = members.count(head.summaries.get(found, {}))
    if (
        write.offer and known.get("offer") == write.offer
    ):  # another writer committed it, as this call offered it; only the snapshot tells what changes did
        rows, files, changes = int(known["rows"]), int(known.get("files", 0)), known.get("changes")
        return IcebergDone(
            found, False, rows, files, attempts, head,
            contended=True, removed_rows=None if changes is not None else 0, changes=changes, members=carried, led_by_us=False,
        )  # fmt: skip
    return IcebergDone(
        found,
        True,
        int(known.get("rows", write.rows)),
        int(known.get("files", 0)),
        attempts,
        head,
        changes=known.get("changes"),
    )


# --- what earlier calls may have done ---------------------------------------------------------------
def _recall(
    named: Write, head: TableVersion, helpers: Ledgers, limits: Limits
) -> Generator[Effect, Outcome, tuple[LedgerRecord | None, IcebergDone | TableVersion]]:
    """The ledger's record of the key, and either the write's place or a table version that would show it.

    Raises:
        CommitUnknownError: an earlier call may have committed, and the snapshots since were expired.
    """
    generated_base = keys.base_of_generated(named.key)
    if named.txn is not None or (generated_base is not None and generated_base == base_of(head)):
        return None, head
    if generated_base is not None:
        # An earlier call of this process or another drew the key, and its answer was lost.
        head = yield from newest(head, limits)
        earlier = yield from landed_and_expired(named.key, generated_base, head, limits)
        return None, head if earlier is None else _as_done(earlier, named, head)
    if not helpers.ledger:
        return None, head
    record, ours = yield from keys.intend(LedgerRecord(named.key, base_of(head), named.fingerprint), limits)
    if not ours:
        head = yield from newest(head, limits)
    if record.version is not None:
        if stands(record.version, head, record.base_version):
            keys.must_match(named.key, record.fingerprint, named.fingerprint, record.version)
            if named.changes is not None and record.version in head.summaries:
                return record, (yield from repeated(named, record.version, head, limits))
            return record, IcebergDone(record.version, True, named.rows, 0, 0, head)
        return LedgerRecord(named.key, base_of(head), named.fingerprint), head
    earlier = None if ours else (yield from landed_and_expired(named.key, record.base_version, head, limits))
    if earlier is None:
        came, head = yield from before_branch((named.key,), head, limits)
        if (found := came.get(named.key)) is None:
            return record, head
        if isinstance(found, CommitUnknownError):
            raise found
        earlier = found
    done = _as_done(earlier, named, head)
    noted = replace(landed(record, head, earlier.snapshot_id), fingerprint=named.fingerprint)
    yield from keys.remember(noted, earlier.snapshot_id, limits)
    return record, done


def _as_done(earlier: Resolved, named: Write, head: TableVersion) -> IcebergDone:
    keys.must_match(named.key, earlier.fingerprint, named.fingerprint, earlier.snapshot_id)
    return IcebergDone(
        earlier.snapshot_id, True, earlier.rows, earlier.files, 0, head, changes=earlier.changes
    )
