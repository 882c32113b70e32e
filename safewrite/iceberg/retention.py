"""How long a table keeps snapshots, which remember keys where there is no ledger (E4); and raising it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.errors import NotCommittedError
from safewrite.findings import Step
from safewrite.iceberg.catalog import SafeCatalog
from safewrite.iceberg.checks import probe
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.creation import KEEP, KEPT_MS
from safewrite.iceberg.heads import head_of
from safewrite.stores.world import LEDGER_TTL_S

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

HORIZON_MS = LEDGER_TTL_S * 1000
"""How long a write may be repeated."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long snapshots are kept: ``text`` as it is written (None: nowhere), by the branch or by the table."""

    text: str | None
    by_branch: bool = False

    @property
    def kept_ms(self) -> int | None:
        """The time; None if it is not said, or is no number."""
        return int(self.text) if self.text is not None and self.text.isdigit() else None

    @property
    def short(self) -> bool:
        """Whether a key may be forgotten while its write may still be repeated."""
        return self.kept_ms is None or self.kept_ms < HORIZON_MS


def of(metadata: TableMetadata, branch: str) -> Retention:
    """What a branch says, else its table."""
    ref = metadata.refs.get(branch)
    if ref is not None and ref.max_snapshot_age_ms is not None:
        return Retention(str(ref.max_snapshot_age_ms), by_branch=True)
    return Retention(metadata.properties.get(KEEP))


def raise_it(connection: Connection) -> Step:
    """Set the table's property to 15 days.

    Raises:
        UnsafeConfigError: the catalog does not compare before it sets: this commit could undo another's.
        CommitUnknownError: it may have been set, or may still be; set it again.
    """
    table = SafeCatalog(connection.catalog).load_table(connection.identifier)
    probe(connection.catalog, connection.kind, head_of(table))
    try:
        with table.transaction() as transaction:
            transaction.set_properties({KEEP: str(KEPT_MS)})
    except NotCommittedError as error:
        return Step("set_retention", KEEP, "failed", error.message)
    return Step("set_retention", KEEP, "done", f"snapshots are kept for {KEPT_MS} ms (15 days)")
