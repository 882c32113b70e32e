"""Says how a commit of a batch moves the positions of a table."""

from __future__ import annotations

from collections.abc import Mapping

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.batch import Moves
from safewrite.cdc.routing.refusals import LAST_EPOCH

SOURCE_TIME = "source-time"
"""The position of a table that says how far it is by the clock of its source, in milliseconds."""


def moved_by(
    job: str, table: TargetTable, positions: Mapping[str, int], moved: Moves, newest_ms: int | None
) -> Moves:
    """How a commit of a batch moves the positions of a table: ``moved``, the source's clock, and the epoch."""
    moved = moved | _raised(positions, f"{job}/{SOURCE_TIME}", newest_ms or 0)
    return moved | _raised(positions, f"{job}/{LAST_EPOCH}", table.epoch)


def _raised(positions: Mapping[str, int], name: str, to: int) -> Moves:
    """How a commit moves a position that only grows."""
    known = positions.get(name)
    return {name: (known, to)} if to > (known or 0) else {}
