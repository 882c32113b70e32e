"""Decides again, after commits of others, about those keys alone whose rows or tombstones came or went.

What becomes of a key depends on its own changes, rows and tombstones, and on positions that all keys share.  Where these
positions are as they were, what was decided about every other key is what a plan on the new base would decide (decision
0068).  Nothing rests on who committed what: files that came, went or lost rows are compared by the rows that were found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import FoundRows
from safewrite.changes.meaning.accounting import check_result
from safewrite.changes.meaning.decide import ChangeBatch, ChangeOp, Decision, KnownRows, counted
from safewrite.changes.meaning.member_batches import GroupOutcome
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Flags, Numbers, among, groups, meeting, values_of
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import settle

AGAIN_MAX = 0.5
"""Where more of a batch must be decided again, all of it is, which takes no longer."""


@dataclass(frozen=True)
class DecidedBatch:
    """What was decided about a batch on one base: ``hits`` are the rows that were found, by file, and ``goes`` those of them that go."""

    memory: Memory
    outcome: GroupOutcome
    hits: Mapping[str, FoundRows]
    goes: Mapping[str, Flags]

    @classmethod
    def of(cls, memory: Memory, outcome: GroupOutcome, hits: Mapping[str, FoundRows]) -> DecidedBatch:
        """A decision about the rows of these files, one file after another."""
        dropped = np.zeros(sum(len(one.numbers) for one in hits.values()), np.bool_)
        dropped[outcome.settled.decision.dropped] = True
        goes, first = {}, 0
        for name, one in hits.items():
            goes[name] = dropped[first : first + len(one.numbers)]
            first += len(one.numbers)
        return cls(memory, outcome, hits, goes)

    def places(self) -> dict[str, Numbers]:
        """The places of the rows that go in their files, ascending; most are in order, which a stable sort finds at once."""
        places = {name: self.hits[name].numbers[goes] for name, goes in self.goes.items() if goes.any()}
        return {name: np.sort(some, kind="stable") for name, some in places.items()}


@dataclass(frozen=True)
class FollowedFile:
    """A file that another one goes on as, and which of its rows stayed."""

    after: str
    stays: Flags


@dataclass(frozen=True)
class Rebase:
    """A batch that was decided about ``before``, on a new base; ``followed`` has files that lost rows and are called otherwise now."""

    batch: ChangeBatch
    spec: Spec
    before: DecidedBatch
    followed: Mapping[str, FollowedFile] = field(default_factory=dict)
    is_group: bool = False
    """Whether members were decided about one after another: that stands as a whole, or is decided again."""

    def on(self, memory: Memory, hits: Mapping[str, FoundRows], now_ms: int) -> DecidedBatch | None:
        """What a plan would decide on what is remembered and found now; None where only a plan can tell.

        Raises:
            InvalidInputError: as a plan would.
        """
        if not self._may(memory):
            return None
        goes, touched = self._differences(hits)
        if self.is_group:
            stands = not touched and memory.says_the_same(self.before.memory)
            return DecidedBatch(memory, self._renumbered(goes), hits, goes) if stands else None
        touched += self._remembered_otherwise(memory)
        keys = list(self.spec.keys)
        again = self._changes_of([rows.select(keys) for rows in touched])
        if len(again) > AGAIN_MAX * self.batch.table.num_rows:
            return None
        if not len(again) and memory is self.before.memory:
            return DecidedBatch(memory, self._renumbered(goes), hits, goes)
        return self._decided_again(again, memory, hits, goes, now_ms)

    # --- what differs -------------------------------------------------------------------------------
    def _may(self, memory: Memory) -> bool:
        """Whether each key is decided about by itself: no truncate and no value that is carried on reaches others."""
        before, batch = self.before.memory, self.batch
        same = (memory.floor, memory.forgotten) == (before.floor, before.forgotten)
        carries = memory.carried.num_rows or before.carried.num_rows or batch.absent
        known = self.is_group or len(self._decision.status) == batch.table.num_rows
        return same and known and not carries and not (batch.ops == ChangeOp.TRUNCATE).any()

    @property
    def _decision(self) -> Decision:
        return self.before.outcome.settled.decision

    def _differences(self, hits: Mapping[str, FoundRows]) -> tuple[dict[str, Flags], list[pa.Table]]:
        """Which of the rows that are found now go, as far as that was decided; and the rows that came or went."""
        goes, went, touched = dict[str, Flags](), list[tuple[FoundRows, Flags]](), list[pa.Table]()
        for name, was in self.before.hits.items():
            moved = self.followed.get(name)
            after = name if moved is None else moved.after
            left = np.ones(len(was.numbers), np.bool_) if moved is None else moved.stays[was.numbers]
            now = hits.get(after)
            if now is None or not _same_rows(was, now, moved, left):
                went.append((was, self.before.goes[name]))
                continue
            goes[after] = self.before.goes[name][left]
            if not left.all():
                touched.append(was.rows.filter(pa.array(~left)))
        came = {name: now for name, now in hits.items() if name not in goes}
        goes |= self._moved(went, came, touched)
        return {name: goes[name] for name in hits}, [rows for rows in touched if rows.num_rows]

    def _moved(
        self, went: Sequence[tuple[FoundRows, Flags]], came: Mapping[str, FoundRows], touched: list[pa.Table]
    ) -> dict[str, Flags]:
        """Which rows go of files that came: those that went in another file; rows that came or went for good are ``touched``.

        Rows are compared by all columns that were read: what is decided rests on no other.
        """
        goes = {name: np.zeros(len(now.numbers), np.bool_) for name, now in came.items()}
        every = [*(was for was, _ in went), *came.values()]
        if not went or not came:
            touched += [one.rows for one in every]
            return goes
        rows, before = pa.concat_tables([one.rows for one in every]), sum(len(was.numbers) for was, _ in went)
        ids = groups(rows.select([*self.spec.keys, *self.spec.sequence_by]))
        old, new = ids[:before], ids[before:]
        is_same = (np.bincount(old, minlength=len(ids)) == 1) & (np.bincount(new, minlength=len(ids)) == 1)
        if any(one.is_whole for one in every):
            then, now = (
                np.flatnonzero(is_same[some])[np.argsort(some[is_same[some]])] for some in (old, new)
            )
            if not rows.take(pa.array(then)).equals(rows.take(pa.array(now + before))):
                is_same[:] = np.False_
        gone = np.zeros(len(ids), np.bool_)
        gone[old] = np.concatenate([flags for _, flags in went])
        touched.append(rows.filter(pa.array(~is_same[ids])))
        found = gone[new] & is_same[new]
        for name, flags in goes.items():
            goes[name], found = found[: len(flags)], found[len(flags) :]
        return goes

    def _remembered_otherwise(self, memory: Memory) -> list[pa.Table]:
        """Tombstones that came or went."""
        if memory is self.before.memory:
            return []
        names = [*self.spec.keys, *self.spec.sequence_by]
        was, now = (one.tombstones.select(names) for one in (self.before.memory, memory))
        alike = min(was.num_rows, now.num_rows)
        if was.slice(0, alike).equals(now.slice(0, alike)):
            return [was.slice(alike), now.slice(alike)]
        whole = pa.concat_tables([was, now])
        ids = groups(whole)
        in_both = np.intersect1d(ids[: was.num_rows], ids[was.num_rows :])
        return [whole.filter(pa.array(~np.isin(ids, in_both)))]

    def _changes_of(self, touched: Sequence[pa.Table]) -> Numbers:
        """The changes that have one of these keys."""
        if not any(rows.num_rows for rows in touched):
            return np.zeros(0, np.int64)
        keys = pa.concat_tables(touched).combine_chunks()
        return np.flatnonzero(meeting(keys, self.batch.table.select(keys.column_names)))

    # --- what is decided ----------------------------------------------------------------------------
    def _decided_again(
        self,
        again: Numbers,
        memory: Memory,
        hits: Mapping[str, FoundRows],
        goes: dict[str, Flags],
        now_ms: int,
    ) -> DecidedBatch:
        batch, before, keys = self.batch, self.before.outcome.settled, list(self.spec.keys)
        some = replace(batch, table=batch.table.take(pa.array(again)), ops=batch.ops[again])
        wanted = some.table.select(keys)
        values = values_of(wanted, keys)
        found = {
            name: np.flatnonzero(meeting(wanted, one.rows.select(keys), values)) for name, one in hits.items()
        }
        rows = [one.rows.take(pa.array(found[name])) for name, one in hits.items() if len(found[name])]
        stones = memory.tombstones.select([*keys, *self.spec.sequence_by])
        nothing = before.rows.slice(0, 0) if not hits else next(iter(hits.values())).rows.slice(0, 0)
        known = pa.concat_tables(rows).combine_chunks() if rows else nothing
        part = settle(some, KnownRows(known, stones, memory.floor, memory.forgotten, memory.carried)).decision
        gone, first = np.zeros(known.num_rows, np.bool_), 0
        gone[part.dropped] = True
        for name, numbers in found.items():
            goes[name] = goes[name].copy()
            goes[name][numbers] = gone[first : first + len(numbers)]
            first += len(numbers)
        status = self._decision.status.copy()
        status[again] = part.status
        upserts = _replaced(self._decision.upserts, again, again[part.upserts], len(status))
        deletes = _replaced(self._decision.deletes, again, again[part.deletes], len(status))
        decision = Decision(
            counted(status),
            upserts,
            _dropped(goes),
            _kept(batch, np.concatenate([upserts, deletes]), memory.tombstones),
            deletes,
            memory.floor,
            status,
        )
        same = np.array_equal(upserts, self._decision.upserts)
        settled = replace(
            before, decision=decision, rows=before.rows if same else batch.table.take(pa.array(upserts))
        )
        check_result(self.spec, decision, settled.rows)
        return DecidedBatch(memory, GroupOutcome(settled, memory.after(batch, settled, now_ms)), hits, goes)

    def _renumbered(self, goes: Mapping[str, Flags]) -> GroupOutcome:
        """The same outcome, of rows that have other numbers."""
        settled = self.before.outcome.settled
        decision = replace(self._decision, dropped=_dropped(goes))
        if not self.is_group:  # each member was judged by itself
            check_result(self.spec, decision, settled.rows)  # before each try
        return replace(self.before.outcome, settled=replace(settled, decision=decision))


def _same_rows(was: FoundRows, now: FoundRows, moved: FollowedFile | None, left: Flags) -> bool:
    """Whether what is found in a file now is what was found, less the rows that went."""
    if moved is None:
        return was is now or np.array_equal(was.numbers, now.numbers)
    return len(now.numbers) == int(left.sum())


def _replaced(places: Numbers, again: Numbers, by: Numbers, count: int) -> Numbers:
    """Some places of a batch, with those that were decided again in the place of what these were."""
    flags = np.zeros(count, np.bool_)
    flags[places] = True
    flags[again] = False
    flags[by] = True
    return np.flatnonzero(flags)


def _dropped(goes: Mapping[str, Flags]) -> Numbers:
    each: Sequence[Flags] = [np.zeros(0, np.bool_), *goes.values()]
    return np.flatnonzero(np.concatenate(each))


def _kept(batch: ChangeBatch, winners: Numbers, stones: pa.Table) -> Numbers:
    """The tombstones that no change of their key makes needless."""
    if not stones.num_rows:
        return np.zeros(0, np.int64)
    keys = list(batch.keys)
    won, known = batch.table.select(keys).take(pa.array(winners)), stones.select(keys)
    near = won.filter(pa.array(among(won, values_of(known, keys))))
    return np.flatnonzero(~meeting(near, known))
