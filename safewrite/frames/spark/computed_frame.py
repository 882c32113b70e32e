"""Runs our own reads and writes in a copy of the user's Spark session, under settings that keep every row and value.

Spark's settings belong to a session: what other threads of it do, and the user's own reading of sources, must go on
under the user's settings.  So nothing is set in that session.  Its rows are computed there; the copy takes them over and
writes them, and reads files of the table that are to be rewritten.

A session of Spark Connect has no copies, and needs none: tasks write and read the files there, by no setting of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safewrite.engine.spark import copied, in_session, is_connect, spark_errors
from safewrite.frames.source import check_running, check_serves

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_DELTA = "spark.databricks.delta."
_PARQUET = "spark.sql.parquet."

HELD: Mapping[str, str] = {
    # Files that cannot be read, or are missing, are errors: their rows would be gone from what is written again.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Dates and times are those that are stored.  Files of Spark 2 say so in their footers, whatever is set here.
    f"{_PARQUET}datetimeRebaseModeInRead": "CORRECTED",
    f"{_PARQUET}int96RebaseModeInRead": "CORRECTED",
    f"{_PARQUET}int96TimestampConversion": "false",
    f"{_PARQUET}datetimeRebaseModeInWrite": "CORRECTED",
    f"{_PARQUET}int96RebaseModeInWrite": "CORRECTED",
    # Readers take Spark's INT96 for nanoseconds, which end in 2262.
    f"{_PARQUET}outputTimestampType": "TIMESTAMP_MICROS",
    f"{_PARQUET}writeLegacyFormat": "false",
    # Instants that are partition values, in the log and in names of folders.
    "spark.sql.session.timeZone": "UTC",
    f"{_DELTA}write.utcTimestampPartitionValues": "true",
    # Columns are added where schema_mode="merge" asks for it.
    f"{_DELTA}schema.autoMerge.enabled": "false",
    # The rows of new files are counted, and a commit carries the write's key.
    f"{_DELTA}stats.collect": "true",
    f"{_DELTA}commitInfo.enabled": "true",
    # Delta's checksum files would list the transactions without ours, which are added behind its back.
    f"{_DELTA}setTransactionsInCrc.writeOnCommit": "false",
}
"""Settings that decide which rows are read, removed or written, or with which values."""


@dataclass(frozen=True)
class ComputedFrame:
    """A user's frame, and a copy of its session in which the settings of :data:`HELD` hold."""

    frame: DataFrame
    session: SparkSession
    computed: DataFrame | None = None
    """The frame's rows, where they are kept already."""

    @property
    def context(self) -> SparkContext | None:
        """The Spark of this process that computes the rows; None where it runs elsewhere."""
        return None if is_connect(self.session) else self.session.sparkContext

    @property
    def rows(self) -> DataFrame:
        """What is written."""
        return self.frame if self.computed is None else self.computed

    def of(self, frame: DataFrame) -> DataFrame:
        """Rows that were computed and kept, in this session."""
        return in_session(frame, self.session)

    def running(self, frame: DataFrame) -> DataFrame:
        """Rows that are computed where this session uses them, as the user's session plans it.

        Spark hands a batch to ``foreachBatch`` in the same way.

        Raises:
            EngineError: Spark cannot plan or begin it; nothing was written.
        """
        from pyspark.sql import DataFrame

        java = frame._jdf  # noqa: SLF001
        # Parts of a plan go by the settings of the thread's session.
        with spark_errors("compute the rows"), active(frame.sparkSession):
            rows = java.queryExecution().toRdd()
        made = self.session._jsparkSession.internalCreateDataFrame(rows, java.schema(), False)  # noqa: SLF001
        return DataFrame(made, self.session)


@contextmanager
def held(frame: DataFrame) -> Iterator[ComputedFrame]:
    """A copy of the frame's session, active in this thread until the end of the block; a session of Connect itself.

    Each call makes its own, in a few milliseconds, so that writes of several threads do not meet.

    Raises:
        InvalidInputError: this is a frame of a session that was stopped, or of Spark Connect before 4.0.
    """
    session = frame.sparkSession
    check_running(session)
    check_serves(session)
    if is_connect(session):
        yield ComputedFrame(frame, session)
        return
    copy = copied(session, HELD)
    with active(copy):
        yield ComputedFrame(frame, copy)


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread's Java thread, which else may know none (inside foreachBatch, for one)."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    before = jvm.SparkSession.getActiveSession()
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            jvm.SparkSession.setActiveSession(before.get())
        else:
            jvm.SparkSession.clearActiveSession()
