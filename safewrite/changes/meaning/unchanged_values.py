"""Gives changes the values that they do not bring, and keeps for each such value from which change it came.

A source may leave a column out of an update that did not touch it (PostgreSQL's TOAST values).  The row then carries an
older value on, and a late change from between the two may still bring a newer one.  So a row's sequence is not enough: for
columns that were carried on, the sequence of their value is remembered too.  Spark's AutoCDC keeps a version of every
column for the same reason; here a row without carried values costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.decide import (
    ChangeBatch,
    ChangeOp,
    ChangeStatus,
    Decision,
    KnownRows,
    decide,
    refused,
)
from safewrite.changes.meaning.positions import (
    Flags,
    Numbers,
    among,
    compared,
    groups,
    in_order,
    meeting,
    starts_anew,
    values_of,
)

COLUMN = "safewrite.column"
"""Names, in what is remembered, the column whose value came from an older change."""
_TOMBSTONE, _ASKS, _CHANGE, _BRINGS = 0, 1, 2, 3
"""Entries of one key and sequence in their order: a row asks for its value where it stands, and brings it where that came
from; a change of the same sequence is no newer one."""


@dataclass(frozen=True)
class TableEffect:
    """What a batch does to a table.

    ``decision`` says what goes and what became of each change, ``rows`` are written, and ``carried`` is to be remembered:
    keys, :data:`COLUMN`, and the sequence of the change that brought its value.
    """

    decision: Decision
    rows: pa.Table
    carried: pa.Table
    is_as_it_came: bool = True
    """Whether the rows are those of the batch, with no value from elsewhere."""

    def has_rows_of(self, other: TableEffect) -> bool:
        """Whether it is known, without a look at the rows, that they are the same."""
        if self.rows is other.rows:
            return True
        as_came = self.is_as_it_came and other.is_as_it_came
        return as_came and np.array_equal(self.decision.upserts, other.decision.upserts)


def settle(batch: ChangeBatch, known: KnownRows) -> TableEffect:
    """Decide about a batch whose changes may lack values.

    Raises:
        InvalidInputError: as :func:`safewrite.changes.meaning.decide.decide`; or nobody knows a value that a change lacks.
    """
    if not known.carried.column_names:
        known = replace(known, carried=nothing_carried(batch.keys, batch.sequence_by, known.rows.schema))
    near, others = _near(batch, known)
    origins = dict[str, _Origins]()
    for name in _columns(batch, near):
        origins[name] = _Origins(name, batch, near, [*origins.values()])
    full = batch.table
    for name, origin in origins.items():
        full = full.set_column(full.schema.get_field_index(name), full.schema.field(name), origin.filled())
    decision = decide(replace(batch, table=full), replace(known, rows=_renewed(known, origins)))
    rows = full.take(pa.array(decision.upserts, pa.int64()))
    if not origins:
        return TableEffect(decision, rows, pa.concat_tables([others, _untouched(batch, near, decision)]))
    for origin in origins.values():
        origin.check_known(decision)
    each = {id(origin.first): origin.first for origin in origins.values()}
    mended = np.unique(np.concatenate([origin.mended(decision) for origin in each.values()]))
    patched = _renewed(known, origins).take(pa.array(mended, pa.int64()))
    counts = replace(
        decision.counts,
        late=decision.counts.late - len(mended),
        updated=decision.counts.updated + len(mended),
    )
    dropped = np.sort(np.concatenate([decision.dropped, mended]))
    entries = [others, _untouched(batch, near, replace(decision, dropped=dropped))]
    entries += [origin.remembered(decision, mended) for origin in origins.values()]
    return TableEffect(
        replace(decision, counts=counts, dropped=dropped),
        pa.concat_tables([rows, patched]),
        pa.concat_tables(entries),
        is_as_it_came=False,
    )


def _near(batch: ChangeBatch, known: KnownRows) -> tuple[KnownRows, pa.Table]:
    """What is known that this batch may concern, and the carried values that it does not: those are not to be sorted."""
    carried, stones = known.carried, known.tombstones
    if not carried.num_rows and not batch.absent:
        return known, carried
    keys = [batch.table.select(batch.keys), known.rows.select(batch.keys)]
    wanted = values_of(pa.concat_tables(keys, promote_options="permissive"), batch.keys)
    is_near = among(carried, wanted)
    near = replace(
        known,
        carried=carried.filter(pa.array(is_near)),
        tombstones=stones.filter(pa.array(among(stones, wanted))),
    )
    return near, carried.filter(pa.array(~is_near))


def _columns(batch: ChangeBatch, known: KnownRows) -> Iterator[str]:
    """Columns that a change lacks, or that a row with a key of the batch carries on."""
    ours = _entries(known.rows.select(batch.keys), known.carried.select(batch.keys))
    carried = set(pc.unique(known.carried.column(COLUMN).take(pa.array(ours))).to_pylist())
    for name in batch.table.column_names:
        if name in carried or (name in batch.absent and batch.absent[name].any()):
            yield name


def _entries(rows: pa.Table, carried: pa.Table) -> Numbers:
    """The places of carried values that belong to some rows, by their keys."""
    return np.flatnonzero(meeting(rows, carried))


def _untouched(batch: ChangeBatch, known: KnownRows, decision: Decision) -> pa.Table:
    """What is remembered of rows that stay as they are."""
    written = batch.table.take(pa.array(np.concatenate([decision.upserts, decision.deletes]), pa.int64()))
    gone = known.rows.take(pa.array(decision.dropped, pa.int64()))
    keys = pa.concat_tables([written.select(batch.keys), gone.select(batch.keys)])
    stays = np.ones(known.carried.num_rows, np.bool_)
    stays[_entries(keys, known.carried.select(batch.keys))] = False
    return known.carried.filter(pa.array(stays))


def _renewed(known: KnownRows, origins: dict[str, _Origins]) -> pa.Table:
    """The table's rows, with newer ones of their carried values that came late."""
    rows = known.rows
    for name, origin in origins.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), origin.renewed())
    return rows


class _Origins:
    """Where the values of one column come from, for changes that lack it and for rows that carry it on.

    Values are numbered: those of the table's rows, then those of the batch.  ``others`` are of columns before; ``first`` is the first one
    whose values come from the same changes and rows.
    """

    first: _Origins
    sequence: pa.Table
    carries: Flags
    of_rows: Numbers
    of_changes: Numbers
    holders: Numbers

    def __init__(self, name: str, batch: ChangeBatch, known: KnownRows, others: Sequence[_Origins]) -> None:
        self.name, self.batch, self.known = name, batch, known
        self.absent = batch.absent.get(name, np.zeros(batch.table.num_rows, np.bool_))
        self.values = pa.concat_tables([known.rows.select([name]), batch.table.select([name])]).column(0)
        self.count = known.rows.num_rows
        own = known.carried.filter(pc.field(COLUMN) == name)
        self.own = own.select([*batch.keys, *batch.sequence_by])
        alike = next((one for one in others if self._is_like(one)), None)
        self.first = self if alike is None else alike.first
        if alike is not None:  # rows that are deleted and stay lack all of their columns alike
            self.sequence, self.carries = alike.sequence, alike.carries
            self.of_rows, self.of_changes, self.holders = alike.of_rows, alike.of_changes, alike.holders
            return
        self.sequence = self._sequences(self.own)
        self.of_rows, changes, self.holders = self._filled_forward()
        self.of_changes = np.where(self.absent, changes, self.count + np.arange(len(self.absent)))

    def _is_like(self, other: _Origins) -> bool:
        """Whether the values of another column come from the same changes and rows."""
        return np.array_equal(self.absent, other.absent) and self.own.equals(other.own)

    def _sequences(self, own: pa.Table) -> pa.Table:
        """The sequence of each value; of a value that was carried on, that of the change that brought it."""
        keys, sequence_by = self.batch.keys, self.batch.sequence_by
        whole = pa.concat_tables([
            self.known.rows.select(sequence_by),
            self.batch.table.select(sequence_by),
            own.select(sequence_by),
        ])  # fmt: skip
        of = np.arange(self.count + self.batch.table.num_rows)
        self.carries = np.zeros(self.count, np.bool_)
        if own.num_rows and self.count:
            ids = groups(pa.concat_tables([self.known.rows.select(keys), own.select(keys)]))
            entry = np.full(len(ids), -1)
            entry[ids[self.count :]] = np.arange(own.num_rows)
            found = entry[ids[: self.count]]
            self.carries = found >= 0
            of[: self.count] = np.where(self.carries, len(of) + found, of[: self.count])
        return whole.take(pa.array(of))

    def _filled_forward(self) -> tuple[Numbers, Numbers, Numbers]:
        """For each row and each change the last value at or before its own sequence; -1 where a deletion came after it.

        A deletion from before a row is late: it takes nothing from the row, so nothing from the changes after it.  For each
        change there is also the number of the row or change that held the value last, which may have carried it on.
        """
        keys = self.batch.keys
        names = (*keys, *self.batch.sequence_by)
        keyed = np.flatnonzero(self.batch.ops != ChangeOp.TRUNCATE)
        stones, rows, table = self.known.tombstones, self.known.rows, self.batch.table
        at_origin = _beside(rows.select(keys), self.sequence.slice(0, self.count))
        parts = [
            stones.select(names),
            at_origin,
            rows.select(names),
            table.select(names).take(pa.array(keyed)),
        ]
        kind = np.repeat(np.array([_TOMBSTONE, _BRINGS, _ASKS, _CHANGE]), [part.num_rows for part in parts])
        place = np.concatenate(
            [np.arange(stones.num_rows), np.arange(self.count), np.arange(self.count), keyed]
        )
        whole = pa.concat_tables(parts).combine_chunks()
        order = in_order(whole, names, kind, place)
        kind, place = kind[order], place[order]
        sorted_keys = whole.select(keys).take(pa.array(order))
        is_row, is_change = kind == _ASKS, kind == _CHANGE
        deletes = kind == _TOMBSTONE
        deletes[is_change] = self.batch.ops[place[is_change]] == ChangeOp.DELETE
        brings = (kind == _BRINGS) | (is_change & ~deletes)
        brings[is_change] &= ~self.absent[place[is_change]]
        value = np.where(is_change, self.count + place, place)
        last = _last_before(brings, sorted_keys)[is_row]
        newer = np.where(last >= 0, value[last], -1)
        at = place[is_row]
        of_rows = np.arange(self.count)
        of_rows[at] = np.where(self.carries[at] & (newer >= 0), newer, at)
        value[is_row] = of_rows[at]
        brings |= is_row
        last = _last_before(brings | deletes, sorted_keys)[is_change]
        at = place[is_change]
        found = (last >= 0) & brings[last]
        if self.batch.marks is not None:
            found &= ~self._passes_marks(kind, place, sorted_keys, last)
        of_changes, holders = np.full(table.num_rows, -1), np.full(table.num_rows, -1)
        of_changes[at] = np.where(found, value[last], -1)
        holders[at] = np.where(found, np.where(is_row[last], place[last], value[last]), -1)
        return of_rows, of_changes, holders

    def _passes_marks(self, kind: Numbers, place: Numbers, sorted_keys: pa.Table, last: Numbers) -> Flags:
        """Which changes would take the value of a row that was deleted before them, though these do not mark one: ``last`` had it."""
        rows, changes = (
            _true(table.column(self.batch.marks)) for table in (self.known.rows, self.batch.table)
        )
        is_row, is_change = kind == _ASKS, kind == _CHANGE
        marks = np.zeros(len(kind), np.bool_)
        marks[is_row], marks[is_change] = rows[place[is_row]], changes[place[is_change]]
        is_own = kind == _BRINGS  # of a value that the row brought itself: it stands behind the row
        marks[is_own] = rows[place[is_own]] & ~self.carries[place[is_own]]
        passes = _last_before(marks, sorted_keys)[is_change] >= last
        return np.asarray(passes & (last >= 0) & ~marks[is_change])

    def filled(self) -> pa.ChunkedArray:
        """The column of the batch, with the values that changes lack."""
        return self.values.take(pa.array(self.of_changes, pa.int64(), mask=self.of_changes < 0))

    def renewed(self) -> pa.ChunkedArray:
        """The column of the table's rows, with the values that came late."""
        return self.values.take(pa.array(self.of_rows, pa.int64()))

    def check_known(self, decision: Decision) -> None:
        """Refuse to write a row of which nobody knows this value.

        Where deleted rows stay, any change is refused that lacks it and marks no row: the row's next deletion would keep its other values;
        but not where the table has a newer row that is not marked.
        """
        upserts = decision.upserts
        if self.batch.marks is not None:
            upserts = np.flatnonzero(~_true(self.batch.table.column(self.batch.marks)))
        unknown = self.of_changes[upserts] < 0
        if decision.floor is not None and len(upserts):
            # A row that a truncate left has all of its values, however old they are.
            names = list(self.batch.sequence_by)
            held = pa.concat_tables([self.known.rows.select(names), self.batch.table.select(names)])
            held = held.take(pa.array(np.maximum(self.holders[upserts], 0)))
            before = compared([held.column(name) for name in names], decision.floor) < 0
            unknown |= self.absent[upserts] & before
        if self.batch.marks is not None and unknown.any():
            unknown &= ~self._is_late(decision)[upserts]
        if unknown.any():
            rows = self.batch.table.select(self.batch.keys).take(pa.array(upserts[unknown], pa.int64()))
            raise refused(
                rows,
                f"comes without {self.name!r} (unchanged=), and neither the table nor the batch has a value from before",
                "Take the whole row from the source: a new snapshot of it, or REPLICA IDENTITY FULL.",
            )

    def _is_late(self, decision: Decision) -> Flags:
        """Which changes are older than a row of the table that is not marked."""
        living = self.known.rows.filter(pa.array(~_true(self.known.rows.column(self.batch.marks))))
        keys = self.batch.keys
        has_row = meeting(living.select(keys), self.batch.table.select(keys))
        return np.asarray(has_row & (decision.status == ChangeStatus.LATE), np.bool_)

    def mended(self, decision: Decision) -> Numbers:
        """The rows that stay, and whose carried value came late."""
        changed = np.flatnonzero(self.of_rows != np.arange(self.count))
        return np.setdiff1d(
            changed, np.concatenate([decision.dropped, self._won(decision)]), assume_unique=True
        )

    def _won(self, decision: Decision) -> Numbers:
        """Rows whose keys the batch writes or deletes."""
        won = self.batch.table.select(self.batch.keys).take(
            pa.array(np.concatenate([decision.upserts, decision.deletes]), pa.int64())
        )
        return _entries(won, self.known.rows.select(self.batch.keys))

    def remembered(self, decision: Decision, mended: Numbers) -> pa.Table:
        """What is remembered of this column in the rows that are written."""
        upserts = decision.upserts
        upserts = upserts[self.absent[upserts] & (self.of_changes[upserts] >= 0)]
        keys, sequence_by = self.batch.keys, self.batch.sequence_by
        older = self.first.is_older[mended]
        whole = pa.concat_tables([
            _beside(self.batch.table.select(keys).take(pa.array(upserts)), self._at(self.of_changes[upserts])),
            _beside(self.known.rows.select(keys).take(pa.array(mended[older])), self._at(self.of_rows[mended[older]])),
        ])  # fmt: skip
        named = whole.append_column(COLUMN, pa.repeat(pa.scalar(self.name), whole.num_rows))
        return named.select([*keys, COLUMN, *sequence_by]).cast(self.known.carried.schema)

    def _at(self, values: Numbers) -> pa.Table:
        return self.sequence.take(pa.array(values, pa.int64()))

    @cached_property
    def is_older(self) -> Flags:
        """Which rows carry the value on: it came from a change before their own."""
        own = self.known.rows.select(self.batch.sequence_by)
        taken = self._at(self.of_rows)
        paired = pa.concat_tables([own, taken])
        ids = groups(paired) if self.count else np.zeros(0, np.int64)
        return np.asarray(ids[: self.count] != ids[self.count :])


def _true(column: pa.ChunkedArray) -> Flags:
    """Which values of a column are true."""
    return np.asarray(pc.fill_null(column, False).to_numpy(), np.bool_)


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    for name in right.column_names:
        left = left.append_column(right.schema.field(name), right.column(name))
    return left


def _last_before(marked: Flags, keys: pa.Table) -> Numbers:
    """For each entry the last marked one of its key up to it; -1 where there is none.  Entries are sorted by key."""
    if not len(marked):
        return np.zeros(0, np.int64)
    begins = np.flatnonzero(starts_anew(keys.columns))
    first = begins[np.cumsum(np.isin(np.arange(len(marked)), begins)) - 1]
    last = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
    return np.where(last >= first, last, -1)


def nothing_carried(keys: Sequence[str], sequence_by: Sequence[str], schema: pa.Schema) -> pa.Table:
    """What is remembered of a table without carried values."""
    fields = [schema.field(name).with_nullable(True).remove_metadata() for name in (*keys, *sequence_by)]
    fields.insert(len(keys), pa.field(COLUMN, pa.string()))
    return pa.schema(fields).empty_table()
