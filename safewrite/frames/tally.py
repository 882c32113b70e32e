"""Counts rows on their way into files, and adds up what Spark said of each: its hash, and the check that it fails.

A task that writes rows counts those that it writes, so that a plan which gives other rows whenever it is run (``rand()``)
is named by the rows that are in the files (E5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from safewrite.frames.conform import conform

HASH, FAULTS = "_safewrite_hash", "_safewrite_faults"
"""The columns that a row gets after its own: its hash, and the number of the first check that it fails, from 1; 0 for none."""
PIECE_BYTES, DEALT_BYTES = 32 * 2**20, 128 * 2**20
"""Rows that become a row group; and rows that are dealt to partitions, each of which gets a row group of its share."""
_LOW_BITS, _HALF = 0xFFFFFFFF, 32


@dataclass
class Tally:
    """How many rows there are, the sums of both halves of their hashes, and for how many each check is the first to fail."""

    rows: int = 0
    high: int = 0
    low: int = 0
    faults: dict[int, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Take in what another task counted."""
        self.rows += other.rows
        self.high += other.high
        self.low += other.low
        for number, count in other.faults.items():
            self.faults[number] = self.faults.get(number, 0) + count

    def counted(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, piece_bytes: int
    ) -> Iterator[pa.Table]:
        """The rows under a schema, many at a time; none after a row that fails a check, for nothing is committed then.

        Raises:
            WouldAlterError: a value that the schema does not hold, such as a year after 9999.
        """
        some: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            self._look(batch)
            if self.faults:
                continue
            some.append(batch.select(schema.names))
            size += some[-1].nbytes
            if size >= piece_bytes:
                yield self._piece(some, schema)
                some, size = [], 0
        if some and not self.faults:
            yield self._piece(some, schema)

    def _piece(self, some: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        table = pa.Table.from_batches(some)
        return conform(table, schema, first_row=self.rows - table.num_rows)

    def _look(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        there = frozenset(batch.schema.names)
        if HASH in there:
            hashes = np.asarray(batch.column(HASH)).view(np.uint64)
            self.high += int((hashes >> np.uint64(_HALF)).sum())
            self.low += int((hashes & np.uint64(_LOW_BITS)).sum())
        if FAULTS in there:
            numbers, counts = np.unique(np.asarray(batch.column(FAULTS)), return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                if number:
                    self.faults[number - 1] = self.faults.get(number - 1, 0) + count
