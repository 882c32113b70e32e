"""Applies the changes of a Spark DataFrame: Spark reads, decides and writes files, the one protocol commits them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from safewrite.changes.meaning.accounting import check_accounts, check_result
from safewrite.changes.meaning.reading import check_target
from safewrite.changes.spark.batch import changes_of
from safewrite.changes.spark.plan import FILE, POS, LiveRows, SparkPlan, planned
from safewrite.engine.spark import spark_errors
from safewrite.errors import InternalError, UnsupportedTableError
from safewrite.frames.replace_where import EVERYTHING
from safewrite.frames.spark.hashes import quoted
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.spark import scan
from safewrite.iceberg.spark.write import by_spark, check_layout, data_files
from safewrite.iceberg.write.apply import ApplyPlan
from safewrite.iceberg.write.renamed import check_names
from safewrite.iceberg.write.row_files import Mark
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.accounts import check_read, total
from safewrite.protocol.effects import Effect, Ok, Outcome, WallClock
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask
    from pyspark.sql import DataFrame

    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.spark.batch import SparkChanges
    from safewrite.frames.spark.batch import BatchOrigin
    from safewrite.frames.spark.held import Held
    from safewrite.iceberg.spark.files import SparkIceberg


@dataclass(frozen=True)
class _Done:
    """What the last plan did to files, which serves the next if it does the same."""

    mark: object
    removed: list[DataFile]
    rewritten: list[DataFile]
    deletes: list[DataFile]
    dropped_rows: int
    kept: int


@dataclass
class SparkApplyPlan(ApplyPlan):
    """Changes of a Spark DataFrame."""

    source: SparkChanges | None = None
    table: SparkIceberg | None = None
    _done: _Done | None = field(default=None, repr=False)

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        source, spec, _ = self._parts()
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self._recalled(head, spec, schema)
        tasks = yield from self._tasks(head, EVERYTHING if spec.full_refresh else source.bounds)
        with ExitStack() as stack:
            looked = tasks if source.report.ends and not spec.full_refresh else {}
            rows = self._reader(head, looked, stack)
            known = _live_rows(tasks[file] for file in looked)
            plan = stack.enter_context(
                planned(source, memory, lambda names: _selected(rows(looked), names, known))
            )
            decision = plan.settled.decision
            check_result(spec, decision, plan.upserts())
            if plan.cut is not None and not spec.full_refresh:
                tasks = yield from self._tasks(head, EVERYTHING)
            yield from self._carry_out(head, tasks, plan, rows)
            if plan.cut is None and not spec.full_refresh:
                check_accounts(decision, plan.rows, self._dropped_rows)
            clock = yield WallClock()
            assert isinstance(clock, Ok)
            assert isinstance(clock.value, int)
            yield from self._remember(head, memory, plan.after(memory, clock.value))
        self.write = replace(
            self.write, rows=plan.rows, files=len(self._rewritten), changes=decision.counts.to_dict()
        )

    def _parts(self) -> tuple[SparkChanges, Spec, SparkIceberg]:
        if self.source is None or self.spec is None or self.table is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.source, self.spec, self.table

    def _reader(
        self, head: TableVersion, looked: Collection[Mark], stack: ExitStack
    ) -> Callable[[Collection[Mark]], DataFrame | None]:
        """Gives the rows of files as long as the plan is made."""
        source, _, table = self._parts()

        def rows(files: Collection[Mark]) -> DataFrame | None:
            if not files or head.current is None:
                return None
            paths = [file[0] for file in files]
            return stack.enter_context(scan.rows_of(table, source.session, head.current, paths, FILE, POS))

        return rows

    # --- what goes and what comes --------------------------------------------------------------------
    def _carry_out(
        self,
        head: TableVersion,
        tasks: Mapping[Mark, FileScanTask],
        plan: SparkPlan,
        rows: Callable[[Collection[Mark]], DataFrame | None],
    ) -> Generator[Effect, Outcome, None]:
        """Write the rows that come, and those that stay of files that lose some; or mark those that go."""
        if self._parts()[1].full_refresh:
            if self._done is None:
                made = yield from self._rows_written(head, plan, None, plan.rows)
                self._done = _Done(None, [], made, [], 0, 0)
            self._remove_all(tasks)
            self._rewritten, self._deletes, self._kept = self._done.rewritten, [], 0
            return
        lost, totals = self._rows_lost(tasks, plan, rows)
        mark = (plan.mark, sorted(lost.items()))
        if self._done is None or self._done.mark != mark:
            whole = [file for file, count in lost.items() if count == totals[file]]
            some = [file for file in lost if file not in whole]
            deletes, left = yield from self._deleted(head, tasks, plan, some)
            kept = sum(totals[file] - lost[file] for file in left)
            made = yield from self._rows_written(head, plan, rows(left), kept + plan.rows)
            gone = [tasks[file].file for file in (*whole, *left)]
            self._done = _Done(mark, gone, made, deletes, sum(lost.values()), kept)
        done = self._done
        self._removed, self._rewritten = done.removed, done.rewritten
        self._deletes, self._dropped_rows, self._kept = done.deletes, done.dropped_rows, done.kept

    def _rows_lost(
        self,
        tasks: Mapping[Mark, FileScanTask],
        plan: SparkPlan,
        rows: Callable[[Collection[Mark]], DataFrame | None],
    ) -> tuple[dict[Mark, int], dict[Mark, int]]:
        """How many rows files lose, and how many they have."""
        by_path = {file[0]: file for file in tasks}
        lost = {by_path[path]: len(places) for path, places in plan.goes.items()}
        totals = {file: tasks[file].file.record_count for file in lost}
        unsure = [*tasks] if plan.cut is not None else [file for file in lost if tasks[file].delete_files]
        frame = rows(unsure)
        if frame is not None:
            found = {by_path[path]: count for path, count in _by_file(frame).items()}
            check_read(sum(found.values()), _live_rows(tasks[file] for file in unsure))
            totals |= found
        if plan.cut is not None and frame is not None:
            left = _by_file(plan.staying(frame, FILE))
            lost = {file: count - left.get(file[0], 0) for file, count in totals.items()}
        return {file: count for file, count in lost.items() if count}, totals

    def _deleted(
        self,
        head: TableVersion,
        tasks: Mapping[Mark, FileScanTask],
        plan: SparkPlan,
        files: Collection[Mark],
    ) -> Generator[Effect, Outcome, tuple[list[DataFile], list[Mark]]]:
        """Delete files where the table is merge-on-read, and the files that must be rewritten all the same."""
        from safewrite.iceberg.write import position_deletes

        deletes: list[DataFile] = []
        left: list[Mark] = []
        asked = plan.cut is None and position_deletes.is_asked(table_of(head).metadata)
        for file in files:
            places = np.asarray(plan.goes.get(file[0], ()), np.int64)
            if not asked or not position_deletes.is_plain(tasks[file]) or (places < 0).any():
                left.append(file)
                continue
            deletes.append((yield from self.marked_as_gone(head, tasks[file], places)))
        return deletes, left

    def _rows_written(
        self, head: TableVersion, plan: SparkPlan, rows: DataFrame | None, count: int
    ) -> Generator[Effect, Outcome, list[DataFile]]:
        """The new files.

        Raises:
            InternalError: they do not hold as many rows as was decided.
            ConflictError: kind SCHEMA_CHANGED; Spark's library sees another schema than we do.
        """
        if not count:
            return []
        _, _, table = self._parts()
        frame = plan.upserts()
        if rows is not None:
            frame = plan.staying(rows).unionByName(frame) if plan.rows else plan.staying(rows)
        made = data_files(table.write(frame), table.layout[2])
        check_layout(table, table.layout_now(), head)
        found = sum(file.record_count for file in made)
        if found != count:
            raise InternalError(
                f"Spark wrote {found} rows, and {count} were to be written. Nothing was committed. Call again with the same "
                "key, and please report it."
            )
        staging = Staging(self.limits)
        staging.take(map(by_spark, made))
        yield from staging.complete(())
        return made


def _selected(rows: DataFrame | None, names: list[str], known: int | None) -> LiveRows | None:
    return None if rows is None else LiveRows(rows.select(*map(quoted, (*names, FILE, POS))), known)


def _live_rows(tasks: Iterable[FileScanTask]) -> int | None:
    """How many rows files have; None where deletes took some away."""
    return total(None if task.delete_files else task.file.record_count for task in tasks)


def _by_file(rows: DataFrame) -> dict[str, int]:
    with spark_errors("count the rows of files"):
        return {str(row[0]): int(row[1]) for row in rows.groupBy(quoted(FILE)).count().collect()}


# --- from a frame to a plan --------------------------------------------------------------------------------
@contextmanager
def plan_of(
    held: Held,
    table: SparkIceberg,
    head: TableVersion,
    spec: Spec,
    *,
    origin: BatchOrigin | None,
    settings: Callable[[Any], Mapping[str, Any]],
) -> Iterator[SparkApplyPlan]:
    """The plan that applies the changes of a frame, for as long as Spark keeps its rows.

    ``settings`` names the write by the fingerprint of its rows.

    Raises:
        UnsupportedTableError: a key or sequence has a type that Spark does not know.
        As ``safewrite.changes.spark.batch.changes_of``.
    """
    ours = arrow_schema(table_of(head).metadata.schema())
    check_names(spec, head)
    check_target(spec, ours)
    there = frozenset(table.schema.names)
    for name in (*spec.keys, *spec.sequence_by):
        seen = table.schema.field(name).type if name in there else None
        if seen != ours.field(name).type:
            raise UnsupportedTableError(
                f"Column {name!r} has type {ours.field(name).type}, which Spark sees as {seen}: what is remembered of "
                "deleted keys would not fit. Nothing was written. Apply these changes as pandas or Arrow."
            )
    with changes_of(held, spec, table.schema, (), origin) as source:
        yield SparkApplyPlan(**settings(source.fingerprint), spec=spec, source=source, table=table)
