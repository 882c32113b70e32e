"""Applies the batches of many members one after another in memory, so that one commit does what as many would have done.

Each member is decided on what those before it in the call leave, so its counts and its refusal are those of a call of its own.
A member that is refused leaves no trace, and the others go on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa

from safewrite.changes.meaning.accounting import check_result
from safewrite.changes.meaning.decide import ChangeBatch, ChangeCounts, ChangeOp, Decision, KnownRows
from safewrite.changes.meaning.memory import HORIZON_MS, Memory
from safewrite.changes.meaning.positions import Flags, Numbers, among, meeting, values_of
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.meaning.spec import AllLate, Spec
from safewrite.changes.meaning.unchanged_values import TableEffect, settle
from safewrite.errors import Kind, NotCommittedError, SafewriteError
from safewrite.frames.required import under
from safewrite.text.rendering import shown


@dataclass(frozen=True)
class MemberChanges:
    """The changes of one member; ``ordered_in`` is the group of its queue whose order is kept.

    ``all_late`` is what its writer declared, where that is not the call's.
    """

    key: str
    changes: Changes
    ordered_in: Hashable = None
    all_late: AllLate | None = None


@dataclass(frozen=True)
class GroupOutcome:
    """What a commit does: to the table, to what is remembered, and for each member by its key.

    ``again`` counts rows that a member brought and a later one replaced or deleted: they are never written.
    """

    settled: TableEffect
    memory: Memory
    counts: Mapping[str, ChangeCounts] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, SafewriteError] = field(default_factory=dict)
    again: int = 0


def whole(members: Sequence[MemberChanges]) -> ChangeBatch:
    """One batch of all changes, by which rows of the table are found that one of them may concern."""
    batches = [member.changes.batch for member in members]
    first, names = batches[0], sorted({name for batch in batches for name in batch.absent})
    sizes = [batch.table.num_rows for batch in batches]
    absent = {
        name: np.concatenate([
            batch.absent.get(name, np.zeros(size, np.bool_)) for batch, size in zip(batches, sizes, strict=True)
        ])
        for name in names
    }  # fmt: skip
    table = pa.concat_tables([batch.table for batch in batches])
    return replace(first, table=table, ops=np.concatenate([batch.ops for batch in batches]), absent=absent)


def one_by_one(
    members: Sequence[MemberChanges], spec: Spec, known: KnownRows, memory: Memory, now_ms: int
) -> GroupOutcome:
    """What the batches of all members do, each on what those before it leave."""
    state = _KeyState(spec, known, memory, whole(members), now_ms)
    faults: dict[str, SafewriteError] = {}
    counts: dict[str, ChangeCounts] = {}
    rows: dict[str, int] = {}
    at_fault: dict[Hashable, str] = {}
    for member in members:
        first = at_fault.get(member.ordered_in) if member.ordered_in is not None else None
        if first is not None:
            faults[member.key] = _held_back(member, first)
            continue
        try:
            counts[member.key], rows[member.key] = state.take(member)
        except SafewriteError as error:
            error.key = error.key or member.key
            faults[member.key] = error
            at_fault[member.ordered_in] = member.key
    return GroupOutcome(state.settled(counts.values()), state.remembered(), counts, rows, faults, state.again)


class _KeyState:
    """What the table holds and remembers of the members' keys, after some of them."""

    def __init__(self, spec: Spec, known: KnownRows, memory: Memory, every: ChangeBatch, now_ms: int) -> None:
        self.spec, self.now_ms, self.again = spec, now_ms, 0
        self.rows, self.count = known.rows, known.rows.num_rows
        self.origin = np.arange(known.rows.num_rows)
        """The number of each row among those of the table; -1 for rows that members brought."""
        self.before, self.forgotten = memory, known.forgotten
        wanted = values_of(every.table, every.keys)
        has_truncates = bool((every.ops == ChangeOp.TRUNCATE).any())
        near, also = (among(part, wanted) | has_truncates for part in (memory.tombstones, memory.carried))
        self.far = memory.tombstones.filter(pa.array(~near)), memory.carried.filter(pa.array(~also))
        self.memory = self.near = replace(
            memory,
            tombstones=memory.tombstones.filter(pa.array(near)),
            carried=memory.carried.filter(pa.array(also)),
        )

    def take(self, member: MemberChanges) -> tuple[ChangeCounts, int]:
        """Apply the changes of one member; how many of its changes did what, and how many rows it wrote.

        Raises:
            SafewriteError: it is refused, and nothing of it was applied.
        """
        batch, spec = member.changes.batch, self.spec
        mine = self._rows_of(batch)
        places = np.flatnonzero(mine)
        settled = settle(batch, self._known(batch, places))
        decision = settled.decision
        check_result(replace(spec, all_late=member.all_late or spec.all_late), decision, settled.rows)
        # The horizon of tombstones is for the commit: what it gives up, no member of it misses.
        self.memory = self.memory.with_batch(batch, settled, self.now_ms)
        stays = np.ones(len(mine), np.bool_)
        stays[places[decision.dropped]] = False
        self.again += int((self.origin[~stays] < 0).sum())
        kept = self.rows.filter(pa.array(stays))
        self.rows = pa.concat_tables([kept, under(settled.rows, kept.schema)]).combine_chunks()
        self.origin = np.concatenate([self.origin[stays], np.full(settled.rows.num_rows, -1)])
        return decision.counts, settled.rows.num_rows

    def _rows_of(self, batch: ChangeBatch) -> Flags:
        """The rows with keys of a batch: those of others are not its business, unless it truncates."""
        if (batch.ops == ChangeOp.TRUNCATE).any():
            return np.ones(self.rows.num_rows, np.bool_)
        return meeting(batch.table.select(batch.keys), self.rows.select(batch.keys))

    def _known(self, batch: ChangeBatch, places: Numbers) -> KnownRows:
        memory = self.memory
        return KnownRows(
            self.rows.take(pa.array(places, pa.int64())),
            memory.tombstones.select([*batch.keys, *batch.sequence_by]),
            memory.floor,
            self.forgotten,
            memory.carried,
        )

    def settled(self, counts: Iterable[ChangeCounts]) -> TableEffect:
        """What all of them do to the rows of the table."""
        nothing, each = np.zeros(0, np.int64), [*counts]
        total = ChangeCounts(
            **{one.name: sum(getattr(found, one.name) for found in each) for one in fields(ChangeCounts)}
        )
        dropped = np.setdiff1d(np.arange(self.count), self.origin, assume_unique=True)
        decision = Decision(total, nothing, dropped, nothing, nothing, self.memory.floor)
        new = self.rows.filter(pa.array(self.origin < 0))
        return TableEffect(decision, new, self.memory.carried, is_as_it_came=False)

    def remembered(self) -> Memory:
        """What is to be remembered after all of them."""
        if self.memory.says_the_same(self.near):
            after = self.before
        else:
            stones, carried = self.far
            after = replace(
                self.memory,
                tombstones=pa.concat_tables([stones, self.memory.tombstones]),
                carried=pa.concat_tables([carried, self.memory.carried]),
            )
        return after.without_old(self.now_ms - HORIZON_MS)


def _held_back(member: MemberChanges, first: str) -> NotCommittedError:
    return NotCommittedError(
        f"It comes after {first!r} in the group {shown(member.ordered_in)}, which is at fault: it was left out, so that the "
        "group keeps its order. Nothing of it was written. Deliver it again after that one is mended or taken out.",
        kind=Kind.HELD_BACK,
        key=member.key,
    )
