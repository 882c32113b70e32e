"""Appends and overwrites of a Delta table by Spark's own Delta library, each of them once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from safewrite.connect import Connection
from safewrite.delta.candidate import AppendCandidate, Write
from safewrite.delta.overwrite import named as named_overwrite
from safewrite.delta.state import TableState
from safewrite.delta.write import Done, Recalled, committed, found_again, recall
from safewrite.delta.write import write as commit_write
from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    InternalError,
    NotCommittedError,
    SafewriteError,
    StorageError,
    UnsafeConfigError,
)
from safewrite.frames.replacing import EVERYTHING
from safewrite.frames.where import Where, parse
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.candidate import Arbiter
from safewrite.protocol.commit import Found, Landed
from safewrite.spark import naming
from safewrite.spark.batch import Batch, computed
from safewrite.spark.columns import conformed, new_schema
from safewrite.spark.naming import Pending, SparkCandidate
from safewrite.spark.session import LOG_STORE, attach, hook_of
from safewrite.spark.where import inside, to_sql
from safewrite.stores.world import Performer, run
from safewrite.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

log = logging.getLogger("safewrite")

_TXN_SETTINGS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


@dataclass(frozen=True)
class Place:
    """The table to be written, as the caller knows it now, and how the caller names its writes."""

    connection: Connection
    world: Performer
    state: TableState
    arbiter: Arbiter
    limits: Limits
    new_id: Callable[[], str]
    name: Callable[[Batch], Write]


@dataclass(frozen=True)
class Operation:
    """What is to be done with the rows: appended, or put where ``where`` is true (None: everywhere)."""

    mode: Literal["append", "overwrite"]
    where: Where | None = None
    schema_mode: Literal["merge"] | None = None


def write(frame: DataFrame, place: Place, operation: Operation) -> tuple[Done, SparkCandidate]:
    """Write the rows of a DataFrame once, whatever happened to earlier calls with the same name.

    Raises:
        WouldAlterError, InvalidInputError: before anything was uploaded.
        NotCommittedError: its other subclasses; none of the rows is or will be in the table.
        CommitUnknownError: the same call again, or ``resolve``, decides.
        ForeignWriterError: someone replaced our commit.
    """
    session = frame.sparkSession
    _check_session(session, place.connection)
    state = place.state
    shaped = conformed(
        frame, state.schema, partition_by=state.partition_by, schema_mode=operation.schema_mode
    )
    predicate = None
    checks = shaped.checks(state.partition_by)
    if operation.mode == "overwrite":
        predicate = EVERYTHING if operation.where is None else parse(operation.where, shaped.schema)
        checks = [*checks, inside(predicate)] if operation.where is not None else checks
    with computed(shaped.frame, checks) as batch:
        named = place.name(batch)
        if predicate is not None:
            named = named_overwrite(named, predicate)
        candidate = SparkCandidate(
            commit_id=place.new_id(),
            write=named,
            timestamp_ms=place.connection.world.wall_ms(),
            limits=place.limits,
            state=state,
            exact=operation.mode == "append",
        )
        writer = batch.frame.write.format("delta").mode(operation.mode)
        if operation.where is not None:
            assert predicate is not None
            writer = writer.option("replaceWhere", to_sql(predicate))
        if shaped.added:
            writer = writer.option("mergeSchema", "true")
        return _once(candidate, place, writer), candidate


def counted(frame: DataFrame, state: TableState) -> Batch:
    """The frame's fingerprint with NULL in the columns that it lacks; its rows are not kept."""
    shaped = conformed(frame, state.schema, partition_by=state.partition_by, schema_mode="merge")
    with computed(shaped.frame) as batch:
        return batch


def _once(candidate: SparkCandidate, place: Place, writer: DataFrameWriter) -> Done:
    try:
        recalled = run(recall(candidate, arbiter=place.arbiter, limits=place.limits), place.world)
        if recalled.done is not None:
            return recalled.done
        with naming.pending(candidate, recalled.seen, place.arbiter) as waiting:
            failure = _save(writer.option("userMetadata", naming.user_metadata(candidate)), place)
        return _settled(waiting, recalled, failure, place)
    except SafewriteError as error:
        error.key = error.key or candidate.write.key
        raise


def _save(writer: DataFrameWriter, place: Place) -> Exception | None:
    """Let Delta write; what it says of its failure is of use only where the hook has not said more."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        writer.save(spark_path(place.connection))
    except (PySparkException, Py4JError) as error:
        return error
    return None


def _settled(waiting: Pending, recalled: Recalled, failure: Exception | None, place: Place) -> Done:
    """What the hook saw decides, not what Delta says: it may fail after a commit, too."""
    candidate, limits = waiting.candidate, place.limits
    record = recalled.record
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
        # Delta makes no commit where nothing changes; the name of the write must be in the log all the same.
        empty = AppendCandidate(
            commit_id=candidate.commit_id,
            write=candidate.write,
            timestamp_ms=candidate.timestamp_ms,
            limits=limits,
            state=candidate.state,
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
    """Refuse a session whose commits would not come past us, or would be skipped by their number."""
    hook_of(attach(session)).commits.know(connection)
    scheme = "s3a" if connection.address.is_s3 else "file"
    if session.sparkContext.getConf().get(f"spark.delta.logStore.{scheme}.impl") != LOG_STORE:
        raise UnsafeConfigError(
            f"This session's commits to {scheme}: tables go past safewrite. Nothing was written. Start the session "
            "with safewrite.spark.conf(..., local_files=True)."
        )
    if session.conf.get("spark.databricks.delta.commitInfo.enabled", "true") != "true":
        raise UnsafeConfigError(
            "The session sets spark.databricks.delta.commitInfo.enabled=false, so its commits can carry no key. Nothing "
            "was written. Unset it."
        )
    # Delta's checksum files would list the transactions without ours, which are added behind its back.
    session.conf.set("spark.databricks.delta.setTransactionsInCrc.writeOnCommit", "false")
    given = [name for name in _TXN_SETTINGS if session.conf.get(name, None) is not None]
    if given:
        raise UnsafeConfigError(
            f"The session sets {', '.join(given)}, by which Delta skips batches without looking at their rows. Nothing "
            "was written. Unset it; safewrite names the batches itself."
        )


__all__ = ["Operation", "Place", "counted", "new_schema", "write"]
