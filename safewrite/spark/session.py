"""A Spark session whose Delta commits go through safewrite: its settings, and the hook it calls."""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safewrite.errors import InvalidInputError, MissingExtraError, UnsafeConfigError
from safewrite.spark.commits import Commits, Settings
from safewrite.spark.hook import CommitHook
from safewrite.spark.jars import jars_from, logstore_jar

if TYPE_CHECKING:
    import boto3
    from pyspark.sql import SparkSession

LOG_STORE = "io.safewrite.SafewriteLogStore"
LOCK_TABLE, ARBITER = "spark.safewrite.lockTable", "spark.safewrite.arbiter"
_DELTA_LOCK_TABLE = "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName"
_SCHEMES = ("s3", "s3a", "s3n")
_JOINED = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")

_hooks: weakref.WeakKeyDictionary[Any, CommitHook] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


def conf(
    *,
    lock_table: str | None = None,
    arbiter: str | None = None,
    delta: bool = True,
    iceberg: Mapping[str, Mapping[str, str]] | None = None,
    jars: str | Path | Sequence[str | Path] | None = None,
    local_files: bool = False,
) -> dict[str, str]:
    """Spark settings of a session whose Delta commits go through safewrite.

    They must be set before the session starts; then call ``attach``.

    Args:
        lock_table: DynamoDB lock table of the session's Delta tables, as for ``safewrite.open``.
        arbiter: ``"object-store"`` for conditional PUT alone.  With neither, each table's own record counts.
        delta: Delta tables, with ``spark_catalog`` as their catalog.
        iceberg: Iceberg catalogs by name, each with the properties of Iceberg's Java library.
        jars: a folder with the pinned jars (see ``packages``), or a list of jars; None where the cluster
            brings Delta and Iceberg itself (Glue, EMR, Databricks).
        local_files: also for tables in local folders (development).

    Raises:
        MissingExtraError: a jar is missing; the message says how to fetch it.
        InvalidInputError: the settings contradict each other.
    """
    if lock_table is not None and arbiter == "object-store":
        raise InvalidInputError(
            "arbiter='object-store' uses no lock table, but lock_table= was given. Nothing was written. "
            "Choose one: a table must have one arbiter."
        )
    extensions: list[str] = []
    settings: dict[str, str] = {}
    if delta:
        schemes = (*_SCHEMES, "file") if local_files else _SCHEMES
        settings |= {f"spark.delta.logStore.{scheme}.impl": LOG_STORE for scheme in schemes}
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        # Spark's own choice, INT96, is nanoseconds to other readers: years before 1678 and after 2262 are lost to them.
        settings["spark.sql.parquet.outputTimestampType"] = "TIMESTAMP_MICROS"
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
    if iceberg:
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        settings |= _catalogs(iceberg)
    settings["spark.sql.extensions"] = ",".join(extensions)
    settings["spark.jars"] = ",".join(map(str, _jars(jars, delta=delta, iceberg=bool(iceberg))))
    settings |= {name: value for name, value in ((LOCK_TABLE, lock_table), (ARBITER, arbiter)) if value}
    return {name: value for name, value in settings.items() if value}


def configure(builder: SparkSession.Builder, **settings: Any) -> SparkSession.Builder:
    """Put ``conf(**settings)`` into a session's builder; jars and extensions named there before stay.

    Raises:
        MissingExtraError: Java or a jar is missing.
    """
    _check_java()
    before: Mapping[str, Any] = getattr(builder, "_options", {})
    for name, value in conf(**settings).items():
        kept = str(before.get(name, "")) if name in _JOINED else ""
        builder = builder.config(name, f"{kept},{value}" if kept else value)
    return builder


def attach(
    session: SparkSession,
    *,
    lock_table: str | None = None,
    arbiter: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
) -> SparkSession:
    """Give a session its commit protocol; call it in the driver before the first write.

    A second call without settings changes nothing.  What is not given here is taken from the session:
    ``spark.safewrite.*``, and S3A's endpoint, region and credentials; what it does not say, from the
    environment.

    Raises:
        InvalidInputError: this is a Spark Connect session.
        MissingExtraError: the session runs without safewrite's jar.
        UnsafeConfigError: the session's Delta commits would go past safewrite.
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
        settings = Settings(lock_table, arbiter, storage_options, boto3_session)
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001
        hook = CommitHook(Commits(settings, hadoop.get))
        _start_callbacks(context._gateway)  # noqa: SLF001 - as PySpark's own foreachBatch
        jvm.io.safewrite.SafewriteLogStore.setHook(hook)
        _hooks[context] = hook
    return session


def landed(session: SparkSession, table: str, version: int, transaction: str) -> bool | None:
    """Whether a Delta commit that ended in doubt became ``version`` of a table; the error names all three.

    A commit that was left half-way is finished.  None: nobody has that version yet, so a late request may
    still take it; ask again, or let anybody commit to the table, which decides it.
    """
    return hook_of(session).commits.table(table).settle(version, transaction)


def hook_of(session: SparkSession) -> CommitHook:
    """What ``attach`` gave to a session's driver."""
    _jvm(session)
    hook = _hooks.get(session.sparkContext)
    if hook is None:
        raise InvalidInputError("Call safewrite.spark.attach(session) first. Nothing was done.")
    return hook


# --- settings -----------------------------------------------------------------------------------
def _catalogs(iceberg: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    found = {}
    for name, properties in iceberg.items():
        prefix = f"spark.sql.catalog.{name}"
        found[prefix] = "org.apache.iceberg.spark.SparkCatalog"
        found |= {f"{prefix}.{key}": value for key, value in properties.items()}
    return found


def _jars(jars: str | Path | Sequence[str | Path] | None, *, delta: bool, iceberg: bool) -> list[str | Path]:
    ours: list[str | Path] = [logstore_jar()] if delta else []
    if jars is None:
        return ours
    if isinstance(jars, str | Path):
        return [*ours, *jars_from(jars, delta=delta, iceberg=iceberg)]
    return [*ours, *jars]


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not (home and (Path(home) / "bin" / "java").is_file()) and shutil.which("java") is None:
        raise MissingExtraError(
            "Spark needs Java 17, which was not found (JAVA_HOME, PATH). Nothing was written. Install it, "
            "for example: apt-get install openjdk-17-jre-headless"
        )


# --- the running session ----------------------------------------------------------------------------
def check_classic(session: SparkSession) -> None:
    """Refuse a session whose Java process is elsewhere.

    Raises:
        InvalidInputError: this is a Spark Connect session.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "This is a Spark Connect session: its driver, where commits are made, runs elsewhere and cannot "
            "call this Python. Nothing was written. Run the job in the driver itself (spark-submit, a Glue or "
            "EMR job, a classic cluster), or write few rows with safewrite.open(...).append(frame.toArrow())."
        )


def _jvm(session: SparkSession) -> Any:
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
    """A session whose commits go elsewhere would seem safe and not be."""
    said = session.sparkContext.getConf()
    everywhere = said.get("spark.delta.logStore.class")
    past = {
        name: value
        for scheme in _SCHEMES
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
