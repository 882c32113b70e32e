"""Reads how long a table keeps snapshots, which remember keys where there is no ledger (E4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.stores.world import LEDGER_TTL_S

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

KEPT_MS = 15 * 24 * 3600 * 1000
"""How long a table of ours keeps snapshots unless set otherwise: a day more than writes are repeated."""
AWS_KEPT_MS = 3 * 24 * 3600 * 1000
"""The same where a ledger remembers keys and AWS bounds the metadata: Glue rejects files above 20 MB, S3 Tables above 5.

A snapshot with a key takes some 0.9 kB of the metadata file, so at a commit a minute three days are 4 MB.
"""
KEEP = "history.expire.max-snapshot-age-ms"
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
