"""Finds commits that a ledger knows and the log does not have: it was set back, as by a folder of a backup in its place."""

from __future__ import annotations

from safewrite.delta.maintenance.inspection import Inspection, head_now
from safewrite.delta.maintenance.vanished import hashes_of
from safewrite.findings import DANGER, EXAMPLES, Finding, Findings, some
from safewrite.protocol.members import hashed
from safewrite.protocol.values import LedgerRecord
from safewrite.stores import remembered


def examine(found: Inspection) -> Findings:
    """What doctor says of them."""
    if lost := _lost(found):
        versions = sorted({one.version for one in lost if one.version is not None})
        names = [one.key for one in lost]
        yield Finding(
            DANGER, "set_back",
            f"The ledger knows {len(lost)} keys of commits (versions {some(versions)}) that the log does not have (it ends with version "
            f"{found.head}): it was set back, as by a backup that was put in its place. Rows of those commits are lost to readers.",
            "Stop the writers. If nobody has written since, put the later commits back, from a versioned copy of _delta_log/ or, with a "
            "lock table, their temp files in _delta_log/.tmp/. Else write what these keys stand for again, under the same keys: the log "
            "decides, so they are committed anew. Open the table again in each process, and let jobs that follow it read all rows.",
            {"keys": names[:EXAMPLES], "versions": versions[:EXAMPLES], "count": len(lost)},
        )  # fmt: skip


def _lost(found: Inspection) -> list[LedgerRecord]:
    """Records of commits that are not in the log, and whose key is in no other commit of it."""
    first = min(found.listing.commits, default=None)
    if first is None or found.table_id is None or found.entries_error is not None:
        return []
    known = [
        (one.version, one)
        for one in remembered.committed(found.world.ledger)
        if one.table_id == found.table_id and one.version is not None and one.version >= first
    ]
    head = found.head
    if any(version > head for version, _ in known):
        head = max(found.head_later, head_now(found))  # a writer may have landed since the log was read
    carried = {one for commit in found.commits.values() for one in hashes_of(commit)}
    lost = [
        (version, one.key, one)
        for version, one in known
        if (version > head or version in found.commits) and hashed(one.key) not in carried
    ]
    return [one for _, _, one in sorted(lost, key=lambda each: each[:2])]
