"""Reads the snapshots of a branch as a history: those of safewrite, and those of other engines."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from safewrite.arguments.properties import is_free
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import summary
from safewrite.iceberg.write.members import (
    MEMBER_KEYS,
    REMOVED_ROWS,
    ROWS,
    Entry,
    entries,
    inline,
    is_ours,
    known_writes,
)
from safewrite.protocol import members
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.history import CommittedWrite, HistoryEntry, count, first_of
from safewrite.values.limits import utc

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

_DELETES = ("equality-deletes", "position-deletes", "delete-files")


def history(
    head: TableVersion, limit: int | None, limits: Limits
) -> Generator[Effect, Outcome, list[HistoryEntry]]:
    """The snapshots of the branch that the metadata still has, newest first.

    Raises:
        StorageError: the store gave no answer.
    """
    shown = list(islice(head.ancestors(), limit))
    carriers = {at: _carrier(head, at) for at in shown}
    long = [at for at in carriers.values() if inline(head.summaries.get(at, {})) is None]
    lists = yield from known_writes(head, long, limits)
    return [_entry(head, at, carriers[at], lists.get(carriers[at])) for at in shown]


def committed_writes(
    head: TableVersion, at: int, limits: Limits
) -> Generator[Effect, Outcome, list[CommittedWrite] | None]:
    """Every write that a snapshot carries; None if the metadata does not have it.

    Raises:
        StorageError: the store gave no answer, or the list of the snapshot's writes is gone.
    """
    if at not in head.summaries:
        return None
    writes = yield from entries(head, _carrier(head, at), limits)
    return [CommittedWrite.of(write) for write in writes]


def _carrier(head: TableVersion, at: int) -> int:
    """The snapshot that names the writes of another: a cherry-pick brings what its source carries."""
    source = head.picked.get(at, at)
    return at if is_ours(head.summaries[at]) or source not in head.summaries else source


def _entry(head: TableVersion, at: int, carrier: int, listed: list[Entry] | None) -> HistoryEntry:
    snapshot = table_of(head).metadata.snapshot_by_id(at)
    assert snapshot is not None
    properties, carried = head.summaries[at], head.summaries.get(carrier, {})
    own = inline(carried)
    shown = first_of(listed or ()) if own is None else tuple(map(CommittedWrite.of, own))
    added, removed = _rows(snapshot, properties)
    return HistoryEntry(
        version=at,
        timestamp=utc(snapshot.timestamp_ms),
        operation=_operation(snapshot),
        engine=f"safewrite/{properties[summary.ENGINE]}"
        if summary.ENGINE in properties
        else engine(properties),
        rows_added=added,
        rows_removed=removed,
        writes=shown,
        write_count=len(shown) if own is not None else members.packed_count(carried[MEMBER_KEYS]),
        properties={name: value for name, value in properties.items() if is_free(name)},
        details=dict(properties),
    )


def _operation(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else str(snapshot.summary.operation.value)


def engine(properties: Mapping[str, Any]) -> str | None:
    """The engine that made a snapshot, as far as its summary tells; PyIceberg leaves no name."""
    named = " ".join(
        str(properties[name]) for name in ("engine-name", "engine-version") if name in properties
    )
    if named:
        return named
    traces = {"spark.app.id": "Spark", "trino_query_id": "Trino", "flink.job-id": "Flink"}
    known = next((name for trace, name in traces.items() if trace in properties), None)
    if known is None and "iceberg-version" in properties:
        known = str(properties["iceberg-version"])
    return known


# --- rows -----------------------------------------------------------------------------------------------
def _rows(snapshot: Snapshot, properties: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Rows that a snapshot added, and rows that it removed.

    Summaries count the rows of files, so those that a rewrite kept are in both numbers; of its own writes safewrite
    knows better.
    """
    if _operation(snapshot) == "replace":
        return 0, 0  # files are arranged in another way, and hold the same rows
    added, removed = _counted(properties, "added-records"), _counted(properties, "deleted-records")
    if REMOVED_ROWS in properties and is_ours(properties):
        return count(properties.get(ROWS)), count(properties[REMOVED_ROWS])
    if removed and _had_deletes(properties):
        return count(properties.get(ROWS)) if is_ours(
            properties
        ) else added, None  # some of the rows of those files were gone before
    if any(count(properties.get(f"added-{name}")) for name in _DELETES):
        removed = _by_delete_files(properties, removed)
    if is_ours(properties) and added is not None and removed is not None:
        written = count(properties.get(ROWS)) or 0
        return written, removed - (added - written)
    return added, removed


def _had_deletes(properties: Mapping[str, str]) -> bool:
    """Whether the snapshot before had delete files."""
    total, new, gone = (
        count(properties.get(f"{kind}-delete-files")) or 0 for kind in ("total", "added", "removed")
    )
    return total - new + gone > 0


def _counted(properties: Mapping[str, str], name: str) -> int | None:
    """A number of the summary; writers leave zeros out, and some write no numbers at all."""
    if name in properties:
        return count(properties[name])
    return 0 if any(one.startswith(("added-", "deleted-", "total-")) for one in properties) else None


def _by_delete_files(properties: Mapping[str, str], removed: int | None) -> int | None:
    """Rows that files and new position deletes took; nobody counts those that an equality delete does."""
    positions = count(properties.get("added-position-deletes"))
    unclear = count(properties.get("added-equality-deletes")) or count(
        properties.get("removed-position-deletes")
    )
    return None if unclear or positions is None or removed is None else removed + positions
