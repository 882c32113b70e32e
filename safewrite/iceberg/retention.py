"""Reads how long a table keeps snapshots, which remember keys where there is no ledger (E4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.iceberg.write.creation import KEEP
from safewrite.stores.world import LEDGER_TTL_S

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

HORIZON_MS = LEDGER_TTL_S * 1000
"""How long a write may be repeated."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long snapshots are kept: ``text`` as the branch or the table has it (None: neither has)."""

    text: str | None
    by_branch: bool = False

    @property
    def kept_ms(self) -> int | None:
        """The time; None if it is not set, or is no number."""
        return int(self.text) if self.text is not None and self.text.isdigit() else None

    @property
    def short(self) -> bool:
        """Whether a key may be forgotten while its write may still be repeated."""
        return self.kept_ms is None or self.kept_ms < HORIZON_MS


def of(metadata: TableMetadata, branch: str) -> Retention:
    """The retention that a branch sets, else its table."""
    ref = metadata.refs.get(branch)
    if ref is not None and ref.max_snapshot_age_ms is not None:
        return Retention(str(ref.max_snapshot_age_ms), by_branch=True)
    return Retention(metadata.properties.get(KEEP))
