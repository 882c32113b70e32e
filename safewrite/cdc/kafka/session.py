"""Gives the Spark session that a job runs in: the one of spark-submit, or a new one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import safewrite as sw
from safewrite.engine.spark import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMING = "org.apache.spark.sql.execution.streaming"
_LOUD = (
    f"{_STREAMING}.MicroBatchExecution", f"{_STREAMING}.runtime.MicroBatchExecution", "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)  # fmt: skip
"""What in the driver prints the whole stack of an error that ends a batch, and of each try of its tasks."""


def session(job: str, settings: Mapping[str, str]) -> SparkSession:
    """The session, with these settings where it is new.

    Raises:
        MissingExtraError: PySpark is not installed, or there is no Java.
        StorageError: Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise sw.MissingExtraError(
            "The job runs on PySpark, which is not installed. Nothing was read or written. Install it: "
            f"{sw.MissingExtraError.command('cdc,spark')}, or run the command by spark-submit."
        ) from error
    is_new = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName(f"safewrite cdc {job}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = started(builder)
    if is_new:
        _quieten(made)
    return made


def _quieten(spark: SparkSession) -> None:
    """Let Spark and py4j not print the stack of an error that ends a query: the command says what it was, in one line."""
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to it
    levels = jvm.org.apache.logging.log4j
    if type(levels.core.config.Configurator).__name__ == "JavaPackage":
        return  # another library of logs
    for name in _LOUD:
        levels.core.config.Configurator.setLevel(name, levels.Level.OFF)


def heap_of(spark: SparkSession) -> int:
    """The bytes that the heap of the driver's Java may have."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
