"""Writes down changes as a member that other writers may apply and commit, and reads such members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from safewrite.changes.members.joined_changes import UNREADABLE, JoinedChanges, WaitingChanges, bounded
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.abc import SharedPlan
from safewrite.iceberg.write.summary import Write
from safewrite.iceberg.write.waiting import SharedSnapshot, fitting, layout
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import CHANGES, CHANGES_FORM, Offer, Steps


@dataclass(slots=True)
class ChangesToShare(SharedSnapshot):
    """Changes as ``safewrite.protocol.iceberg.change.CatalogSharer``: they are planned once it is known who else is in the commit."""

    plan: SharedPlan
    joined: JoinedChanges[Write]

    @property
    def kind(self) -> str:
        return CHANGES

    @property
    def left_out(self) -> frozenset[str]:
        return self.joined.left_out

    def secure(self) -> Steps:
        """Upload nothing: whoever leads makes the files."""
        yield from ()

    def member(self, base: int) -> bytes | None:
        plan, head = self.plan, self.head
        plan.write = replace(plan.write, offer=plan.write.offer or plan.write_id)
        entry, table = replace(plan.write, changes=None).whole_entry(), layout(head, plan.branch)
        return member_queue.encoded(
            head.table_id, base, table, entry, self.joined.packed(), form=CHANGES_FORM
        )

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan, joined, head = self.plan, self.joined, self.head
        table, schema = layout(head, plan.branch), arrow_schema(table_of(head).metadata.schema())

        def read(offer: Offer) -> WaitingChanges[Write] | None:
            return _decoded(offer, head.table_id, table, joined, schema)

        fit, refused = fitting(plan.write, joined.offered(offered), head, read)
        taken = bounded(fit)
        if taken or joined.others:
            plan.begin_again(commit_id)
        joined.join(taken)
        return tuple(one.path for one in taken), refused


def _decoded(
    offer: Offer, table_id: str, table: str, joined: JoinedChanges[Write], schema: pa.Schema
) -> WaitingChanges[Write] | None:
    """The changes of a member; None if it is not one of this table as it is now, or is not to be applied with ours."""
    member = member_queue.decoded(offer, table_id, table)
    if member is None:
        return None
    try:
        write = Write(**member_queue.write_of(member["write"]), changes={})
        return joined.read(offer.path, write, member, schema)
    except UNREADABLE:
        return None
