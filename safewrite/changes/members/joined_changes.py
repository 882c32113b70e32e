"""Keeps the changes of other writers that one commit applies after its own, one after another in memory, and makes its plan.

What one call after another would do comes of it.  A member holds the changes, not files: whoever leads decides about them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from safewrite.changes.meaning.member_batches import MemberChanges
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.meaning.spec import AllLate, Spec
from safewrite.changes.members.member_changes import packed_batch, unpacked_batch
from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.changes.tasks.one_part import OnePart
from safewrite.errors import SafewriteError
from safewrite.protocol import member_queue
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.member_queue import CHANGES_FORM, Offer
from safewrite.protocol.members import MemberWrite
from safewrite.protocol.sharing import MEMBER_BYTES_MAX

log = logging.getLogger("safewrite")
OneWrite = TypeVar("OneWrite", bound=MemberWrite)
Planned = Generator[Effect, Outcome, Mapping[str, SafewriteError]]
"""A plan; it returns the errors of the members that it cannot be made with, by their keys."""

ROUNDS_MAX = 4
"""Members that are at fault are left out at most this many times; then all are."""
ROWS_MAX = 100_000
"""One commit applies at most this many changes of others."""
BATCH_BYTES_MAX = MEMBER_BYTES_MAX // 2
"""A batch of more bytes than this goes alone: as text in a member it is a third longer."""
UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, IndexError, OSError, pa.ArrowException)
"""What a garbled member makes of its readers."""
_ALL_LATE: Mapping[str, AllLate] = {"error": "error", "count": "count"}


@dataclass(frozen=True, slots=True)
class WaitingChanges(Generic[OneWrite]):
    """Changes of another process."""

    path: str
    write: OneWrite
    changes: MemberChanges


@dataclass
class JoinedChanges(Generic[OneWrite]):
    """Changes of one call as those that others may apply, and the ``others`` whose changes its commit applies after them."""

    key: str
    changes: Changes
    all_late: AllLate
    work: OnePart
    others: tuple[WaitingChanges[OneWrite], ...] = ()
    left_out: frozenset[str] = frozenset()
    """Paths of members that no plan can be made with."""

    # --- members --------------------------------------------------------------------------------
    def packed(self) -> dict[str, Any]:
        """What a member says of our changes."""
        return {"changes": packed_batch(self.changes.batch), "allLate": self.all_late}

    def read(
        self, path: str, write: OneWrite, member: Mapping[str, Any], schema: pa.Schema
    ) -> WaitingChanges[OneWrite] | None:
        """The changes of a member; None where they are not those that its write names, or declare other keys or another sequence.

        Of two that are unlike one meets its own error.

        Raises:
            ``UNREADABLE``
        """
        changes, own = unpacked_batch(member["changes"], schema), self.changes.batch
        other = changes.batch
        is_like = (other.keys, other.sequence_by) == (own.keys, own.sequence_by)
        if not is_like or str(changes.fingerprint) != write.fingerprint:
            return None
        return WaitingChanges(
            path, write, MemberChanges(write.key, changes, all_late=_ALL_LATE[member["allLate"]])
        )

    def offered(self, offers: Sequence[Offer]) -> list[Offer]:
        """The members that bring changes, and that a plan can be made with as far as is known."""
        return [
            one
            for one in offers
            if one.path not in self.left_out and member_queue.is_known(one.body, CHANGES_FORM)
        ]

    def join(self, taken: Sequence[WaitingChanges[OneWrite]]) -> bool:
        """Apply the changes of these members after our own; whether they are other members than before."""
        if [one.path for one in taken] == [one.path for one in self.others]:
            return False
        own = MemberChanges(self.key, self.changes)
        self.others = tuple(taken)
        self.work.join((own, *(one.changes for one in taken)) if taken else ())
        return True

    def whole(self, write: OneWrite, applied: AppliedBatch | None) -> OneWrite:
        """All that the commit of our ``write`` carries: each with what became of its own changes, and rows count once."""
        if not self.others or applied is None:
            return write
        others = [described(one.write, applied, write.files) for one in self.others]
        return replace(write.carrying(others), rows=applied.rows)


def sharing(key: str, changes: Changes, spec: Spec, work: OnePart) -> JoinedChanges[Any] | None:
    """Changes that others may apply; None where the call asks for more than to apply a small batch."""
    plain = spec.check is None and not spec.full_refresh
    small = changes.batch.table.nbytes <= BATCH_BYTES_MAX
    return JoinedChanges(key, changes, spec.all_late, work) if plain and small else None


def bounded(fit: Sequence[WaitingChanges[OneWrite]]) -> list[WaitingChanges[OneWrite]]:
    """Those that are within the bound of rows; the others wait on."""
    rows = accumulate(one.changes.changes.batch.table.num_rows for one in fit)
    return [one for one, so_far in zip(fit, rows, strict=True) if so_far <= ROWS_MAX]


def described(write: OneWrite, applied: AppliedBatch, files: int) -> OneWrite:
    """A write that says what became of its changes; of a group each member does, and rows count once."""
    outcome = applied.outcome
    if write.members:
        members: list[Any] = [described(one, applied, one.files) for one in write.members]
        return replace(write.group(write.key, members, files), rows=applied.rows)
    counts = outcome.counts.get(write.key, outcome.settled.decision.counts).to_dict()
    return replace(write, rows=outcome.rows.get(write.key, applied.rows), files=files, changes=counts)


# --- the plan -------------------------------------------------------------------------------------------
class Joins(Protocol):
    """Changes that are applied together with those of others, each of which has a path and a write."""

    @property
    def key(self) -> str:
        """The key of our own write."""

    @property
    def others(self) -> Sequence[Any]: ...

    left_out: frozenset[str]

    def join(self, taken: Sequence[Any]) -> bool:
        """Apply the changes of these members too, after our own."""


def plan_with_others(joins: Joins, once: Callable[[], Planned]) -> Planned:
    """Plan with the members that no fault keeps out: these are left out, and meet their own error.

    What a plan raises that is made with others may be the fault of any of them, so each goes alone.
    """
    for _ in range(ROUNDS_MAX):
        every = {one.write.key for one in joins.others}
        if not every:
            break
        try:
            faults = yield from once()
        except Exception:
            log.info("changes of others could not be planned with ours: each goes alone", exc_info=True)
            faults = {joins.key: SafewriteError("No plan can be made with all of them.")}
        if not faults:
            return faults
        _leave_out(joins, every if joins.key in faults else faults.keys())
    else:
        _leave_out(joins, {one.write.key for one in joins.others})
    return (yield from once())


def _leave_out(joins: Joins, keys: Any) -> None:
    """Go on without the members of these keys."""
    joins.left_out |= {one.path for one in joins.others if one.write.key in keys}
    joins.join([one for one in joins.others if one.write.key not in keys])
