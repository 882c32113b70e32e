"""Finds faults in a table's snapshots: keys twice or taken back, other writers, staged writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safewrite.findings import DANGER, EXAMPLES, INFO, Finding, Findings
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.history import engine
from safewrite.iceberg.write.members import is_ours, keys_by_hash, shown_keys
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.members import Places

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

NAMELESS = "a writer without a name, such as PyIceberg"
WAP = "write.wap.enabled"
WAP_ID, PUBLISHED = "wap.id", "published-wap-id"
"""Properties of a summary: of a snapshot that Spark staged, and of the one that published it."""


def examine(connection: Connection, metadata: TableMetadata, head: TableVersion) -> Findings:
    """Judge the snapshots of the branch, and snapshots that no branch leads to."""
    reached = _reached(metadata, head)
    yield from _doubled_keys(connection, head)
    yield from _taken_back(head, reached)
    yield from _others(head)
    yield from _staged(connection, head, reached)
    yield from _past_the_audit(connection, metadata, head)


def _reached(metadata: TableMetadata, head: TableVersion) -> set[int]:
    """Snapshots that a branch or tag leads to, and snapshots whose rows a cherry-pick brought to one."""
    reached: set[int] = set()
    for ref in metadata.refs.values():
        at: int | None = ref.snapshot_id
        while at is not None and at in head.parents and at not in reached:
            reached.add(at)
            at = head.parents[at]
    return reached | {head.picked[at] for at in reached if at in head.picked}


# --- keys ---------------------------------------------------------------------------------------------
def _doubled_keys(connection: Connection, head: TableVersion) -> Findings:
    """Find keys that stand twice.  A cherry-pick has no key of its own, and brings the rows of the snapshot
    that it names.
    """
    places = Places()
    for at in head.ancestors():
        places.add(at, _keys(head, at))
    repeated = places.repeated()
    picked = {key: ids for key, ids in repeated.items() if any(at in head.picked for at in ids)}
    ours = {key: ids for key, ids in repeated.items() if key not in picked}
    if ours:
        yield Finding(
            DANGER, "key_committed_twice",
            f"{len(ours)} idempotency keys stand in more than one snapshot: their rows are in the table twice.",
            "Delete the second copy of their rows; please report it with the table's metadata file.",
            _of_keys(ours),
        )  # fmt: skip
    if picked:
        yield Finding(
            DANGER, "key_cherry_picked_twice",
            f"{len(picked)} idempotency keys came to {connection.branch!r} by a cherry-pick and once more: their rows are in "
            "the table twice, for every reader. They were rolled back, written again and cherry-picked; safewrite did not "
            "know cherry-picked writes before this release.",
            "Keep one copy: replace their rows in one overwrite(where=...) by the rows once, under a new key. If nothing was "
            "written since, roll back to the snapshot before the second copy.",
            _of_keys(picked),
        )  # fmt: skip


def _keys(head: TableVersion, at: int) -> dict[str, str]:
    """The keys of the writes whose rows a snapshot brought; none for other writers' snapshots."""
    return keys_by_hash(head.summaries[at]) or keys_by_hash(head.summaries.get(head.picked.get(at, at), {}))


def _of_keys(keys: Mapping[str, list[int]]) -> dict[str, Any]:
    return {"keys": dict(list(keys.items())[:EXAMPLES]), "count": len(keys)}


def _taken_back(head: TableVersion, reached: set[int]) -> Findings:
    """Keyed snapshots that no branch or tag leads to: the table was rolled back past them."""
    standing, passed = Places(), Places()
    for at, summary in head.summaries.items():
        (standing if at in reached else passed).add(at, keys_by_hash(summary))
    gone = [passed.shown(one) for one in passed if one not in standing]
    if gone:
        yield Finding(
            INFO, "rolled_back_keys",
            f"{len(gone)} committed keys are in snapshots that were rolled back: their rows are not in the table.",
            "If that was not meant for these rows, write them again, under the same keys, before those snapshots are "
            "expired.",
            {"keys": gone[:EXAMPLES], "count": len(gone)},
        )  # fmt: skip


# --- other writers ------------------------------------------------------------------------------------
def _others(head: TableVersion) -> Findings:
    """Find writers that carry no key; a lost answer may cost them rows twice or a destroyed table (C1)."""
    unkeyed = Counter(
        engine(head.summaries[at]) or NAMELESS for at in head.ancestors() if not _keys(head, at)
    )
    if unkeyed:
        names = ", ".join(f"{name} ({count})" for name, count in unkeyed.most_common())
        yield Finding(
            INFO, "other_writers",
            f"{unkeyed.total()} snapshots carry no key of safewrite; written by {names}. Their commits are not "
            "verified: after a lost answer such a writer may write its rows twice, and PyIceberg up to 0.12 with "
            "retries may delete files of a commit that landed.",
            "Write by safewrite, or let PyIceberg's tables commit through it: safewrite.open(...).catalog.",
            {"engines": dict(unkeyed)},
        )  # fmt: skip


# --- write, audit, publish ----------------------------------------------------------------------------
def _staged(connection: Connection, head: TableVersion, reached: set[int]) -> Findings:
    """Snapshots that a session staged for an audit, and that were never published."""
    published = {summary[PUBLISHED] for summary in head.summaries.values() if PUBLISHED in summary}
    waiting = {
        at: summary[WAP_ID]
        for at, summary in head.summaries.items()
        if WAP_ID in summary and at not in reached and summary[WAP_ID] not in published
    }
    if waiting:
        yield Finding(
            INFO, "wap_unpublished",
            f"{len(waiting)} snapshots were staged for an audit ({WAP_ID}) and not published: no reader of a branch sees "
            "their rows. Nothing is wrong if the audit is still to come.",
            f"Publish what passed, with Spark: CALL <catalog>.system.publish_changes('{connection.table_name}', '<{WAP_ID}>'), "
            "before snapshots are expired; let the rest expire.",
            {"snapshots": {str(at): name for at, name in list(waiting.items())[:EXAMPLES]}, "count": len(waiting)},
        )  # fmt: skip


def _past_the_audit(connection: Connection, metadata: TableMetadata, head: TableVersion) -> Findings:
    """Writes of safewrite that went straight to the branch of a table that asks for staged ones."""
    if metadata.properties.get(WAP, "false").lower() != "true":
        return
    straight = [summary for summary in map(head.summaries.__getitem__, head.ancestors()) if is_ours(summary)]
    straight = [summary for summary in straight if WAP_ID not in summary and PUBLISHED not in summary]
    if straight:
        yield Finding(
            INFO, "wap_passed_over",
            f"The table wants writes to be staged and audited ({WAP}=true), and {len(straight)} of safewrite's went "
            f"straight to {connection.branch!r}: readers saw their rows unaudited. safewrite stages nothing; before this "
            "release it did not refuse frames of a Spark session with spark.wap.branch or spark.wap.id either.",
            "Audit these snapshots now if that was to be done. From now on write with Spark's own statements where writes "
            f"must be staged, or unset {WAP} if they need not.",
            {
                "keys": [key for summary in straight for key in shown_keys(summary)][:EXAMPLES],
                "count": len(straight),
            },
        )  # fmt: skip
