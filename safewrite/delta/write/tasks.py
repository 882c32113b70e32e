"""Writes data files of a Delta table in a task, by the code that writes those of any other frame."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from safewrite.delta.data.datafiles import FileLayout, encode_stream
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.engine.abc import TaskAttempt
from safewrite.errors import InternalError
from safewrite.frames.tally import Tally
from safewrite.protocol.ask import Limits
from safewrite.stores.travel import StoreAddress
from safewrite.stores.world import run

PIECE_BYTES, DEALT_BYTES = 32 * 2**20, 128 * 2**20
"""Rows that become a row group; and rows that are dealt to partitions, each of which gets a row group of its share."""


@dataclass(frozen=True)
class WrittenFiles:
    """The files of a task, and what it counted."""

    files: tuple[StagedFile, ...]
    tally: Tally


@dataclass(frozen=True)
class DeltaFiles:
    """Makes data files of a table where a task runs; see ``safewrite.frames.written.TaskFiles``."""

    store: StoreAddress
    layout: FileLayout
    now_ms: int
    limits: Limits

    def write(self, tables: Iterable[pa.Table], at: TaskAttempt) -> tuple[StagedFile, ...]:
        """See ``safewrite.frames.written.TaskFiles``."""
        layout = replace(self.layout, attempt=str(at))
        return run(stage(encode_stream(tables, layout), self.now_ms, self.limits), self.store.world())


@dataclass(frozen=True)
class WriteFiles:
    """Writes the rows of an input to new files of a table, and reports them as :class:`WrittenFiles`."""

    store: StoreAddress
    layout: FileLayout
    now_ms: int
    limits: Limits
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, WrittenFiles]:
        """Write all rows; the names of files tell the attempt."""
        tally = Tally()
        piece_bytes = DEALT_BYTES if self.layout.partition_by else PIECE_BYTES
        tables = tally.counted(batches, self.layout.schema, piece_bytes)
        files = DeltaFiles(self.store, self.layout, self.now_ms, self.limits).write(tables, at)
        yield from ()
        return WrittenFiles(files, tally)


def union(reports: Sequence[WrittenFiles]) -> WrittenFiles:
    """What all tasks wrote.

    Raises:
        InternalError: two name one file, or the files do not hold the rows that were counted; nothing was committed.
    """
    tally = Tally()
    for report in reports:
        tally.add(report.tally)
    files = tuple(file for report in reports for file in report.files)
    paths = {file.mark.path for file in files}
    rows = sum(file.rows for file in files)
    if len(paths) != len(files) or (rows != tally.rows and not tally.faults):
        raise InternalError(
            f"Tasks counted {tally.rows} rows and wrote {rows} to {len(files)} files, of {len(paths)} names. Nothing was "
            "committed. Please report it."
        )
    return WrittenFiles(files, tally)
