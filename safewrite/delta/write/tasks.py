"""Writes data files of a Delta table in a task, by the code that writes those of any other frame."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from safewrite.delta.data.datafiles import FileLayout, encode_stream
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.engine.abc import TaskAttempt
from safewrite.frames.tally import DEALT_BYTES, PIECE_BYTES, Tally
from safewrite.frames.task_files import TalliedFiles
from safewrite.protocol.ask import Limits
from safewrite.stores.addresses import StoreAddress
from safewrite.stores.world import run


@dataclass(frozen=True)
class DeltaFiles:
    """Makes data files of a table where a task runs; see ``safewrite.frames.task_files.TaskFiles``."""

    store: StoreAddress
    layout: FileLayout
    now_ms: int
    limits: Limits

    def write(self, tables: Iterable[pa.Table], at: TaskAttempt) -> tuple[StagedFile, ...]:
        """See ``safewrite.frames.task_files.TaskFiles``."""
        layout = replace(self.layout, attempt=str(at))
        return run(stage(encode_stream(tables, layout), self.now_ms, self.limits), self.store.world())


@dataclass(frozen=True)
class WriteFiles:
    """Writes the rows of an input to new files of a table, and reports them as :class:`TalliedFiles`."""

    store: StoreAddress
    layout: FileLayout
    now_ms: int
    limits: Limits
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, TalliedFiles[StagedFile]]:
        """Write all rows; the names of files tell the attempt."""
        tally = Tally()
        piece_bytes = DEALT_BYTES if self.layout.partition_by else PIECE_BYTES
        tables = tally.counted(batches, self.layout.schema, piece_bytes)
        files = DeltaFiles(self.store, self.layout, self.now_ms, self.limits).write(tables, at)
        yield from ()
        return TalliedFiles(files, tally)
