"""Writes down an append as a member that other writers may commit, and reads such members.

A member brings its data files as a manifest: the entries that the snapshot's own manifest will have, as PyIceberg writes and reads them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from safewrite.iceberg.data.manifests import added_manifest, files_in
from safewrite.iceberg.data.partitions import misread_fields
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import members
from safewrite.iceberg.write.abc import SharedPlan, WaitingFiles
from safewrite.iceberg.write.members import WITHDRAWN
from safewrite.iceberg.write.summary import Write, find_members
from safewrite.protocol import member_queue
from safewrite.protocol.member_queue import ALONE, FOLDER, Offer, Steps, Terms
from safewrite.protocol.members import CarriedT, MemberWrite, abreast
from safewrite.stores.table_folder import leads_astray
from safewrite.stores.world import Performer
from safewrite.table.shared_queue import SharedQueue

if TYPE_CHECKING:
    from safewrite.protocol.iceberg.head import TableVersion

REMOTE = ("s3://", "s3a://", "s3n://")
FORMAT_MIN = 2
"""Tables of format version 1 number no snapshots: nothing would say until when a member may be committed."""


@dataclass(slots=True)
class SharedSnapshot:
    """A blind append as ``safewrite.protocol.iceberg.change.CatalogSharer``; ``head`` is the table version that was examined last."""

    plan: SharedPlan
    head: TableVersion

    @property
    def kind(self) -> str:
        return ""

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset()

    @property
    def member_file(self) -> None:
        """None: the manifest list has the writes where they are many."""

    @property
    def known(self) -> Mapping[int, object]:
        """The sequence numbers of the snapshots that the metadata shows, of every branch."""
        return dict.fromkeys(self.head.sequences.values())

    @property
    def key(self) -> str:
        return self.plan.write.key

    @property
    def folder(self) -> str:
        return folder_of(self.head)

    def secure(self) -> Steps:
        yield from self.plan.staging.complete(())

    def is_barred(self, head: TableVersion) -> bool:
        """Fields were added since, or the table is another: a commit that carries others requires all numbers as they were."""
        then, now = table_of(self.plan.planned).metadata, table_of(head).metadata
        counted = (then.table_uuid, then.last_column_id, then.last_partition_id)
        return counted != (now.table_uuid, now.last_column_id, now.last_partition_id)

    def see(self, head: TableVersion) -> None:
        self.head = head

    def member(self, base: int) -> bytes | None:
        plan = self.plan
        metadata = table_of(plan.planned).metadata
        if any(True for _ in misread_fields([metadata.spec()], plan.schema)):
            return None
        plan.write = replace(plan.write, offer=plan.write.offer or plan.write_id)
        _, manifest = added_manifest(metadata, plan.schema, plan.snapshot_id, plan.added, "member.avro")
        files = {"manifest": base64.b64encode(manifest).decode()}
        entry, table = plan.write.whole_entry(), layout(self.head, plan.branch)
        return member_queue.encoded(self.head.table_id, base, table, entry, files)

    def carried_by(self, version: int) -> None:
        """Who waits looks for its own member alone, not at snapshots."""

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan, head = self.plan, self.head
        known = [offer for offer in offered if member_queue.is_known(offer.body)]
        taken, refused = fitting(plan.write, known, head, lambda offer: decoded(offer, head, plan.branch))
        plan.carry(taken, commit_id)
        return tuple(one.path for one in taken), refused


def folder_of(head: TableVersion) -> str:
    """Where the members of a table wait; those of another branch than the main one wait for themselves."""
    own = f"~{head.branch_id}/" if head.branch_id else "/"
    return f"{table_of(head).location().rstrip('/')}/{FOLDER.rstrip('/')}{own}"


@dataclass
class TableQueue:
    """The queue of the table that is there now, for writers that share as ``group=`` says: with ``auto`` on S3, where they meet."""

    group: str
    _known: SharedQueue | None = None

    def terms(self, verb: str, head: TableVersion, world: Performer) -> Terms:
        """How a write shares: appends and changes do."""
        mark = folder_of(head), head.table_id
        if self._known is None or self._known.mark != mark:
            self._known = SharedQueue(self.group, mark[0].startswith(REMOTE), mark, world)
        return self._known.terms() if verb in {"append", "apply_changes"} else ALONE

    def note(self, may_share: bool | None) -> None:
        """Keep what a write that is in the table showed."""
        if self._known is not None:
            self._known.note(may_share)


def decoded(offer: Offer, head: TableVersion, branch: str) -> WaitingFiles | None:
    """The write of a member; None if it is not one of this table as it is now, or its files are not its rows."""
    member = member_queue.decoded(offer, head.table_id, layout(head, branch))
    if member is None:
        return None
    try:
        write = Write(**member_queue.write_of(member["write"]))
        files = tuple(files_in(base64.b64decode(member["manifest"], validate=True)))
    except Exception:  # noqa: BLE001 - whatever a garbled member makes of a decoder
        return None
    location = table_of(head).location()
    if any(leads_astray(file.file_path, location) or file.content != 0 for file in files):
        return None
    if sum(file.record_count for file in files) != write.rows or len(files) != write.files:
        return None
    return WaitingFiles(offer.path, write, files)


def layout(head: TableVersion, branch: str) -> str:
    """A digest of all that the files of an append depend on; a schema that came and went leaves its number."""
    metadata = table_of(head).metadata
    text = json.dumps([
        branch, metadata.format_version, metadata.current_schema_id, metadata.default_spec_id, metadata.default_sort_order_id,
        metadata.last_column_id, metadata.last_partition_id, sorted(one.schema_id for one in metadata.schemas),
        sorted(one.spec_id for one in metadata.partition_specs), sorted(one.order_id for one in metadata.sort_orders),
    ])  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def fitting(
    own: Write, offered: Sequence[Offer], head: TableVersion, read: Callable[[Offer], CarriedT | None]
) -> tuple[list[CarriedT], frozenset[str]]:
    """The members that can follow a table version together with our write, and the paths of those that never can.

    Every snapshot since their bases is in the metadata, as the protocol has seen to, on whatever branch.  A key in one of them is
    there or was rolled back: its owner decides.
    """
    made = [(offer, read(offer)) for offer in offered]
    met = met_in(head, [one.write for _, one in made if one is not None])
    back = withdrawals(head)
    left, refused = list[CarriedT](), set[str]()
    for offer, one in made:
        if one is None or one.write.key in met or back.get(one.write.key, -1) > offer.base:
            refused.add(offer.path)
        else:
            left.append(one)
    return abreast(own, left), frozenset(refused)


def met_in(head: TableVersion, writes: Sequence[MemberWrite]) -> set[str]:
    """The keys of those writes that any snapshot carries, or whose batch does not come next."""
    return members.named(head, {write.key for write in writes}) | set(find_members(head, writes))


def withdrawals(head: TableVersion) -> dict[str, int]:
    """The last snapshot, by its sequence number, that takes back what was offered under a key; see ``safewrite.table.withdrawal``."""
    said = {at: summary[WITHDRAWN] for at, summary in head.summaries.items() if WITHDRAWN in summary}
    return {said[at]: head.sequences[at] for at in sorted(said, key=head.sequences.__getitem__)}
