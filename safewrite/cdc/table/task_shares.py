"""Lands what one table gets of a batch whose changes are on executors: the driver makes its columns, asks tasks, and commits."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit
from safewrite.cdc.columns.frames import LACKS, LISTS, OP, framed_columns, framed_rows
from safewrite.cdc.columns.widening import refuse_unknown_partitions, with_columns
from safewrite.cdc.ledger.target_tables import keys_of
from safewrite.cdc.records.batch import Batch, Moves, by_place
from safewrite.cdc.routing.refusals import (
    refuse_key_in_order,
    refuse_other_key,
    refuse_other_rows,
)
from safewrite.cdc.routing.table_source import TableSource, is_source_position
from safewrite.cdc.rows.moved_keys import Filled
from safewrite.cdc.rows.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.sql.computing import ChunkSql
from safewrite.cdc.table.ledger_counts import count_again, count_dead, counts_of, counts_of_versions
from safewrite.cdc.table.shares import PLACE, ROW, ShareReport, StaleViewError, TableView
from safewrite.cdc.table.table_share import JobParts, TableShare, ToLand
from safewrite.cdc.table.version_changes import Apply, VersionDoubt
from safewrite.cdc.table.versions import VersionRule
from safewrite.changes.members.shared_jobs import Doubt, SharedChanges, SharedJobs, SharedRows
from safewrite.changes.members.table_chunks import UnfitError
from safewrite.engine.abc import TaskReport
from safewrite.engine.exchange import Dealt

_WRITES_MAX = 5
"""Rows are written this many times at most, where a table's columns change meanwhile."""


def view_of(job: str, found: sw.Table | None, positions: Mapping[str, int], parts: int) -> TableView:
    """What tasks have to know of a table as it is now."""
    if found is None:
        return TableView(parts=parts)
    # All tables of a job name the same partitions: a task that goes to an executor has each name once.
    own = {
        sys.intern(name): at
        for name, at in positions.items()
        if name.startswith(f"{job}/") or is_source_position(name)
    }
    return TableView(found.schema, keys_of(found), own, parts, tuple(found.partition_by), found.row_rules)


@dataclass(frozen=True)
class ChunkFit:
    """Puts changes under the types of their table, in a task."""

    fit: ColumnFit
    lacking: bool
    """Whether a change of the batch lacks a value that the table is to put in."""
    filled: Mapping[int, Filled] = field(default_factory=dict)
    """Values that rows with other keys have for changes, by the places of these."""
    sql: ChunkSql | None = None
    marks: str | None = None
    """The column that marks deleted rows, where these stay."""

    def __call__(self, chunk: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
        """The changes, and their places in the batch.

        Raises:
            UnfitError: a value does not fit; who has all records says of which.
        """
        operations = chunk.column(OP)
        if ROW in chunk.column_names:
            values = [pickle.loads(row) for row in chunk.column(ROW).to_pylist()]
            lists = chunk.column(LACKS).to_pylist()
            for at, place in enumerate(chunk.column(PLACE).to_pylist()):
                if (filled := self.filled.get(place)) is not None:
                    values[at] |= filled.values
                    lists[at] = filled.lacks
            operations = operations if self.sql is None else self.sql.rows(values, operations)
            made = framed_rows(self.fit, values, lists, operations.to_pylist(), marks=self.marks)
        else:
            columns: Mapping[str, Any] = {name: chunk.column(name) for name in chunk.column_names}
            if self.sql is not None:
                columns, operations = self.sql.columns(columns, operations)
            made = framed_columns(self.fit, columns, operations)
        _, dead, narrow = made.fitted
        if dead or narrow:
            raise UnfitError(
                next(iter(dead.values()), f"a value asks for a wider column: {', '.join(narrow)}")
            )
        return made.data if self.lacking else made.data.drop_columns([LACKS]), chunk.column(PLACE)


@dataclass(frozen=True)
class ChunkRows:
    """Puts rows under the types of their table, in a task, without those that the filter does not let pass."""

    fit: ChunkFit

    def __call__(self, chunk: pa.Table) -> pa.Table:
        """The rows.

        Raises:
            UnfitError: as ``ChunkFit``.
        """
        rows, _ = self.fit(chunk)
        passing = pc.equal(rows.column(OP), "u")
        rows = rows.drop_columns([OP])
        return rows if pc.all(passing).as_py() else rows.filter(passing)


@dataclass(frozen=True)
class Doubts:
    """Says of what tasks decided whether each change must be looked at, among all of them.

    ``is_late``: all changes being late tells of a source that was set back; ``is_any_late``: so may one that is, but for ``given`` rows
    that are sure to be: those under a new key whose insert has landed before.
    """

    changes: int
    is_late: bool
    is_any_late: bool
    lacking: bool
    given: int = 0

    def __call__(self, reports: Sequence[TaskReport]) -> str | None:
        """Why each change must be looked at; None if it need not."""
        if self.lacking and any(isinstance(report.error, sw.InvalidInputError) for report in reports):
            return "the source left values out that the table does not have"
        late = sum(report.body.answer.counts.late for report in reports if report.error is None)
        if late and self.is_late and ((self.is_any_late and late > self.given) or late == self.changes):
            return "changes are late, and newer by the clock of the source"
        return None


@dataclass(kw_only=True)
class TaskShare(TableShare):
    """What one table gets of a batch by tasks."""

    report: ShareReport
    origin: TableSource
    jobs: SharedJobs[Any]
    """Those of the batch."""
    parts: int
    """How many parts its changes are dealt to."""
    filled: Mapping[int, Filled] = field(default_factory=dict)
    rest: Sequence[Dealt] = ()
    """Changes that are in no task: rows of changed keys."""
    late: int = 0
    """How many of these are late."""
    is_landed: bool = False
    """Whether the table has all of the records: they are counted, and nothing of them is committed."""
    fit: ColumnFit = field(init=False)
    sql: ChunkSql | None = None

    @classmethod
    def prepared(
        cls,
        job: JobParts,
        report: ShareReport,
        view: TableView,
        batch: Batch,
        *,
        done: Mapping[str, int],
        jobs: SharedJobs[Any],
    ) -> Self:
        """A table with the columns that its changes bring.

        Raises:
            StaleViewError: the table is not as tasks knew it.
            UnfitError: its changes must all be in one part.
        """
        name, table = job.config.job, report.table
        try:
            found, positions = job.targets.position(table)
        except sw.InvalidInputError as error:  # a name that no table can have
            raise UnfitError(str(error)) from error
        job.refuse_other_table(table, found, positions, done)
        if view_of(name, found, positions, view.parts) != view:
            raise StaleViewError("it is not as it was when its records were read")
        receipt = cls._receipt_before(job, found, report, batch)
        if receipt is not None and (table.expressions or counts_of(receipt, table) is None):
            raise UnfitError("an attempt before landed all of its records, and it has SQL (filter, computed)")
        refuse_other_key(table, view.keys, view.schema)
        refuse_other_rows(name, table, found, positions)
        refuse_key_in_order(table, report.keys)
        is_landed = report.is_again or receipt is not None
        if not is_landed and (why := report.unfit) is not None:
            raise UnfitError(why)
        origin = TableSource.of(table, positions, report.sources)
        if origin.source is not None and not {*report.sources} <= {origin.source}:
            raise UnfitError("it has records of several sources")
        entry = job.entry(batch, table, report.records)
        entry.source_time_ms, entry.by_executors = report.newest_ms, report.records
        entry.ignored, entry.one_by_one, entry.earlier = report.ignored, report.one_by_one, report.earlier
        made = cls(
            job, table, entry, batch, found, positions, dead=report.dead,
            report=report, origin=origin, jobs=jobs, parts=view.parts, is_landed=is_landed,
        )  # fmt: skip
        if is_landed:
            made._count_again(receipt)
            return made
        if report.rows:
            made._make_columns()
        entry.split = report.rows - report.changes
        count_dead(table, entry, report.dead)
        return made

    @staticmethod
    def _receipt_before(
        job: JobParts, found: sw.Table | None, report: ShareReport, batch: Batch
    ) -> sw.Receipt | None:
        """That of the commit of the same batch, where the table may have all of its records."""
        may = bool(batch.replay) or report.is_again or report.earlier == report.records
        return (
            found.resolve(batch.key(job.config.job, report.table.name)) if may and found is not None else None
        )

    def _count_again(self, receipt: sw.Receipt | None) -> None:
        """Count what has landed before: in the same batch, whose receipt this is, or in others."""
        entry, report, found = self.entry, self.report, self.found
        if receipt is None or found is None:
            entry.earlier, entry.ignored, entry.one_by_one, self.dead = report.records, 0, 0, ()
            return
        entry.version = receipt.version
        entry.split = report.rows - report.changes + report.taken(found)
        count_dead(self.table, entry, report.dead)
        versions = counts_of_versions(report.rows, report.deletes) if self.table.has_versions else None
        count_again(self.table, entry, report.ranked, versions or counts_of(receipt, self.table) or {})

    def _make_columns(self) -> None:
        """Give the table the columns that the changes bring.

        Raises:
            UnfitError: the changes must all be in one part.
        """
        table, report, found = self.table, self.report, self.found
        schema = None if found is None else found.schema
        self.filled, self.rest, self.late = report.follow(found, self.parts)
        try:
            self.sql, types = ChunkSql.of(table, report.types, found, report.keys)
        except sw.InvalidInputError as error:
            raise UnfitError(str(error)) from error
        self.fit = fit = ColumnFit.of(table, types, found, report.keys)
        if fit.clashes:
            raise UnfitError("columns cannot be as they come")
        added, wider = fit.added(schema), [one for name, one in fit.wider.items() if name in report.narrow]
        keeps = report.lacking and table.deleted_column is not None
        if found is not None and added and (keeps or any(one.name in report.left_out for one in added)):
            raise UnfitError("the source may have left out values of a column that the table does not have")
        if found is None or added or wider:
            try:
                if found is None:
                    refuse_unknown_partitions(table, added)
                self.found = with_columns(self.job.targets, table, report.keys, found, added, wider=wider)
            except (sw.InvalidInputError, sw.WouldAlterError, sw.UnsupportedTableError) as error:
                raise UnfitError(str(error)) from error
            if wider:
                self.fit = fit = ColumnFit.of(table, types, self.found, report.keys)
        kinds = [fit.types.get(key) for key in report.keys]
        if report.key_values is not None and kinds != report.key_values.schema.types:
            raise UnfitError("its keys have several types")

    @cached_property
    def doubts(self) -> Doubt:
        """What asks whether each change must be looked at."""
        if self.table.is_appended:
            return lambda reports: None
        table, again = self.table, self.is_again(self.report.landing_ms)
        if table.has_versions:
            self.versions = VersionDoubt(table, self.report.rows, again)
            return self.versions
        return Doubts(
            self.report.rows,
            table.all_late == "error" and not again,
            self.known_ms is not None and table.sequence == "source" and not self.report.truncates,
            self.report.lacking,
            self.late,
        )

    def _to_land(self) -> ToLand:
        report = self.report
        boundary = SnapshotBoundary.of(
            by_place(self.batch.ranges), self.job.config.job, self.table, self.positions
        )
        boundary.found = report.snapshots
        return ToLand(
            report.keys, report.rows, report.lacking, report.landing_ms, report.topics, boundary.moves()
        )

    def _mends(self, error: sw.InvalidInputError | sw.WouldAlterError) -> bool:
        if isinstance(error, sw.WouldAlterError) and self.table.keeps_deleted:
            raise UnfitError(f"a delete without a row before it: {error}") from error
        return False

    def _applied(self, given: ToLand, rule: VersionRule | None, apply: Apply) -> sw.Receipt:
        return apply(self._changes(rule))

    def _changes(self, rule: VersionRule | None) -> SharedChanges:
        """The changes as tasks have them."""
        table, report = self.table, self.report
        lists = {LACKS: LISTS} if report.lacking else {}
        assert report.key_values is not None
        return SharedChanges(
            table.name,
            self.jobs,
            ChunkFit(self.fit, report.lacking, self.filled, self.sql, table.deleted_column),
            report.key_values,
            report.rows,
            self.parts if report.key_values.is_hashed else 1,
            pa.schema({OP: pa.string(), **lists}),
            self.key,
            report.truncates,
            table.deleted_column,
            rule,
        )

    def _appended(self, found: sw.Table, moved: Moves) -> sw.Receipt | None:
        table = self.table
        read = ChunkRows(ChunkFit(self.fit, False, sql=self.sql))
        for left in reversed(range(_WRITES_MAX)):
            tasks = found.in_tasks()
            if tasks is None:
                raise UnfitError("executors lack the credentials of its store")
            rows, count = SharedRows(table.name, self.jobs, read).written(tasks.writer)
            self.entry.ignored = self.report.ignored + self.report.rows - count
            if not count:
                return None
            try:
                (answer,) = found.append_many([(self.key, rows)], positions=moved)
            except sw.ConflictError as error:  # its columns are others by now than the files were written by
                if not left or error.kind is not sw.Kind.CONFLICT:
                    raise
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise AssertionError("unreachable")

    def view_after(self, parts: int) -> TableView:
        """What tasks have to know of the table after the commit."""
        positions = {**self.positions, **{name: at for name, (_, at) in self.moved.items()}}
        seen = self.job.targets.seen(self.table)
        return view_of(self.job.config.job, seen, positions, parts)
