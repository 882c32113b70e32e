"""Appends to a Delta table through Spark's own Delta library, each write once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from safewrite.arguments.volatile import check_columns, check_where
from safewrite.delta.connect import Connection
from safewrite.delta.log.row_rules import fills_of, rules_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.spark import transaction
from safewrite.delta.spark.session import LOG_STORE, attach, hook_of
from safewrite.delta.spark.transaction import NamedTransaction, SparkTransaction
from safewrite.delta.write.abc import Write
from safewrite.delta.write.creation import check_added
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.transaction import Transaction
from safewrite.delta.write.write import Recalled, committed, found_again, recall
from safewrite.delta.write.write import write as commit_write
from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    InternalError,
    NotCommittedError,
    SafewriteError,
    StorageError,
    UnsafeConfigError,
)
from safewrite.frames.predicate import columns
from safewrite.frames.replace_where import EVERYTHING
from safewrite.frames.spark.batch import (
    BatchOrigin,
    Check,
    SparkBatch,
    computed,
)
from safewrite.frames.spark.columns import Conformed, conformed, filled, keeping, new_schema
from safewrite.frames.spark.computed_frame import ComputedFrame
from safewrite.frames.spark.sql import inside
from safewrite.frames.spark.stream import written
from safewrite.frames.where import parse
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.delta.commit import Found, Landed
from safewrite.stores.world import Performer, run
from safewrite.values.unsupported import check_brought
from safewrite.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from safewrite.table.operation import Operation

log = logging.getLogger("safewrite")
_TXN_SETTINGS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


@dataclass(frozen=True)
class SparkTarget:
    """The table to be written, as the caller knows it, and how the caller names its writes."""

    connection: Connection
    world: Performer
    state: Snapshot
    arbiter: Arbiter
    limits: Limits
    new_id: Callable[[], str]
    name: Callable[[SparkBatch], Write]
    held: ComputedFrame
    txn: tuple[str, int] | None = None


def write(place: SparkTarget, operation: Operation) -> tuple[DeltaDone, SparkTransaction]:
    """Write the rows of a DataFrame once, whatever happened to earlier calls with the same name.

    Raises:
        WouldAlterError, InvalidInputError: before anything was uploaded.
        NotCommittedError: its other subclasses; none of the rows is or will be in the table.
        CommitUnknownError: the same call again, or ``resolve``, decides.
        ForeignWriterError: another writer replaced our commit.
    """
    frame = place.held.frame
    _check_session(frame.sparkSession, place.connection)
    state = place.state
    job = rows_of(place.held.rows, state.schema, state.partition_by, operation, state)
    check_added(place.state, job.rows.added)
    there = seems_there(place)

    def by(origin: BatchOrigin | None) -> tuple[DeltaDone, SparkTransaction]:
        if origin is None or there or job.checks:
            return _write_counted(job, place, origin)
        return _write_once(job, place, origin)

    return written(frame, place.txn, place.state.table_id, by, seems_there=there)


def seems_there(place: SparkTarget) -> bool:
    """Whether the stream's batch may be in the table already."""
    if place.txn is None:
        return False
    app_id, version = place.txn
    return version <= place.state.txns.get(app_id, -1)


@dataclass(frozen=True)
class Rows:
    """Rows on their way, checked by their types; ``checks`` are for their values."""

    rows: Conformed
    operation: Operation
    checks: Sequence[Check]

    def candidate(self, batch: SparkBatch, place: SparkTarget) -> SparkTransaction:
        """The transaction that names Delta's commit."""
        return SparkTransaction(
            commit_id=place.new_id(),
            write=place.name(batch),
            timestamp_ms=place.connection.world.wall_ms(),
            limits=place.limits,
            state=place.state,
            properties=self.operation.properties,
            positions=self.operation.positions,
        )

    def writer(self, frame: DataFrame) -> DataFrameWriter:
        """Delta's own writer of the rows."""
        writer = frame.write.format("delta").mode("append")
        return writer.option("mergeSchema", "true") if self.rows.added else writer


def rows_of(
    frame: DataFrame,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    operation: Operation,
    state: Snapshot | None = None,
) -> Rows:
    """The rows of a frame under a table's schema, with all checks of their values, those by the table's rules too."""
    rules = None
    if state is not None:
        check_brought(state.unread, lambda: frame.columns)
        rules, frame = rules_of(state), filled(frame, fills_of(state), state.schema)
    rows = conformed(frame, schema, partition_by=partition_by, schema_mode=operation.schema_mode)
    check_columns(operation.volatile, rows.schema.names, frame.columns)
    checks = [*rows.checks(partition_by), *keeping(rules)]
    if operation.verb == "overwrite":
        predicate = EVERYTHING if operation.where is None else parse(operation.where, rows.schema)
        check_where(operation.volatile, columns(predicate))
        checks = [*checks, inside(predicate)] if operation.where is not None else checks
    return Rows(rows, operation, checks)


@contextmanager
def first(
    held: ComputedFrame, partition_by: tuple[str, ...], operation: Operation
) -> Iterator[ComputedFrame]:
    """Compute and check the rows of a first write before the table is made, which would stay where they are refused.

    Raises:
        As :func:`write`.
    """
    job = rows_of(held.frame, new_schema(held.frame), partition_by, operation)
    with computed(job.rows.frame, job.checks, volatile=operation.volatile) as batch:
        yield replace(held, computed=batch.frame)


def _write_counted(
    job: Rows, place: SparkTarget, origin: BatchOrigin | None
) -> tuple[DeltaDone, SparkTransaction]:
    """Compute the rows and count them, then let Delta write them as they are."""
    with computed(job.rows.frame, job.checks, origin, job.operation.volatile) as batch:
        candidate = job.candidate(batch, place)
        return _once(candidate, place, place.held.of(batch.frame), job), candidate


def _write_once(job: Rows, place: SparkTarget, origin: BatchOrigin) -> tuple[DeltaDone, SparkTransaction]:
    """Let Delta compute and write the rows in one pass: its commit says how many they are."""

    def named_by(rows: int) -> Write:
        return place.name(SparkBatch(job.rows.frame, rows, origin.fingerprint(rows)))

    unknown = SparkBatch(job.rows.frame, 0, origin.fingerprint(0))
    candidate = replace(job.candidate(unknown, place), named_by=named_by)
    return _once(candidate, place, place.held.running(job.rows.frame), job), candidate


def counted(frame: DataFrame, state: Snapshot, volatile: tuple[str, ...] = ()) -> SparkBatch:
    """The frame's fingerprint, with NULL in the columns that the frame lacks; its rows are not kept."""
    frame = filled(frame, fills_of(state), state.schema)
    shaped = conformed(frame, state.schema, partition_by=state.partition_by, schema_mode="merge")
    with computed(shaped.frame, volatile=volatile) as batch:
        return batch


def _once(candidate: SparkTransaction, place: SparkTarget, frame: DataFrame, job: Rows) -> DeltaDone:
    try:
        recalled = run(recall(candidate, arbiter=place.arbiter, limits=place.limits), place.world)
        if recalled.done is not None:
            return recalled.done
        run(candidate.prepare(), place.world)
        with transaction.pending(candidate, recalled.seen, place.arbiter) as waiting:
            writer = job.writer(frame).option("userMetadata", transaction.user_metadata(candidate))
            failure = _save(writer, place)
        if failure is None and not waiting.attempts and candidate.named_by is not None:
            candidate.write = candidate.named_by(frame.count())  # Delta made no commit: of no rows
        return _settled(waiting, recalled, failure, place)
    except SafewriteError as error:
        error.key = error.key or candidate.write.key
        raise


def _save(writer: DataFrameWriter, place: SparkTarget) -> Exception | None:
    """Let Delta write; its error is used only where the hook has not said more."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        writer.save(spark_path(place.connection))
    except (PySparkException, Py4JError) as error:
        return error
    return None


def _settled(
    waiting: NamedTransaction, recalled: Recalled, failure: Exception | None, place: SparkTarget
) -> DeltaDone:
    """Decide by what the hook saw, not by what Delta says: Delta may fail after a commit, too."""
    candidate, limits = waiting.candidate, place.limits
    record = replace(recalled.record, fingerprint=candidate.write.fingerprint)
    if waiting.landed is not None:
        if failure is not None:
            log.warning("after the commit: %s", failure, extra={"table": place.connection.address.uri})
        landed = Landed(waiting.landed, waiting.attempts, False, contended=waiting.attempts > 1)
        return run(committed(candidate, landed, record, limits), place.world)
    if waiting.found is not None:
        again: Found = waiting.found
        steps = found_again(candidate, again, record, limits, attempts=waiting.attempts)
        return run(steps, place.world)
    if waiting.error is not None:
        error = waiting.error
        if isinstance(error, CommitUnknownError) and error.version is not None:
            run(keys.doubt(record, error.version, limits), place.world)
        raise error from failure
    if failure is None and candidate.write.rows == 0:
        # Delta makes no commit where nothing changes, and the name of the write must be in the log all the
        # same.
        empty = Transaction(
            commit_id=candidate.commit_id,
            write=candidate.write,
            timestamp_ms=candidate.timestamp_ms,
            limits=limits,
            state=candidate.state,
            positions=candidate.positions,
            engine_version=__version__,
        )
        return run(commit_write(empty, lambda: (), arbiter=place.arbiter, limits=limits), place.world)
    if failure is None:
        raise InternalError(
            "Delta reported a commit that did not come past safewrite's log store. Look at the table's history before "
            "you write the rows again, and please report it."
        )
    raise _refused(failure) from failure


def _refused(failure: Exception) -> NotCommittedError:
    """Delta's own error, where nothing was committed: the hook would know."""
    text = str(getattr(failure, "java_exception", failure)).partition("\n")[0]
    if (
        "Concurrent" in type(failure).__name__
        or "DELTA_CONCURRENT" in text
        or "DELTA_METADATA_CHANGED" in text
    ):
        return ConflictError(
            f"Another writer changed what this write depends on: {text} Nothing was committed."
        )
    return StorageError(
        f"Delta did not write the rows: {text} Nothing was committed. If it was the environment, call again with the "
        "same key."
    )


# --- the session --------------------------------------------------------------------------------
def spark_path(connection: Connection) -> str:
    """The table's path as Hadoop spells it."""
    address = connection.address
    return f"s3a://{address.uri.partition('://')[2]}" if address.is_s3 else address.uri


def _check_session(session: SparkSession, connection: Connection) -> None:
    """Refuse a session whose commits would bypass us, or would be skipped by their number."""
    hook_of(attach(session)).commits.know(connection)
    scheme = "s3a" if connection.address.is_s3 else "file"
    if session.sparkContext.getConf().get(f"spark.delta.logStore.{scheme}.impl") != LOG_STORE:
        raise UnsafeConfigError(
            f"This session's commits to {scheme}: tables go past safewrite. Nothing was written. Start the session "
            "with safewrite.spark.conf(..., local_files=True)."
        )
    given = [name for name in _TXN_SETTINGS if session.conf.get(name, None) is not None]
    if given:
        raise UnsafeConfigError(
            f"The session sets {', '.join(given)}, by which Delta skips batches without looking at their rows. Nothing "
            "was written. Unset it; safewrite names the batches itself."
        )


__all__ = [
    "SparkTarget",
    "counted",
    "first",
    "new_schema",
    "seems_there",
    "spark_path",
    "write",
]
