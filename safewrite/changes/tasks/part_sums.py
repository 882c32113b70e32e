"""Says in the driver what the parts of a batch are asked, and puts together what each of them decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.decide import ChangeBatch, ChangeCounts, ChangeOp, Decision, KnownRows, decide
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Numbers, Position
from safewrite.changes.meaning.reading import loose
from safewrite.changes.meaning.unchanged_values import TableEffect
from safewrite.changes.tasks.by_part import KeyDecisions, PartInput, full
from safewrite.changes.tasks.read_task import PLACE, ReadBatch


@dataclass(frozen=True)
class BatchEffect:
    """What a batch does to a table, in the words of :class:`TableEffect`, without rows.

    ``goes`` has the places of rows that go, by file; where a truncate came, all rows before ``cut`` go too.
    """

    settled: TableEffect
    deletes: ChangeBatch
    goes: dict[str, Numbers]
    cut: Position | None

    def after(self, memory: Memory, now_ms: int) -> Memory:
        """What is to be remembered after it."""
        return memory.after(self.deletes, self.settled, now_ms)

    @property
    def dropped(self) -> int:
        """How many rows of the keys go; a truncate may take more."""
        return len(self.settled.decision.dropped)


def needs_whole(changes: ReadBatch, memory: Memory) -> bool:
    """Whether rows of the table are asked for with all columns from the start, for values may be carried on."""
    spec = changes.spec
    return spec.unchanged is not None or spec.rule is not None or memory.carried.num_rows > 0


def question_of(changes: ReadBatch, memory: Memory, *, whole: bool) -> PartInput:
    """What all parts are asked; ``whole``: rows come with all columns."""
    return PartInput(
        changes.spec,
        changes.schema,
        changes.report.truncates,
        _within(_numbered(memory.tombstones), changes),
        _numbered(memory.carried),
        memory.floor,
        memory.forgotten,
        whole,
    )


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column(PLACE, pa.array(np.arange(table.num_rows)))


def _within(tombstones: pa.Table, changes: ReadBatch) -> pa.Table:
    """The tombstones that may be of keys of the batch."""
    if not tombstones.num_rows:
        return tombstones
    for name, ends in changes.report.ends.items():
        column = tombstones.column(name)
        low, high = (end.cast(column.type) for end in (ends[0], ends[-1]))
        inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
        tombstones = tombstones.filter(inside)
    return tombstones


def effect_of_truncates(changes: ReadBatch, memory: Memory) -> Decision:
    """What the truncates of a batch do by themselves, to all that is remembered.

    Raises:
        InvalidInputError: a tombstone has the sequence of one.
    """
    if not changes.report.truncates.num_rows:
        nothing = np.zeros(0, np.int64)
        kept = np.arange(memory.tombstones.num_rows)
        return Decision(ChangeCounts(), nothing, nothing, kept, nothing, memory.floor)
    cuts, wide = changes.report.truncates.sort_by(PLACE), loose(changes.schema)
    table = full(cuts, wide)
    spec = changes.spec
    ops = np.full(cuts.num_rows, ChangeOp.TRUNCATE, np.int8)
    stones = memory.tombstones.select([*spec.keys, *spec.sequence_by])
    known = KnownRows(wide.empty_table(), stones, memory.floor, memory.forgotten)
    return decide(ChangeBatch(table, ops, spec.keys, spec.sequence_by), known)


def summed(changes: ReadBatch, memory: Memory, answer: KeyDecisions, cuts: Decision) -> BatchEffect:
    """What all parts decided, and the truncates by themselves."""
    spec, wide = changes.spec, loose(changes.schema)
    names = [*spec.keys, *spec.sequence_by]
    none = memory.tombstones.select(names).slice(0, 0)
    deletes = answer.deletes
    deletes = deletes.cast(none.schema) if deletes is not None and deletes.num_rows else none
    batch = ChangeBatch(
        deletes, np.full(deletes.num_rows, ChangeOp.DELETE, np.int8), spec.keys, spec.sequence_by
    )
    decision = Decision(
        answer.counts,
        np.zeros(0, np.int64),
        np.zeros(sum(map(len, answer.goes.values())), np.int64),
        np.setdiff1d(cuts.kept, answer.lost, assume_unique=True),
        np.arange(deletes.num_rows),
        cuts.floor,
    )
    cut = cuts.floor if cuts.floor != memory.floor else None
    settled = TableEffect(decision, pa.Table.from_batches([], wide), _carried(memory, answer))
    return BatchEffect(settled, batch, answer.goes, cut)


def _carried(memory: Memory, answer: KeyDecisions) -> pa.Table:
    """What is remembered of carried values: entries of keys that no task had stay as they are."""
    if not memory.carried.num_rows and (answer.carried is None or not answer.carried.num_rows):
        return memory.carried
    stays = np.setdiff1d(np.arange(memory.carried.num_rows), answer.taken, assume_unique=True)
    kept_ones = memory.carried.take(pa.array(stays, pa.int64()))
    return (
        kept_ones
        if answer.carried is None
        else pa.concat_tables([kept_ones, answer.carried.cast(kept_ones.schema)])
    )
