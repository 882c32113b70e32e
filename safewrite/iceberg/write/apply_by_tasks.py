"""Makes the plan of changes that tasks of an engine apply: these look keys up, decide and write files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from safewrite.changes.members.table_chunks import UnfitError
from safewrite.changes.tasks.apply_job import ApplyJob, EngineChanges, judged
from safewrite.iceberg.catalog.addresses import address_of
from safewrite.iceberg.data.lineage import id_columns
from safewrite.iceberg.data.schema import written_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.apply import ApplyPlan
from safewrite.iceberg.write.evolution import evolved
from safewrite.iceberg.write.new_columns import asked, evolution_of
from safewrite.iceberg.write.renamed import check_names
from safewrite.iceberg.write.table_files import IcebergTableFiles, PlannedTable
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.planning import named_changes

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.iceberg.catalog.addresses import TableAddress
    from safewrite.iceberg.write.plans import Planner
    from safewrite.protocol.keys import Identity
    from safewrite.table.operation import Operation


@contextmanager
def plan_of(
    planner: Planner,
    address: TableAddress,
    head: TableVersion,
    given: EngineChanges,
    named: tuple[Spec, Identity],
) -> Iterator[ApplyPlan]:
    """The plan that applies changes, for as long as the engine keeps their rows.

    Raises:
        As ``safewrite.changes.tasks.apply_job.read_in`` and ``Planner.applying``.
    """
    spec, name = named
    check_names(spec, head)
    spec, columns = asked(spec, head, lambda: given.columns)
    evolution = evolution_of(head, columns)
    metadata = table_of(evolved(head, evolution)).metadata
    schema = written_schema(metadata.schema())
    planned = PlannedTable()
    how_large, limits = planner.target_bytes(head), planner.limits.elsewhere()
    with given.read_in(spec, schema) as (changes, source):
        job = ApplyJob(
            given.engine,
            changes,
            source,
            IcebergTableFiles(planner.new_id(), how_large, limits, address, planned, evolution=evolution),
            planner.new_id,
            check=judged(spec, given, schema),
            lasting=id_columns(metadata),
        )
        with closing(job):
            write = named_changes(planner, changes.fingerprint, spec, name, head)
            how = planner.applying(write, head, evolution)
            yield ApplyPlan(**how, spec=spec, work=job, planned_table=planned)


@contextmanager
def shared(
    planner: Planner,
    catalog: Catalog,
    head: TableVersion,
    given: TaskChanges,
    named: tuple[Operation, Identity],
) -> Iterator[ApplyPlan]:
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
