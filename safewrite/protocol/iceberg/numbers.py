"""Gives a snapshot its sequence number and the id of its first row, and says whether both are new where it is to land.

Each try is given them anew from its base: what another snapshot took, on whatever branch, was not there to be taken (Iceberg spec, "Sequence
Numbers", "Row Lineage").  A branch that stands where it stood says nothing of that.
"""

from __future__ import annotations

from typing import NamedTuple


class SnapshotNumbers(NamedTuple):
    """``first_row_id`` is None in tables whose rows have no ids, before format version 3."""

    sequence: int
    first_row_id: int | None = None


def given(last_sequence: int, next_row_id: int | None) -> SnapshotNumbers:
    """What the next snapshot of a table with these numbers has."""
    return SnapshotNumbers(last_sequence + 1, next_row_id)


def are_new(numbers: SnapshotNumbers, last_sequence: int, next_row_id: int | None) -> bool:
    """Whether no snapshot of the table took these numbers."""
    return numbers.sequence > last_sequence and numbers.first_row_id == next_row_id
