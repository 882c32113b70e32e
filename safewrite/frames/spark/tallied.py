"""Hands the rows of a Spark DataFrame to tasks that write files of them, and names the batch by what they counted.

One pass computes the rows, counts them and writes their files, so the rows that are counted are those that are written (E5).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from safewrite.engine.abc import EngineError, ExecutorsLackPythonError, Task
from safewrite.engine.spark import SparkEngine, is_connect
from safewrite.errors import (
    InternalError,
    InvalidInputError,
    MissingExtraError,
    WouldAlterError,
)
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.spark.batch import BatchOrigin, Check, SparkBatch, computed, fingerprint_of
from safewrite.frames.spark.hashes import quoted, row_hash, tree
from safewrite.frames.tally import FAULTS, HASH, Tally
from safewrite.frames.task_files import StagedRows, TalliedFiles, added_up

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

T = TypeVar("T")
F = TypeVar("F", bound=StagedRows)
log = logging.getLogger("safewrite")

ROWS, ROWS_OF_TEXT = 4096, 1024
"""At most this many rows come to Python at a time where they are not weighed; Spark's own way is to ask for their bytes at each row."""
ROW_BYTES_MAX = 2**16
"""A row with more bytes of text and binary values than this ends the job, and Spark weighs all rows; else they are 64 MiB at a time."""
_TOO_LARGE = f"safewrite weighs rows of more than {ROW_BYTES_MAX} bytes"
_weighing: weakref.WeakSet[Any] = weakref.WeakSet()
"""Contexts in which a row was that large."""

_lacking: weakref.WeakSet[Any] = weakref.WeakSet()
"""Contexts whose executors lack safewrite."""


class NotInPythonError(Exception):
    """A value that Spark has and Python has not, such as a year after 9999."""


def executors_lack_python(context: SparkContext | None) -> bool:
    """Whether tasks could not run in a context before; without one there is nothing else that writes."""
    return context is not None and context in _lacking


def by_tasks(write: Callable[[], T]) -> T:
    """Write by tasks, which alone overwrite and apply changes (decision 0065).

    Raises:
        ExecutorsLackPythonError, MissingExtraError: executors lack Python, safewrite or pyarrow.
        WouldAlterError: a value that Spark has and Python has not.
        As ``write``.
    """
    try:
        return write()
    except NotInPythonError as error:
        raise error.__cause__ or error from None


def unreached(table: str, what: str) -> InvalidInputError:
    """The refusal where executors cannot be sent what reaches the table's files."""
    return InvalidInputError(
        f"{table}: {what} of a Spark frame is done by tasks on the executors, and this process's credentials or FileIO cannot be "
        "sent to them (a session of boto3, SSO, an assumed role, an object that does not pickle). Nothing was written. Give the "
        "executors' nodes a role of their own and open the table without a session, or give keys in storage_options= or the "
        "catalog's properties. Rows that fit into this process can be brought here: frame.toArrow()."
    )


def or_by_library(
    write: Callable[[], T],
    context: SparkContext | None,
    has_library: Callable[[], bool],
    table: str,
) -> T | None:
    """Append by tasks; None where these cannot, and the table format's own library is there to do it.

    Raises:
        ExecutorsLackPythonError, MissingExtraError, WouldAlterError: there is none.
        As ``write``.
    """
    try:
        return write()
    except (ExecutorsLackPythonError, MissingExtraError) as error:
        if not has_library():
            raise
        assert context is not None
        _lacking.add(context)
        why = str(error)
    except NotInPythonError as error:
        if not has_library():
            raise error.__cause__ or error from None
        why = str(error.__cause__)
    log.info("the table format's own library writes the rows: %s", why, extra={"table": table})
    return None


@dataclass(frozen=True)
class TalliedRows(Generic[F]):
    """Rows, the checks of their values, and what makes a task that writes them; each task writes under an id of its own."""

    frame: DataFrame
    checks: Sequence[Check]
    volatile: tuple[str, ...]
    task: Callable[[], Task]

    @contextmanager
    def batch(
        self, origin: BatchOrigin | None, *, seems_there: bool
    ) -> Iterator[tuple[SparkBatch, Callable[[], tuple[F, ...]]]]:
        """The rows, counted, and what gives their files.

        They are written at once, but where the table seems to have them already.

        Raises:
            SafewriteError: the refusal of a check.
            StorageError: Spark could not compute or write them.
        """
        if not seems_there:
            made = self._written(self.frame, origin)
            fingerprint = named_by(made.tally, self.checks, origin, self.volatile)
            left_out = self.volatile if origin is None else ()
            yield SparkBatch(self.frame, made.tally.rows, fingerprint, left_out), lambda: made.files
            return
        with computed(self.frame, self.checks, origin, self.volatile) as batch:
            yield (
                batch,
                lambda: self._written(batch.frame, BatchOrigin("", ""), batch.rows).files,
            )

    def _written(
        self, frame: DataFrame, origin: BatchOrigin | None, rows: int | None = None
    ) -> TalliedFiles[F]:
        """Let the tasks write; ``rows`` were counted and checked before."""
        source = marked(frame, self.checks if rows is None else (), origin, self.volatile)
        try:
            made = self._made(source)
        except WouldAlterError as error:
            raise NotInPythonError from error
        if rows not in (None, made.tally.rows):
            raise InternalError(
                f"{rows} rows were counted and {made.tally.rows} written: the batch was computed a second time and gave other "
                "rows. Nothing was committed; call again, and please report it."
            )
        return made

    def _made(self, source: DataFrame) -> TalliedFiles[F]:
        many = rows_a_batch(source)
        if many is None:
            return self._by(source, None)
        try:
            return self._by(bounded(source), many)
        except EngineError as error:
            if _TOO_LARGE not in str(getattr(error.__cause__, "java_exception", error.__cause__)):
                raise
        log.info("a row of the frame has more than %s bytes: Spark weighs rows from now on", ROW_BYTES_MAX)
        _weighing.add(source.sparkSession.sparkContext)
        return self._by(source, None)

    def _by(self, source: DataFrame, many: int | None) -> TalliedFiles[F]:
        with SparkEngine(source.sparkSession).map(source, self.task(), many) as mapped:
            return added_up(mapped.bodies())


def rows_a_batch(frame: DataFrame) -> int | None:
    """At most this many rows of a frame may come to Python unweighed; None where Spark is to weigh them, for nested values may be large."""
    from pyspark.sql import types

    if is_connect(frame.sparkSession) or frame.sparkSession.sparkContext in _weighing:
        return None
    short = (
        types.NumericType,
        types.BooleanType,
        types.DateType,
        types.TimestampType,
        types.TimestampNTZType,
    )
    others = {field.name for field in frame.schema if not isinstance(field.dataType, short)}
    if not others:
        return ROWS
    return ROWS_OF_TEXT if others <= {*_of_any_length(frame)} else None


def _of_any_length(frame: DataFrame) -> list[str]:
    """The columns of text and of binary values."""
    from pyspark.sql import types

    kinds = (types.StringType, types.VarcharType, types.CharType, types.BinaryType)
    return [field.name for field in frame.schema if isinstance(field.dataType, kinds)]


def bounded(frame: DataFrame) -> DataFrame:
    """The rows; who computes one that is too large to go unweighed gets an error."""
    import pyspark.sql.functions as f

    names = _of_any_length(frame)
    if not names:
        return frame
    size = tree([f"coalesce(octet_length({quoted(name)}), 0L)" for name in names], "+")
    first = quoted(names[0])
    checked = f.expr(f"IF({size} > {ROW_BYTES_MAX}, raise_error('{_TOO_LARGE}'), {first})")
    return frame.select(
        *(checked.alias(name) if name == names[0] else quoted(name) for name in frame.columns)
    )


def marked(
    frame: DataFrame, checks: Sequence[Check], origin: BatchOrigin | None, volatile: tuple[str, ...]
) -> DataFrame:
    """The rows, each with its hash where it is to be known by it, and the number of the first check that it fails.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared, or a name that is needed here.
    """
    import pyspark.sql.functions as f

    taken = {HASH, FAULTS} & {*frame.columns}
    if taken:
        raise InvalidInputError(
            f"Columns {sorted(taken)} have names by which safewrite counts rows. Nothing was written. Rename them."
        )
    more = [] if origin is not None else [f.expr(row_hash(frame.schema, volatile)).alias(HASH)]
    if checks:
        cases = [f"WHEN {check.condition} THEN {number}" for number, check in enumerate(checks, 1)]
        more.append(f.expr(f"CASE {' '.join(cases)} ELSE 0 END").alias(FAULTS))
    return frame.select("*", *more)


def named_by(
    tally: Tally, checks: Sequence[Check], origin: BatchOrigin | None, volatile: tuple[str, ...]
) -> Fingerprint:
    """The fingerprint of the rows that tasks counted.

    Raises:
        SafewriteError: the refusal of a check.
    """
    if tally.faults:  # of the first check that any row fails, every row that fails it was counted
        number = min(tally.faults)
        raise checks[number].refusal(tally.faults[number], tally.rows)
    if origin is not None:
        return origin.fingerprint(tally.rows)
    return fingerprint_of(tally.rows, tally.high, tally.low, volatile)
