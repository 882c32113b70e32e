"""Orders the first changes of a PostgreSQL stream behind the rows of the snapshot before them.

A transaction that was under way when the snapshot was taken changed its rows at lower LSNs, commits after it and is not in
it.  From the second transaction on each event tells a commit that it came after; the first knows none.  So a table keeps,
in the commit of its rows, the position of the snapshot whose rows it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from safewrite.cdc.batch import Partition, Ranges
from safewrite.cdc.change import Beginning, Change

_DIGITS = 20
"""The first part of a position of PostgreSQL: an LSN."""


@dataclass
class Snapshots:
    """Where the snapshots that a table has rows of were taken, by partition of its topics."""

    known: Mapping[str, int]
    """All positions of the table."""
    names: Mapping[tuple[str, int], str]
    """What the table calls these."""
    found: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, ranges: Ranges, job: str, epoch: int, positions: Mapping[str, int]) -> Snapshots:
        """Those of the partitions of a batch; an epoch of the source has its own."""
        names = {(where.topic, where.number): _name(where, job, epoch) for where in ranges}
        return cls(positions, names)

    def ordered(self, changes: Sequence[Change]) -> list[Change]:
        """The changes, in the order of their records, with the positions that they have behind these snapshots."""
        return [change if change.beginning is None else self._ordered(change) for change in changes]

    def _ordered(self, change: Change) -> Change:
        name = self.names[change.record.topic, change.record.partition]
        taken_at = self.found.get(name, self.known.get(name, 0))
        at = int(change.position[:_DIGITS])
        if change.beginning is Beginning.SNAPSHOT_ROW:
            self.found[name] = max(taken_at, at)
        elif at < taken_at:
            position = f"{taken_at:0{_DIGITS}d}{change.position[_DIGITS:]}"
            return replace(change, position=position, told=change.position)
        return change

    def moves(self) -> dict[str, tuple[int | None, int]]:
        """How a commit of these changes moves the table's positions."""
        moved = {name: (self.known.get(name), at) for name, at in self.found.items()}
        return {name: (before, at) for name, (before, at) in moved.items() if before is None or before < at}


def _name(where: Partition, job: str, epoch: int) -> str:
    return f"{where.name(job)}/snapshot-{epoch}"
