"""Expires snapshots of an Iceberg table that are older than it keeps them, as ``history.expire.max-snapshot-age-ms`` says.

They go from the metadata, which every commit writes whole; their files stay, for an engine's removal of orphan files.

No single clock lets a snapshot go.  It must be old by the time that its writer gave it, and by the store's time of its manifest list; one that
is older than a snapshot before it counts as young as that.  What time it is the least of three says: this process's clock, the newest
snapshot of a writer, and the store's time of that.  A compaction's own snapshot says nothing: its clock is the one in question.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from safewrite.boundary.public import after_ack
from safewrite.iceberg import ledger_place, retention
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.branches import unmoved
from safewrite.iceberg.catalog.safe_catalog import NotLandedError, SafeCatalog
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import ask
from safewrite.protocol.effects import Effect, List, Ok, Outcome
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
DAY_MS = 24 * HOUR_MS
"""So much longer they stay where the store tells no times: a clock may be a day ahead or behind."""
KEPT_MS = retention.HORIZON_MS + DAY_MS
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
) -> list[Snapshot]:
    """The snapshots that may go by their writers' clocks and this one, the oldest first.

    None that a tag or a branch names, or another branch than main comes from.
    """
    order = _in_order(snapshots)
    times: dict[int, int] = {}
    latest = written = 0
    for one in order:
        latest = max(latest, one.timestamp_ms)
        times[one.snapshot_id] = latest
        written = max(written, one.timestamp_ms if _is_written(one) else 0)
    before_ms = min(now_ms, written) - kept.ms
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
    return [one for one in order if one.snapshot_id not in stay and times[one.snapshot_id] < before_ms]


def _in_order(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    return sorted(snapshots, key=lambda one: (one.sequence_number or 0, one.timestamp_ms))


def _is_written(one: Snapshot) -> bool:
    """Whether it is of a writer, not of a compaction."""
    return one.summary is None or one.summary.operation.value != "replace"


def really_old(
    snapshots: Sequence[Snapshot], refs: Mapping[str, SnapshotRef], kept: Kept, now_ms: int, limits: Limits
) -> Generator[Effect, Outcome, list[Snapshot]]:
    """Those of :func:`expired` that the store calls old too; where it tells no times, those that are older by a day.

    A manifest list is written after the commit before it, so the time of the last one tells of all: where that is young, the
    older half is asked about.
    """
    old = expired(snapshots, refs, kept, now_ms)[:AT_ONCE]
    if len(old) < FEWEST:
        return old
    newest = [one for one in _in_order(snapshots) if _is_written(one)][-1]
    stored_now_ms = yield from _stored_ms(newest, limits)
    if stored_now_ms is None:
        return expired(snapshots, refs, replace(kept, ms=kept.ms + DAY_MS), now_ms)[:AT_ONCE]
    while old:
        stored_ms = yield from _stored_ms(old[-1], limits)
        if stored_ms is not None and stored_ms < stored_now_ms - kept.ms:
            break
        old = old[: len(old) // 2]
    return old


def _stored_ms(snapshot: Snapshot, limits: Limits) -> Generator[Effect, Outcome, int | None]:
    """When the store got a snapshot's manifest list; None where it does not say."""
    answer = yield from ask(List(snapshot.manifest_list, limit=1, name="expire.list"), limits)
    found = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(found, tuple)
    return next((one.modified_ms for one in found if one.path == snapshot.manifest_list), None)


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
        now_ms = time.time_ns() // 1_000_000
        looked = really_old(metadata.snapshots, metadata.refs, kept, now_ms, limits)
        world = connection.world()
        world.table = table
        old = [one.snapshot_id for one in run(looked, world)]
        if len(old) < FEWEST or dry_run:
            return len(old) if len(old) >= FEWEST else 0
        requires = unmoved(metadata, {name: ref.snapshot_id for name, ref in metadata.refs.items()})
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old})
        with suppress(NotLandedError):  # another writer was first
            done = SafeCatalog(connection.catalog, limits=limits).commit_table(table, requires, (update,))
            with after_ack(connection.table_name):
                connection.drop_old_metadata(table, done.metadata)
            return len(old)
        head = run(load(limits), world)
    return 0
