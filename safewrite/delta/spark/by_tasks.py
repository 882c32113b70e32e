"""Writes a Spark DataFrame to a Delta table by tasks on the executors, without Delta's own library: the one protocol commits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from safewrite.changes.spark.batch import given_rows
from safewrite.delta.connect import Connection
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.spark.session import attach, hook_of
from safewrite.delta.spark.write import counted, rows_of
from safewrite.delta.write.apply_by_tasks import transaction
from safewrite.delta.write.creation import NewTable
from safewrite.delta.write.overwrite import OverwriteTransaction
from safewrite.delta.write.plans import Planner
from safewrite.delta.write.staging import StagedFile
from safewrite.delta.write.tasks import WriteFiles
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import MissingExtraError, WouldAlterError
from safewrite.frames.prepare import Prepared
from safewrite.frames.source import check_classic
from safewrite.frames.spark.batch import BatchOrigin, SparkBatch
from safewrite.frames.spark.columns import arrow_schema, new_schema
from safewrite.frames.spark.stream import written
from safewrite.frames.spark.tallied import (
    TalliedRows,
    by_tasks,
    executors_lack_python,
    or_by_library,
    unreached,
)
from safewrite.protocol.keys import Identity
from safewrite.stores.addresses import StoreAddress
from safewrite.table.operation import Operation
from safewrite.table.planning import overwriting
from safewrite.table.writer import repeated

if TYPE_CHECKING:
    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.spark.abc import SparkTable
    from safewrite.delta.write.abc import Write
    from safewrite.delta.write.recalled import DeltaDone
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.receipt import Receipt


_LIBRARY = "Delta's library, which alone can append to this table,"


# --- which path --------------------------------------------------------------------------------------
def _reached(connection: Connection, what: str) -> StoreAddress:
    """How executors reach the table's objects.

    Raises:
        InvalidInputError: they do not.
    """
    store = connection.store()
    if store is None:
        raise unreached(connection.address.uri, what)
    return store


def _has_library(held: ComputedFrame, connection: Connection) -> bool:
    """Whether the session has safewrite's jar, through which Delta's library commits; if so, registers the table with it."""
    if held.context is None:
        return False
    try:
        hook_of(attach(held.frame.sparkSession)).commits.know(connection)
    except MissingExtraError:
        return False
    return True


def write(
    table: SparkTable, held: ComputedFrame, operation: Operation, name: Identity, *, queue_first: bool
) -> tuple[DeltaDone, Write] | Receipt | None:
    """Write the rows of a DataFrame once; None where Delta's own library is to append them (decision 0065).

    That is where executors lack Python's packages, or where this process's credentials cannot be sent to them.

    Raises:
        WouldAlterError, InvalidInputError: nothing was committed.
        NotCommittedError: its other subclasses; none of the rows is or will be in the table.
        CommitUnknownError: the same call again, or ``resolve``, decides.
    """
    state, appends = table.refresh(), operation.verb == "append"
    has_library = _has_library(held, table.connection)  # and the session's own commits reach the table so
    if not appends:
        store = _reached(table.connection, operation.verb)
    elif executors_lack_python(held.context) or (sent := table.connection.store()) is None:
        check_classic(held.session, _LIBRARY)
        return None
    else:
        store = sent
    if state is None and name.txn is not None:  # only_frame knows frames of a batch by the id of their table
        if held.computed is None:
            return None  # it comes again with rows that are checked
        state = table.ready_for_spark(partial(new_schema, held.frame))
    written = partial(_written, table, store, held, operation, name, state, queue_first)
    if not appends:
        return by_tasks(written)
    return or_by_library(written, held.context, lambda: has_library, table.uri)


def _written(  # noqa: PLR0917 - one caller, just above
    table: SparkTable,
    store: StoreAddress,
    held: ComputedFrame,
    operation: Operation,
    name: Identity,
    state: Snapshot | None,
    queue_first: bool,
) -> tuple[DeltaDone, Write] | Receipt:
    try:
        job = job_of(table.planner, store, held, operation, state)
    except WouldAlterError:
        if state is None:
            raise
        found = repeated(
            table, partial(counted, held.rows, state, operation.volatile), operation, name, state
        )
        if found is None:
            raise
        return found
    there = state is not None and _seems_there(state, name)

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, Write]:
        with job.rows.batch(origin, seems_there=there) as (batch, files):
            plan = job.plan(batch, name)
            if isinstance(plan, OverwriteTransaction) and plan.came is not None:  # the feed reads the files
                plan.came, plan.files = None, files()
                return table.commit(plan, operation, tuple, queue_first=queue_first), plan.write

            def encode() -> tuple[DataFile, ...]:
                plan.files = files()
                return ()

            return table.commit(plan, operation, encode, queue_first=queue_first), plan.write

    return written(held.frame, name.txn, "" if state is None else state.table_id, by, seems_there=there)


def apply(
    table: SparkTable, held: ComputedFrame, operation: Operation, name: Identity, *, queue_first: bool
) -> tuple[DeltaDone, Write]:
    """Apply the changes of a DataFrame once.

    Raises:
        As :func:`write`.
    """
    state, spec = table.ready_for_spark(None), operation.changes
    assert spec is not None
    store = _reached(table.connection, "apply_changes")
    frame = held.frame
    columns = arrow_schema(frame.schema)

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, Write]:
        given = given_rows(frame, columns, origin)
        with transaction(table.planner, store, state, given, (spec, name)) as plan:
            plan.properties, plan.positions = operation.properties, operation.positions
            return table.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    there = _seems_there(state, name)
    return by_tasks(partial(written, frame, name.txn, state.table_id, by, seems_there=there))


def _seems_there(state: Snapshot, name: Identity) -> bool:
    """Whether the table has a batch already, by its transactions."""
    return name.txn is not None and name.txn[1] <= state.txns.get(name.txn[0], -1)


# --- rows on their way ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskJob:
    """Rows on their way to a transaction."""

    planner: Planner
    rows: TalliedRows[StagedFile]
    nothing: Prepared
    operation: Operation
    state: Snapshot | None

    def plan(self, batch: SparkBatch, name: Identity) -> Transaction:
        """The transaction that commits the rows."""
        operation, nothing = self.operation, self.nothing
        write = self.planner.name(batch, name, self.state)
        if operation.verb == "append":
            plan = self.planner.appending(nothing, write, self.state)
        else:
            plan = overwriting(self.planner, nothing, operation.where, write, self.state)
        plan.properties, plan.positions = operation.properties, operation.positions
        return plan


def job_of(
    planner: Planner, store: StoreAddress, held: ComputedFrame, operation: Operation, state: Snapshot | None
) -> TaskJob:
    """Check a frame's columns against the table's, and say how tasks are to write its rows.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.frames.spark.columns.conformed``.
    """
    first = planner.first or NewTable()
    schema = new_schema(held.frame) if state is None else state.schema
    partition_by = tuple(first.partition_by) if state is None else state.partition_by
    rows = rows_of(held.rows, schema, partition_by, operation, state)
    layout = planner.layout(rows.rows.schema, state)

    def task() -> WriteFiles:
        named = replace(layout, write_id=planner.new_id())
        return WriteFiles(store, named, planner.connection.world.wall_ms(), planner.limits.elsewhere())

    tallied = TalliedRows[StagedFile](rows.rows.frame, rows.checks, operation.volatile, task)
    return TaskJob(planner, tallied, rows.rows.nothing, operation, state)
