"""Writes down changes as a member that other writers may apply and commit, and reads such members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.many import MemberChanges
from safewrite.changes.member_changes import packed_batch, unpacked_batch
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.members import keys_by_hash
from safewrite.delta.write.transaction import Write
from safewrite.delta.write.waiting import SharedAppend, is_there, layout
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import CHANGES, CHANGES_FORM, Offer
from safewrite.protocol.members import abreast
from safewrite.protocol.sharing import MEMBER_BYTES_MAX

if TYPE_CHECKING:
    from safewrite.changes.decide import ChangeBatch
    from safewrite.delta.write.apply_shared import SharedApplyTransaction

ROWS_MAX = 100_000
"""So many changes of others does one commit apply at most."""
BATCH_BYTES_MAX = MEMBER_BYTES_MAX // 2
"""A batch of so many bytes goes alone: as text in a member it is a third longer."""
WITHDRAWN = "withdrawn"
"""Where a commit names the attempts that no later one carries."""


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
        if plan.state is None or plan.changes is None:
            return None
        plan.write = replace(plan.write, offer=plan.write.offer or plan.commit_id)
        return encoded(plan.write, plan.changes.batch, plan.state, base)

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan = self.plan
        assert plan.state is not None
        assert plan.changes is not None
        left = [offer for offer in offered if offer.path not in plan.left_out]
        taken, refused = fitting(plan.write, left, plan.state, plan.known, plan.changes.batch)
        if taken or plan.joined:  # another body for a version is another attempt
            plan.commit_id = commit_id
        plan.join(taken)
        return tuple(one.path for one in taken), refused


# --- a member as JSON -----------------------------------------------------------------------------------
def encoded(write: Write, batch: ChangeBatch, state: Snapshot, base: int) -> bytes:
    """A member of the queue (``safewrite.protocol.sharing``)."""
    entry = {**replace(write, changes=None).whole_entry(), "int63": write.fingerprint_int63}
    packed = {"changes": packed_batch(batch)}
    return member_queue.encoded(state.table_id, base, layout(state), entry, packed, form=CHANGES_FORM)


def decoded(offer: Offer, state: Snapshot) -> WaitingChanges | None:
    """The changes of a member; None if it is not one of this table as it is now, or they are not those that it names."""
    member = member_queue.decoded(offer, state.table_id, layout(state))
    if member is None:
        return None
    try:
        entry: Mapping[str, Any] = member["write"]
        write = Write(**member_queue.write_of(entry), changes={}, fingerprint_int63=int(entry["int63"]))
        changes = unpacked_batch(member["changes"], state.schema)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, pa.ArrowException):
        return None
    if str(changes.fingerprint) != write.fingerprint or changes.fingerprint.int63 != write.fingerprint_int63:
        return None
    return WaitingChanges(offer.path, write, MemberChanges(write.key, changes))


# --- which members a commit carries ---------------------------------------------------------------------
def fitting(
    own: Write,
    offered: Sequence[Offer],
    state: Snapshot,
    known: Mapping[int, Mapping[str, Any] | None],
    batch: ChangeBatch,
) -> tuple[list[WaitingChanges], frozenset[str]]:
    """The members that can be applied after our batch, in their order, and the paths of those that never can.

    Those beyond the bound of rows wait on.
    """
    hashes = {version: None if info is None else keys_by_hash(info) for version, info in known.items()}
    left, refused, rows = list[WaitingChanges](), set[str](), 0
    for offer in filter(lambda offer: member_queue.is_known(offer.body, CHANGES_FORM), offered):
        one = decoded(offer, state)
        versions = range(offer.base + 1, state.version + 1)
        between = [hashes.get(version) for version in versions]
        infos = [known.get(version) or {} for version in versions]
        if (
            one is None
            or None in between
            or is_there(one.write, between, state)
            or any(one.write.offer in info.get(WITHDRAWN, ()) for info in infos)
            or _is_unlike(one, batch)
        ):
            refused.add(offer.path)
        elif (rows := rows + one.changes.changes.batch.table.num_rows) <= ROWS_MAX:
            left.append(one)
    return abreast(own, left), frozenset(refused)


def _is_unlike(one: WaitingChanges, batch: ChangeBatch) -> bool:
    """Whether it declares other keys or another sequence than we do: one of the two meets its own error."""
    other = one.changes.changes.batch
    return (other.keys, other.sequence_by) != (batch.keys, batch.sequence_by)
