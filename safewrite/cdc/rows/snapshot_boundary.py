"""Orders the first changes of a PostgreSQL stream behind the rows of the snapshot before them.

A transaction that was under way when the snapshot was taken changed its rows at lower LSNs, commits after it and is not in
it.  From the second transaction on each event tells a commit that it came after; the first knows none.  So a table keeps,
in the commit of its rows, the position of the snapshot whose rows it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.batch import Partition
from safewrite.cdc.records.change import Beginning, SourceChange, SourceTable
from safewrite.cdc.records.change_set import BEGINNING, POSITION, ChangeSet, ColumnBatch

_DIGITS = 20
"""The first part of a position of PostgreSQL: an LSN."""


@dataclass
class SnapshotBoundary:
    """Where the snapshots that a table has rows of were taken, by partition of its topics."""

    known: Mapping[str, int]
    """All positions of the table."""
    partitions: Mapping[tuple[str, int], Partition]
    job: str
    epoch: int
    found: dict[str, int] = field(default_factory=dict)
    by_source: bool = False
    """Whether each source has its own: several of them, with a log each, may be in one partition."""

    @classmethod
    def of(
        cls,
        partitions: Mapping[tuple[str, int], Partition],
        job: str,
        table: TargetTable,
        positions: Mapping[str, int],
    ) -> SnapshotBoundary:
        """Those of the partitions of a batch; an epoch of the source has its own."""
        by_source = table.shard_column is not None
        return cls(positions, partitions, job, table.epoch, by_source=by_source)

    def _named(self, topic: str, number: int, source: SourceTable) -> str:
        name = f"{self.partitions[topic, number].name(self.job)}/snapshot-{self.epoch}"
        return f"{name}/{quote(str(source), safe='', errors='surrogatepass')}" if self.by_source else name

    def ordered(self, changes: Sequence[SourceChange]) -> list[SourceChange]:
        """The changes, in the order of their records, with the positions that they have behind these snapshots."""
        return [change if change.beginning is None else self._ordered(change) for change in changes]

    def _ordered(self, change: SourceChange) -> SourceChange:
        name = self._named(change.record.topic, change.record.partition, change.source)
        taken_at = self.found.get(name, self.known.get(name, 0))
        at = int(change.position[:_DIGITS])
        if change.beginning is Beginning.SNAPSHOT_ROW:
            self.found[name] = max(taken_at, at)
        elif at < taken_at:
            position = f"{taken_at:0{_DIGITS}d}{change.position[_DIGITS:]}"
            return replace(change, position=position, told=change.position)
        return change

    def ordered_columns(self, changes: ChangeSet) -> list[ColumnBatch] | None:
        """The same of column batches; None where it takes the order of all changes among each other.

        ``ordered`` of the changes that were read one by one may come after it.
        """
        kinds = changes.beginnings
        if len(kinds) > 1:
            return None
        if not kinds:
            return list(changes.columns)
        of_rows = Beginning.SNAPSHOT_ROW in kinds
        return [self._ordered_batch(batch, of_rows=of_rows) for batch in changes.columns]

    def _ordered_batch(self, batch: ColumnBatch, *, of_rows: bool) -> ColumnBatch:
        positions, chosen = batch.data.column(POSITION), batch.data.column(BEGINNING).is_valid()
        if not pc.any(chosen).as_py():
            return batch
        at = pc.utf8_slice_codeunits(positions, 0, _DIGITS).cast("int64").to_numpy()
        chosen = chosen.to_numpy()
        places = batch.places()
        taken_at = np.zeros(len(batch), "int64")
        names, of = batch.records.by_partition
        of = of[places]
        for partition in np.unique(of[chosen]).tolist():
            here = (of == partition) & chosen
            topic, number = names[int(partition)]
            name = self._named(topic, number, batch.source)
            known = self.found.get(name, self.known.get(name, 0))
            if of_rows:
                self.found[name] = max(known, int(at[here].max()))
            else:
                taken_at[here] = known
        behind = pa.array(at < taken_at)
        if of_rows or not pc.any(behind).as_py():
            return batch
        first = pc.utf8_lpad(pa.array(taken_at).cast("string"), _DIGITS, "0")
        moved = pc.binary_join_element_wise(
            first, pc.utf8_slice_codeunits(positions.combine_chunks(), _DIGITS), ""
        )
        return batch.with_column(POSITION, pc.if_else(behind, moved, positions))

    def moves(self) -> dict[str, tuple[int | None, int]]:
        """How a commit of these changes moves the table's positions."""
        moved = {name: (self.known.get(name), at) for name, at in self.found.items()}
        return {name: (before, at) for name, (before, at) in moved.items() if before is None or before < at}
