"""Rows of a Spark DataFrame in an Iceberg table: Spark writes the files, the one protocol commits them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile

from safewrite.errors import ConflictError, InternalError, Kind, StorageError
from safewrite.frames.replacing import EVERYTHING
from safewrite.frames.where import Where, parse
from safewrite.iceberg.datafiles import StagedFile
from safewrite.iceberg.drafts import Drafts
from safewrite.iceberg.files import MemoryIO
from safewrite.iceberg.heads import table_of
from safewrite.iceberg.replace import named_replace
from safewrite.iceberg.staging import Mark, Staging, perform_all
from safewrite.iceberg.write import WritePlan
from safewrite.protocol import lease
from safewrite.protocol.effects import Effect, GetTail, Ok, Outcome, Tail
from safewrite.protocol.head import Head
from safewrite.spark import files
from safewrite.spark.batch import Batch, Check, computed
from safewrite.spark.columns import Conformed, conformed, new_schema
from safewrite.spark.files import SparkIceberg
from safewrite.spark.session import check_classic
from safewrite.spark.where import inside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from safewrite.frames.predicate import Predicate

TAIL_BYTES = 64


@dataclass(frozen=True)
class Job:
    """Rows on their way into a table, checked by their types; ``checks`` are for their values."""

    spark: SparkIceberg
    rows: Conformed
    checks: list[Check]
    predicate: Predicate | None

    def plan(self, batch: Batch, head: Head, drafts: Drafts, name: Any) -> WritePlan:
        """What commits the batch; its files are those that Spark writes."""
        key, txn = name
        named = drafts.name(str(batch.fingerprint), batch.rows, head, key, txn)
        plan: WritePlan
        if self.predicate is None:
            plan = drafts.append(named, head)
        else:
            plan = drafts.replace(named_replace(named, self.predicate), head, self.predicate)
        plan.staging = Written(drafts.limits)
        return plan

    def files(self, batch: Batch, head: Head) -> list[StagedFile]:
        """Let Spark write the files of the batch.

        Raises:
            ConflictError: kind SCHEMA_CHANGED; Spark's library sees another schema than we do.
            InternalError: the files do not hold the rows that were counted.
            StorageError: Spark could not write them.
        """
        if not batch.rows:
            return []
        made = data_files(self.spark.write(batch.frame), self.spark.layout[2])
        check_layout(self.spark, head)
        written = sum(file.record_count for file in made)
        if written != batch.rows:
            raise InternalError(
                f"{batch.rows} rows were counted and {written} written: the batch was computed a second time and gave "
                "other rows. Nothing was committed; call again, and please report it."
            )
        return [StagedFile(file.file_path, b"", file) for file in made]


def empty_like(frame: DataFrame) -> pa.Table:
    """A table without rows, of the columns that a new table gets for this frame."""
    return new_schema(frame).empty_table()


def find(
    frame: DataFrame, identifier: tuple[str, ...], head: Head, named: str | None, likely: str | None
) -> SparkIceberg:
    """The table as the frame's session knows it; see ``safewrite.spark.files.find``."""
    check_classic(frame.sparkSession)
    return files.find(frame.sparkSession, identifier, head.table_id, named=named, likely=likely or "")


def job(
    frame: DataFrame,
    spark: SparkIceberg,
    *,
    mode: Literal["append", "overwrite"],
    where: Where | None,
    schema_mode: Literal["merge"] | None,
) -> Job:
    """Check a frame's columns against the table's.

    Raises:
        WouldAlterError, InvalidInputError: as ``safewrite.spark.columns.conformed``.
    """
    rows = conformed(frame, spark.schema, schema_mode=schema_mode)
    checks = rows.checks()
    predicate = None
    if mode == "overwrite":
        predicate = EVERYTHING if where is None else parse(where, rows.schema)
        checks += [] if where is None else [inside(predicate)]
    return Job(spark, rows, checks, predicate)


def counted(frame: DataFrame, spark: SparkIceberg) -> Batch:
    """The frame's fingerprint with NULL in the columns that it lacks; its rows are not kept."""
    with computed(conformed(frame, spark.schema, schema_mode="merge").frame) as batch:
        return batch


def check_layout(spark: SparkIceberg, head: Head) -> None:
    """Refuse to write files by another schema, partitioning or sort order than the one they are committed to (H9)."""
    metadata = table_of(head).metadata
    ours = (
        str(metadata.table_uuid),
        metadata.current_schema_id,
        metadata.default_spec_id,
        metadata.default_sort_order_id,
    )
    if spark.layout != ours:
        raise ConflictError(
            f"Another writer changed the schema, partitioning or sort order of {spark.name} meanwhile. Nothing was "
            "committed. Call again with the same key.",
            kind=Kind.SCHEMA_CHANGED,
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
    """Data files that were uploaded by Spark: looked at once before the first commit, and again as all are."""

    def upload(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, None]:
        """Take the files over, if they are there and whole.

        Raises:
            StorageError: kind DATA_FILE_DAMAGED; nothing was committed.
        """
        taken = [file.data_file for file in files]
        tails = tuple(GetTail(file.file_path, TAIL_BYTES, name="stage.look_at_data") for file in taken)
        answers = yield from perform_all(tails, self.limits, "stage.take_over")
        for file, outcome in zip(taken, answers, strict=True):
            self._marks.append(_mark(file, outcome))
            self.data_files.append(file)
        self._checked_s = yield from lease.now()


def _mark(file: DataFile, outcome: Outcome) -> Mark:
    tail = outcome.value if isinstance(outcome, Ok) else None
    if not isinstance(tail, Tail) or not _whole(file, tail):
        found = f"{tail.size} bytes" if isinstance(tail, Tail) else "nothing"
        raise StorageError(
            f"Data file {file.file_path} ({file.file_size_in_bytes} bytes) is not as Spark wrote it (found: {found}). "
            "Nothing was committed. Call again with the same key.",
            kind=Kind.DATA_FILE_DAMAGED,
        )
    return Mark.of(file.file_path, tail.size, tail.data)


def _whole(file: DataFile, tail: Tail) -> bool:
    ends = file.file_format != FileFormat.PARQUET or tail.data.endswith(b"PAR1")
    return ends and tail.size == file.file_size_in_bytes
