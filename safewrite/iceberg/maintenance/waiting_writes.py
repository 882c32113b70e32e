"""Finds writes that were left behind in the queue of an Iceberg table, and brings them to an end by what its metadata says."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

from safewrite.errors import CommitUnknownError, ConflictError, NotCommittedError
from safewrite.findings import Findings, Step, Steps
from safewrite.iceberg import ledger_place
from safewrite.iceberg.catalog.commit_request import CommitRequest
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.maintenance.snapshot_files import ASKS, NamedFile, SnapshotFiles
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.opening import probe
from safewrite.iceberg.write.abc import WaitingFiles
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.members import keys_by_hash
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.waiting import FORMAT_MIN, decoded, folder_of, met_in
from safewrite.protocol import member_queue
from safewrite.protocol.ask import ask
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.iceberg.commit import commit, load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import CHANGES, Offer, Waiting
from safewrite.stores import left_writes
from safewrite.stores.left_writes import Left, left_in
from safewrite.stores.world import Performer, run

_IN_TABLE = "it is in the table"


@dataclass
class LeftAppend(AppendPlan):
    """A member's write, to be committed with the sequence numbers that its queue allows and with no later one."""

    last: int = -1

    @property
    def serves_others(self) -> bool:
        return True

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, CommitRequest]:
        if head.last_sequence >= self.last:
            raise ConflictError("Others committed meanwhile, and no one may commit it any more.")
        return (yield from super().stage(head))


def left_behind(world: Performer, head: TableVersion, branch: str) -> list[Left]:
    """The members that no one seems to wait for, the oldest first, by this machine's clock."""
    if table_of(head).metadata.format_version < FORMAT_MIN:
        return []
    there = left_in(folder_of(head), world, ASKS, lambda: time.time_ns() // 1_000_000)
    return [Left(one, age_s, _end(world, head, branch, one)) for one, age_s in there]


def _end(world: Performer, head: TableVersion, branch: str, member: Waiting) -> str:
    if member.through <= head.last_sequence:
        return "no one may commit it any more"
    body = _body(world, member)
    if isinstance(body, bytes) and member_queue.is_of_another(body, head.table_id):
        return left_writes.OF_ANOTHER
    if member.kind == CHANGES:
        is_there = any(member.key_hash in keys_by_hash(summary) for summary in head.summaries.values())
        return _IN_TABLE if is_there else ""
    made = _write_in(body, head, branch, member)
    return _IN_TABLE if made is not None and met_in(head, [made.write]) else ""


def _body(world: Performer, member: Waiting) -> object:
    got = run(ask(Get(member.path, name="finish.get_member"), ASKS), world)
    return got.value if isinstance(got, Ok) else None


def _write_in(body: object, head: TableVersion, branch: str, member: Waiting) -> WaitingFiles | None:
    return decoded(Offer(member.path, member.base, body), head, branch) if isinstance(body, bytes) else None


def examine(world: Performer, head: TableVersion, branch: str) -> Findings:
    """What doctor says of them."""
    yield from left_writes.examine(left_behind(world, head, branch))


def finish(connection: Connection, *, dry_run: bool = False) -> Steps:
    """Commit what may still be committed, and take the rest out of the queue.

    Raises:
        TableNotFoundError, StorageError: the catalog does not show the table.
        UnsafeConfigError: the catalog does not compare before it sets.
    """
    head = run(load(ASKS), connection.world())
    world = connection.world(head)
    world.table = table_of(head)
    left = left_behind(world, head, connection.branch)
    if left and not dry_run:
        probe(connection.catalog, connection.kind, head)
    yield from left_writes.finish(
        left, world, lambda member: _commit(connection, world, member), dry_run=dry_run
    )


def _commit(connection: Connection, world: CatalogWorld, member: Waiting) -> Step:
    head = run(load(ASKS), world)
    made = _write_in(_body(world, member), head, connection.branch, member)
    if made is None:
        why = "its body cannot be read, or the table has changed since: it waits until the table has moved on"
        return Step("finish", member.path, "skipped", why)
    shown = set(head.sequences.values())
    if any(number not in shown for number in range(member.base + 1, head.last_sequence + 1)):
        why = "snapshots since were expired, which may have carried it: it waits until the table has moved on"
        return Step("finish", member.path, "skipped", why)
    files = [NamedFile(file.file_path, file.file_size_in_bytes, 0, None, True) for file in made.files]
    missing, changed = SnapshotFiles(world).damaged(files)
    if missing or changed:
        path = (missing + changed)[0]
        why = f"its data file {path} is gone, or not whole: write the rows again from their source"
        return Step("finish", member.path, "skipped", why)
    plan = LeftAppend(
        made.write, table_of(head).metadata.new_snapshot_id(), world.new_id(), head, Staging(ASKS, list(made.files)),
        ASKS, branch=connection.branch, ledger_in=lambda at: ledger_place.properties(connection, at), last=member.through,
    )  # fmt: skip
    try:
        done = run(commit(plan, head, limits=ASKS), world)
    except (NotCommittedError, CommitUnknownError) as error:
        return Step("finish", member.path, "failed", error.message)
    detail = "it was there" if done.already else f"key {made.write.key}"
    return Step("finish", member.path, "done", detail, version=done.snapshot_id, rows=made.write.rows)
