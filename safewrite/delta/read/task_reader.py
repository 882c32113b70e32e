"""Reads data files of a Delta table where a task runs, by the code that reads them in this process."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from safewrite.delta.data.rows import RowGroups
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.read.files import read_files, read_part
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.addresses import StoreAddress
from safewrite.stores.world import run
from safewrite.table.added_rows import AddedFile, checked_columns


@dataclass(frozen=True)
class CutFile:
    """What a part of a data file is read by."""

    add: Action
    groups: RowGroups


@dataclass(frozen=True)
class DeltaReader:
    """See :class:`safewrite.engine.task_files.TaskReader`."""

    store: StoreAddress
    version: int
    protocol: Action = field(repr=False)
    metadata: Action = field(repr=False)
    limits: Limits

    def __call__(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        """The rows of these files, with all columns or some."""
        state = Snapshot(self.version, self.protocol, self.metadata)
        reading = self._reading(
            [file.handle for file in files], state, checked_columns(columns, state.schema)
        )
        return run(reading, self.store.world())

    def _reading(
        self, handles: Sequence[Any], state: Snapshot, columns: tuple[str, ...] | None
    ) -> Generator[Effect, Outcome, pa.Table]:
        vectors, limits = Vectors(self.store.root), self.limits
        adds = [one for one in handles if not isinstance(one, CutFile)]
        found = [(yield from read_files(adds, state, vectors, limits, columns=columns))]
        for one in handles:
            if isinstance(one, CutFile):
                part = yield from read_part(one.add, one.groups, state, vectors, limits, columns=columns)
                found.append(part)
        return pa.concat_tables(found)

    def cut(self, file: AddedFile, rows_max: int) -> list[AddedFile]:
        """See :class:`safewrite.engine.task_files.TaskReader`."""
        rows = file.rows or 0
        count = -(-rows // rows_max)
        if count < 2:
            return [file]
        places = [rows * number // count for number in range(count + 1)]
        ends = [*places[1:-1], sys.maxsize]  # a file may have more rows than are live
        return [
            AddedFile(file.size // count, rows // count, CutFile(file.handle, RowGroups(first, end)))
            for first, end in zip(places[:-1], ends, strict=True)
        ]
