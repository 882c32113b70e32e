"""Reads data files of a Delta table where a task runs, by the code that reads them in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.read.files import read_files
from safewrite.protocol.ask import Limits
from safewrite.stores.travel import StoreAddress
from safewrite.stores.world import run
from safewrite.table.added import AddedFile, checked_columns


@dataclass(frozen=True)
class DeltaReader:
    """See :data:`safewrite.table.added.Reader`; picklable."""

    store: StoreAddress
    version: int
    protocol: Action = field(repr=False)
    metadata: Action = field(repr=False)
    limits: Limits

    def __call__(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        """The rows of these files, with all columns or some."""
        state = Snapshot(self.version, self.protocol, self.metadata)
        adds, wanted = [file.handle for file in files], checked_columns(columns, state.schema)
        reading = read_files(adds, state, Vectors(self.store.root), self.limits, columns=wanted)
        return run(reading, self.store.world())
