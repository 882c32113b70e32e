"""Begins branches of an Iceberg table, and fast-forwards its main branch to them.

A branch begins at the main branch's newest snapshot, with what the table tells of its rows at that moment.  A fast-forward is one
commit, which moves the main branch and gives it what the branch tells of its rows (decision 0061).
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from safewrite.errors import (
    ConflictError,
    InvalidInputError,
    Kind,
    RetriesExhaustedError,
    UnsupportedTableError,
    not_yet,
)
from safewrite.iceberg import branch_properties, features
from safewrite.iceberg.branch_properties import (
    MAIN,
    BranchRecord,
    began,
    led,
    line_of,
    own_record,
    record_of,
    set_of,
)
from safewrite.iceberg.catalog.commit_request import RefCommit
from safewrite.iceberg.catalog.safe_catalog import NotLandedError, SafeCatalog
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import MEMORY
from safewrite.iceberg.write import members
from safewrite.iceberg.write.earlier_writes import EMPTY, base_of, landed
from safewrite.protocol import effects, keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.forward import Forwarded, fast_forward
from safewrite.protocol.values import LedgerRecord
from safewrite.receipt import Outcome, Receipt
from safewrite.stores import call_limit
from safewrite.stores.world import monotonic_s, run
from safewrite.table.history import checked_version
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from safewrite.iceberg.connect import Connection
    from safewrite.protocol.iceberg.head import TableVersion


# --- beginning ------------------------------------------------------------------------------------------
def check(connection: Connection, head: TableVersion) -> None:
    """Refuse a table version without the branch that is written to.

    Raises:
        ConflictError: kind BRANCH_CHANGED.
    """
    if connection.branch != MAIN and not head.branch_id:
        raise ConflictError(
            f"{connection.table_name} has no branch {shown(connection.branch)} that safewrite began. Nothing was written. Open the "
            "table with branch=, which begins it at the main branch, or takes it over; if it was there before, it was dropped, and its "
            "rows with it, or another engine set it back.",
            kind=Kind.BRANCH_CHANGED,
        )


def begin(connection: Connection, limits: Limits) -> None:
    """Begin the connection's branch, where the table does not have it or another engine made it; the table has a snapshot.

    Raises:
        InvalidInputError: its name is that of a tag.
        UnsupportedTableError: another engine made it at a snapshot for which is not known which keys were deleted; or the table may
            only be read.
        CommitUnknownError: it may have begun; open the table again.
        StorageError, TableNotFoundError: the catalog refused, or gave no answer.
    """
    main, name = replace(connection, branch=MAIN), connection.branch
    for _ in range(limits.attempts):
        head = run(load(limits), main.world())
        features.check_write(head)
        metadata = table_of(head).metadata
        ref = metadata.refs.get(name)
        if ref is not None and ref.snapshot_ref_type != "branch":
            raise InvalidInputError(
                f"{shown(name)} is a tag of {connection.table_name}, and tags do not move. Nothing was written. Name a branch."
            )
        if ref is not None and own_record(metadata, name) is not None:
            return
        assert head.current is not None
        at = head.current if ref is None else ref.snapshot_id
        if ref is not None:
            _check_memory(connection, metadata, at)
        changes = _beginning(metadata, name, at)
        requires = unmoved(metadata, {MAIN: head.current, name: None if ref is None else at})
        try:
            SafeCatalog(connection.catalog, limits=limits).commit_table(table_of(head), requires, changes)
        except NotLandedError:
            continue
        return
    raise RetriesExhaustedError(
        f"Gave up on beginning branch {shown(name)} of {connection.table_name}: other writers changed the table before each attempt. "
        "Nothing was committed. Open the table again."
    )


def _beginning(metadata: TableMetadata, name: str, at: int) -> tuple[TableUpdate, ...]:
    """The updates of a branch's beginning: its own set of what counts there, and the main branch's as its own."""
    main = metadata.refs[MAIN].snapshot_id
    now = set_of(metadata, name if name in metadata.refs else MAIN)
    # The record of a branch that was dropped goes; what of it counts elsewhere, where another engine moved it, becomes that branch's own.
    others = [
        update
        for other, there in led(metadata, name).items()
        if other != MAIN and (record := record_of(metadata, other)) is not None
        for update in branch_properties.replacing(
            metadata, other, replace(record, at=there), set_of(metadata, other)
        )
    ]
    return (
        *((branch_properties.moved(metadata, name, at),) if name not in metadata.refs else ()),
        *others,
        *branch_properties.replacing(metadata, MAIN, BranchRecord("", main), set_of(metadata, MAIN)),
        *branch_properties.replacing(
            metadata, name, BranchRecord(str(uuid.uuid4()), at, began(metadata, at)), now
        ),
    )


def _check_memory(connection: Connection, metadata: TableMetadata, at: int) -> None:
    """Refuse a branch whose line does not have the snapshot that remembers the deleted keys: which of them count there is not known."""
    path = set_of(metadata, connection.branch).rows.get(MEMORY)
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    written = [one.snapshot_id for one in metadata.statistics if one.statistics_path == path]
    if path is not None and not set(written) <= set(line_of(parents, at)):
        raise UnsupportedTableError(
            f"Another engine made branch {shown(connection.branch)} of {connection.table_name} at snapshot {at}, and keys were deleted "
            "by apply_changes() on another line: which of them count on the branch is not known. Nothing was written. Drop it, and "
            "open the table with branch= again: it then begins at the main branch's newest snapshot."
        )


def unmoved(metadata: TableMetadata, refs: Mapping[str, int | None]) -> tuple[TableRequirement, ...]:
    """That it is the table, and that its tags and branches are where they were; None: that there is none of the name."""
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    at = [AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": one}) for name, one in refs.items()]
    return AssertTableUUID(uuid=metadata.table_uuid), *at


class OnBranch(Protocol):
    """A table that is open on a branch."""

    @property
    def connection(self) -> Connection: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def version(self) -> int: ...

    def mark(self) -> object:
        """The mark of the version that is known; None where none is."""


# --- fast-forward ---------------------------------------------------------------------------------------
def published(own: OnBranch, version: int | None) -> Receipt:
    """Move the main branch to a snapshot of the branch that a table is open on; None: the newest that it has seen.

    Raises:
        InvalidInputError: the connection is to the main branch.
        ConflictError: kind BRANCH_CHANGED; the main branch is elsewhere, or the branch is not at that snapshot any more.
        CommitUnknownError, RetriesExhaustedError, StorageError, TableNotFoundError: as
            :func:`safewrite.protocol.iceberg.forward.fast_forward`.
    """
    connection, limits = own.connection, own.limits
    audited = checked_version(own.version if version is None else version)
    if connection.branch == MAIN:
        raise InvalidInputError(
            f"{connection.table_name} is open on its main branch. Nothing was committed. Open it with branch= to fast-forward the main "
            "branch to that one."
        )
    if version is None and own.mark() is None:
        raise not_yet(f"Iceberg table {connection.table_name}")
    main = replace(connection, branch=MAIN)
    started_s = monotonic_s(main.world())
    with call_limit.within(limits.timeout_s):
        head = run(load(limits), main.world())
        world = main.world(head)
        done, writes = run(_fast_forward(connection, audited, limits), world)
    if done.base is not None:
        main.drop_old_metadata(table_of(done.base), table_of(done.head).metadata)
    return Receipt(
        Outcome.ALREADY_COMMITTED if done.already else Outcome.COMMITTED,
        connection.table_name,
        audited,
        rows=0,
        files=0,
        removed_rows=0,
        attempts=done.attempts,
        elapsed_s=monotonic_s(world) - started_s,
        key=f"{connection.branch}@{audited}",
        fingerprint="",
        members=None if done.already else writes,
        led_by_us=None if done.already else True,
    )


def _fast_forward(
    connection: Connection, audited: int, limits: Limits
) -> Generator[Effect, effects.Outcome, tuple[Forwarded, int]]:
    """Move the main branch, in a world of its own; also how many writes of safewrite came to it."""
    records: list[tuple[LedgerRecord, int]] = []
    came: list[int] = []

    def stage(head: TableVersion) -> Generator[Effect, effects.Outcome, RefCommit]:
        features.check_write(head)
        came[:] = _check_ahead(connection, table_of(head).metadata, audited)
        records[:] = (yield from _came(head, came, limits)) if connection.helpers.ledger else []
        # A key that comes along counts on the main branch also when its snapshot has expired: so its ledger has it before.
        yield from keys.intend_all([record for record, _ in records], limits)
        return _forwarding(connection, head, audited)

    done = yield from fast_forward(audited, stage, limits)
    if done.already:
        return done, 0
    yield from keys.remember_all([(landed(one, done.head, at), at) for one, at in records], limits)
    summaries = [done.head.summaries.get(at, {}) for at in came]
    return done, sum(members.count(one) for one in summaries if members.is_ours(one))


def _check_ahead(connection: Connection, metadata: TableMetadata, audited: int) -> list[int]:
    """The snapshots that the main branch lacks, newest first."""
    ref, main = metadata.refs.get(connection.branch), metadata.refs.get(MAIN)
    if ref is None or own_record(metadata, connection.branch) is None:
        raise _refused(
            connection,
            "is not there, or safewrite did not begin it",
            "Open the table with branch= to begin it",
        )
    if ref.snapshot_id != audited:
        raise _refused(
            connection,
            f"is at snapshot {ref.snapshot_id}, and {'no snapshot' if audited == EMPTY else audited} was audited",
            "Stop its writers, refresh() and audit it again",
        )
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    line = list(line_of(parents, audited))
    if main is not None and main.snapshot_id not in line:
        raise _refused(
            connection,
            f"does not have the main branch's newest snapshot {main.snapshot_id}: others wrote to the main branch since it began, so "
            "the audit is of another table than the main branch would be",
            "Drop the branch, open the table with branch= again, which begins it at the main branch, and write and audit again",
        )
    return line[: line.index(main.snapshot_id)] if main is not None else line


def _refused(connection: Connection, why: str, advice: str) -> ConflictError:
    return ConflictError(
        f"Branch {shown(connection.branch)} of {connection.table_name} {why}. Nothing was committed. {advice}.",
        kind=Kind.BRANCH_CHANGED,
    )


def _came(
    head: TableVersion, came: list[int], limits: Limits
) -> Generator[Effect, effects.Outcome, list[tuple[LedgerRecord, int]]]:
    """Records of the keys that snapshots bring to the main branch, and those snapshots."""
    base = base_of(head)
    found: list[tuple[LedgerRecord, int]] = []
    for at in came:
        listed = members.inline(head.summaries[at])
        for entry in (yield from members.recorded(head, at, limits)) if listed is None else listed:
            key = str(entry["key"])
            if "txn" not in entry and keys.base_of_generated(key) is None:
                found.append((LedgerRecord(key, base, str(entry["fingerprint"])), at))
    return found


def _forwarding(connection: Connection, head: TableVersion, audited: int) -> RefCommit:
    """The change: main's snapshot, its set of properties, and the tag that keeps the file of deleted keys."""
    metadata, name = table_of(head).metadata, connection.branch
    record = record_of(metadata, name)
    assert record is not None
    now = set_of(metadata, name)
    changes = (
        branch_properties.moved(metadata, MAIN, audited),
        *branch_properties.replacing(
            metadata, name, replace(record, at=audited, began=began(metadata, audited, audited)), now
        ),
        *branch_properties.replacing(metadata, MAIN, BranchRecord("", audited), now),
    )
    return RefCommit(head, audited, unmoved(metadata, {MAIN: head.current, name: audited}), changes)
