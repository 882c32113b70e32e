"""Cuts a batch that is too large for who lands it into parts, each of which is landed as a batch of its own.

The cut follows from the offsets of the batch, from what its records weigh and from the limit: whoever reads the batch again
cuts it alike, so a part that had landed is known by its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from safewrite.cdc.records.batch import Partition, Range, Ranges

TASK = 200_000, 96 << 20
"""So many records, and bytes as Kafka has them, of one partition are in the memory of a task at once, where executors have the records."""
_CELL_MAX = 64
_SIZE_MAX = 256 << 20
_PART_OF_HEAP = 16
"""A part is in the heap a few times: as rows, as Arrow, as results of tasks, as it is sent.  An eighth was too much for 1 GB."""


class Cell(NamedTuple):
    """Neighbouring offsets of a partition that have records: those from ``number`` times the cell's length on."""

    where: Partition
    number: int
    records: int
    size: int
    """Bytes of their keys, values and headers."""


@dataclass(frozen=True)
class Limit:
    """What is landed at once.  ``size`` is in bytes, as Kafka has the records.

    ``task`` is how many records and bytes a partition may have of it, where each is one task of executors.
    """

    records: int
    size: int
    task: tuple[int, int] | None = None

    def holds(self, records: int, size: float, most: tuple[int, float] = (0, 0)) -> bool:
        """Whether so much is within it, of which one partition has the ``most``."""
        of_task = self.task is None or (most[0] <= self.task[0] and most[1] <= self.task[1])
        return records <= self.records and size <= self.size and of_task

    @property
    def cell(self) -> int:
        """This many offsets are weighed together, and never cut."""
        return max(1, min(_CELL_MAX, self.records // 16))


def part_of_heap(heap: int) -> int:
    """The size of parts that a driver with so large a heap takes."""
    return max(1, min(_SIZE_MAX, heap // _PART_OF_HEAP))


def cut(ranges: Ranges, cells: Iterable[Cell], limit: Limit) -> list[Ranges]:
    """The parts of a batch, in the order in which they are landed.

    Each is within the limit, or one cell.  All partitions go on together, each in the order of its offsets, and
    offsets without records are in one of the parts too.
    """
    ordered = sorted(
        (cell for cell in cells if cell.where in ranges), key=lambda one: _place(one, ranges, limit)
    )
    at = {where: given.start for where, given in ranges.items()}
    taken: dict[Partition, int] = {}
    parts: list[Ranges] = []
    records = size = 0
    of_task: dict[Partition, tuple[int, int]] = {}
    for cell in ordered:
        count, weight = of_task.get(cell.where, (0, 0))
        most = count + cell.records, weight + cell.size
        if taken and not limit.holds(records + cell.records, size + cell.size, most):
            parts.append({where: Range(at[where], end) for where, end in taken.items()})
            at |= taken
            taken, records, size, of_task = {}, 0, 0, {}
            most = cell.records, cell.size
        of_task[cell.where] = most
        taken[cell.where] = min((cell.number + 1) * limit.cell, ranges[cell.where].end)
        records += cell.records
        size += cell.size
    rest = {where: Range(at[where], given.end) for where, given in ranges.items() if at[where] < given.end}
    return [*parts, rest] if rest else parts


def _place(cell: Cell, ranges: Ranges, limit: Limit) -> tuple[float, Partition, int]:
    """How far into the range of its partition a cell is."""
    start, end = ranges[cell.where]
    return max(0, cell.number * limit.cell - start) / max(1, end - start), cell.where, cell.number
