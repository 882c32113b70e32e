"""Runs one write from its key to its receipt: recall, stage, commit, remember; and ``resolve``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from safewrite import receipt
from safewrite.errors import CommitUnknownError, SafewriteError
from safewrite.iceberg.write import doubts, members
from safewrite.iceberg.write.summary import Write
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Delete, Effect, Ok, Outcome, Together
from safewrite.protocol.iceberg.change import CatalogSharer, Plan, ReadMetadata
from safewrite.protocol.iceberg.commit import Swapped, commit, load
from safewrite.protocol.iceberg.failures import begun_again, replaced
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.settle import METADATA_READ_MAX
from safewrite.protocol.member_queue import ALONE, Terms
from safewrite.protocol.members import Met
from safewrite.protocol.positions import Moves
from safewrite.protocol.values import LedgerRecord
from safewrite.table.operation import keyed_until_landed

if TYPE_CHECKING:
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.staging import Staging

log = logging.getLogger("safewrite")

EMPTY = -1
"""How a ledger record spells the base of a table without snapshots."""


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
    bound: TableVersion | None
    """The base of the last attempt."""
    through: int | None
    """The sequence number up to which others may commit it, where it ended in doubt of that."""
    met: dict[str, Met | SafewriteError]
    """Where its writes were found, by key."""

    @property
    def sharer(self) -> CatalogSharer | None:
        """The write as one that others may commit."""

    def removed_rows(self) -> int | None:
        """How many rows the snapshot removes; None where nobody counted them."""

    def check_positions(self, head: TableVersion) -> None:
        """Refuse to move positions that are elsewhere in a table version."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """What a table may have besides its catalog: a ledger of keys, a queue of writers."""

    ledger: bool = False
    queue: bool = False


@dataclass(frozen=True, slots=True)
class IcebergDone(receipt.Done):
    """A write that is in the table; ``may_share``: members can be queued here."""

    head: TableVersion
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
            done = yield from _already(plan, found, head, record, limits, attempts=0)
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
            doubting=lambda through: doubts.record(record, through, limits),
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
        done = yield from _already(plan, at, swapped.head, record, limits, attempts=attempts)
        return replace(done, waited_s=swapped.waited_s, may_share=swapped.may_share)
    return (yield from committed(plan, swapped, record, limits))


def committed(
    plan: WritePlan, swapped: Swapped, record: LedgerRecord | None, limits: Limits
) -> Generator[Effect, Outcome, IcebergDone]:
    """Record this call's commit, which stands, and describe it."""
    if record is not None:
        landed = replace(record, fingerprint=plan.write.fingerprint)
        yield from keys.remember(landed, plan.snapshot_id, limits)
    # Only files that no commit can name any more: these attempts are known not to have landed (promise 7).
    lost = [Delete(path, name="write.delete_lost") for change in swapped.lost for path in change.written]
    if lost:
        yield from _clean_up(lost)
    return IcebergDone(
        plan.snapshot_id,
        already=False,
        rows=plan.write.rows,
        files=plan.write.files,
        attempts=swapped.attempts,
        head=swapped.head,
        contended=swapped.contended,
        removed_rows=receipt.removed_rows(plan),
        copied_bytes=receipt.copied_bytes(plan),
        changes=plan.write.changes,
        members=swapped.members,
        waited_s=swapped.waited_s,
        may_share=swapped.may_share,
    )


def _clean_up(lost: list[Delete]) -> Generator[Effect, Outcome, None]:
    """Delete files that nobody names; files left over are harmless, and a failure cannot undo the commit."""
    try:
        yield Together(tuple(lost), name="write.clean_up")
    except Exception:
        log.warning("after the commit: files of attempts that were lost are left over", exc_info=True)


def _already(
    plan: WritePlan,
    found: int,
    head: TableVersion,
    record: LedgerRecord | None,
    limits: Limits,
    *,
    attempts: int,
) -> Generator[Effect, Outcome, IcebergDone]:
    met = plan.met.get(plan.write.key)
    entry = met.entry if isinstance(met, Met) else None
    done = yield from repeated(plan.write, found, head, limits, attempts=attempts, met=entry)
    if record is not None:
        landed = replace(record, fingerprint=plan.write.fingerprint)
        yield from keys.remember(landed, found, limits)
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
    ):  # another writer committed it, as this call offered it
        return IcebergDone(
            found, False, write.rows, write.files, attempts, head,
            contended=True, removed_rows=0, members=carried, led_by_us=False,
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


@dataclass(frozen=True, slots=True)
class Resolved:
    """A write that was found."""

    snapshot_id: int
    fingerprint: str
    rows: int
    files: int
    changes: Mapping[str, int] | None = None

    def entry(self, key: str) -> dict[str, Any]:
        """The entry that a receipt is made from."""
        told = {"key": key, "fingerprint": self.fingerprint, "rows": self.rows, "files": self.files}
        return told | ({} if self.changes is None else {"changes": self.changes})


def described(
    head: TableVersion, at: int, key: str, limits: Limits, lists: members.Lists | None = None
) -> Generator[Effect, Outcome, Resolved]:
    """A write that a snapshot carries, as the history describes it; ``lists`` are those that were read before."""
    entry = (yield from (lists or members.Lists()).entry(head, at, key, limits)) or {}
    rows, files = int(entry.get("rows", 0)), int(entry.get("files", 0))
    return Resolved(at, str(entry.get("fingerprint", "")), rows, files, entry.get("changes"))


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
    if ours:
        return record, head
    head = yield from newest(head, limits)
    if record.version is not None:
        if stands(record.version, head):
            keys.must_match(named.key, record.fingerprint, named.fingerprint, record.version)
            if named.changes is not None and record.version in head.summaries:
                return record, (yield from repeated(named, record.version, head, limits))
            return record, IcebergDone(record.version, True, named.rows, 0, 0, head)
        return LedgerRecord(named.key, base_of(head), named.fingerprint), head
    earlier = yield from landed_and_expired(named.key, record.base_version, head, limits)
    if earlier is None:
        return record, head
    done = _as_done(earlier, named, head)
    yield from keys.remember(replace(record, fingerprint=named.fingerprint), earlier.snapshot_id, limits)
    return record, done


def newest(known: TableVersion, limits: Limits) -> Generator[Effect, Outcome, TableVersion]:
    """The table as it is now; it must be the one that the ledger belongs to, for another has snapshots of its own.

    Raises:
        ConflictError: kind TABLE_REPLACED.
    """
    head = yield from load(limits)
    if head.scope != known.scope:
        raise begun_again() if head.table_id == known.table_id else replaced(in_doubt=False)
    return head


def stands(snapshot_id: int, head: TableVersion) -> bool:
    """Whether a remembered snapshot counts: it does, unless it is there and was rolled back."""
    return not head.is_rolled_back(snapshot_id)


def landed_and_expired(
    key: str, base: int, head: TableVersion, limits: Limits
) -> Generator[Effect, Outcome, Resolved | None]:
    """A commit under the key that an earlier table version shows, where its snapshot was expired since (E2, C1).

    None where there is none, or where ``head`` itself shows it.  One that was rolled back is none.

    Raises:
        CommitUnknownError: the table versions that would show it cannot be read.
    """
    answers = yield from all_landed_and_expired({key: base}, head, limits, members.Lists())
    found = answers[key]
    if isinstance(found, CommitUnknownError):
        raise found
    return found


def all_landed_and_expired(
    bases: Mapping[str, int], head: TableVersion, limits: Limits, lists: members.Lists
) -> Generator[Effect, Outcome, dict[str, Resolved | CommitUnknownError | None]]:
    """As :func:`landed_and_expired`, for keys and the bases of their first attempts: each table version is read once."""
    reached = {base for base in set(bases.values()) if reaches(head, base)}
    carried = members.carried(head, bases) if len(reached) < len(set(bases.values())) else {}
    left = {key: base for key, base in bases.items() if key not in carried and base not in reached}
    answers: dict[str, Resolved | CommitUnknownError | None] = dict.fromkeys(bases)
    for location in tuple(reversed(head.previous))[:METADATA_READ_MAX]:
        if not left:
            break
        outcome = yield ReadMetadata(location, name="recall.read_metadata")
        if not isinstance(outcome, Ok):
            break
        state = outcome.value
        assert isinstance(state, TableVersion)
        found = members.carried(state, left)
        rolled_back = members.named(state, left)
        reached = {base for base in set(left.values()) if base_of(state) == base or reaches(state, base)}
        for key, at in found.items():
            answers[key] = yield from described(state, at, key, limits, lists)
        settled = {*found, *rolled_back, *(key for key, base in left.items() if base in reached)}
        left = {key: base for key, base in left.items() if key not in settled}
    return answers | {key: _expired(key) for key in left}


def _as_done(earlier: Resolved, named: Write, head: TableVersion) -> IcebergDone:
    keys.must_match(named.key, earlier.fingerprint, named.fingerprint, earlier.snapshot_id)
    return IcebergDone(
        earlier.snapshot_id, True, earlier.rows, earlier.files, 0, head, changes=earlier.changes
    )


def reaches(head: TableVersion, base: int) -> bool:
    """Whether the metadata holds every snapshot since ``base``."""
    if base == EMPTY:
        line = list(head.ancestors())
        return not line or head.sequences[line[-1]] == 1  # v1 tables have no sequence numbers
    return head.is_current(base)


def _expired(key: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"An earlier call with key {key!r} may have committed, and the snapshots that would show it were expired. "
        "Nothing was written by this call. Look whether the rows are in the table; if not, write them under "
        "another key. Keep snapshots for longer than writes are repeated, or give the table lock_table= for "
        "its ledger.",
        key=key,
    )


def base_of(head: TableVersion) -> int:
    return EMPTY if head.current is None else head.current
