"""Lands what one table gets of a batch: its rows are made and fitted first, and all tables commit after that."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.frames import LACKS, OP
from safewrite.cdc.columns.widening import fitted
from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.target_tables import keys_of
from safewrite.cdc.records.batch import Batch, Moves, by_place
from safewrite.cdc.records.change import NOBODY_HAS, DeadLetter, Op, left_out
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.routing.refusals import refuse_key_in_order, refuse_other_key, refuse_other_rows
from safewrite.cdc.routing.table_source import TableSource
from safewrite.cdc.rows.ranking import needs_rank, rank
from safewrite.cdc.rows.reset_guard import Check, check_of
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows
from safewrite.cdc.rows.rows_by_key import rows_with
from safewrite.cdc.rows.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.rows.table_changes import Keys, Made, TableChanges
from safewrite.cdc.rows.unavailable_values import UnavailableValues, taking
from safewrite.cdc.sql.computing import compute
from safewrite.cdc.table.ledger_counts import count_again, count_dead, counts_of, counts_of_versions
from safewrite.cdc.table.table_share import JobParts, TableShare, ToLand
from safewrite.cdc.table.version_changes import Apply, VersionDoubt
from safewrite.cdc.table.versions import VersionRule

log = logging.getLogger("safewrite")


@dataclass
class TableBatch(TableShare):
    """What one table gets of a batch, of all of its changes together.

    ``changes`` are those of its source; records of others are dead letters in ``strange``.  Without a ``frame`` there is
    nothing to commit.
    """

    changes: ChangeSet = field(default_factory=ChangeSet)
    strange: list[DeadLetter] = field(default_factory=list)
    made: Made | None = None
    frame: pa.Table | None = None
    refused: Mapping[str, str] | None = None
    """Columns that the table cannot have, and why."""

    # --- before any table commits -------------------------------------------------------------------
    @classmethod
    def prepared(
        cls, job: JobParts, table: TargetTable, given: ChangeSet, batch: Batch, done: Mapping[str, int]
    ) -> Self:
        """A table's rows, as far as they are new to it and fit it.

        Args:
            done: the positions of the job's ledger.
        """
        name = job.config.job
        entry = job.entry(batch, table, given.records)
        entry.source_time_ms = given.newest_ms
        made = cls(job, table, entry, batch)
        try:
            found, positions = made.found, made.positions = job.targets.position(table)
        except sw.InvalidInputError as error:  # a name that no table can have
            made._without_table(given, error)
            return made
        job.refuse_other_table(table, found, positions, done)
        new = given.since(batch.starts(name, positions))
        entry.earlier = entry.records - new.records
        counts = None if (new.records and not batch.replay) or found is None else made._counts_before()
        if counts is not None:
            new = given  # the same changes in an attempt before: what was split or dead is counted again
        if new.records:
            made._prepare(new, counts)
        return made

    def _prepare(self, new: ChangeSet, counts: Mapping[str, int] | None) -> None:
        """Make rows of changes and fit them; ``counts`` are those of an attempt before that committed them."""
        entry = self.entry
        self.origin = TableSource.of(self.table, self.positions, new.counts())
        self.changes, self.strange = self.origin.split(new)
        if self.strange:
            entry.source_time_ms = self.changes.newest_ms
            log.warning("table %s: %s records are of another source", self.table.name, len(self.strange))
            if not self.changes.records:
                self._with_dead(self.strange)
                return
        recorded = keys_of(self.found)
        refuse_other_key(self.table, recorded, None if self.found is None else self.found.schema)
        refuse_other_rows(self.job.config.job, self.table, self.found, self.positions)
        try:
            self.make(recorded, each=counts is not None, again=counts is not None)
            refuse_key_in_order(self.table, self.rows.keys)
            if counts is None and not self.table.is_appended:
                self._rank()
            if not self.table.has_versions and (asked := taking(self.rows.rows, self.rows.keys)):
                self._unavailable().follow_keys(asked, again=counts is not None)
            if counts is None and (
                self.table.deleted_column is not None or _lacks_new(self.table, self.found, self.rows)
            ):
                self._give_up(self._unknown())
            if counts is None:
                self._without_unjudged()
            frame = self._fitted(again=counts is not None)
        except sw.InvalidInputError as error:  # the table cannot be as it is to be, or SQL not applied
            self._without_table(self.changes, error)
            return
        self._with_dead([*self.strange, *self.rows.dead])
        entry.split = self.rows.split
        if counts is not None:
            ends = pc.sum(pc.equal(frame.column(OP), "d")).as_py() or 0
            told = counts_of_versions(frame.num_rows, ends) if self.table.has_versions else counts
            count_again(self.table, entry, sum(needs_rank(self.table, row) for row in self.rows.rows), told)
        elif frame.num_rows:
            self.frame = frame

    @property
    def rows(self) -> ChangeRows:
        """The rows that were made of the changes."""
        return ChangeRows() if self.made is None else self.made.rows

    def make(self, keys: Keys, *, each: bool, again: bool = False) -> None:
        """Make rows of the changes; ``each`` makes all of them one by one, and ``again`` those of a batch that has landed."""
        self.made, table = self._making(keys, each=each), self.table
        looks = bool(table.expressions) or table.sequence == "source"
        if looks and self.rows.projected and any(row.lacks for row in self.rows.rows):
            self.made = self._making(keys, each=True)
        projected = sum(len(one.batch) for one in self.made.rows.projected)
        self.entry.one_by_one = self.changes.records - projected
        self._compute(again=again)

    def _making(self, keys: Keys, *, each: bool) -> Made:
        config, found = self.job.config, self.found
        schema, filled = (
            (None, frozenset[str]()) if found is None else (found.schema, found.row_rules.fill_names)
        )
        rules = ColumnRules(self.table, schema, config.decimals, filled)
        changes = TableChanges(self.changes, rules, self.job.decoder)
        boundary = SnapshotBoundary.of(by_place(self.batch.ranges), config.job, self.table, self.positions)
        return changes.made_each(boundary, keys) if each else changes.made(boundary, keys)

    def _compute(self, *, again: bool = False) -> None:
        """Filter the rows and compute their columns, as the configuration says."""
        if self.made is not None and self.table.expressions:
            lookup = None if again or self.table.is_appended else self._unavailable()
            dropped = compute(self.table, self.rows, self.found, lookup)
            self.made = replace(self.made, ignored=self.made.ignored + dropped)
        self.entry.ignored = 0 if self.made is None else self.made.ignored

    def _rank(self) -> None:
        """Give deletes their place; those that have nothing to delete are ignored."""
        assert self.made is not None
        topics = set() if self.origin is None else self.origin.topics | self.changes.topics
        schema = None if self.found is None else self.found.schema
        idle = rank(self.table, self.rows, schema, topics=topics, read=self._read)
        self.entry.ignored = self.made.ignored + len(idle)

    def _read(self, wanted: Sequence[tuple[object, ...]]) -> list[dict[str, object]]:
        """Rows of the table with these keys, as it was before the batch."""
        if self.found is None:
            return []
        return rows_with(self.found, self.rows.keys, wanted)

    def _unavailable(self) -> UnavailableValues:
        """Looks for the values that the rows lack."""
        made = self.rows
        columns = dict.fromkeys(() if self.found is None else self.found.schema.names)
        columns |= dict.fromkeys(made.types) | dict.fromkeys(name for row in made.rows for name in row.values)
        return UnavailableValues(self.table, made, columns, self._read)

    def _with_dead(self, letters: Sequence[DeadLetter]) -> None:
        """Keep dead letters.

        Raises:
            InvalidInputError: the configuration wants none.
        """
        self.dead = list(letters)
        count_dead(self.table, self.entry, letters)

    def _without_table(self, given: ChangeSet, error: sw.InvalidInputError) -> None:
        """A table that cannot be made: all is dead letters if the configuration does not name it, for the others go on.

        Raises:
            InvalidInputError: the configuration names the table.
        """
        named = {one.name for one in self.job.config.tables}
        if self.table.dead_letters == "fail" or self.table.name in named:
            raise error
        self.entry.ignored = 0
        self._with_dead([*self.strange, *given.letters(str(error), self.table.name)])

    # --- changes that an attempt before committed ---------------------------------------------------
    def _counts_before(self) -> Mapping[str, int] | None:
        """What became of the same offsets, where an attempt before committed them."""
        assert self.found is not None
        receipt = self.found.resolve(self.batch.key(self.job.config.job, self.table.name))
        if receipt is None:
            return None
        self.entry.version = receipt.version
        return counts_of(receipt, self.table)

    # --- the commit ---------------------------------------------------------------------------------
    def _to_land(self) -> ToLand:
        assert self.made is not None
        rows = 0 if self.frame is None else self.frame.num_rows
        newest, snapshots = self.changes.without(self.dead).newest_ms, self.made.snapshots.moves()
        return ToLand(
            self.rows.keys, rows, not self.table.has_versions, newest, self.changes.topics, snapshots
        )

    def _appended(self, found: sw.Table, moved: Moves) -> sw.Receipt:
        assert self.frame is not None
        return found.append(self.frame.drop_columns([OP, LACKS]), key=self.key, positions=moved)

    def _applied(self, given: ToLand, rule: VersionRule | None, apply: Apply) -> sw.Receipt:
        assert self.frame is not None
        if rule is None:
            return apply(self.frame, truncate_when=[(OP, "=", "t")])
        changes, deletes, stored = self._of_versions(self.frame)
        ruled = rule.decided(changes, deletes, stored)
        self.versions = VersionDoubt(self.table, given.rows, self.is_again(given.newest_ms))
        self.versions.take(ruled.late, int(deletes.sum()))
        return apply(ruled.come.append_column(OP, pa.repeat(pa.scalar("u"), ruled.come.num_rows)))

    def _of_versions(self, frame: pa.Table) -> tuple[pa.Table, Any, pa.Table]:
        """Changes of versions, which of them are deletes, and the versions that the table has of their keys."""
        assert self.found is not None
        columns = pa.schema([one.with_nullable(True) for one in self.found.schema])
        keys = frame.select([*self.rows.keys])
        stored = self.found.rows(keys.group_by(keys.column_names).aggregate([]))
        deletes = pc.equal(frame.column(OP), "d").to_numpy()
        return frame.select(columns.names).cast(columns), deletes, stored.cast(columns)

    def _check(self, given: ToLand) -> Check | None:
        if self.batch.replay or self.table.has_versions:
            return None
        return check_of(self.table, self._left, self.known_ms, is_again=self.is_again(given.newest_ms))

    def _lands_again(self) -> bool:
        return super()._lands_again() and not any(row.change.is_tombstone for row in self.rows.rows)

    # --- rows that a commit refused -----------------------------------------------------------------
    def _mends(self, error: sw.InvalidInputError | sw.WouldAlterError) -> bool:
        frame = self.frame
        assert frame is not None
        if self.table.dead_letters == "fail":
            return False
        if isinstance(error, sw.WouldAlterError):
            return self.table.keeps_deleted and self._takes(self._lone(error, frame))
        if not pc.any(pc.greater(pc.list_value_length(frame.column(LACKS)), 0)).as_py():
            return False
        log.warning("table %s: rows that lack values nobody has are dead letters: %s", self.table.name, error)
        if self.table.sequence == "source":
            self._make_each()
            if self._takes(self._unknown()):
                return True
        # Columns of the rows order the changes, or the table remembers what the batch does not tell.
        why = "and this batch has a change whose value nobody has"
        lacking = [(row, left_out(row.lacks, why)) for row in self.rows.rows if row.lacks]
        return self._takes([DeadLetter(row.change.record, reason) for row, reason in lacking])

    def _make_each(self) -> None:
        """Make rows one by one of changes that were read by columns."""
        if self.rows.projected:
            self.make(self.rows.keys, each=True)
            self._rank()

    def _lone(self, error: sw.WouldAlterError, frame: pa.Table) -> list[DeadLetter]:
        """The letters of deletes of which only a row without values would stay, which the table refuses."""
        self._make_each()
        why = str(error).partition(" Nothing was written")[0]
        return [
            DeadLetter(
                row.change.record,
                f"the delete has no row before it, and the table refuses the row without values that would stay of it: {why}",
            )
            for row in (self._lone_versions(frame) if self.table.has_versions else self._first_marks())
        ]

    def _takes(self, letters: Sequence[DeadLetter]) -> bool:
        """Make letters of rows, and the frame of the others; whether it is another one then."""
        before = {id(row) for row in self.rows.rows if row.is_first}
        self._give_up(letters)
        self._mark_first()
        if not letters and before == {id(row) for row in self.rows.rows if row.is_first}:
            return False
        self.frame = self._frame()
        kept = [*self.strange, *self.rows.dead]
        self.job.ledger.write_letters(kept, self.batch.ranges)
        self._with_dead(kept)
        self.entry.split = self.rows.split
        return True

    def _give_up(self, letters: Sequence[DeadLetter]) -> None:
        """Make letters of records, one of each, and take their rows out."""
        lost = {one.record.place: replace(one, table=self.table.name) for one in reversed(letters)}
        self.rows.rows = [row for row in self.rows.rows if row.change.record.place not in lost]
        self.rows.dead += reversed(lost.values())

    def _lone_versions(self, frame: pa.Table) -> list[ChangeRow]:
        """The deletes that end no version; a copy of one ends none once that is gone."""
        own, rule = self.table.own, VersionRule(self.table, self.rows.keys, 0)
        lone = rule.lone_deletes(*self._of_versions(frame))
        return [
            row
            for row in self.rows.rows
            if row.op is Op.DELETE and (row.values[own.epoch], row.values[own.sequence]) in lone
        ]

    def _first_marks(self) -> list[ChangeRow]:
        """The deletes that stay and have no row of their key before them."""
        self._mark_first()
        return [row for row in self.rows.rows if row.op is Op.DELETE and row.is_first]

    def _unknown(self) -> list[DeadLetter]:
        """The letters of rows that lack a value that is lost."""
        return self._unavailable().unknown()

    def _fitted(self, *, again: bool) -> pa.Table:
        """The rows under the types of their table.  Where deleted rows stay, a row takes no value of one that does not fit."""
        while True:
            dead, frame = len(self.rows.dead), self._frame()
            takes = self.table.deleted_column is not None and any(row.lacks for row in self.rows.rows)
            if again or not takes or len(self.rows.dead) == dead:
                return frame
            self._give_up(self._unknown())

    def _frame(self) -> pa.Table:
        """The frame of the rows that fit the table; the others are letters."""
        done = fitted(self.job.targets, self.table, self.rows, self.found, self.refused)
        self.found, self.refused = done.found, done.refused
        self.rows.dead += done.letters
        return done.frame

    def _without_unjudged(self) -> None:
        """Give rows the values that their source left out and a rule of the table reads; those that nobody has are dead letters.

        A row that a later one of its key replaces is not judged.
        """
        names = frozenset[str]() if self.found is None else self.found.row_rules.names
        lacking = [row for row in self.rows.rows if not names.isdisjoint(row.lacks)]
        if not lacking:
            return
        lookup, lost = self._unavailable(), list[DeadLetter]()
        for row in lacking:
            if self.table.sequence == "source" and not self.table.has_versions:
                lookup.fill(row, [name for name in row.lacks if name in names])
                if names.isdisjoint(row.lacks) or lookup.is_past(row, names):
                    continue
            why = left_out(sorted(names & {*row.lacks}), f"a rule of the table reads them, and {NOBODY_HAS}")
            lost.append(DeadLetter(row.change.record, why))
        self._give_up(lost)

    def _mark_first(self) -> None:
        """Let deleted rows that stay be NULL where no row was before them."""
        if self.table.deleted_column is not None:
            self._unavailable().mark_first(self._gone())

    def _gone(self) -> set[int]:
        """The records that are dead letters, by their ids; what was read by columns has other objects for them than its rows."""
        dead = {letter.record.place for letter in self.dead}
        return {id(row.change.record) for row in self.rows.rows if row.change.record.place in dead}

    def _left(self) -> ChangeRows:
        """The rows of all changes that are no dead letters, made one by one."""
        self._make_each()
        gone = self._gone()
        return replace(self.rows, rows=[row for row in self.rows.rows if id(row.change.record) not in gone])


def _lacks_new(table: TargetTable, found: sw.Table | None, made: ChangeRows) -> bool:
    """Whether a row lacks a value of a column that its table does not have yet: a NULL there would be nobody's."""
    if found is None or table.is_appended or table.has_versions or table.sequence != "source":
        return False
    there = {*found.schema.names}
    return any(not there.issuperset(row.lacks) for row in made.rows)
