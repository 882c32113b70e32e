"""Finds what runs the tasks of a job: this process, or the executors of Spark."""

from __future__ import annotations

from typing import Any

from safewrite.engine.abc import Engine
from safewrite.engine.local import LocalEngine
from safewrite.errors import InvalidInputError, MissingExtraError


def engine_of(name: str) -> Engine[Any]:
    """The engine of this name; ``local`` is one of this process.

    Raises:
        InvalidInputError: there is no such engine.
        MissingExtraError: Spark is not installed, or there is no Java.
        StorageError: Spark does not start.
    """
    if name == "local":
        return LocalEngine()
    if name != "spark":
        raise InvalidInputError(f"engine is 'local' or 'spark', not {name!r}. Nothing was read or written.")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError(
            "engine='spark' needs PySpark, which is not installed. Nothing was read or written. Run it by spark-submit, or in a job "
            "of Glue or EMR."
        ) from error
    from safewrite.engine.spark import SparkEngine, started

    return SparkEngine(started(SparkSession.builder), few_here=True)
