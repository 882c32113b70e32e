"""Repairs only what cannot affect readers or other writers."""

from __future__ import annotations

from safewrite.errors import NotCommittedError
from safewrite.findings import Step
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.metadata import head_of
from safewrite.iceberg.opening import probe
from safewrite.iceberg.write.creation import KEEP, KEPT_MS


def set_retention(connection: Connection) -> Step:
    """Set the table's property to 15 days.

    Raises:
        UnsafeConfigError: the catalog does not compare before it sets, so this commit could undo another's.
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
