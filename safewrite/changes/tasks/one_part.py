"""Applies the changes of a batch, or of many members, where they are all together: looks keys up, decides, and writes what stays.

What it does are effects, so a plan of this process performs them among its own.  A plan may be made again for a later version of
the table.  Data files never change, so what was found in one serves every plan, and what was decided about a key stands for as long as
nothing of that key came or went (``rebase``).
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import NO_COLUMNS, BatchKeys, Before, beside, taken_along
from safewrite.changes.lookup.table_files import FileRemainder, LiveFile, TableFiles
from safewrite.changes.meaning.accounting import check_result
from safewrite.changes.meaning.decide import ChangeBatch, KnownRows
from safewrite.changes.meaning.member_batches import GroupOutcome, MemberChanges, one_by_one, whole
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Numbers
from safewrite.changes.meaning.reading import Changes
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.meaning.unchanged_values import settle
from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.changes.tasks.rebase import DecidedBatch, FollowedFile, Rebase
from safewrite.errors import InternalError
from safewrite.frames.predicate import Predicate, within
from safewrite.protocol.effects import Effect, Outcome


@dataclass
class OnePart:
    """Changes that are all together: those of one batch, or the ``group`` of many members, which are decided about one after another.

    ``whole``: all columns of rows are looked up, for the change data feed has those that go.
    """

    spec: Spec
    schema: pa.Schema
    files: TableFiles
    changes: Changes | None = None
    group: tuple[MemberChanges, ...] = ()
    whole: bool = False
    lasting: pa.Schema = NO_COLUMNS
    """Columns of the files in which the next row of a key has the values of the one before."""
    _seen: dict[str, LiveFile] = field(default_factory=dict, repr=False)
    """The files that the last plan looked at."""
    _last: DecidedBatch | None = field(default=None, repr=False)
    """What the last plan decided, about the same members."""
    _rewrites: int = 0

    # --- whose changes ------------------------------------------------------------------------------
    def leave_out(self, keys: Container[str]) -> None:
        """Go on without the members of these keys."""
        self.group, self._last = tuple(one for one in self.group if one.key not in keys), None

    def join(self, group: tuple[MemberChanges, ...]) -> None:
        """Apply the changes of these members, or of none but the call's own."""
        self.group, self._seen, self._last = group, {}, None
        for name in ("sought", "bounds"):
            self.__dict__.pop(name, None)

    @property
    def batch(self) -> ChangeBatch:
        """The changes of all members."""
        if self.group:
            return whole(self.group)
        if self.changes is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.changes.batch

    @cached_property
    def sought(self) -> BatchKeys:
        """The keys of the changes, and what was found of them."""
        return BatchKeys(self.batch, self.schema, needs_whole=self.whole, lasting=self.lasting)

    @property
    def values(self) -> Mapping[str, pa.Array]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
        return {} if self.sought.cuts else self.sought.values

    @cached_property
    def bounds(self) -> Predicate:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`."""
        return within(self.values)

    # --- a plan -------------------------------------------------------------------------------------
    def apply(
        self, memory: Memory, files: Sequence[LiveFile], now_ms: int
    ) -> Generator[Effect, Outcome, AppliedBatch]:
        """See :class:`safewrite.changes.tasks.abc.BatchWork`; nothing is written."""
        followed = yield from self._look(files, memory)
        sought, names = self.sought, [file.name for file in files]
        hits = {name: sought.found[name] for name in names}
        decided = None
        if self._last is not None:
            rebase = Rebase(self.batch, self.spec, self._last, followed, is_group=bool(self.group))
            decided = rebase.on(memory, hits, now_ms)
        is_rebased = decided is not None
        if decided is None:
            decided = DecidedBatch.of(memory, self._decided(sought.rows(names), memory, now_ms), hits)
        self._last = None if decided.outcome.faults else decided
        decision, come = decided.outcome.settled.decision, decided.outcome.settled.rows
        kept = sought.lasting(names, decision.dropped)
        came = taken_along(come, kept, self.spec.keys)
        return AppliedBatch(
            decided.outcome,
            come.num_rows,
            decided.places(),
            decision.floor if decision.floor != memory.floor else None,
            {name: one.of for name, one in hits.items()},
            came,
            beside(sought.rows(names).take(pa.array(decision.dropped)), kept) if self.whole else None,
            is_rebased=is_rebased,
            lasting=came.select(self.lasting.names) if self.lasting.names else None,
        )

    def _decided(self, rows: pa.Table, memory: Memory, now_ms: int) -> GroupOutcome:
        stones = memory.tombstones.select([*self.spec.keys, *self.spec.sequence_by])
        known = KnownRows(rows, stones, memory.floor, memory.forgotten, memory.carried)
        if self.group:
            return one_by_one(self.group, self.spec, known, memory, now_ms)
        batch = self.batch
        settled = settle(batch, known)
        check_result(self.spec, settled.decision, settled.rows)
        return GroupOutcome(settled, memory.after(batch, settled, now_ms))

    def _look(
        self, files: Sequence[LiveFile], memory: Memory
    ) -> Generator[Effect, Outcome, dict[str, FollowedFile]]:
        """Look through the files that were not looked through before; returns those that another one goes on as."""
        sought, live = self.sought, {file.name: file for file in files}
        before = [file for name, file in self._seen.items() if name not in live and name in sought.found]
        followed = dict[str, FollowedFile]()
        if before:
            after = [file for name, file in live.items() if name not in sought.found]
            for name, now, stays in (yield from self.files.followed(before, after)):
                if len(stays) != sought.found[name].of:
                    continue  # the file has other rows than its entry says
                sought.follow(name, now, stays)
                self.files.small.follow(name, now)
                followed[name] = FollowedFile(now, stays)
            for name, parts in self.files.gathered(after):
                sought.gather(name, parts)
        new = sought.unseen(live, carries=memory.carried.num_rows > 0)
        if new:
            yield from self.files.look_up([live[name] for name in new], sought)
        self._seen = live
        return followed

    # --- files that lose rows -----------------------------------------------------------------------
    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """Write the rows of files again that stay; what is written once is written under another name than before.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
            StorageError: as :meth:`apply`.
        """
        self._rewrites += 1
        return (yield from self.files.rewrite(work, before, str(self._rewrites)))
