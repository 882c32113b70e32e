"""Makes the transaction of changes that tasks of an engine apply: these look keys up, decide and write files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from safewrite.changes.tasks.apply_job import ApplyJob, EngineChanges, judged
from safewrite.delta.data.row_ids import lasting_columns
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.features import feeds_changes
from safewrite.delta.write import new_columns
from safewrite.table.planning import named_changes

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.delta.write.apply import ApplyTransaction
    from safewrite.delta.write.plans import Planner
    from safewrite.protocol.keys import Identity
    from safewrite.stores.addresses import StoreAddress


@contextmanager
def transaction(
    planner: Planner, store: StoreAddress, state: Snapshot, given: EngineChanges, named: tuple[Spec, Identity]
) -> Iterator[ApplyTransaction]:
    """The transaction that applies changes, for as long as the engine keeps their rows.

    Raises:
        As ``safewrite.changes.tasks.apply_job.read_in``, ``new_columns.asked`` and ``Planner.applying``.
    """
    spec, name = named
    spec, columns = new_columns.asked(spec, state, lambda: given.columns)
    schema = new_columns.schema_with(state, columns)
    with given.read_in(spec, schema, state.partition_by) as (changes, source):
        write = named_changes(planner, changes.fingerprint, spec, name, state)
        common = planner.applying(write, state, columns)
        then = new_columns.left(common)
        job = ApplyJob(
            given.engine,
            changes,
            source,
            planner.table_files(then, spec.keys, Vectors(store.root), store),
            planner.new_id,
            whole=feeds_changes(then),
            check=judged(spec, given, schema),
            lasting=lasting_columns(then),
        )
        with closing(job):
            yield planner.transaction(common, spec, job)
