"""Gathers the rows of data files that have keys of a batch, and tells which rows of a file stay."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.decide import Batch, Decision, Known
from safewrite.changes.memory import Memory
from safewrite.changes.positions import Flags, Numbers, among, compared, values_of
from safewrite.changes.reading import loose
from safewrite.frames.prepare import KEPT_BYTES

FileT = TypeVar("FileT", bound=Hashable)


def wanted(batch: Batch) -> dict[str, pa.Array]:
    """The values that each key column has in a batch."""
    return values_of(batch.table, batch.keys)


@dataclass(frozen=True, slots=True)
class _Hits:
    """The rows of a file that have keys of a batch, and their numbers in it."""

    rows: pa.Table
    numbers: Numbers


class Touched(Generic[FileT]):
    """The rows of a table that a batch may change, and where each lies; files are named as a format likes.

    A data file never changes, so what was found in it serves every plan of one write.  What was read of a file is kept up to
    ``KEPT_BYTES`` in all, so that most files are read once.
    """

    def __init__(self, batch: Batch, schema: pa.Schema) -> None:
        self._batch = batch
        self._wanted = wanted(batch)
        self._nothing = loose(schema).empty_table()
        self._found: dict[FileT, _Hits] = {}
        self._owners: list[FileT] = []
        self._numbers = np.zeros(0, np.int64)
        self._goes: dict[FileT, list[int]] = {}
        self._cut: tuple[Any, ...] | None = None
        self._kept: dict[FileT, tuple[Any, int]] = {}

    def unseen(self, files: Collection[FileT]) -> list[FileT]:
        """Begin a plan on these files: those that were not looked through yet; what is known of others is forgotten."""
        self._found = {file: hits for file, hits in self._found.items() if file in files}
        self._kept = {file: kept for file, kept in self._kept.items() if file in files}
        self._goes, self._cut = {}, None
        return [file for file in files if file not in self._found]

    def look(self, file: FileT, table: pa.Table, read: object) -> None:
        """Note the rows of a file that have keys of the batch; ``read`` is what :meth:`kept` gives back."""
        rows = np.flatnonzero(among(table, self._wanted))
        self._found[file] = _Hits(table.take(pa.array(rows)), rows)
        if len(rows) and sum(size for _, size in self._kept.values()) + table.nbytes <= KEPT_BYTES:
            self._kept[file] = (read, table.nbytes)

    def kept(self, file: FileT) -> Any:
        """What was read of a file, once; None if it has to be read again."""
        read, _ = self._kept.pop(file, (None, 0))
        return read

    def known(self, memory: Memory) -> Known:
        """What the table holds and remembers of the keys."""
        batch, found = self._batch, self._found
        self._owners = [file for file, hits in found.items() for _ in range(len(hits.numbers))]
        self._numbers = np.concatenate([np.zeros(0, np.int64), *(hits.numbers for hits in found.values())])
        return Known(
            pa.concat_tables([self._nothing, *(hits.rows for hits in found.values())]).combine_chunks(),
            memory.tombstones.select([*batch.keys, *batch.sequence_by]),
            memory.floor,
            memory.forgotten,
            memory.carried,
        )

    def decided(self, decision: Decision, memory: Memory) -> None:
        """Take what was decided: which rows go, and up to where everything does."""
        self._cut = decision.floor if decision.floor != memory.floor else None
        for place in decision.dropped.tolist():
            self._goes.setdefault(self._owners[place], []).append(int(self._numbers[place]))

    @property
    def is_cut(self) -> bool:
        """Whether a truncate came: then any file of the table may lose rows."""
        return self._cut is not None

    def may_lose(self, file: FileT) -> bool:
        """Whether a file may lose rows."""
        return self.is_cut or file in self._goes

    def mark(self, file: FileT) -> tuple[Any, ...]:
        """Says which rows of a file go: files that were made of the others serve every plan with the same mark."""
        return file, tuple(sorted(self._goes.get(file, ()))), self._cut

    def stays(self, file: FileT, table: pa.Table) -> Flags:
        """Which rows of a file stay."""
        stays = np.ones(table.num_rows, np.bool_)
        stays[self._goes.get(file, [])] = False
        if self._cut is not None:
            sequence = [table.column(name) for name in self._batch.sequence_by]
            stays &= compared(sequence, self._cut) >= 0
        return stays
