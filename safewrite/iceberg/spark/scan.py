"""Has Iceberg's own Java library read some data files of a table in Spark, their deletions applied.

Iceberg's rewrite of data files reads the same way: tasks are left with a manager in the driver, and a scan names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from safewrite.engine.spark import spark_errors
from safewrite.errors import InternalError
from safewrite.frames.spark.columns import metadata_column
from safewrite.iceberg.spark.files import SparkIceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def rows_of(  # noqa: PLR0917 - one caller
    spark: SparkIceberg, session: SparkSession, snapshot_id: int, paths: Collection[str], file: str, pos: str
) -> Iterator[DataFrame]:
    """The live rows of some files of a snapshot; the columns ``file`` and ``pos`` tell where each lies.

    The frame can be read until the end of the block.

    Raises:
        StorageError: Spark cannot plan it.
    """
    group = f"safewrite-{uuid.uuid4()}"
    manager = spark.java("spark.ScanTaskSetManager").get()
    with spark_errors("plan the files to be read"):
        tasks = _tasks(spark, snapshot_id, paths)
        spark.cache.add(group, spark.table)
        manager.stageTasks(spark.table, group, tasks)
    try:
        with spark_errors("read the files"):
            frame = session.read.format("iceberg").option("scan-task-set-id", group).load(group)
            places = metadata_column(frame, "_file").alias(file), metadata_column(frame, "_pos").alias(pos)
            yield frame.select("*", *places)
    finally:
        spark.cache.remove(group)
        manager.removeTasks(spark.table, group)


def _tasks(spark: SparkIceberg, snapshot_id: int, paths: Collection[str]) -> object:
    """Java's tasks of these files."""
    if spark.table.snapshot(snapshot_id) is None:
        spark.table.refresh()
    wanted, left = set(paths), spark.session.sparkContext._jvm.java.util.ArrayList()  # type: ignore[union-attr]  # noqa: SLF001
    planned = spark.table.newScan().useSnapshot(snapshot_id).planFiles()
    try:
        found = planned.iterator()
        while wanted and found.hasNext():
            task = found.next()
            path = str(task.file().path())
            if path in wanted:
                wanted.discard(path)
                left.add(task)
    finally:
        planned.close()
    if wanted:
        raise InternalError(
            f"Spark does not find {min(wanted)} in snapshot {snapshot_id}. Nothing was committed. Please report it."
        )
    return left
