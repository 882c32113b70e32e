"""Expires snapshots of an Iceberg table that are older than it keeps them, as ``history.expire.max-snapshot-age-ms`` says.

They go from the metadata, which every commit writes whole; their files stay, for an engine's removal of orphan files.  The time of a
snapshot is its writer's: one that is older than a snapshot before it counts as young as that, and what time it is the newest snapshot and this
process must both say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.iceberg import ledger_place, retention
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.branches import unmoved
from safewrite.iceberg.catalog.safe_catalog import NotLandedError, SafeCatalog
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.iceberg.commit import load
from safewrite.stores.world import run

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

    from safewrite.iceberg.connect import Connection
    from safewrite.protocol.ask import Limits
    from safewrite.protocol.iceberg.head import TableVersion

HOUR_MS = 3600 * 1000
"""So long they stay at least, whatever a table says: a write that was under way finds what became of it in them."""
KEPT_MS = retention.HORIZON_MS + 24 * HOUR_MS
"""Snapshots tell keys for as long as a write may be repeated, unless the table has them in a ledger.

So long they also stay where a table does not say how long (Iceberg's own default is five days): jobs expire them unasked, and whoever
follows the table may have been away.
"""
LEAST = "history.expire.min-snapshots-to-keep"
FEWEST = 10
"""For fewer snapshots no commit is made, nor a table's readers made to load it again."""
AT_ONCE = 1000
TRIES = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """How long snapshots are kept, and how many of the main branch at least."""

    ms: int
    least: int = 1


def kept_by(connection: Connection, head: TableVersion) -> Kept | None:
    """What the table says; None where no snapshot is to go, or a service expires them.

    Raises:
        StorageError: what says where the keys are is not as safewrite wrote it.
    """
    metadata = table_of(head).metadata
    given = metadata.properties
    if given.get("gc.enabled", "true").lower() == "false" or ledger_place.in_s3_tables(connection.catalog):
        return None
    ref = metadata.refs.get(MAIN)
    said = retention.of(metadata, MAIN)
    least = (
        given.get(LEAST, "1")
        if ref is None or ref.min_snapshots_to_keep is None
        else ref.min_snapshots_to_keep
    )
    if (said.text is not None and said.kept_ms is None) or not str(least).isdigit():
        return None  # it says something that nobody can read
    is_short = said.kept_ms is not None and ledger_place.keeps_all_keys(connection, head)
    least_ms = HOUR_MS if is_short else KEPT_MS
    return Kept(max(said.kept_ms or 0, least_ms), max(int(least), 1))


def expired(
    snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef], kept: Kept, now_ms: int
) -> list[int]:
    """The snapshots that may go, the oldest first: none that a tag or a branch names, or another branch than main comes from."""
    order = sorted(snapshots, key=lambda one: (one.sequence_number or 0, one.timestamp_ms))
    times: dict[int, int] = {}
    latest = 0
    for one in order:
        latest = max(latest, one.timestamp_ms)
        times[one.snapshot_id] = latest
    before_ms = min(now_ms, latest) - kept.ms
    parents = {one.snapshot_id: one.parent_snapshot_id for one in snapshots}
    stay: set[int] = set()
    for name, ref in refs.items():
        at: int | None = ref.snapshot_id
        line = 0
        while at is not None and at in parents:
            if name != MAIN or line < kept.least or times[at] >= before_ms:
                stay.add(at)
            at = parents[at] if ref.snapshot_ref_type == "branch" else None
            line += 1
    return [
        one.snapshot_id for one in order if one.snapshot_id not in stay and times[one.snapshot_id] < before_ms
    ]


def expire(connection: Connection, head: TableVersion, limits: Limits, *, dry_run: bool) -> int:
    """Expire what the table keeps no longer; how many snapshots went, or would go.

    Raises:
        CommitStateUnknownError, StorageError: nobody knows whether they went, or none did; the next call finds out.
    """
    from pyiceberg.table.update import RemoveSnapshotsUpdate

    for _ in range(TRIES):
        table, kept = table_of(head), kept_by(connection, head)
        metadata: TableMetadata = table.metadata
        if kept is None or len(metadata.snapshots) <= FEWEST:
            return 0
        old = expired(metadata.snapshots, metadata.refs, kept, time.time_ns() // 1_000_000)[:AT_ONCE]
        if len(old) < FEWEST or dry_run:
            return len(old) if len(old) >= FEWEST else 0
        requires = unmoved(metadata, {name: ref.snapshot_id for name, ref in metadata.refs.items()})
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old})
        with suppress(NotLandedError):  # another writer was first
            SafeCatalog(connection.catalog, limits=limits).commit_table(table, requires, (update,))
            return len(old)
        head = run(load(limits), connection.world())
    return 0
