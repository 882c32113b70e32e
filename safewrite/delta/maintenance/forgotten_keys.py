"""Finds keys of the log that a ledger has lost though its mark says that it has all, and puts them back."""

from __future__ import annotations

from safewrite.delta.log.actions import Commit
from safewrite.delta.maintenance.inspection import ASKS, Inspection, now_ms
from safewrite.delta.write.ledger_mark import restore
from safewrite.delta.write.members import ENGINE
from safewrite.errors import StorageError
from safewrite.findings import EXAMPLES, WARNING, Finding, Findings, Step, Steps
from safewrite.protocol import keys
from safewrite.protocol.effects import LedgerGet, Missing, Ok
from safewrite.protocol.fetch import fetch
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.local import SqliteLedger
from safewrite.stores.world import LEDGER_TTL_S, World, run

LOOKED_FOR = 100
"""How many keys are looked for, spread over the log: who removes some removes the old ones."""
YOUNG_MS = (LEDGER_TTL_S - 24 * 3600) * 1000
"""A key that is older than this may have gone in its time."""


def examine(found: Inspection) -> Findings:
    """What doctor says of them."""
    if lost := _lost(found):
        yield Finding(
            WARNING, "keys_forgotten",
            f"The ledger does not have {len(lost)} of {LOOKED_FOR} keys at most that were looked for, and which the log has: somebody "
            "removed some of its records, and a redelivery of such a key would be committed again.",
            "Put them back: safewrite repair TABLE. Then look for keys that were committed again meanwhile: key_committed_twice. Find who "
            "removes records of the ledger.",
            {"keys": lost[:EXAMPLES], "count": len(lost)},
        )  # fmt: skip


def finish(found: Inspection, world: World, *, dry_run: bool = False) -> Steps:
    """Put the keys of the log back, where some are missing."""
    if lost := _lost(found):
        if not dry_run:
            run(restore(found.table_id, None, ASKS), world)
        yield Step("remember", f"{len(lost)} keys or more", "would" if dry_run else "done")


def _lost(found: Inspection) -> list[str]:
    names = [
        name
        for _, commit in sorted(found.commits.items())
        if _age_ms(found, commit) < YOUNG_MS
        for name in _keys_of(commit)
    ]
    names = names[:: max(1, -(-len(names) // LOOKED_FOR))]
    ledger = found.world.ledger
    if (
        not names
        or found.entries_error is not None
        or (isinstance(ledger, SqliteLedger) and not ledger.file.exists())
    ):
        return []
    gets = [LedgerGet(name, name="forgotten.get") for name in (keys.MARK, *names)]
    try:
        told, *answers = run(fetch(gets, ASKS, name="forgotten.look"), found.world)
    except StorageError:
        return []  # other findings say what is wrong with the lock table
    mark = told.value if isinstance(told, Ok) else None
    # Without its mark a ledger is filled before anything is committed.
    if not isinstance(mark, LedgerRecord) or not keys.is_whole(mark, found.table_id):
        return []
    return [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, Missing)]


def _keys_of(commit: Commit) -> list[str]:
    """The keys that a commit shows; those of large groups are in a file of their own."""
    writes = ((commit.commit_info or {}).get(ENGINE) or {}).get("writes", ())
    named = [str(one["key"]) for one in writes if "txn" not in one]
    return [name for name in named if keys.base_of_generated(name) is None]


def _age_ms(found: Inspection, commit: Commit) -> float:
    at = (commit.commit_info or {}).get("timestamp")
    return now_ms(found) - at if isinstance(at, int) else float("inf")
