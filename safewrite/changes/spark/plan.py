"""Decides about the changes of a Spark DataFrame where their rows are, and sums up what was decided in the driver.

Changes are brought together with the rows of the table by key; each task decides about its keys by the code that decides
about any other frame.  What is remembered of deleted keys is in the driver's memory, as for other frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.meaning.decide import Decision
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Position
from safewrite.changes.spark.batch import SparkChanges, count_read, rows_read
from safewrite.changes.tasks import by_part
from safewrite.changes.tasks.by_part import FILE, KIND, POS, Answer, RowKind
from safewrite.changes.tasks.part_sums import (
    BatchEffect,
    effect_of_truncates,
    needs_whole,
    question_of,
    summed,
)
from safewrite.engine.spark import SparkEngine, spark_schema
from safewrite.errors import InternalError
from safewrite.frames.spark.hashes import quoted
from safewrite.frames.spark.sql import literal
from safewrite.protocol.accounts import check_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK_ROWS = 250_000
"""About as many changes are decided about at once, by one task in its memory."""
BROADCAST_ROWS = 2_000_000
"""Keys of at most this many changes are sent to every executor, which then looks rows up without a shuffle."""


@dataclass(frozen=True)
class LiveRows:
    """These columns of the live rows of files that may have keys of the batch, with ``FILE`` and ``POS``.

    ``count`` is how many rows the table's metadata says they have; None where it does not say.
    """

    frame: DataFrame
    count: int | None


RowsOf = Callable[[list[str]], LiveRows | None]


@dataclass(frozen=True)
class SparkPlan(BatchEffect):
    """What a batch does to a table.  ``frame`` has the rows to be written, so many, and the keys of rows that go."""

    changes: SparkChanges
    frame: DataFrame
    mark: tuple[str, ...]
    rows: int

    def upserts(self) -> DataFrame:
        """The rows that are written."""
        return self._of(RowKind.UPSERT).select(*map(quoted, self.changes.schema.names))

    def is_before_cut(self) -> str | None:
        """The condition of rows that a truncate of this batch removes; None without one."""
        return None if self.cut is None else before(self.changes.spec.sequence_by, self.cut)

    def staying(self, rows: DataFrame, *also: str) -> DataFrame:
        """Rows of files that were looked at, without those that go, and further columns."""
        rows = rows if self.cut is None else rows.filter(f"NOT ({self.is_before_cut()})")
        left = _by_keys(rows, self._of(RowKind.DROP), self.changes.spec.keys, "left_anti", self.dropped)
        return left.select(*map(quoted, (*self.changes.schema.names, *also)))

    def _of(self, kind: RowKind) -> DataFrame:
        return self.frame.filter(f"{quoted(KIND)} = {int(kind)}")


@contextmanager
def planned(changes: SparkChanges, memory: Memory, rows_of: RowsOf) -> Iterator[SparkPlan]:
    """Decide about all changes; the plan's frame is kept until the end of the block.

    Raises:
        InvalidInputError: as ``safewrite.changes.meaning.decide.decide``.
        StorageError: Spark could not compute it.
    """
    cuts = effect_of_truncates(changes, memory)
    with _decided(changes, memory, rows_of, cuts, whole=needs_whole(changes, memory)) as (frame, answer):
        if not answer.ties:
            yield _summed(changes, memory, frame, answer, cuts)
            return
    with _decided(changes, memory, rows_of, cuts, whole=True) as (frame, answer):
        yield _summed(changes, memory, frame, answer, cuts)


@contextmanager
def _decided(
    changes: SparkChanges, memory: Memory, rows_of: RowsOf, cuts: Decision, *, whole: bool
) -> Iterator[tuple[DataFrame, Answer]]:
    """Let the tasks decide."""
    spec, schema = changes.spec, changes.schema
    columns = by_part.questioned(schema)
    question = question_of(changes, memory, whole=whole)
    given = _full(changes.frame, columns, RowKind.CHANGE)
    rows = rows_of(schema.names if whole else [*spec.keys, *spec.sequence_by])
    counted = rows is not None and bool(changes.rows)
    if rows is not None and changes.rows:
        found = _by_keys(count_read(rows.frame), changes.frame, spec.keys, "left_semi", changes.rows)
        given = given.unionByName(_full(found, columns, RowKind.ROW))
    parts = max(1, -(-changes.rows // TASK_ROWS))
    given = given.repartition(parts, *map(quoted, spec.keys)) if parts > 1 else given.repartition(1)
    with SparkEngine(changes.session).map(given, by_part.Decide(question)) as answers:
        answer = by_part.joined(answers.bodies(), cuts.counts)
        if rows is not None and counted:
            check_read(rows_read(answers.ran), rows.count)
        yield answers.rows, answer


def _by_keys(rows: DataFrame, others: DataFrame, keys: tuple[str, ...], how: str, count: int) -> DataFrame:
    """The rows that have keys of so many others, or have none (``left_anti``)."""
    import pyspark.sql.functions as f

    names = [f"_safewrite_key{number}" for number in range(len(keys))]
    wanted = others.select(*(f.col(quoted(key)).alias(name) for key, name in zip(keys, names, strict=True)))
    alike = [f"{quoted(key)} = {name}" for key, name in zip(keys, names, strict=True)]
    wanted = f.broadcast(wanted) if count <= BROADCAST_ROWS else wanted
    return rows.join(wanted, f.expr(" AND ".join(alike)), how)


def _full(frame: DataFrame, columns: pa.Schema, kind: RowKind) -> DataFrame:
    """A frame with all columns of a question, NULL in those that it lacks."""
    import pyspark.sql.functions as f

    wanted, found = spark_schema([*columns]), set(frame.columns)
    return frame.select(*(
        f.lit(int(kind)).cast("byte").alias(KIND)
        if one.name == KIND
        else (f.col(quoted(one.name)) if one.name in found else f.lit(None)).cast(one.dataType).alias(one.name)
        for one in wanted.fields
    ))  # fmt: skip


def before(names: tuple[str, ...], position: Position) -> str:
    """The condition, in Spark's SQL, of rows before a position; NULL comes before everything."""
    condition = "FALSE"
    for name, value in reversed(list(zip(names, position, strict=True))):
        column, at = quoted(name), literal(value)
        condition = f"({column} IS NULL OR {column} < {at} OR ({column} = {at} AND {condition}))"
    return f"coalesce({condition}, FALSE)"


# --- what was decided --------------------------------------------------------------------------------------
def _summed(
    changes: SparkChanges, memory: Memory, frame: DataFrame, answer: Answer, cuts: Decision
) -> SparkPlan:
    """The plan in the words of other frames.

    Raises:
        InternalError: there are other rows than were decided about.
    """
    found = summed(changes, memory, answer, cuts)
    if (
        answer.rows.rows != answer.counts.inserted + answer.counts.updated
        or answer.drops.rows != found.dropped
    ):
        raise InternalError(
            "Spark's tasks wrote other rows than they decided about. Nothing was committed. Please report it."
        )
    files = [f"{file}:{len(places)}" for file, places in sorted(answer.goes.items())]
    mark = (str(answer.rows), str(answer.drops), repr(found.cut), *files)
    return SparkPlan(
        found.settled, found.deletes, found.goes, found.cut, changes, frame, mark, answer.rows.rows
    )


__all__ = ["FILE", "POS", "LiveRows", "SparkPlan", "planned"]
