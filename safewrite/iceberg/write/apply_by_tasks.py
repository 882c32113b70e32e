"""Applies changes by tasks: these look keys up, decide and write files, here or on executors; the one protocol commits them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.lookup.table_files import LiveFile
from safewrite.changes.meaning.accounting import check_accounts, check_result
from safewrite.changes.members.table_chunks import UnfitError
from safewrite.changes.tasks.apply_job import AppliedBatch, ApplyJob, Given
from safewrite.errors import InternalError
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.catalog.travel import address_of
from safewrite.iceberg.data.pruning import holding
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.apply import ApplyPlan, mark_of
from safewrite.iceberg.write.key_lookup import size_of
from safewrite.iceberg.write.renamed import check_names
from safewrite.iceberg.write.row_files import Loss, Mark
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.table_files import IcebergTableFiles
from safewrite.protocol.effects import Effect, Ok, Outcome, WallClock
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.iceberg.catalog.travel import TableAddress
    from safewrite.iceberg.write.plans import Planner
    from safewrite.iceberg.write.staging import UploadedFile
    from safewrite.protocol.keys import Identity
    from safewrite.table.operation import Operation


@contextmanager
def plan_of(
    planner: Planner, address: TableAddress, head: TableVersion, given: Given, named: tuple[Spec, Identity]
) -> Iterator[TasksApplyPlan]:
    """The plan that applies changes, for as long as the engine keeps their rows.

    Raises:
        As ``safewrite.changes.tasks.apply_job.read_in`` and ``Planner.applying``.
    """
    spec, name = named
    check_names(spec, head)
    schema = arrow_schema(table_of(head).metadata.schema())
    with given.read_in(spec, schema) as (changes, source):
        files = IcebergTableFiles(
            address, planner.new_id(), planner.target_bytes(head), planner.limits.elsewhere()
        )
        job = ApplyJob(
            given.engine, changes, source, files, planner.new_id, gives_rows=spec.check is not None
        )
        settings = planner.applying(changes.fingerprint, spec, head, name)
        with closing(job):
            yield TasksApplyPlan(
                **settings,
                spec=spec,
                job=job,
                shown=lambda rows: None if rows is None else given.shown(rows, schema),
            )


@contextmanager
def shared(
    planner: Planner,
    catalog: Catalog,
    head: TableVersion,
    given: TaskChanges,
    named: tuple[Operation, Identity],
) -> Iterator[TasksApplyPlan]:
    """As :func:`plan_of`, for changes that wait in an engine together with those of other tables.

    Raises:
        UnfitError: executors cannot reach the table's files.
    """
    operation, name = named
    address = address_of(head, catalog)
    if address is None or operation.changes is None:
        raise UnfitError("executors lack the credentials of its store")
    with plan_of(planner, address, head, given, (operation.changes, name)) as plan:
        plan.properties = {**operation.properties, **given.properties}
        plan.positions = operation.positions
        yield plan


@dataclass
class TasksApplyPlan(ApplyPlan):
    """Changes that an engine applies; files of the last plan serve the next where the same is decided."""

    job: ApplyJob | None = None
    shown: Callable[[Any], Any] = lambda rows: rows

    # --- the plan ---------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        job, spec = self._parts()
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self._recalled(head, spec, schema)
        refreshes, changes = spec.full_refresh, job.changes
        tasks = yield from self._tasks(head, EVERYTHING if refreshes else changes.bounds)
        looked: list[Mark] = []
        if changes.report.ends and not refreshes:
            holds = holding([*tasks.values()], changes.values, table_of(head).metadata)
            looked = [mark_of(task) for task in holds]
        applied = job.apply(memory, [_live_file(file, tasks[file]) for file in looked])
        decision = applied.effect.settled.decision
        check_result(spec, decision, self.shown(applied.frame))
        touched = _gone_rows(applied, looked, spec.sequence_by)
        yield from self._take_out(head, tasks, touched, schema, refreshes=refreshes)
        self._rewritten += yield from self._checked(applied.files)
        if not touched.is_cut and not refreshes:
            check_accounts(decision, applied.rows, self._dropped_rows)
        clock = yield WallClock()
        assert isinstance(clock, Ok)
        assert isinstance(clock.value, int)
        yield from self._remember(head, memory, applied.effect.after(memory, clock.value))
        self.write = changed(
            self.write, rows=applied.rows, files=len(self._rewritten), changes=decision.counts.to_dict()
        )

    def _parts(self) -> tuple[ApplyJob, Spec]:
        if self.job is None or self.spec is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        return self.job, self.spec

    def _checked(self, files: Sequence[UploadedFile]) -> Generator[Effect, Outcome, tuple[DataFile, ...]]:
        """What manifests say of files that tasks uploaded, once they were seen in the store."""
        staging = Staging(self.limits)
        staging.take(files)
        yield from staging.complete(())
        return tuple(staging.data_files)

    # --- files that lose rows ---------------------------------------------------------------------
    def _rewrite_all(
        self,
        head: TableVersion,
        files: Sequence[Mark],
        tasks: Mapping[Mark, FileScanTask],
        touched: GoneRows[Mark],
        schema: pa.Schema,
    ) -> Generator[Effect, Outcome, None]:
        """Let tasks make the files of rows that stay."""
        if not files:
            return
        job, spec = self._parts()
        work = [(_live_file(file, tasks[file]), touched.places(file)) for file in files]
        rests = job.rewrite(work, None if touched.cut is None else (spec.sequence_by, touched.cut))
        yield from self._checked([one for rest in rests.values() for one in rest.files])
        for file, (live, _) in zip(files, work, strict=True):
            rest = rests[live.name]
            made = tuple(one.data_file for one in rest.files)
            loss = Loss(rest.of - rest.rows, removes=True, rest=made, kept=rest.rows)
            self._losses[touched.mark(file)] = loss if not rest.of or rest.rows < rest.of else Loss()


def _live_file(file: Mark, task: FileScanTask) -> LiveFile:
    from pyiceberg.table import FileScanTask

    return LiveFile("#".join(file), FileScanTask(task.file, task.delete_files), size_of(task))


def _gone_rows(applied: AppliedBatch, looked: Sequence[Mark], sequence_by: tuple[str, ...]) -> GoneRows[Mark]:
    """What goes, by live file."""
    by_name = {"#".join(file): file for file in looked}
    return GoneRows(
        sequence_by,
        {by_name[name]: places for name, places in applied.effect.goes.items()},
        applied.effect.cut,
        {by_name[name]: count for name, count in applied.counts.items()},
    )
