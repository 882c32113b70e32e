"""Finds files of the current snapshot that are missing, named twice, or in too many manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.findings import DANGER, EXAMPLES, INFO, Finding, Findings
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.maintenance import partition_findings
from safewrite.iceberg.maintenance.snapshot_files import Inventory, SnapshotFiles
from safewrite.iceberg.write.members import shown_keys
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table import Table

SAMPLE = 64
"""How many data files are looked for, newest first, unless ``deep`` asks for all."""
SNAPSHOTS_MAX = 20
"""How many earlier snapshots are searched for a whole one to roll back to."""
MANIFESTS = 100
SMALL_BYTES = 1024 * 1024
"""This many manifests of less than this size on average make every plan of a scan slow."""


def examine(connection: Connection, table: Table, head: TableVersion, *, deep: bool) -> Findings:
    """Judge the files of the current snapshot.

    Raises:
        StorageError: the store gave no answer.
    """
    snapshot = table.metadata.snapshot_by_id(head.current) if head.current is not None else None
    if snapshot is None:
        yield from partition_findings.examine(connection, table.metadata, head, None)
        return
    world = connection.world()
    world.table = table
    stock = SnapshotFiles(world)
    found = stock.inventory(snapshot)
    newest = sorted(found.files, key=lambda file: file.sequence, reverse=True)
    looked_for = newest if deep else newest[:SAMPLE]
    missing, changed = stock.damaged(looked_for)
    if found.missing or found.garbled or missing or changed:
        yield _destroyed(connection, table, head, stock, found, (missing, changed, len(looked_for)))
    yield from partition_findings.examine(connection, table.metadata, head, found)
    yield from _twice(found)
    yield from _many_manifests(connection, found)


def _destroyed(  # noqa: PLR0917 - one caller, just above
    connection: Connection,
    table: Table,
    head: TableVersion,
    stock: SnapshotFiles,
    found: Inventory,
    data_files: tuple[list[str], list[str], int],
) -> Finding:
    missing, changed, checked = data_files
    parts = [
        (found.missing, "manifests or manifest lists are missing"),
        (found.garbled, "manifests or manifest lists are garbled"),
        (missing, f"of {checked} data files that were looked for are missing"),
        (changed, f"of {checked} data files that were looked for have another size than their manifest says"),
    ]
    said = "; ".join(f"{len(paths)} {what}" for paths, what in parts if paths)
    examples = [path for paths, _ in parts for path in paths][:3]
    whole, keys = _last_whole(table, head, stock)
    return Finding(
        DANGER, "files_missing",
        f"The current snapshot {head.current} names files that the store does not have: {said} (such as "
        f"{', '.join(examples)}). Reads fail.",
        _way_back(connection, whole, keys),
        {
            "manifests_missing": found.missing[:EXAMPLES], "manifests_garbled": found.garbled[:EXAMPLES],
            "missing": missing[:EXAMPLES], "changed": changed[:EXAMPLES], "checked": checked,
            "whole_snapshot": whole, "keys_since": keys[:EXAMPLES],
        },
    )  # fmt: skip


def _last_whole(table: Table, head: TableVersion, stock: SnapshotFiles) -> tuple[int | None, list[str]]:
    """The newest ancestor that has all its files, and the keys that were committed after it."""
    keys: list[str] = []
    for number, at in enumerate(head.ancestors()):
        if number > SNAPSHOTS_MAX:
            break
        snapshot = table.metadata.snapshot_by_id(at)
        if number > 0 and snapshot is not None and stock.whole(snapshot):
            return at, keys
        keys += shown_keys(head.summaries[at])
    return None, keys


def _way_back(connection: Connection, whole: int | None, keys: list[str]) -> str:
    first = "Put the files back from versioned copies of the objects, if there are any. "
    find = (
        "Find who deleted them: a writer's clean-up after a lost answer (apache/iceberg #2317), remove_orphan_files "
        "with a short age, a lifecycle rule."
    )
    if whole is None:
        return (
            f"{first}None of the last {SNAPSHOTS_MAX} snapshots that the table remembers is whole either: delete the "
            f"lost files from the table's metadata, and write their rows again. {find}"
        )
    more = f" ... ({len(keys)} in all)" if len(keys) > 5 else ""
    again = (
        " Then write again what came later, under the same keys, before those snapshots are expired: "
        f"{', '.join(keys[:5])}{more}."
        if keys
        else ""
    )
    return (
        f"{first}Else roll back to snapshot {whole}, which is whole. With PyIceberg: "
        f"safewrite.open({connection.table_name!r}, catalog=...).iceberg.manage_snapshots().rollback_to_snapshot({whole})"
        f".commit(); with Spark: CALL <catalog>.system.rollback_to_snapshot('{connection.table_name}', {whole}).{again} {find}"
    )


def _twice(found: Inventory) -> Findings:
    """Find data files that two commits added: a writer took its own commit for a lost one (C10)."""
    paths = found.twice
    if not paths:
        return
    adders = {
        path: sorted({file.snapshot_id or 0 for file in found.files if file.path == path})
        for path in paths[:EXAMPLES]
    }
    yield Finding(
        DANGER, "file_added_twice",
        f"{len(paths)} data files are named more than once by the current snapshot: every reader sees their rows "
        "more than once. A writer added the files of its own landed commit again, after a lost answer or by add_files.",
        "Keep one copy of the rows: read those files' rows once, and replace them in one overwrite (safewrite's "
        "overwrite(where=...)). If nothing was written since, roll back to the snapshot before the second addition.",
        {"files": adders, "count": len(paths)},
    )  # fmt: skip


def _many_manifests(connection: Connection, found: Inventory) -> Findings:
    count = len(found.manifests)
    total = sum(manifest.manifest_length for manifest in found.manifests)
    if count > MANIFESTS and total < count * SMALL_BYTES:
        yield Finding(
            INFO, "many_manifests",
            f"The current snapshot has {count} manifests of {total // count} bytes on average: commits and scans read "
            "more small files than they need.",
            f"With Spark: CALL <catalog>.system.rewrite_manifests('{connection.table_name}').",
            {"manifests": count, "bytes": total},
        )  # fmt: skip
