"""Attaches the commit protocol to a running Spark session.

Delta's Java library calls the hook in the driver for each commit.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safewrite.delta.spark.hook import CommitHook
from safewrite.delta.spark.log_store import Commits, StoreSettings
from safewrite.errors import InvalidInputError, MissingExtraError, UnsafeConfigError
from safewrite.frames.source import check_classic, check_running

if TYPE_CHECKING:
    import boto3
    from pyspark.sql import SparkSession

LOG_STORE = "io.safewrite.SafewriteLogStore"
LOCK_TABLE, ARBITER = "spark.safewrite.lockTable", "spark.safewrite.arbiter"
SCHEMES = ("s3", "s3a", "s3n")
_DELTA_LOCK_TABLE = "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName"

_hooks: weakref.WeakKeyDictionary[Any, CommitHook] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def attach(
    session: SparkSession,
    *,
    lock_table: str | None = None,
    arbiter: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
) -> SparkSession:
    """Give a session its commit protocol; call it in the driver before the first write.

    A second call without settings changes nothing.  What is not given here comes from the session:
    ``spark.safewrite.*``, and S3A's endpoint, region and credentials.  What the session does not say comes
    from the environment.

    Raises:
        InvalidInputError: this is a Spark Connect session.
        MissingExtraError: the session runs without safewrite's jar.
        UnsafeConfigError: the session's Delta commits would bypass safewrite.
    """
    jvm = _jvm(session)
    _check_log_store(session)
    given = any(value is not None for value in (lock_table, arbiter, storage_options, boto3_session))
    if lock_table is None and arbiter is None:
        lock_table, arbiter = _named_arbiter(session)
    context = session.sparkContext
    with _guard:
        if not given and context in _hooks:
            return session
        settings = StoreSettings(lock_table, arbiter, storage_options, boto3_session)
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001
        hook = CommitHook(Commits(settings, hadoop.get))
        _start_callbacks(context._gateway)  # noqa: SLF001 - as PySpark's own foreachBatch
        jvm.io.safewrite.SafewriteLogStore.setHook(hook)
        _hooks[context] = hook
    return session


def landed(session: SparkSession, table: str, version: int, transaction: str) -> bool | None:
    """Whether a Delta commit that ended in doubt became ``version`` of a table; the error names all three.

    A commit that was left half-way is finished.  None: nobody has that version yet, so a late request may
    still take it.  Ask again; any commit to the table decides it.
    """
    return hook_of(session).commits.table(table).settle(version, transaction)


def hook_of(session: SparkSession) -> CommitHook:
    """What ``attach`` gave to a session's driver."""
    _jvm(session)
    hook = _hooks.get(session.sparkContext)
    if hook is None:
        raise InvalidInputError("Call safewrite.spark.attach(session) first. Nothing was done.")
    return hook


def _jvm(session: SparkSession) -> Any:
    check_running(session)
    check_classic(session)
    jvm = session.sparkContext._jvm  # noqa: SLF001
    if type(jvm.io.safewrite.SafewriteLogStore).__name__ != "JavaClass":  # type: ignore[union-attr]
        raise MissingExtraError(
            "This Spark session runs without safewrite's jar. Nothing was written. Start it with the settings "
            "of safewrite.spark.conf(), or safewrite.spark.configure(builder); a session that runs already "
            "must be stopped first, with its Java process."
        )
    return jvm


def _check_log_store(session: SparkSession) -> None:
    """Refuse a session whose commits go elsewhere: it would seem safe and not be."""
    said = session.sparkContext.getConf()
    everywhere = said.get("spark.delta.logStore.class")
    past = {
        name: value
        for scheme in SCHEMES
        if (value := said.get(name := f"spark.delta.logStore.{scheme}.impl")) != LOG_STORE
    }
    if everywhere is not None:
        past["spark.delta.logStore.class"] = everywhere
    if past:
        named = ", ".join(f"{name}={value or '(not set)'}" for name, value in past.items())
        raise UnsafeConfigError(
            f"Delta commits of this session would go past safewrite: {named}. Nothing was written. Start the "
            "session with the settings of safewrite.spark.conf(), and without spark.delta.logStore.class."
        )


def _named_arbiter(session: SparkSession) -> tuple[str | None, str | None]:
    said = session.sparkContext.getConf()
    return said.get(LOCK_TABLE) or said.get(_DELTA_LOCK_TABLE), said.get(ARBITER)


def _start_callbacks(gateway: Any) -> None:
    """Let Java call this process, as PySpark does for foreachBatch."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
