"""Finds commits that a ledger knows and the log does not have: it was set back, as by a folder of a backup in its place."""

from __future__ import annotations

from safewrite.delta.maintenance.inspection import SCAN_PAGES_MAX, Inspection, head_now
from safewrite.delta.maintenance.vanished import hashes_of
from safewrite.findings import DANGER, EXAMPLES, Finding, Findings, some
from safewrite.protocol.effects import Ok
from safewrite.protocol.keys import MARK
from safewrite.protocol.members import hashed
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.local import SqliteLedger

LOOKED_FOR = 100
"""How many objects of a ledger are read, or keys of a local one: those of the latest commits."""


def examine(found: Inspection) -> Findings:
    """What doctor says of them."""
    if lost := _lost(found):
        versions = sorted({one.version for one in lost if one.version is not None})
        names = [one.key for one in lost]
        yield Finding(
            DANGER, "log_set_back",
            f"The ledger knows {len(lost)} keys of commits (versions {some(versions)}) that the log does not have (it ends with version "
            f"{found.head}): it was set back, as by a backup that was put in its place. Rows of those commits are lost to readers.",
            "Stop the writers. If nobody has written since, put the later commits back, from a versioned copy of _delta_log/. Else write "
            "what these keys stand for again, under the same keys: the log decides, so they are committed anew. Open the table again in "
            "each process, and let jobs that follow it read all rows.",
            {"keys": names[:EXAMPLES], "versions": versions[:EXAMPLES], "count": len(lost)},
        )  # fmt: skip


def _lost(found: Inspection) -> list[LedgerRecord]:
    """Records of commits that are not in the log, and whose key is in no other commit of it."""
    first = min(found.listing.commits, default=None)
    known = _known(found) if found.table_id is not None and first is not None else []
    known = [one for one in known if one.table_id == found.table_id and one.key != MARK]
    if first is None or not known:
        return []
    head = found.head
    if max(one.version or 0 for one in known) > head:
        head = max(found.head_later, head_now(found))  # a writer may have landed since the log was read
    carried = {one for commit in found.commits.values() for one in hashes_of(commit)}
    lost = [
        one
        for one in known
        if one.version is not None
        and first <= one.version
        and (one.version > head or one.version in found.commits)
        and hashed(one.key) not in carried
    ]
    return sorted(lost, key=lambda one: (one.version or 0, one.key))


def _known(found: Inspection) -> list[LedgerRecord]:
    """What the ledger tells of the latest commits, as far as it answers: other findings say what is wrong with it."""
    ledger = found.world.ledger
    if isinstance(ledger, ObjectLedger | SqliteLedger):
        if isinstance(ledger, SqliteLedger) and not ledger.file.exists():
            return []
        answer = ledger.records(LOOKED_FOR)
        return answer.value[0] if isinstance(answer, Ok) else []  # type: ignore[index]
    if found.entries_error is not None:
        return []
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return ledger.records(SCAN_PAGES_MAX)[0]  # type: ignore[attr-defined, no-any-return]
    except (BotoCoreError, ClientError):
        return []
