"""Holds a Spark DataFrame of changes: computed once, read in the executors, told to the driver in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.meaning.reading import check_target, parsed
from safewrite.changes.meaning.spec import Spec
from safewrite.changes.tasks import read_task
from safewrite.changes.tasks.apply_job import GivenRows
from safewrite.changes.tasks.read_task import ReadBatch, ReadReport
from safewrite.engine.spark import SparkEngine
from safewrite.frames.spark.batch import BatchOrigin
from safewrite.frames.spark.columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from safewrite.frames.fingerprint import Fingerprint
    from safewrite.frames.spark.held import Held

_READ = "safewrite_rows_read"


def given_rows(frame: DataFrame, columns: pa.Schema, origin: BatchOrigin | None) -> GivenRows[DataFrame]:
    """Changes for tasks; the batch is named by its origin, if it has one, else by its rows."""

    def named(found: Fingerprint) -> Fingerprint:
        return found if origin is None else origin.fingerprint(found.rows)

    return GivenRows(SparkEngine(frame.sparkSession, few_here=True), frame, columns, named)


@dataclass(frozen=True)
class SparkChanges(ReadBatch):
    """Changes that are checked and kept: ``frame`` has them, without truncates, under the columns of the target.

    ``schema`` is the target's.
    """

    frame: DataFrame

    @property
    def session(self) -> SparkSession:
        """The session in which they are applied: a copy of the user's."""
        return self.frame.sparkSession


@contextmanager
def changes_of(
    held: Held,
    spec: Spec,
    schema: pa.Schema,
    partition_by: tuple[str, ...] = (),
    origin: BatchOrigin | None = None,
) -> Iterator[SparkChanges]:
    """Compute, read and check the changes of a frame once, and keep them, in our session, until the end of the block.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.changes.meaning.reading.read``.
        StorageError: Spark could not compute them.
    """
    check_target(spec, schema)
    spec = parsed(replace(spec, check=None), arrow_schema(held.frame.schema))  # the driver checks
    task = read_task.ReadChanges(spec, schema, partition_by)
    with SparkEngine(held.frame.sparkSession).map(held.frame, task) as mapped:
        whole = ReadReport(read_task.no_truncates(spec, schema))
        for report in mapped.bodies():
            whole.add(report)
        fingerprint = whole.fingerprint if origin is None else origin.fingerprint(whole.fingerprint.rows)
        yield SparkChanges(spec, schema, whole, fingerprint, held.of(mapped.rows))


def count_read(rows: DataFrame) -> DataFrame:
    """Rows of files, counted as they are read; what filters them comes after."""
    import pyspark.sql.functions as f

    return rows.observe(_READ, f.expr("count(1)").alias(_READ))


def rows_read(frame: DataFrame) -> int:
    """How many rows of :func:`count_read` the last action on a frame has read; those of a task that Spark ran again count twice."""
    metrics = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001 - at once; the listeners of PySpark's Observation may lag
    return int(metrics.apply(_READ).getLong(0))
