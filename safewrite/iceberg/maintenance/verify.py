"""Verifies that the table holds everything sent, once: keys against snapshots, rows against a scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from safewrite.errors import Kind, StorageError
from safewrite.findings import KeyAudit
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg import branches
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests_v3 import VERSION
from safewrite.iceberg.data.reading import planned
from safewrite.iceberg.maintenance.snapshot_files import ASKS
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.read.files import read_files
from safewrite.iceberg.write.earlier_writes import EMPTY, Resolved, before_branch, newest, reaches, stands
from safewrite.iceberg.write.members import ROWS, entries, in_summary
from safewrite.iceberg.write.resolve import batch_under
from safewrite.progress import watched
from safewrite.protocol import keys
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import Wanted
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.world import World, run
from safewrite.text.rendering import said


def read_head(connection: Connection) -> TableVersion:
    """The table as it is now.

    Raises:
        TableNotFoundError: there is none.
        ConflictError: safewrite began no branch of that name.
        StorageError: the catalog gave no answer.
    """
    head = run(load(ASKS), connection.world())
    branches.check(connection, head)
    return head


def audit_keys(connection: Connection, head: TableVersion, sent: Iterable[str]) -> KeyAudit:
    """Look every sent key up in the branch's snapshots, and in the ledger where snapshots were expired."""
    wanted = dict.fromkeys(sent)
    places: dict[str, list[tuple[int, bool]]] = {key: [] for key in wanted}
    world = connection.world(head)
    world.table = table_of(head)
    sought = Wanted(wanted)
    ancestors = list(head.ancestors())
    for at in watched(ancestors, "snapshots", len(ancestors)):
        if not in_summary(head.summaries[at], sought):
            continue
        for write in run(entries(head, at, ASKS), world):
            if write["key"] in places:
                places[write["key"]].append((int(write["rows"]), _rows_agree(head, at)))
    absent = [key for key, where in places.items() if not where]
    complete = reaches(head, EMPTY)
    known = {} if complete else _elsewhere(connection, head, absent)
    missing = tuple(key for key in absent if key not in known)
    once = [where[0][0] for where in places.values() if len(where) == 1]
    return KeyAudit(
        present=len(wanted) - len(missing),
        rows=sum(once) + sum(known.values()),
        lost=missing if complete else (),
        doubled=tuple(key for key, where in places.items() if len(where) > 1),
        torn=tuple(key for key, where in places.items() if any(not whole for _, whole in where)),
        unknown=() if complete else missing,
    )


def _rows_agree(head: TableVersion, at: int) -> bool:
    """Whether an append added as many rows as its write had; other writes also add rows that they keep."""
    snapshot = table_of(head).metadata.snapshot_by_id(at)
    assert snapshot is not None
    assert snapshot.summary is not None
    added = head.summaries[at].get("added-records")
    if snapshot.summary.operation.value != "append":
        return True
    return int(added or 0) == int(head.summaries[at][ROWS])


def _counts(record: LedgerRecord, head: TableVersion, world: World) -> bool:
    """Whether the table has the write of a record, which may be of a commit since ``head``."""
    at = record.version
    if at is None:
        return False
    return stands(at, head, record.base_version) or stands(
        at, run(newest(head, ASKS), world), record.base_version
    )


def _elsewhere(connection: Connection, head: TableVersion, absent: Sequence[str]) -> dict[str, int]:
    """Rows of keys whose snapshot was expired: the last batch of each stream, and what the ledger knows."""
    world = connection.world(head)
    found: dict[str, int] = {}
    for key in watched(absent, "keys in the ledger", len(absent)):
        batch = batch_under(key, head)
        if batch is not None:
            found[key] = batch.rows
            continue
        record = run(keys.recall(key, ASKS), world) if connection.helpers.ledger else None
        if record is not None and _counts(record, head, world):
            found[key] = int(record.fingerprint.split(":")[1])
        elif record is None and connection.helpers.ledger:
            came, _ = run(before_branch((key,), head, ASKS), world)
            if isinstance(earlier := came.get(key), Resolved):
                found[key] = earlier.rows
    return found


def read_rows(head: TableVersion, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """These columns of all rows of the current snapshot, as plain values, by PyIceberg's scan.

    From format version 3 on by our own reader: PyIceberg (0.12.0) may apply another deletion vector than the one that counts.

    Raises:
        StorageError: a file of the snapshot cannot be read.
    """
    table = table_of(head)
    try:
        if int(table.metadata.format_version) >= VERSION:
            world = CatalogWorld(table.catalog, table.name())
            tasks = run(planned(head, EVERYTHING, KnownManifests(), ASKS), world)
            rows = run(read_files(tasks, head, ASKS, columns), world)
        else:
            rows = table.scan(selected_fields=columns).to_arrow()
    except Exception as error:
        raise StorageError(
            f"Snapshot {head.current} of {'.'.join(table.name())} cannot be read: {type(error).__name__}: {said(error)}. "
            "Nothing was written. Run `safewrite doctor --deep` on the table.",
            kind=Kind.DATA_FILE_DAMAGED,
        ) from error
    return {name: rows.column(name).to_pylist() for name in columns}
