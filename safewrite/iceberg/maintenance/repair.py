"""Repairs only what cannot affect readers or other writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.errors import NotCommittedError
from safewrite.findings import Step, Steps
from safewrite.iceberg import branch_properties, features
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.data.opaque import opaque_types
from safewrite.iceberg.maintenance.verify import read_head
from safewrite.iceberg.metadata import head_of, table_of
from safewrite.iceberg.opening import probe
from safewrite.iceberg.retention import KEEP, KEPT_MS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

ACTION = "forget_branch"


@opaque_types()
def set_retention(connection: Connection) -> Step:
    """Set the table's property to 15 days.

    Raises:
        UnsupportedTableError: the table may only be read.
        UnsafeConfigError: the catalog does not compare before it sets, so this commit could undo another's.
        CommitUnknownError: it may have been set, or may still be; set it again.
    """
    features.check_write(read_head(connection))
    table = SafeCatalog(connection.catalog).load_table(connection.identifier)
    probe(connection.catalog, connection.kind, head_of(table))
    try:
        with table.transaction() as transaction:
            transaction.set_properties({KEEP: str(KEPT_MS)})
    except NotCommittedError as error:
        return Step("set_retention", KEEP, "failed", error.message)
    return Step("set_retention", KEEP, "done", f"snapshots are kept for {KEPT_MS} ms (15 days)")


def forget_branches(connection: Connection, *, dry_run: bool) -> Steps:
    """Remove what the table tells of branches that are gone: properties, and the tag that keeps the file of deleted keys.

    A branch that is made at a snapshot of a dropped one would have what counted there.  So its properties go once its newest
    snapshot has expired, and the tag before them where it alone keeps that snapshot.  The commit requires that no branch has the name.

    Raises:
        UnsupportedTableError: the table may only be read.
        UnsafeConfigError: the catalog does not compare before it sets, so this commit could undo another's.
        CommitUnknownError: it may have landed, or may still land; repair again.
    """
    catalog, is_probed = SafeCatalog(connection.catalog), False
    for name in branch_properties.dropped(table_of(read_head(connection)).metadata):
        head = read_head(connection)
        metadata = table_of(head).metadata
        if name not in branch_properties.dropped(metadata):
            continue
        updates, what = _forgetting(metadata, name)
        if not updates or dry_run:
            yield Step(ACTION, name, "would" if updates else "skipped", what)
            continue
        if not is_probed:
            features.check_write(head)
            probe(connection.catalog, connection.kind, head)
            is_probed = True
        try:
            catalog.commit_table(table_of(head), _without(metadata, name), updates)
        except NotCommittedError as error:
            yield Step(ACTION, name, "failed", error.message)
            continue
        yield Step(ACTION, name, "done", what)


def _forgetting(metadata: TableMetadata, name: str) -> tuple[tuple[TableUpdate, ...], str]:
    """The updates that are safe now, and what they do, or why there are none."""
    at = branch_properties.dropped(metadata)[name].at
    if all(one.snapshot_id != at for one in metadata.snapshots):
        return branch_properties.removing(
            metadata, name
        ), "the branch was dropped: its properties and its tag go"
    tag = metadata.refs.get(branch_properties.tag_of(name))
    if tag is not None and tag.snapshot_id == at:
        what = f"the branch was dropped: the tag that keeps its newest snapshot {at} goes, the rest once that has expired"
        return branch_properties.untagging(metadata, name), what
    return (
        (),
        f"the branch was dropped, and its newest snapshot {at} has not expired: expire snapshots, and repair again",
    )


def _without(metadata: TableMetadata, name: str) -> tuple[TableRequirement, ...]:
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    absent = AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": None})
    return AssertTableUUID(uuid=metadata.table_uuid), absent
