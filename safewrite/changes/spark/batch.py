"""Holds a Spark DataFrame of changes: computed once, read in the executors, told to the driver in a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.reading import check_target, parsed
from safewrite.changes.spark import tasks
from safewrite.changes.spark.tasks import REPORT, ReadReport
from safewrite.changes.spec import Spec
from safewrite.errors import InvalidInputError, StorageError
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.predicate import Both, Compare, Predicate
from safewrite.frames.replace_where import EVERYTHING
from safewrite.frames.spark.batch import BatchOrigin, quietly
from safewrite.frames.spark.columns import arrow_schema
from safewrite.frames.spark.hashes import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from safewrite.frames.spark.held import Held

_READ = "safewrite_rows_read"


@dataclass(frozen=True)
class SparkChanges:
    """Changes that are checked and kept: ``frame`` has them, without truncates, under the columns of the target.

    ``schema`` is the target's; ``report`` has what the driver needs of them.
    """

    frame: DataFrame
    spec: Spec
    schema: pa.Schema
    report: ReadReport
    fingerprint: Fingerprint

    @property
    def rows(self) -> int:
        """How many changes there are."""
        return self.report.fingerprint.rows

    @property
    def session(self) -> SparkSession:
        """The session in which they are applied: a copy of the user's."""
        return self.frame.sparkSession

    @property
    def values(self) -> dict[str, pa.Array]:
        """The values of key columns that have few."""
        return {name: values for name, values in self.report.values.items() if values is not None}

    @property
    def bounds(self) -> Predicate:
        """A condition that rows with keys of the batch satisfy."""
        parts: list[Predicate] = []
        for name, ends in self.report.ends.items():
            parts += [Compare(name, ">=", ends[0].as_py()), Compare(name, "<=", ends[-1].as_py())]
        return Both(tuple(parts)) if parts else EVERYTHING


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
        WouldAlterError, InvalidInputError: as ``safewrite.changes.reading.read``.
        StorageError: Spark could not compute them.
    """
    check_target(spec, schema)
    spec = parsed(replace(spec, check=None), arrow_schema(held.frame.schema))  # the driver checks
    read = partial(tasks.read_changes, spec=spec, schema=schema, partition_by=partition_by)
    columns = [*schema, *tasks.OF_CHANGES, pa.field(REPORT, pa.binary())]
    with kept(mapped(held.frame, read, columns)) as computed:
        whole = ReadReport(tasks.no_truncates(spec, schema))
        for report in reports(computed):
            whole.add(report)
        if whole.error is not None:
            raise whole.error
        fingerprint = whole.fingerprint if origin is None else origin.fingerprint(whole.fingerprint.rows)
        changes = held.of(computed).filter(f"{quoted(REPORT)} IS NULL").drop(REPORT)
        yield SparkChanges(changes, spec, schema, whole, fingerprint)


def mapped(
    frame: DataFrame, task: Callable[..., Iterator[pa.RecordBatch]], columns: list[pa.Field]
) -> DataFrame:
    """What a task makes of a frame's partitions."""
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return numbered.mapInArrow(partial(tasks.renamed, task=task, names=frame.columns), spark_schema(columns))


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once: an action that is repeated gets the same ones, or fails (E5)."""
    rows = frame.localCheckpoint(eager=False)
    try:
        yield rows
    finally:
        quietly(lambda: rows._jdf.logicalPlan().rdd().unpersist(False))  # noqa: SLF001 - as safewrite.frames.spark.batch


def reports(frame: DataFrame) -> list[Any]:
    """What the tasks of a frame reported.

    Raises:
        StorageError: Spark could not compute it.
    """
    rows = frame.filter(f"{quoted(REPORT)} IS NOT NULL").select(quoted(REPORT))
    with spark_errors("apply the changes"):
        return [tasks.parsed(bytes(row[0])) for row in rows.collect()]


def count_read(rows: DataFrame) -> DataFrame:
    """Rows of files, counted as they are read; what filters them comes after."""
    import pyspark.sql.functions as f

    return rows.observe(_READ, f.expr("count(1)").alias(_READ))


def rows_read(frame: DataFrame) -> int:
    """How many rows of :func:`count_read` the last action on a frame has read; those of a task that Spark ran again count twice."""
    metrics = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001 - at once; the listeners of PySpark's Observation may lag
    return int(metrics.apply(_READ).getLong(0))


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Make an error of Spark's one of ours.

    Raises:
        StorageError: nothing was committed.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(getattr(error, "java_exception", error))
        if "No module named" in text or "ModuleNotFoundError" in text:
            raise InvalidInputError(
                "Spark's executors lack a Python package: changes are decided about there, by safewrite and pyarrow. Nothing "
                f"was committed. Install safewrite on every node. {_said(text)}"
            ) from error
        raise StorageError(
            f"Spark could not {what}: {_said(text)} Nothing was committed. If it was the environment, call again with the "
            "same key."
        ) from error


def _said(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if "Error" in line and "org.apache" not in line), lines[0] if lines else ""
    )[:500]


def spark_schema(columns: list[pa.Field]) -> StructType:
    """Columns of Arrow as Spark's, with NULL allowed."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType([
        StructField(one.name, from_arrow_type(one.type, prefer_timestamp_ntz=True)) for one in columns
    ])  # fmt: skip
