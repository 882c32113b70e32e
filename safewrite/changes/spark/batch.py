"""Gives the changes of a Spark DataFrame to tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.tasks.apply_job import GivenRows
from safewrite.engine.spark import SparkEngine
from safewrite.frames.spark.batch import BatchOrigin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from safewrite.frames.fingerprint import Fingerprint


def given_rows(frame: DataFrame, columns: pa.Schema, origin: BatchOrigin | None) -> GivenRows[DataFrame]:
    """Changes for tasks; the batch is named by its origin, if it has one, else by its rows."""

    def named(found: Fingerprint) -> Fingerprint:
        return found if origin is None else origin.fingerprint(found.rows)

    return GivenRows(SparkEngine(frame.sparkSession, few_here=True), frame, columns, named)
