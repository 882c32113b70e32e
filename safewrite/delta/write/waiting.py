"""Writes down an append as a member that other writers may commit, and reads such members."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from safewrite.delta.log import actions
from safewrite.delta.log.actions import Action, Commit, rows_of
from safewrite.delta.log.indexing import CLUSTERING
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.abc import SharedWrite, WaitingWrite, Write
from safewrite.delta.write.conflicts import clusters, significant
from safewrite.delta.write.members import ENGINE, carried, keys_by_hash, own_info
from safewrite.protocol import member_queue, members
from safewrite.protocol.effects import Put
from safewrite.protocol.member_queue import Offer
from safewrite.protocol.members import CarriedT, abreast
from safewrite.stores.table_folder import is_inside

WITHDRAWN = "withdrawn"
"""Where a commit names the keys of which no later one carries what was offered before it."""


@dataclass(frozen=True, slots=True)
class SharedAppend:
    """A blind append as ``safewrite.protocol.member_queue.Sharer``."""

    plan: SharedWrite

    @property
    def kind(self) -> str:
        return ""

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset()

    @property
    def known(self) -> Mapping[int, object]:
        return self.plan.known

    @property
    def key(self) -> str:
        return self.plan.write.key

    @property
    def member_file(self) -> Put | None:
        return self.plan.member_file

    def member(self, base: int) -> bytes | None:
        plan = self.plan
        if plan.state is None:
            return None
        plan.write = replace(plan.write, offer=plan.write.offer or plan.commit_id)
        return encoded(plan.write, [file.action for file in plan.files], plan.state, base)

    def note(self, version: int, body: bytes) -> None:
        self.plan.known[version] = keys_in(actions.parse(body, version))

    def is_in(self, version: int, body: bytes) -> bool:
        return self.key in carried(own_info(body, version), (self.key,))

    def carried_by(self, version: int) -> Container[str] | None:
        info = self.plan.known.get(version)
        return None if info is None else keys_by_hash(info)

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        plan = self.plan
        assert plan.state is not None
        state, make, table = plan.state, type(plan.write), layout(plan.state)
        like_ours = [one for one in offered if member_queue.is_known(one.body)]
        read = reading(plan.read, table, lambda offer: decoded(offer, state, make, table))
        at: dict[str, Any] = {"version": state.version, "txns": state.txns, "known": plan.known}
        taken, refused = fitting(plan.write, like_ours, read, **at)
        if taken or plan.taken:  # another body for a version is another attempt
            plan.commit_id = commit_id
        plan.taken = tuple(taken)
        return tuple(one.path for one in taken), refused


def keys_in(commit: Commit) -> Mapping[str, Any] | None:
    """What safewrite recorded in a commit; None if it changed what the files of an append depend on.

    No member from before such a commit is carried after it: its owner may have ended with that conflict.
    """
    if commit.metadata is not None or commit.protocol is not None or clusters(commit):
        return None
    return (commit.commit_info or {}).get(ENGINE) or {}


# --- a member as JSON -----------------------------------------------------------------------------------
def encoded(write: Write, adds: Sequence[Mapping[str, Any]], state: Snapshot, base: int) -> bytes:
    """A member of the queue (``safewrite.protocol.sharing``)."""
    entry = {**write.whole_entry(), "int63": write.fingerprint_int63}
    return member_queue.encoded(state.table_id, base, layout(state), entry, {"actions": list(adds)})


def decoded(offer: Offer, state: Snapshot, make: type[Write], table: str = "") -> WaitingWrite | None:
    """The write of a member; None if it is not one of this table as it is now, or its files are not its rows, or lie elsewhere.

    ``table`` is the layout of ``state``, where that is known.
    """
    member = member_queue.decoded(offer, state.table_id, table or layout(state))
    if member is None:
        return None
    try:
        entry, adds = member["write"], member["actions"]
        write = make(**member_queue.write_of(entry), fingerprint_int63=int(entry["int63"]))
        counted = [rows_of(action["add"]) if is_inside(action["add"]["path"]) else None for action in adds]
    except (KeyError, ValueError, TypeError, AttributeError, IndexError):
        return None
    if None in counted or sum(rows or 0 for rows in counted) != write.rows or len(counted) != write.files:
        return None
    return WaitingWrite(offer.path, write, tuple(adds))


def layout(state: Snapshot) -> str:
    """A digest of all that the files of an append depend on."""
    metadata: Action = significant(state.metadata)
    told: list[Any] = [metadata, state.protocol]
    if CLUSTERING in state.domains:
        told.append(state.domains[CLUSTERING])
    text = json.dumps(told, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# --- which members a commit carries ---------------------------------------------------------------------
def reading(
    kept: dict[str, tuple[str, Any]], table: str, read: Callable[[Offer], CarriedT | None]
) -> Callable[[Offer], CarriedT | None]:
    """Reads each member once for a table of this layout, however many tries it is offered to: no member ever changes."""

    def once(offer: Offer) -> CarriedT | None:
        if kept.get(offer.path, ("",))[0] != table:
            kept[offer.path] = (table, read(offer))
        found: CarriedT | None = kept[offer.path][1]
        return found

    return once


def fitting(
    own: members.MemberWrite,
    offered: Sequence[Offer],
    read: Callable[[Offer], CarriedT | None],
    *,
    version: int,
    txns: Mapping[str, int],
    known: Mapping[int, Mapping[str, Any] | None],
) -> tuple[list[CarriedT], frozenset[str]]:
    """The members that can follow a version of the table together with our write, and the paths of those that never can."""
    hashes = {at: None if info is None else keys_by_hash(info) for at, info in known.items()}
    left, refused = list[CarriedT](), set[str]()
    for offer in offered:
        one = read(offer)
        since = range(offer.base + 1, version + 1)
        between = [hashes.get(at) for at in since]
        if (
            one is None
            or None in between
            or is_there(one.write, between, txns)
            or is_withdrawn(one.write.key, [known.get(at) or {} for at in since])
        ):
            refused.add(offer.path)
        else:
            left.append(one)
    return abreast(own, left), frozenset(refused)


def is_there(
    write: members.MemberWrite, between: Sequence[Mapping[str, str] | None], txns: Mapping[str, int]
) -> bool:
    """Whether commits since its base carry a write, or its app is past its batch."""
    key = members.hashed(write.key)
    if any(keys is not None and key in keys for keys in between):
        return True
    return write.txn is not None and write.txn[1] <= txns.get(write.txn[0], -1)


def is_withdrawn(key: str, infos: Sequence[Mapping[str, Any]]) -> bool:
    """Whether commits since its base say that what was offered under this key is carried by no one."""
    return any(key in info.get(WITHDRAWN, ()) for info in infos)
