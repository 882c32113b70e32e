"""Runs tasks on the executors of Spark, by PySpark's public ``mapInArrow``: no class of Delta's or Iceberg's is asked.

Spark may run a task twice: again after an error, beside a slow one, or because an executor is gone.  Of the attempts of a
partition Spark takes the result of one, so its report, and the rows that are kept with it, come once.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from safewrite.boundary.absent_offsets import with_offsets
from safewrite.engine.abc import (
    EngineError,
    ExecutorsLackPythonError,
    Mapped,
    Task,
    TaskAttempt,
    TaskReport,
    performed,
)
from safewrite.engine.choice import Executors
from safewrite.engine.exchange import CHUNKS, DATA, PART, Packed, unpacked
from safewrite.errors import InvalidInputError, MissingExtraError, StorageError
from safewrite.text.rendering import said, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REPORT = "_safewrite_report"

_LACKING = ("No module named", "ModuleNotFoundError", "PYTHON_VERSION_MISMATCH", "Cannot run program")
"""What Spark says where executors have no Python, another one than the driver, or lack a package of it."""

_ROWS_MAX, _BYTES_MAX = (
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
)
_NOT_ASKED = 2**31 - 1
"""The one limit of bytes with which Spark does not weigh a batch (its ``BatchedPythonArrowInput``)."""

log = logging.getLogger("safewrite")


def check_java() -> None:
    """Raise MissingExtraError where Spark's launcher will find no Java: it goes by JAVA_HOME, and by PATH only without it."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(Path(home) / "bin" / "java" if home else "java") is None:
        where = (
            f"JAVA_HOME, which is {home}, has no bin/java" if home else "neither JAVA_HOME nor PATH has it"
        )
        raise MissingExtraError(
            f"Spark needs Java 17, which was not found: {where}. Nothing was read or written. Install it, for example: "
            "apt-get install openjdk-17-jre-headless"
        )


def started(builder: SparkSession.Builder) -> SparkSession:
    """The session of a builder: the one that runs, or a new one.

    Raises:
        MissingExtraError: there is no Java.
        StorageError: Spark does not start.
    """
    from pyspark import SparkContext

    runs = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001 - PySpark has no other way to it
    if not runs and "SPARK_REMOTE" not in os.environ:
        check_java()
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise StorageError(
            f"Spark does not start: {type(error).__name__}: {said(error).splitlines()[0]}. Nothing was read or written. Check its "
            "settings, its jars and its Java (17), whose own lines are above."
        ) from error


@dataclass(frozen=True)
class SparkEngine:
    """Runs tasks where a frame's partitions are.  A source is a DataFrame.

    ``few_here``: few rows may come into this process, rather than have jobs.
    """

    session: SparkSession
    few_here: bool = False

    @contextmanager
    def map(
        self, source: DataFrame, task: Task, rows_a_batch: int | None = None
    ) -> Iterator[Mapped[DataFrame]]:
        """See :class:`safewrite.engine.abc.Engine`.

        Rows that the task gives are kept with their lineage cut: where an executor takes some of them with it, what reads
        them fails, and nothing is computed again unnoticed.

        Raises:
            ExecutorsLackPythonError: safewrite is not on every node.
        """
        if rows_a_batch is not None and not is_connect(source.sparkSession):
            source = _by_rows(source, rows_a_batch)
        frame = _frame(source, task)
        if task.columns is None:
            yield Mapped(_reports(frame), frame, frame)
            return
        with kept(frame) as rows:
            told = rows.filter(f"{REPORT} IS NOT NULL").select(REPORT)
            yield Mapped(_reports(told), rows.filter(f"{REPORT} IS NULL").drop(REPORT), frame)

    def taken(self, source: DataFrame) -> list[Any]:
        """See :class:`safewrite.engine.abc.Engine`."""
        with spark_errors("get what tasks gave"):
            found: list[bytes] = arrow_of(source.filter(f"{PART} IS NULL")).column(DATA).to_pylist()
        return found

    def here(self, source: DataFrame) -> list[list[Packed]] | None:
        """See :class:`safewrite.engine.abc.Engine`."""
        if not self.few_here:
            return None
        with spark_errors("get what tasks gave"):
            return [[*unpacked(arrow_of(source).to_batches())]]

    def at_hand(self, source: DataFrame) -> None:
        """See :class:`safewrite.engine.abc.Engine`."""

    def collected(self, source: DataFrame, columns: pa.Schema) -> pa.Table:
        """See :class:`safewrite.engine.abc.Engine`."""
        with spark_errors("get the rows"):
            rows = arrow_of(source)
        return rows.cast(columns) if rows.num_rows else columns.empty_table()

    def exchange(self, source: DataFrame, parts: int) -> DataFrame:
        """See :class:`safewrite.engine.abc.Engine`."""
        import pyspark.sql.functions as f

        numbers = ", ".join(f"{number}" for number in _hashing_to(parts))
        sent = f.expr(f"element_at(array({numbers}), {PART} % {parts} + 1)")
        return source.filter(f"{PART} IS NOT NULL").withColumn(PART, sent).repartition(parts, PART)

    def together(self, sources: Sequence[DataFrame]) -> DataFrame:
        """See :class:`safewrite.engine.abc.Engine`."""
        first, *others = sources
        for other in others:
            first = first.union(other)
        return first

    def gathered(self, source: DataFrame, inputs: int) -> DataFrame:
        """See :class:`safewrite.engine.abc.Engine`."""
        return source.coalesce(inputs)

    def numbers(self, count: int) -> DataFrame:
        """See :class:`safewrite.engine.abc.Engine`."""
        return self.session.range(0, count, 1, count)

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        """See :class:`safewrite.engine.abc.Engine`."""
        if not tasks:
            return []
        ids = self.numbers(len(tasks))
        body = partial(_ran, tasks=[pickle.dumps(task) for task in tasks])
        return _reports(ids.mapInArrow(body, spark_schema([pa.field(REPORT, pa.binary())])))


def cores_elsewhere(session: SparkSession) -> int:
    """How many tasks executors run at once that are processes of their own, as far as it is known; 0 where the driver is the executor.

    Of a session of Spark Connect it is not known: 0.
    """
    if is_connect(session):
        return 0
    context = session.sparkContext
    master = str(context.master)
    return 0 if master == "local" or master.startswith("local[") else max(1, context.defaultParallelism)


def running() -> SparkSession | None:
    """The session that this process has, or was started for by spark-submit, Glue or EMR; none is started for it alone.

    Raises:
        StorageError: it was started for one, and Spark does not start.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "pyspark" not in sys.modules:
        return None
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._active_spark_context is None:  # noqa: SLF001 - PySpark has no other way to it
        return None
    return started(SparkSession.builder)


def executors_of(
    engine: object, modules: tuple[str, ...], *, session: SparkSession | None = None, few_here: bool = False
) -> Executors | None:
    """The executors of ``engine=``, whose tasks import these modules; None where this process does all.

    ``auto`` takes those of the session, or of the Spark that this process is of, where they are processes of their own.

    Raises:
        InvalidInputError: there is no such engine.
        MissingExtraError: Spark is not installed, or there is no Java.
        StorageError: Spark does not start.
    """
    if engine == "local":
        return None
    if engine == "auto":
        session = session or running()
        cores = 0 if session is None else cores_elsewhere(session)
        if session is None or not cores:
            return None
        return Executors(SparkEngine(session, few_here), modules, cores)
    if engine != "spark":
        raise InvalidInputError(
            f"engine is 'auto', 'local' or 'spark', not {shown(engine)}. Nothing was read or written."
        )
    session = session or _of_this_machine()
    return Executors(SparkEngine(session, few_here), modules, max(1, cores_elsewhere(session)), True)


def _of_this_machine() -> SparkSession:
    """The Spark that this process is of, or a new one.  Raises as :func:`executors_of`."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError(
            "engine='spark' needs PySpark, which is not installed. Nothing was read or written. Run it by spark-submit, or in a job "
            "of Glue or EMR."
        ) from error
    return started(SparkSession.builder)


def is_connect(session: object) -> bool:
    """Whether a session is of Spark Connect: its Java process is elsewhere, and hands nothing of itself over."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def arrow_of(frame: DataFrame) -> pa.Table:
    """All rows of a frame, with its types and nulls; without rows the types may be missing.

    PySpark 3.5 has under ``toPandas`` what 4.0 calls ``toArrow``: Arrow's own record batches, as the executors made them.
    ``collect()`` gives the same values, for about twenty times the CPU and three times the memory.
    """
    if hasattr(frame, "toArrow"):
        return with_offsets(frame.toArrow())
    of_spark35: Any = frame
    batches = of_spark35._collect_as_arrow()  # noqa: SLF001
    # No batches for no rows.  3.5's own way to name the types needs distutils, which Python 3.12 has no more.
    return (
        with_offsets(pa.Table.from_batches(batches))
        if batches
        else pa.table({name: pa.nulls(0) for name in frame.columns})
    )


def _frame(source: DataFrame, task: Task) -> DataFrame:
    """The rows of a task on each partition of a source, and its reports."""
    names = source.columns
    if len({name.lower() for name in names if name.isidentifier()}) < len(names):
        source = source.toDF(*(f"c{number}" for number in range(len(names))))  # no dots in names
    columns = [*(task.columns or ()), pa.field(REPORT, pa.binary())]
    return source.mapInArrow(partial(_mapped, task=task, names=names), spark_schema(columns))


def bound_rows(session: SparkSession, rows: int) -> None:
    """Let frames of a session that is ours alone hand at most so many rows over to Python at a time, whatever they weigh."""
    for name, value in _bounded(rows).items():
        session.conf.set(name, value)


def _bounded(rows: int) -> dict[str, str]:
    """The settings: Spark 4 adds the bytes of all columns up again at each row, unless it is not to look at them."""
    return {_ROWS_MAX: str(rows), _BYTES_MAX: str(_NOT_ASKED)}


def _by_rows(frame: DataFrame, rows: int) -> DataFrame:
    """A frame whose rows go to Python at most this many at a time, whatever they weigh.

    A copy of the session plans the frame as its own session does, so what a user observes of it comes with the query.
    """
    with spark_errors("run the tasks"):
        return in_session(frame, copied(frame.sparkSession, _bounded(rows)))


def java_class(session: SparkSession, name: str) -> Any:
    """A class of Java.  As ``jvm.org.apache...`` each part of its name is a question."""
    from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to it
    return JavaClass(name, jvm._gateway_client)  # noqa: SLF001


def copied(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A copy of a session under these settings, in a few milliseconds."""
    from pyspark.sql import SparkSession

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    java = session._jsparkSession.cloneSession()  # noqa: SLF001 - as Spark itself does for a stream
    getattr(getattr(jvm, "SparkSession$"), "MODULE$").applyModifiableSettings(java, dict(settings))
    return SparkSession(session.sparkContext, java)


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """A frame, planned by a copy of its session."""
    from pyspark.sql import DataFrame

    java = frame._jdf  # noqa: SLF001 - PySpark has no way from session to session
    dataset = getattr(session.sparkContext._jvm, str(java.getClass().getName()))  # noqa: SLF001
    return DataFrame(dataset.ofRows(session._jsparkSession, java.logicalPlan()), session)  # noqa: SLF001


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once: an action that is repeated gets the same ones, or fails (E5)."""
    rows = frame.localCheckpoint(eager=False)
    if is_connect(frame.sparkSession):  # its client lets the server forget them
        yield rows
        return
    try:
        yield rows
    finally:
        # Freed now: Spark itself would wait until the garbage collectors of both languages have run.
        quietly(lambda: rows._jdf.logicalPlan().rdd().unpersist(False))  # noqa: SLF001 - PySpark has no other way


def quietly(act: Callable[[], object]) -> None:
    """Tidy up in Spark; what it raises is logged, for it cannot undo a commit that landed meanwhile."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a session that stopped, for one
        log.warning("Spark was not tidied up: %s", said(error))


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Make an error of Spark's one of ours.

    Raises:
        ExecutorsLackPythonError, EngineError: nothing was committed.
    """
    from pyspark.errors import PySparkException

    errors: tuple[type[Exception], ...] = (PySparkException, *_of_java())
    try:
        yield
    except errors as error:
        text = str(getattr(error, "java_exception", error))
        if any(sign in text for sign in _LACKING):
            raise ExecutorsLackPythonError(
                "Spark's executors need Python with safewrite: rows and changes are worked on there, by safewrite and pyarrow. "
                "Nothing was committed. Install safewrite on every node (the cluster's image, --archives with a packed environment, "
                "--additional-python-modules on Glue; --py-files where pyarrow is there). In a session of this machine (local[*]) set "
                f"PYSPARK_PYTHON to the driver's Python, {sys.executable}, before it starts. {raised_in(text)}"
            ) from error
        raise EngineError(
            f"Spark could not {what}: {raised_in(text).rstrip('. ')}. Nothing was committed. If it was the environment, call "
            "again with the same key."
        ) from error


def _of_java() -> tuple[type[Exception], ...]:
    """Errors of Java in this process; the client of Spark Connect has no Java."""
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:
        return ()
    return (Py4JError,)


def spark_schema(columns: Iterable[pa.Field]) -> StructType:
    """Columns of Arrow as Spark's, with NULL allowed."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType([
        StructField(one.name, from_arrow_type(one.type, prefer_timestamp_ntz=True)) for one in columns
    ])  # fmt: skip


def _reports(frame: DataFrame) -> list[TaskReport]:
    with spark_errors("run the tasks"):
        return [pickle.loads(bytes(row[0])) for row in frame.collect()]


def raised_in(text: str) -> str:
    """What went wrong: of a traceback of Python what was raised last, not the lines of code that stand before it."""
    lines = [line for line in text.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    raised = (
        next((line for line in lines[starts[-1] + 1 :] if not line[0].isspace()), None) if starts else None
    )
    if raised is not None:
        return raised[:500]
    return next(
        (line for line in lines if "Error" in line and "org.apache" not in line), lines[0] if lines else ""
    )[:500]


# --- in the executors -----------------------------------------------------------------------------------
def _mapped(batches: Iterable[pa.RecordBatch], task: Task, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task and its report, in one schema; what goes through an exchange is packed."""
    named = (with_offsets(pa.RecordBatch.from_arrays(batch.columns, names=names)) for batch in batches)
    given: Iterable[Any] = unpacked(named) if [*names] == CHUNKS.names else named
    columns = [*(task.columns or ()), pa.field(REPORT, pa.binary())]
    out = pa.schema([field.with_nullable(True) for field in columns])
    part, number = _place()
    for one in performed(task, given, TaskAttempt(part, number)):
        if isinstance(one, TaskReport):
            lines = [pa.nulls(1, field.type) for field in columns[:-1]]
            yield pa.record_batch([*lines, pa.array([pickle.dumps(one)], pa.binary())], schema=out)
        else:
            rows = one if isinstance(one, pa.RecordBatch) else one.packed()
            yield pa.record_batch([*rows.columns, pa.nulls(rows.num_rows, pa.binary())], schema=out)
    _leave_archives()


def _ran(batches: Iterable[pa.RecordBatch], tasks: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """The reports of the tasks with these numbers."""
    _, number = _place()
    for batch in batches:
        for part in batch.column(0).to_pylist():
            for one in performed(pickle.loads(tasks[part]), (), TaskAttempt(part, number)):
                yield pa.record_batch({REPORT: pa.array([pickle.dumps(one)], pa.binary())})
    _leave_archives()


def _leave_archives() -> None:
    """Let Python forget that it may import from archives, until it looks for a module that is new.

    PySpark calls ``importlib.invalidate_caches`` before each task, and Python before 3.13 then reads the contents of each archive
    that it knows again: some 20 ms for those of PySpark.
    """
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)


def _place() -> tuple[int, int]:
    """The partition, and the attempt: its number within a stage begins from 0 where Spark runs the stage again."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()


# --- which numbers Spark sends where ----------------------------------------------------------------------
def _hashing_to(parts: int) -> list[int]:
    """For each part a number that Spark's ``repartition`` sends to the partition of that part."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < parts:
        found.setdefault(_murmur3(number) % parts, number)
        number += 1
    return [found[part] for part in range(parts)]


def _murmur3(number: int, seed: int = 42) -> int:
    """Spark's hash of an INT, signed: Murmur3's x86_32 of its four bytes."""
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & mask

    mixed = rotated(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    value = (rotated(seed ^ mixed, 13) * 5 + 0xE6546B64) & mask
    value ^= 4
    value = (value ^ (value >> 16)) * 0x85EBCA6B & mask
    value = (value ^ (value >> 13)) * 0xC2B2AE35 & mask
    value ^= value >> 16
    return value - 2**32 if value >= 2**31 else value
