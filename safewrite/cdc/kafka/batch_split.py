"""Cuts a batch that is too large for the driver into parts, each of which is landed as a batch of its own.

The cut follows from the offsets of the batch, from what its records weigh and from the limit: whoever reads the batch again
cuts it alike, so a part that had landed is known by its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from safewrite.cdc.records.batch import Partition, Range, Ranges

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
    """What the driver takes at once.  ``size`` is in bytes, as Kafka has the records."""

    records: int
    size: int

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
    for cell in ordered:
        if taken and (records + cell.records > limit.records or size + cell.size > limit.size):
            parts.append({where: Range(at[where], end) for where, end in taken.items()})
            at |= taken
            taken, records, size = {}, 0, 0
        taken[cell.where] = min((cell.number + 1) * limit.cell, ranges[cell.where].end)
        records += cell.records
        size += cell.size
    rest = {where: Range(at[where], given.end) for where, given in ranges.items() if at[where] < given.end}
    return [*parts, rest] if rest else parts


def _place(cell: Cell, ranges: Ranges, limit: Limit) -> tuple[float, Partition, int]:
    """How far into the range of its partition a cell is."""
    start, end = ranges[cell.where]
    return max(0, cell.number * limit.cell - start) / max(1, end - start), cell.where, cell.number
