"""Appends a Spark DataFrame to an Iceberg table: Spark writes the files, the one protocol commits them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile

from safewrite.arguments.volatile import check_columns, check_where
from safewrite.errors import ConflictError, InternalError, Kind, UnsafeConfigError
from safewrite.frames.predicate import columns
from safewrite.frames.replace_where import EVERYTHING
from safewrite.frames.spark.batch import (
    BatchOrigin,
    Check,
    SparkBatch,
    computed,
    counts_every_attempt,
    observed,
)
from safewrite.frames.spark.columns import Conformed, conformed, filled, new_schema
from safewrite.frames.spark.sql import inside
from safewrite.frames.where import parse
from safewrite.iceberg.catalog.files import MemoryIO
from safewrite.iceberg.data.datafiles import StagedFile
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import is_own
from safewrite.iceberg.spark import files
from safewrite.iceberg.spark.files import SparkIceberg
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.plans import Planner
from safewrite.iceberg.write.staging import Staging, UploadedFile
from safewrite.iceberg.write.summary import carries
from safewrite.iceberg.write.write import WritePlan
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.protocol.staging import Mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from safewrite.frames.fills import ColumnFill
    from safewrite.frames.predicate import Predicate
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.table.operation import Operation

TAIL_BYTES = 64
_WAP = "write.wap.enabled"
KNOWN_S = 30.0
"""How long a loaded table serves, as in Iceberg's own cache: the credentials lent with it run out."""


@dataclass(frozen=True)
class Job:
    """Rows on their way into a table, checked by their types; ``checks`` are for their values."""

    spark: SparkIceberg
    held: ComputedFrame
    rows: Conformed
    checks: list[Check]
    origin: BatchOrigin | None
    volatile: tuple[str, ...] = ()

    def plan(self, batch: SparkBatch, head: TableVersion, drafts: Planner, name: Identity) -> WritePlan:
        """The plan that commits the batch, with the files that Spark writes."""
        plan = AppendPlan(**drafts.common(drafts.name(batch, name, head), head))
        plan.staging = Written(drafts.limits)
        return plan

    @contextmanager
    def batch(
        self, head: TableVersion, name: Identity
    ) -> Iterator[tuple[SparkBatch, Callable[[], list[StagedFile]]]]:
        """The rows, counted, and what gives their files.

        Where possible, Spark writes the files at once and counts the rows on the way.  It does not where rows
        must be looked at before anything is uploaded, or where the table seems to have them already.

        Raises:
            ConflictError, StorageError: as :meth:`files`.
            SafewriteError: the refusal of a check.
        """
        made = None if self.checks or carries(head, name) else self._in_one_pass(head)
        if made is not None:
            batch, staged = made
            yield batch, lambda: staged
            return
        with computed(self.rows.frame, self.checks, self.origin, self.volatile) as batch:
            yield batch, lambda: self.files(batch, head)

    def _in_one_pass(self, head: TableVersion) -> tuple[SparkBatch, list[StagedFile]] | None:
        """Write and count in one pass; None, with its files unnamed, where Spark does not tell what it saw."""
        frame = self.rows.frame
        if self.origin is None and not counts_every_attempt(frame.sparkSession):
            return None
        rows = self.held.running(frame)
        if self.origin is not None:
            made = self._write(rows, head)
            return SparkBatch(frame, _rows(made), self.origin.fingerprint(_rows(made))), made
        seen = observed(rows, self.volatile)
        made = self._write(seen.frame, head)
        fingerprint = seen.fingerprint(_rows(made))
        return (
            None
            if fingerprint is None
            else (SparkBatch(frame, _rows(made), fingerprint, self.volatile), made)
        )

    def files(self, batch: SparkBatch, head: TableVersion) -> list[StagedFile]:
        """Let Spark write the files of a batch that was computed before.

        Raises:
            ConflictError: kind SCHEMA_CHANGED; Spark's library sees another schema than we do.
            InternalError: the files do not hold the rows that were counted.
            StorageError: Spark could not write them.
        """
        if not batch.rows:
            return []
        made = self._write(self.held.of(batch.frame), head)
        if _rows(made) != batch.rows:
            raise InternalError(
                f"{batch.rows} rows were counted and {_rows(made)} written: the batch was computed a second time and "
                "gave other rows. Nothing was committed; call again, and please report it."
            )
        return made

    def _write(self, frame: DataFrame, head: TableVersion) -> list[StagedFile]:
        made = data_files(self.spark.write(frame), self.spark.layout[2])
        check_layout(self.spark, self.spark.layout_now(), head)
        return [StagedFile(file.file_path, b"", file) for file in made]


def _rows(files: list[StagedFile]) -> int:
    return sum(file.data_file.record_count for file in files)


def empty_like(frame: DataFrame) -> pa.Table:
    """A table without rows, of the columns that a new table gets for this frame."""
    return new_schema(frame).empty_table()


class CachedSparkTable:
    """The table as a session's Iceberg library knows it, kept from write to write: loading it takes a request.

    Files are written by its schema, partitioning, sort order and properties; it serves as long as those are
    the table's.
    """

    def __init__(self, identifier: tuple[str, ...], likely: str) -> None:
        self.identifier = identifier
        self._likely = likely
        self._known: tuple[SparkIceberg, TableVersion, float] | None = None

    def find(
        self, session: SparkSession, head: TableVersion, *, named: str | None, now_s: float
    ) -> SparkIceberg:
        """See ``safewrite.iceberg.spark.files.find``.

        Raises:
            ConflictError: kind SCHEMA_CHANGED; the session sees another schema or partitioning than we do.
        """
        if self._known is not None:
            there, seen, loaded_s = self._known
            same = named in (None, there.catalog) and there.is_of(session)
            if same and _alike(seen, head) and now_s - loaded_s < KNOWN_S:
                return there
        there = files.find(
            session, self.identifier, head.table_id, head.location, named=named, likely=self._likely
        )
        check_layout(there, there.layout, head)
        self._known, self._likely = (there, head, now_s), there.catalog
        return there


def _alike(seen: TableVersion, head: TableVersion) -> bool:
    """Whether files are written for both table versions in the same way."""
    return _layout(seen) == _layout(head) and _settings(seen) == _settings(head)


def _settings(head: TableVersion) -> dict[str, str]:
    return {name: value for name, value in head.properties.items() if not is_own(name)}


def check_session(session: SparkSession, head: TableVersion) -> None:
    """Refuse a session that stages its writes for an audit (write-audit-publish): ours would bypass that.

    Raises:
        UnsafeConfigError: the table asks for it, and the session names a branch or an id.
    """
    if str(head.properties.get(_WAP)).lower() != "true":
        return
    named = [name for name in ("spark.wap.branch", "spark.wap.id") if session.conf.get(name, None)]
    if named:
        raise UnsafeConfigError(
            f"The table has {_WAP}=true and the session sets {', '.join(named)}, so that its writes are to be audited "
            "before they are published; safewrite writes to the branch that the table is open on. Nothing was written. Unset it for this "
            "write, or write through Spark itself."
        )


def job(
    held: ComputedFrame,
    spark: SparkIceberg,
    operation: Operation,
    *,
    origin: BatchOrigin | None = None,
    fills: Sequence[ColumnFill] = (),
) -> Job:
    """Check a frame's columns against the table's.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.frames.spark.columns.conformed``.
    """
    rows, checks, _ = checked(held.rows, spark.schema, operation, fills)
    return Job(spark, held, rows, checks, origin, operation.volatile)


def checked(
    frame: DataFrame, schema: pa.Schema, operation: Operation, fills: Sequence[ColumnFill] = ()
) -> tuple[Conformed, list[Check], Predicate | None]:
    """The frame as the table wants it, the checks of its rows, and what an overwrite replaces."""
    frame = filled(frame, fills, schema)
    rows = conformed(frame, schema, schema_mode=operation.schema_mode)
    check_columns(operation.volatile, rows.schema.names, frame.columns)
    if operation.verb != "overwrite":
        return rows, rows.checks(), None
    predicate = EVERYTHING if operation.where is None else parse(operation.where, rows.schema)
    check_where(operation.volatile, columns(predicate))
    return rows, rows.checks() + ([] if operation.where is None else [inside(predicate)]), predicate


@contextmanager
def first(held: ComputedFrame, operation: Operation) -> Iterator[ComputedFrame]:
    """Compute and check the rows of a first write before the table is made, which would stay where they are refused.

    Raises:
        As :func:`job`.
    """
    rows, checks, _ = checked(held.frame, new_schema(held.frame), operation)
    with computed(rows.frame, checks, volatile=operation.volatile) as batch:
        yield replace(held, computed=batch.frame)


def counted(
    frame: DataFrame,
    schema: pa.Schema,
    origin: BatchOrigin | None = None,
    volatile: tuple[str, ...] = (),
    fills: Sequence[ColumnFill] = (),
) -> SparkBatch:
    """The frame's fingerprint, with NULL in the columns that the frame lacks and that have no default; its rows are not kept."""
    shaped = conformed(filled(frame, fills, schema), schema, schema_mode="merge")
    with computed(shaped.frame, origin=origin, volatile=volatile) as batch:
        return batch


def check_layout(spark: SparkIceberg, layout: files.Layout, head: TableVersion) -> None:
    """Refuse to write files by a schema, partitioning or sort order other than that they are committed to (H9)."""
    if layout != _layout(head):
        raise ConflictError(
            f"Another writer changed the schema, partitioning or sort order of {spark.name} meanwhile. Nothing was "
            "committed. Call again with the same key.",
            kind=Kind.SCHEMA_CHANGED,
        )


def _layout(head: TableVersion) -> files.Layout:
    metadata = table_of(head).metadata
    return (
        str(metadata.table_uuid),
        metadata.current_schema_id,
        metadata.default_spec_id,
        metadata.default_sort_order_id,
    )


def data_files(manifest: bytes, spec_id: int) -> list[DataFile]:
    """The files of a manifest that Java wrote in memory."""
    described = ManifestFile.from_args(
        manifest_path="memory",
        manifest_length=len(manifest),
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
    )
    return [entry.data_file for entry in described.fetch_manifest_entry(MemoryIO(manifest))]


@dataclass
class Written(Staging):
    """Data files that Spark uploaded: they are checked before the first commit, as all are."""

    def upload(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, None]:
        """Take the files over."""
        self.take(by_spark(file.data_file) for file in files)
        yield from ()


def by_spark(file: DataFile) -> UploadedFile:
    """A file that Spark uploaded; its end is seen when it is checked."""
    ending = b"PAR1" if file.file_format == FileFormat.PARQUET else b""
    return UploadedFile(Mark(file.file_path, file.file_size_in_bytes, TAIL_BYTES, ending=ending), file)
