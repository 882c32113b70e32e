"""Writes down changes as a member that other writers may apply and commit, and reads such members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safewrite.changes.members.joined_changes import UNREADABLE, JoinedChanges, WaitingChanges, bounded
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import SharedApply, Write
from safewrite.delta.write.waiting import SharedAppend, fitting, layout, reading
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import CHANGES, CHANGES_FORM, Offer


@dataclass(frozen=True, slots=True)
class ChangesToShare(SharedAppend):
    """Changes as ``safewrite.protocol.member_queue.Sharer``: they are planned once it is known who else is in the commit."""

    plan: SharedApply
    joined: JoinedChanges[Write]

    @property
    def kind(self) -> str:
        return CHANGES

    @property
    def left_out(self) -> frozenset[str]:
        return self.joined.left_out

    @property
    def member_file(self) -> None:
        """None: the plan uploads it, which tells first what became of each member's changes."""

    def member(self, base: int) -> bytes | None:
        plan, state = self.plan, self.plan.state
        if state is None:
            return None
        plan.write = replace(plan.write, offer=plan.write.offer or plan.commit_id)
        entry = {
            **replace(plan.write, changes=None).whole_entry(),
            "int63": plan.write.fingerprint_int63,
        }
        return member_queue.encoded(
            state.table_id, base, layout(state), entry, self.joined.packed(), form=CHANGES_FORM
        )

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan, joined, state = self.plan, self.joined, self.plan.state
        assert state is not None
        table = layout(state)
        read = reading(plan.read, table, lambda offer: decoded(offer, state, joined, table))
        at: dict[str, Any] = {"version": state.version, "txns": state.txns, "known": plan.known}
        fit, refused = fitting(plan.write, joined.offered(offered), read, **at)
        taken = bounded(fit)
        if taken or joined.others:  # another body for a version is another attempt
            plan.commit_id = commit_id
        if joined.join(taken):
            plan.plan_again()
        return tuple(one.path for one in taken), refused


def decoded(
    offer: Offer, state: Snapshot, joined: JoinedChanges[Write], table: str
) -> WaitingChanges[Write] | None:
    """The changes of a member; None if it is not one of this table as it is now, or is not to be applied with ours."""
    member = member_queue.decoded(offer, state.table_id, table)
    if member is None:
        return None
    try:
        entry: Mapping[str, Any] = member["write"]
        write = Write(**member_queue.write_of(entry), changes={}, fingerprint_int63=int(entry["int63"]))
        one = joined.read(offer.path, write, member, state.schema)
    except UNREADABLE:
        return None
    if one is None or one.changes.changes.fingerprint.int63 != write.fingerprint_int63:
        return None
    return one
