"""Finds what runs the tasks of a job: this process, or the executors of Spark."""

from __future__ import annotations

from typing import Any

import safewrite as sw
from safewrite.engine.abc import Engine
from safewrite.engine.local import LocalEngine
from safewrite.engine.written import TableInTasks
from safewrite.errors import InternalError, InvalidInputError, MissingExtraError


def engine_of(name: str) -> Engine[Any] | None:
    """The engine of this name; None for ``local``.

    Raises:
        InvalidInputError: there is no such engine.
        MissingExtraError: Spark is not installed, or there is no Java.
        StorageError: Spark does not start.
    """
    if name == "local":
        return None
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


def reached(table: sw.Table, engine: Engine[Any] | None) -> tuple[Engine[Any], TableInTasks]:
    """What runs the tasks of a table and how they reach it: this process where there is no engine, or its machines cannot reach the table.

    Raises:
        InternalError: not even tasks of this process reach it.
    """
    way = None if engine is None else table.in_tasks()
    if engine is not None and way is not None:
        return engine, way
    way = table.in_tasks(here=True)
    if way is None:
        raise InternalError(f"{table.uri} was not found by its own process. Please report it.")
    return LocalEngine(), way
