"""Reports a table's other writers: the lock table, its entries, and writers that bypass it."""

from __future__ import annotations

from safewrite.delta.log import actions
from safewrite.delta.maintenance import vanished
from safewrite.delta.maintenance.inspection import Inspection, now_ms
from safewrite.delta.maintenance.vanished import CommitStatus, Lost
from safewrite.findings import DANGER, EXAMPLES, INFO, WARNING, Finding, Findings, some
from safewrite.protocol.values import Entry

DAY_MS = 24 * 3600 * 1000
TEMPS_MAX = 2_000
"""How many temp files are read, newest versions first; ``repair --sweep`` reads all that are old enough."""


def lock_table(found: Inspection) -> Findings:
    """Judge the lock table itself, its entries, and the writers that bypass it."""
    if found.lock_table is None:
        if found.temps and found.address.is_s3:
            yield Finding(
                DANGER, "lock_table_writers",
                f"The table goes by conditional PUT alone, but {len(found.temps)} temp files of a lock table's "
                "writers are in _delta_log/.tmp/: they copy over commits that they do not know of.",
                "Let every writer use one arbiter: give --lock-table to look at its entries.",
            )  # fmt: skip
        return
    yield from _lock_table_itself(found)
    if found.entries_error is None:
        yield from _mixed(found)
        yield from _entries(found)
        yield from _spellings(found)


def _lock_table_itself(found: Inspection) -> Findings:
    from safewrite.stores import lock_table as lock_tables

    assert found.lock_table is not None
    judged = list(lock_tables.findings(found.dynamodb, found.lock_table))
    yield from judged
    problems = [finding for finding in judged if finding.code != "lock_table_unreadable"]
    if found.entries_error is not None and not problems:
        yield Finding(
            DANGER, "lock_table_unreadable", f"Entries cannot be read: {found.entries_error}.",
            "Check region, endpoint and permissions.",
        )  # fmt: skip


def _mixed(found: Inspection) -> Findings:
    """Find recent versions without an entry: some writer bypasses the lock table (A12).

    Entries expire a day after their commit at the earliest, so only commits of the last day, by the store's
    times, are judged.
    """
    entries = {found.version(entry) for entry in found.entries}
    times = {v: found.listed[actions.commit_path(v)].modified_ms for v in found.listing.commits}
    since_ms = now_ms(found) - DAY_MS
    past = [
        v
        for v, modified_ms in times.items()
        if v not in entries and modified_ms > since_ms and v > min(entries, default=-1)
    ]
    engines = sorted({vanished.engine(found.commits[v]) for v in past if v in found.commits})
    if past:
        yield Finding(
            DANGER, "mixed_writers",
            f"Versions {some(past)} have no entry in the lock table {found.lock_table!r}: written by "
            f"{', '.join(engines) or 'unknown'} past it. Rows of safewrite are safe; Spark's and old deltalake's "
            "writers and these overwrite each other.",
            "Move every writer to safewrite, which is safe with either kind; until then stop one kind.",
            {"versions": past[:EXAMPLES], "count": len(past), "engines": engines},
        )  # fmt: skip


def _entries(found: Inspection) -> Findings:
    stale = [entry for entry in found.entries if found.stale(entry)]
    if stale:
        yield Finding(
            DANGER, "dropped_table_entries",
            f"{len(stale)} entries belong to a table that was dropped here, or to a log that was cut: writers "
            "refuse to go on, or repair the new table with the old one's commits.",
            "safewrite locks clear, with the same options. Where the log was cut (set_back), put its commits back first.",
            {"entries": [entry.file_name for entry in stale[:EXAMPLES]], "count": len(stale)},
        )  # fmt: skip
    for entry in found.entries:
        if not entry.settled and not found.stale(entry):
            yield _incomplete(found, entry)


def _incomplete(found: Inspection, entry: Entry) -> Finding:
    version = found.version(entry)
    temp = actions.LOG + entry.temp_path
    standing = version in found.digests
    if not standing and temp not in found.listed:
        return Finding(
            DANGER, "commit_unfinishable",
            f"The entry of version {version} names a temp file that is gone, and there is no commit: it cannot be "
            "finished, and every writer of the lock table stops there.",
            "If nobody is writing, remove the entry: safewrite locks clear --force.", {"version": version},
        )  # fmt: skip
    attempt = next(iter(found.attempts([found.listed[temp]] if temp in found.listed else [])), None)
    owner = vanished.engine(attempt.commit) if attempt is not None and attempt.commit else "unknown"
    keys = vanished.keys_of(attempt.commit) if attempt is not None and attempt.commit else []
    age = found.head - version
    seen = "its commit stands" if standing else "its commit is not in the log: readers do not see it"
    return Finding(
        WARNING, "incomplete_entry",
        f"The entry of version {version} is not complete ({seen}). Written by {owner}"
        + (f" under key {', '.join(keys)}" if keys else "")
        + (f"; {age} versions have landed since." if standing else "; its writer is at work, or died.")
        + (" Its writer died before it closed the entry, or its role lacks dynamodb:UpdateItem." if standing else ""),
        "safewrite repair finishes it; the next writer of the lock table does too.",
        {"version": version, "engine": owner, "keys": keys, "versions_since": max(age, 0)},
    )  # fmt: skip


def _spellings(found: Inspection) -> Findings:
    if found.spellings:
        yield Finding(
            DANGER, "other_spellings",
            f"The lock table also has entries under {', '.join(found.spellings)}: writers under another spelling of "
            "the path do not exclude each other.",
            "Let every writer use one spelling, stop the others, then: safewrite locks clear --spelling <the other>.",
            {"spellings": dict(found.spellings)},
        )  # fmt: skip
    if not found.spellings_whole:
        yield Finding(
            INFO, "lock_table_large", "Only a part of the lock table was searched for other spellings.", ""
        )


def attempts(found: Inspection) -> Findings:
    """Judge temp files: commits that were acknowledged and vanished, and files that nobody needs any more."""
    if found.lock_table is None or found.entries_error is not None:
        return  # without the entries, nothing can be said of temp files
    temps = found.temps[:TEMPS_MAX]
    judged = vanished.judge(found, found.attempts(temps))
    by_fate: dict[CommitStatus, list[Lost]] = {}
    for one in judged:
        by_fate.setdefault(one.fate, []).append(one)
    for one in (*by_fate.get(CommitStatus.VANISHED, ()), *by_fate.get(CommitStatus.UNFINISHED, ())):
        rows = "an unknown number of" if one.rows is None else str(one.rows)
        winner = found.commits.get(one.attempt.version)
        certain = one.fate is CommitStatus.VANISHED
        yield Finding(
            DANGER if certain else WARNING, "vanished_commit" if certain else "beaten_commit",
            f"A commit of version {one.attempt.version} by {vanished.engine(one.commit)} "
            + ("was acknowledged and is" if certain else "is claimed, perhaps acknowledged, and")
            + f" not in the log: a commit by {vanished.engine(winner) if winner else 'another'} stands there. {rows} rows in "
            f"{len(one.commit.adds())} files are lost.",
            "safewrite repair --rescue commits a blind append again, once. Then stop mixing writers.",
            one.to_dict(),
        )  # fmt: skip
    unclaimed = by_fate.get(CommitStatus.UNCLAIMED, [])
    if unclaimed:
        yield Finding(
            WARNING, "unclaimed_temps",
            f"{len(unclaimed)} temp files of other engines hold commits that are not in the log, and no entry names "
            "them (any more): abandoned writes, or acknowledged ones whose entry has expired.",
            "Compare with the writers' own records; --sweep leaves them alone.",
            {"commits": [one.to_dict() for one in unclaimed[:EXAMPLES]], "count": len(unclaimed)},
        )  # fmt: skip
    named = {actions.LOG + entry.temp_path for entry in found.entries}
    orphans = [item for item in found.temps if item.path not in named]
    if orphans:
        oldest_d = (now_ms(found) - min(item.modified_ms for item in orphans)) / DAY_MS
        yield Finding(
            INFO, "orphan_temps",
            f"{len(orphans)} temp files ({sum(item.size for item in orphans)} bytes, the oldest of {oldest_d:.0f} days) "
            "are named by no entry.",
            "safewrite repair --sweep removes old ones.",
            {"count": len(orphans), "read": min(len(temps), TEMPS_MAX)},
        )  # fmt: skip
