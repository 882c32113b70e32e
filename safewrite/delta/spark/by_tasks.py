"""Writes a Spark DataFrame to a Delta table by tasks on the executors, without Delta's own library: the one protocol commits.

One pass computes the rows, counts them and writes their files, so the rows that are counted are those that are written (E5).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from safewrite.changes.apply_job import GivenRows
from safewrite.changes.table_files import NotByTasksError
from safewrite.delta.connect import Connection
from safewrite.delta.log.features import feeds_changes
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.spark.session import attach, hook_of
from safewrite.delta.spark.write import Rows, counted, rows_of
from safewrite.delta.write.apply_by_tasks import transaction
from safewrite.delta.write.creation import NewTable
from safewrite.delta.write.plans import Planner
from safewrite.delta.write.tasks import WriteFiles, WrittenFiles, union
from safewrite.delta.write.transaction import Transaction
from safewrite.engine.spark import ExecutorsLackPythonError, SparkEngine
from safewrite.errors import InternalError, InvalidInputError, MissingExtraError, WouldAlterError
from safewrite.frames.predicate import columns
from safewrite.frames.spark.batch import BatchOrigin, SparkBatch, computed
from safewrite.frames.spark.columns import arrow_schema, new_schema
from safewrite.frames.spark.stream import written
from safewrite.frames.spark.tallied import marked, named_by
from safewrite.frames.where import parse
from safewrite.protocol.keys import Identity
from safewrite.stores.travel import StoreAddress
from safewrite.table.writer import repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.format import DeltaFormat
    from safewrite.delta.write.transaction import Write
    from safewrite.delta.write.write import DeltaDone
    from safewrite.frames.fingerprint import Fingerprint
    from safewrite.frames.spark.held import Held
    from safewrite.frames.where import Where
    from safewrite.receipt import Receipt
    from safewrite.table.operation import Operation

log = logging.getLogger("safewrite")
Encode = Callable[[Transaction], "tuple[DataFile, ...]"]

_lacking: weakref.WeakSet[Any] = weakref.WeakSet()
"""Contexts whose executors lack safewrite."""


# --- which path --------------------------------------------------------------------------------------
def store_of(
    connection: Connection,
    held: Held,
    operation: Operation,
    partition_by: Sequence[str],
    state: Snapshot | None,
) -> StoreAddress | None:
    """How executors reach the table's objects; None where Delta's own library is to write.

    It takes less CPU for a table without partitions, and more for one with them (decision 0055).  Tasks cannot write where
    executors lack Python's packages, or where this process's credentials cannot be sent to them.  An overwrite must look at rows
    of this process where its ``where=`` cuts through files, and where the table's change data feed wants the rows that come.
    """
    has_library = _has_library(held, connection)
    if held.session.sparkContext in _lacking or (has_library and not partition_by):
        return None
    if operation.verb == "overwrite" and state is not None:
        if feeds_changes(state):
            return None
        if has_library and not _is_of_partitions(operation.where, state):
            return None
    return connection.store()


def _is_of_partitions(where: Where | None, state: Snapshot) -> bool:
    """Whether a condition takes files whole, for it looks at partition columns alone."""
    if where is None:
        return True
    try:
        return columns(parse(where, state.schema)) <= {*state.partition_by}
    except InvalidInputError:  # a column that this write adds; what it is else, the write itself says
        return False


def _has_library(held: Held, connection: Connection) -> bool:
    """Whether the session has safewrite's jar, through which Delta's library commits; if so, registers the table with it."""
    try:
        hook_of(attach(held.frame.sparkSession)).commits.know(connection)
    except MissingExtraError:
        return False
    return True


def write(
    table: DeltaFormat, held: Held, operation: Operation, name: Identity, *, queue_first: bool
) -> tuple[DeltaDone, Write] | Receipt | None:
    """Write the rows of a DataFrame once; None where Delta's own library is to do it.

    Raises:
        WouldAlterError, InvalidInputError: nothing was committed.
        NotCommittedError: its other subclasses; none of the rows is or will be in the table.
        CommitUnknownError: the same call again, or ``resolve``, decides.
    """
    state = table.refresh()
    first = table.planner.first or NewTable()
    partition_by = tuple(first.partition_by) if state is None else state.partition_by
    store = store_of(table.connection, held, operation, partition_by, state)
    if store is None:
        return None
    if state is None and name.txn is not None:  # only_frame knows frames of a batch by the id of their table
        if held.computed is None:
            return None  # it comes again with rows that are checked
        state = table.ready_for_spark(partial(new_schema, held.frame))
    try:
        return _written(table, store, held, operation, name, state, queue_first)
    except ExecutorsLackPythonError as error:
        if not _has_library(held, table.connection):
            raise
        _lacking.add(held.session.sparkContext)
        why = str(error)
    except NotByTasksError as error:
        if not _has_library(held, table.connection):
            raise error.__cause__ or error from None
        why = str(error.__cause__)
    log.info("Delta's own library writes the rows: %s", why, extra={"table": table.uri})
    return None


def _written(  # noqa: PLR0917 - one caller, just above
    table: DeltaFormat,
    store: StoreAddress,
    held: Held,
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
    there = name.txn is not None and state is not None and name.txn[1] <= state.txns.get(name.txn[0], -1)

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, Write]:
        with job.batch(origin, seems_there=there) as (batch, encode):
            plan = job.plan(batch, name)
            done = table.commit(plan, operation, partial(encode, plan), queue_first=queue_first)
            return done, plan.write

    return written(held.frame, name.txn, "" if state is None else state.table_id, by, seems_there=there)


def apply(
    table: DeltaFormat, held: Held, operation: Operation, name: Identity, *, queue_first: bool
) -> tuple[DeltaDone, Write] | None:
    """Apply the changes of a DataFrame once; None where Delta's own library is to read and write the files.

    Raises:
        As :func:`write`.
    """
    state, store, spec = table.ready_for_spark(None), table.connection.store(), operation.changes
    assert spec is not None
    if store is None or held.session.sparkContext in _lacking:
        return None
    frame = held.frame
    columns = arrow_schema(frame.schema)

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, Write]:
        def named(found: Fingerprint) -> Fingerprint:
            return found if origin is None else origin.fingerprint(found.rows)

        given = GivenRows(SparkEngine(frame.sparkSession), frame, columns, named)
        with transaction(table.planner, store, state, given, (spec, name)) as plan:
            plan.properties, plan.positions = operation.properties, operation.positions
            return table.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    there = name.txn is not None and name.txn[1] <= state.txns.get(name.txn[0], -1)
    try:
        return written(frame, name.txn, state.table_id, by, seems_there=there)
    except (ExecutorsLackPythonError, MissingExtraError, NotByTasksError) as error:
        if not _has_library(held, table.connection):
            raise
        if not isinstance(error, NotByTasksError):
            _lacking.add(held.session.sparkContext)
        why = str(error)
    log.info("Delta's own library applies the changes: %s", why, extra={"table": table.uri})
    return None


# --- rows on their way ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskJob:
    """Rows, and the tasks that write them."""

    planner: Planner
    rows: Rows
    state: Snapshot | None
    task: WriteFiles

    @contextmanager
    def batch(self, origin: BatchOrigin | None, *, seems_there: bool) -> Iterator[tuple[SparkBatch, Encode]]:
        """The rows, counted, and what gives their files to a transaction.

        They are written at once, but where the table seems to have them already.

        Raises:
            SafewriteError: the refusal of a check.
            StorageError: Spark could not compute or write them.
        """
        frame, volatile = self.rows.rows.frame, self.rows.operation.volatile
        if not seems_there:
            made = self._written(frame, origin)
            fingerprint = named_by(made.tally, self.rows.checks, origin, volatile)
            left_out = volatile if origin is None else ()
            yield SparkBatch(frame, made.tally.rows, fingerprint, left_out), _taking(made)
            return
        with computed(frame, self.rows.checks, origin, volatile) as batch:

            def encode(plan: Transaction) -> tuple[DataFile, ...]:
                made = self._written(batch.frame, BatchOrigin("", ""), batch.rows)
                return _taking(made)(plan)

            yield batch, encode

    def _written(self, frame: DataFrame, origin: BatchOrigin | None, rows: int | None = None) -> WrittenFiles:
        """Let the tasks write."""
        checks = self.rows.checks if rows is None else ()
        source = marked(frame, checks, origin, self.rows.operation.volatile)
        task = replace(self.task, layout=replace(self.task.layout, write_id=self.planner.new_id()))
        try:
            with SparkEngine(frame.sparkSession).map(source, task) as mapped:
                made = union(mapped.bodies())
        except WouldAlterError as error:
            raise NotByTasksError(error.message) from error
        if rows not in (None, made.tally.rows):
            raise InternalError(
                f"{rows} rows were counted and {made.tally.rows} written: the batch was computed a second time and gave other "
                "rows. Nothing was committed; call again, and please report it."
            )
        return made

    def plan(self, batch: SparkBatch, name: Identity) -> Transaction:
        """The transaction that commits the rows."""
        operation, nothing = self.rows.operation, self.rows.rows.nothing
        if operation.verb == "append":
            plan = self.planner.append(nothing, self.planner.name(batch, name, self.state), self.state)
        else:
            plan = self.planner.overwrite(nothing, operation.where, self.state, name, batch)
        plan.properties, plan.positions = operation.properties, operation.positions
        return plan


def _taking(made: WrittenFiles) -> Encode:
    """Give files that tasks wrote to a transaction; there are no others to be uploaded."""

    def encode(plan: Transaction) -> tuple[DataFile, ...]:
        plan.files = made.files
        return ()

    return encode


def job_of(
    planner: Planner, store: StoreAddress, held: Held, operation: Operation, state: Snapshot | None
) -> TaskJob:
    """Check a frame's columns against the table's, and say how tasks are to write its rows.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.frames.spark.columns.conformed``.
    """
    first = planner.first or NewTable()
    schema = new_schema(held.frame) if state is None else state.schema
    partition_by = tuple(first.partition_by) if state is None else state.partition_by
    rows = rows_of(held.rows, schema, partition_by, operation)
    layout = planner.layout(rows.rows.schema, state)
    task = WriteFiles(store, layout, planner.connection.world.wall_ms(), planner.limits.elsewhere())
    return TaskJob(planner, rows, state, task)
