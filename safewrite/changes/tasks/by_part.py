"""Decides about the keys of one part of a batch, by the changes and the table's rows that have these keys.

A batch is cut into parts by key, so each part is decided about alone, wherever it is: the code is that which decides about a
whole batch in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.decide import ChangeBatch, ChangeCounts, ChangeOp, KnownRows, cuts_of
from safewrite.changes.meaning.positions import Numbers, Position, meeting, values_of
from safewrite.changes.meaning.reading import Absent, loose
from safewrite.changes.meaning.row_rule import RowRule
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import TableEffect, settle
from safewrite.changes.tasks.read_task import ABSENT, OP, PLACE

FILE, POS = "_safewrite_file", "_safewrite_pos"


@dataclass(frozen=True)
class PartInput:
    """What a task must know of the whole batch and table to decide about its keys.

    ``truncates`` are those of the batch, with their places; ``tombstones`` and ``carried`` have their numbers for one.  ``whole``: rows of
    the table come with all columns, not with keys and sequence alone.
    """

    spec: Spec
    schema: pa.Schema
    truncates: pa.Table
    tombstones: pa.Table
    carried: pa.Table
    floor: Position | None = None
    forgotten: Position | None = None
    whole: bool = False

    @property
    def cuts(self) -> dict[str, pa.Array]:
        """See :attr:`safewrite.changes.tasks.read_task.ReadBatch.cuts`."""
        return cuts_of(self.truncates, self.spec.tied_by)


@dataclass
class KeyDecisions:
    """What was decided about some keys.

    ``taken`` are numbers of carried values that ``carried`` stands for.  ``lost`` are numbers of tombstones that go, ``deletes`` keys and sequence of new ones.  ``goes`` has the places of the
    rows that go, by file, -1 where a format does not tell them.  ``ties``: nothing was decided, for changes have the sequence of
    rows in these files, whose other columns must be compared.
    """

    counts: ChangeCounts = field(default_factory=ChangeCounts)
    lost: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    taken: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    goes: dict[str, Numbers] = field(default_factory=dict)
    deletes: pa.Table | None = None
    carried: pa.Table | None = None
    late: int = 0
    """How many changes were late by a rule: they land, for ``counts`` are of rows then."""
    ends: int = 0
    """How many changes that a rule has decided about are deletes."""
    ties: frozenset[str] = frozenset()


OF_ROWS = pa.schema([(FILE, pa.string()), (POS, pa.int64())])
"""Where a row of the table is."""


@dataclass(frozen=True)
class PartDecision:
    """What was decided about the keys of a part: ``gone`` are rows of the table, ``come`` those to be written, of changes at ``places``."""

    answer: KeyDecisions
    gone: pa.Table
    come: pa.Table
    places: Numbers


def answered(changes: pa.Table, rows: pa.Table, question: PartInput) -> PartDecision:
    """What becomes of the keys of a part, by all changes of these keys, and the rows of the table that have them."""
    spec = question.spec
    if spec.rule is not None:
        return _ruled(changes, rows, question, spec.rule)
    keys = values_of(changes, spec.keys)
    if not question.whole and rows.num_rows:
        values = keys | values_of(changes, spec.sequence_by)
        tied = rows.filter(_meet(changes, rows, (*spec.keys, *spec.sequence_by), values))
        if tied.num_rows:
            ties = frozenset(pc.unique(tied.column(FILE)).to_pylist())
            nothing = loose(question.schema).empty_table()
            return PartDecision(KeyDecisions(ties=ties), rows.slice(0, 0), nothing, np.zeros(0, np.int64))
    batch, places = _batch(changes, question)
    remembered = (question.tombstones, question.carried)
    stones, carried = (
        one.filter(_meet(changes, one, spec.keys, keys)) if one.num_rows else one for one in remembered
    )
    known = KnownRows(
        rows.select(question.schema.names if question.whole else [*spec.keys, *spec.sequence_by]),
        stones.select([*spec.keys, *spec.sequence_by]),
        question.floor,
        question.forgotten,
        carried.drop_columns([PLACE]),
    )
    settled = settle(batch, known)
    dropped = rows.take(pa.array(settled.decision.dropped, pa.int64()))
    answer = _answer(batch, settled, stones, dropped, spec)
    answer.taken = _numbers(carried)
    return PartDecision(answer, dropped, settled.rows, places[settled.decision.upserts])


def _ruled(changes: pa.Table, rows: pa.Table, question: PartInput, rule: RowRule) -> PartDecision:
    """What a rule says."""
    names = loose(question.schema).names
    deletes = np.asarray(changes.column(OP).to_numpy(), np.int8) == ChangeOp.DELETE
    found = rule.decided(changes.select(names), deletes, rows.select(names))
    dropped = rows.take(pa.array(found.gone, pa.int64()))
    counts = ChangeCounts(inserted=found.come.num_rows - len(found.gone), updated=len(found.gone))
    answer = KeyDecisions(counts, goes=_by_file(dropped), late=found.late, ends=int(deletes.sum()))
    return PartDecision(answer, dropped, found.come, np.zeros(0, np.int64))


def _answer(
    batch: ChangeBatch, settled: TableEffect, stones: pa.Table, dropped: pa.Table, spec: Spec
) -> KeyDecisions:
    decision = settled.decision
    numbers = _numbers(stones)
    stays = np.zeros(len(numbers), np.bool_)
    stays[decision.kept] = True
    deletes = batch.table.select([*spec.keys, *spec.sequence_by])
    return KeyDecisions(
        counts=decision.counts,
        lost=numbers[~stays],
        goes=_by_file(dropped),
        deletes=deletes.take(pa.array(decision.deletes, pa.int64())),
        carried=settled.carried,
    )


def _numbers(table: pa.Table) -> Numbers:
    return np.asarray(table.column(PLACE).to_numpy(), np.int64)


def _meet(
    changes: pa.Table, rows: pa.Table, names: tuple[str, ...], values: Mapping[str, pa.Array]
) -> pa.Array:
    """Which of some rows have the values of a change in these columns."""
    return pa.array(meeting(changes.select(names), rows.select(names), values))


def _batch(changes: pa.Table, question: PartInput) -> tuple[ChangeBatch, Numbers]:
    """The changes of these keys and all truncates, in the order of their source, and their places in it."""
    spec, wide = question.spec, loose(question.schema)
    cuts, table = question.truncates, changes.select(wide.names)
    ops = np.asarray(changes.column(OP).to_numpy(), np.int8)
    places = np.asarray(changes.column(PLACE).to_numpy(), np.int64)
    absent = _flags(changes.column(ABSENT))
    if cuts.num_rows:
        table = pa.concat_tables([table, full(cuts, wide)])
        ops = np.concatenate([ops, np.full(cuts.num_rows, ChangeOp.TRUNCATE, np.int8)])
        places = np.concatenate([places, np.asarray(cuts.column(PLACE).to_numpy(), np.int64)])
        nothing = np.zeros(cuts.num_rows, np.bool_)
        absent = {name: np.concatenate([flags, nothing]) for name, flags in absent.items()}
    if (places[1:] < places[:-1]).any():
        order = np.argsort(places, kind="stable")
        table, ops, places = table.take(pa.array(order)), ops[order], places[order]
        absent = {name: flags[order] for name, flags in absent.items()}
    return ChangeBatch(table, ops, spec.keys, spec.sequence_by, absent, spec.marks), places


def _flags(lists: pa.ChunkedArray) -> Absent:
    """By column the changes that do not bring it."""
    if lists.null_count == len(lists):
        return {}
    whole = lists.combine_chunks()
    parents = np.asarray(pc.list_parent_indices(whole).to_numpy(), np.int64)
    words = pc.list_flatten(whole)
    found: Absent = {}
    for name in sorted(pc.unique(words).to_pylist()):
        found[name] = np.zeros(len(whole), np.bool_)
        found[name][parents[np.asarray(pc.equal(words, name).to_numpy(zero_copy_only=False), np.bool_)]] = (
            True
        )
    return found


def _by_file(dropped: pa.Table) -> dict[str, Numbers]:
    """The places of rows in their files."""
    if not dropped.num_rows:
        return {}
    files = dropped.column(FILE).combine_chunks().dictionary_encode()
    places = dropped.column(POS)
    places = np.asarray((pc.fill_null(places, -1) if places.null_count else places).to_numpy(), np.int64)
    numbers = np.asarray(files.indices.to_numpy())
    order = np.lexsort((places, numbers))
    shares = np.split(places[order], np.flatnonzero(np.diff(numbers[order])) + 1)
    return dict(zip(files.dictionary.to_pylist(), shares, strict=True))


# --- what leaves a task -----------------------------------------------------------------------------------
def full(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with all columns, NULL in those that it lacks."""
    there = frozenset(table.column_names)
    columns = [
        table.column(one.name).cast(one.type) if one.name in there else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)


def joined(answers: Iterable[KeyDecisions], of_truncates: ChangeCounts) -> KeyDecisions:
    """What all tasks decided; each has counted the truncates, which are of no key."""
    answers = [*answers]
    if len(answers) == 1:
        return answers[0]
    whole, tasks = KeyDecisions(deletes=None, carried=None), 0
    counts = {name: 0 for name in of_truncates.to_dict() if name != "applied"}
    deletes, carried, lost, taken = [], [], [whole.lost], [whole.taken]
    for one in answers:
        tasks += 1
        whole.ties |= one.ties
        whole.late += one.late
        whole.ends += one.ends
        for name in counts:
            counts[name] += getattr(one.counts, name)
        for file, places in one.goes.items():
            whole.goes[file] = np.sort(np.concatenate([whole.goes.get(file, places[:0]), places]))
        deletes += [] if one.deletes is None else [one.deletes]
        carried += [] if one.carried is None else [one.carried]
        lost.append(one.lost)
        taken.append(one.taken)
    for name in counts:
        counts[name] -= (tasks - 1) * getattr(of_truncates, name)
    whole.deletes = pa.concat_tables(deletes) if deletes else None
    whole.carried = pa.concat_tables(carried) if carried else None
    return replace(
        whole, counts=ChangeCounts(**counts), lost=np.concatenate(lost), taken=np.concatenate(taken)
    )
