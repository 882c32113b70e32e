"""Finds writes that their writers left behind in the queue of those who share commits, and brings them to an end.

Only the log decides: a write that it holds, or that no one may commit any more, is taken out of the queue.  One that may
still be committed is committed, for a writer that has read it may do so as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from safewrite.delta.maintenance import vanished
from safewrite.delta.maintenance.inspection import ASKS, Inspection, now_ms
from safewrite.delta.maintenance.repair import staged_in_place
from safewrite.delta.write.abc import Write
from safewrite.delta.write.transaction import Transaction
from safewrite.delta.write.waiting import decoded
from safewrite.errors import CommitUnknownError, ConflictError, NotCommittedError
from safewrite.findings import Findings, Step, Steps
from safewrite.protocol import member_queue
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import commit
from safewrite.protocol.effects import Get, Ok
from safewrite.protocol.member_queue import Offer, Waiting
from safewrite.stores import left_writes
from safewrite.stores.left_writes import Left, left_in
from safewrite.stores.world import World, run


@dataclass
class LeftWrite(Transaction):
    """A member's write, to be committed in the versions that its queue allows and in no later one."""

    through: int = -1

    def body(self, version: int) -> bytes:
        if version > self.through:
            raise ConflictError("Others committed meanwhile, and no one may commit it any more.")
        return super().body(version)


def left_behind(found: Inspection) -> list[Left]:
    """The members that no one seems to wait for, the oldest first."""
    there = left_in(member_queue.FOLDER, found.world, ASKS, lambda: now_ms(found))
    return [Left(one, age_s, _end(found, one)) for one, age_s in there]


def _end(found: Inspection, member: Waiting) -> str:
    since = (found.commits[v] for v in found.commits if v > member.base)
    if any(member_queue.is_of(member.path, key) for commit in since for key in vanished.hashes_of(commit)):
        return "it is in the log"
    if member.through <= found.head:
        return "no one may commit it any more"
    got, state = found.world.perform(Get(member.path, name="finish.get_member")), found.state
    body = got.value if isinstance(got, Ok) else None
    is_other = (
        state is not None and isinstance(body, bytes) and member_queue.is_of_another(body, state.table_id)
    )
    return left_writes.OF_ANOTHER if is_other else ""


def examine(found: Inspection) -> Findings:
    """What doctor says of them."""
    yield from left_writes.examine(left_behind(found))


def finish(
    found: Inspection, world: World, *, arbiter: Arbiter, engine_version: str = "", dry_run: bool = False
) -> Steps:
    """Commit what may still be committed, and take the rest out of the queue."""

    def commit_one(member: Waiting) -> Step:
        return _commit(found, world, member, arbiter, engine_version)

    yield from left_writes.finish(left_behind(found), world, commit_one, dry_run=dry_run)


def _commit(found: Inspection, world: World, member: Waiting, arbiter: Arbiter, engine_version: str) -> Step:
    state, got = found.state, world.perform(Get(member.path, name="finish.get_member"))
    body = got.value if isinstance(got, Ok) else None
    if state is None or not isinstance(body, bytes):
        return Step("finish", member.path, "skipped", "its body, or the log, cannot be read")
    write = decoded(Offer(member.path, member.base, body), state, Write)
    if write is None:
        why = "the table has changed since: it waits until the log has moved on"
        return Step("finish", member.path, "skipped", why)
    files = staged_in_place(world, [action["add"] for action in write.adds])
    if isinstance(files, str):
        return Step("finish", member.path, "skipped", files)
    candidate = LeftWrite(
        commit_id=world.new_id(), write=write.write, timestamp_ms=now_ms(found), limits=ASKS, state=state,
        files=files, engine_version=engine_version, through=member.through,
    )  # fmt: skip
    try:
        landed = run(commit(candidate, member.base, arbiter=arbiter, limits=ASKS), world)
    except (NotCommittedError, CommitUnknownError) as error:
        return Step("finish", member.path, "failed", error.message)
    detail = "it was there" if landed.already else f"key {write.write.key}"
    return Step("finish", member.path, "done", detail, version=landed.version, rows=write.write.rows)
