"""Writes down changes as a member that other writers may apply and commit, and reads such members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.meaning.member_batches import MemberChanges
from safewrite.changes.members.member_changes import packed_batch, unpacked_batch
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.transaction import Write
from safewrite.delta.write.waiting import SharedAppend, fitting, layout, reading
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import CHANGES, CHANGES_FORM, Offer
from safewrite.protocol.sharing import MEMBER_BYTES_MAX

if TYPE_CHECKING:
    from safewrite.changes.meaning.decide import ChangeBatch
    from safewrite.changes.meaning.spec import AllLate
    from safewrite.delta.write.apply_shared import SharedApplyTransaction

_ALL_LATE: Mapping[str, AllLate] = {"error": "error", "count": "count"}
ROWS_MAX = 100_000
"""One commit applies at most this many changes of others."""
BATCH_BYTES_MAX = MEMBER_BYTES_MAX // 2
"""A batch of more bytes than this goes alone: as text in a member it is a third longer."""


@dataclass(frozen=True, slots=True)
class WaitingChanges:
    """Changes of another process."""

    path: str
    write: Write
    changes: MemberChanges


@dataclass(frozen=True, slots=True)
class ChangesToShare(SharedAppend):
    """Changes as ``safewrite.protocol.member_queue.Sharer``: they are planned once it is known who else is in the commit."""

    plan: SharedApplyTransaction

    @property
    def kind(self) -> str:
        return CHANGES

    @property
    def left_out(self) -> frozenset[str]:
        return self.plan.left_out

    @property
    def member_file(self) -> None:
        """None: the plan uploads it, which tells first what became of each member's changes."""

    def member(self, base: int) -> bytes | None:
        plan = self.plan
        if plan.state is None or plan.changes is None or plan.spec is None:
            return None
        plan.write = replace(plan.write, offer=plan.write.offer or plan.commit_id)
        return encoded(plan.write, plan.changes.batch, plan.spec.all_late, plan.state, base)

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan = self.plan
        assert plan.state is not None
        assert plan.changes is not None
        state, batch, table = plan.state, plan.changes.batch, layout(plan.state)
        left = [
            offer
            for offer in offered
            if offer.path not in plan.left_out and member_queue.is_known(offer.body, CHANGES_FORM)
        ]

        def like_ours(offer: Offer) -> WaitingChanges | None:
            one = decoded(offer, state, table)
            return None if one is None or _is_unlike(one, batch) else one

        read = reading(plan.read, table, like_ours)
        at: dict[str, Any] = {"version": state.version, "txns": state.txns, "known": plan.known}
        fit, refused = fitting(plan.write, left, read, **at)
        taken = _bounded(fit)
        if taken or plan.joined:  # another body for a version is another attempt
            plan.commit_id = commit_id
        plan.join(taken)
        return tuple(one.path for one in taken), refused


# --- a member as JSON -----------------------------------------------------------------------------------
def encoded(write: Write, batch: ChangeBatch, all_late: AllLate, state: Snapshot, base: int) -> bytes:
    """A member of the queue (``safewrite.protocol.sharing``)."""
    entry = {**replace(write, changes=None).whole_entry(), "int63": write.fingerprint_int63}
    packed = {"changes": packed_batch(batch), "allLate": all_late}
    return member_queue.encoded(state.table_id, base, layout(state), entry, packed, form=CHANGES_FORM)


def decoded(offer: Offer, state: Snapshot, table: str) -> WaitingChanges | None:
    """The changes of a member; None if it is not one of this table as it is now, or they are not those that it names."""
    member = member_queue.decoded(offer, state.table_id, table)
    if member is None:
        return None
    try:
        entry: Mapping[str, Any] = member["write"]
        write = Write(**member_queue.write_of(entry), changes={}, fingerprint_int63=int(entry["int63"]))
        changes = unpacked_batch(member["changes"], state.schema)
        all_late = _ALL_LATE[member["allLate"]]
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, pa.ArrowException):
        return None
    if str(changes.fingerprint) != write.fingerprint or changes.fingerprint.int63 != write.fingerprint_int63:
        return None
    return WaitingChanges(offer.path, write, MemberChanges(write.key, changes, all_late=all_late))


# --- which members a commit carries ---------------------------------------------------------------------
def _bounded(fit: Sequence[WaitingChanges]) -> list[WaitingChanges]:
    """Those that are within the bound of rows; the others wait on."""
    rows = accumulate(one.changes.changes.batch.table.num_rows for one in fit)
    return [one for one, so_far in zip(fit, rows, strict=True) if so_far <= ROWS_MAX]


def _is_unlike(one: WaitingChanges, batch: ChangeBatch) -> bool:
    """Whether it declares other keys or another sequence than we do: one of the two meets its own error."""
    other = one.changes.changes.batch
    return (other.keys, other.sequence_by) != (batch.keys, batch.sequence_by)
