"""Reports what is unsafe about a Delta table, and how to repair it.

Each check takes an inspection and yields findings; those about other writers are in ``other_writers``, those
about data files in ``data_files``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from safewrite.arguments.options import refuse_unsafe
from safewrite.delta.log import actions, features, iceberg_compat
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.segment import hint
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.maintenance import (
    data_files,
    forgotten_keys,
    other_writers,
    set_back,
    vanished,
    waiting_writes,
)
from safewrite.delta.maintenance.inspection import ASKS, Inspection
from safewrite.delta.write.members import ENGINE
from safewrite.errors import NotCommittedError, UnsafeConfigError
from safewrite.findings import DANGER, EXAMPLES, INFO, WARNING, Finding, Findings, Severity, some
from safewrite.protocol.effects import Get, Ok
from safewrite.protocol.keys import MARK
from safewrite.protocol.members import Places
from safewrite.stores import lifecycle
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.probe import probe_locks, probe_objects
from safewrite.stores.world import LEDGER_TTL_S

DAY_S = 24 * 3600
COMMITS_WITHOUT_CHECKPOINT = 100
SKEW_MS_MAX = 5 * 60 * 1000


def examine(
    found: Inspection,
    *,
    storage_options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    deep: bool = False,
    probe: bool = False,
) -> list[Finding]:
    """Judge an inspection; dangers come first.

    ``deep`` looks for every data file and into it, and for data files that no commit names; ``probe`` writes
    scratch objects next to the table, to see whether the store keeps conditional creates exclusive.
    """
    findings = [*_settings(storage_options, environment or os.environ), *_clock(found)]
    if found.head < 0 and found.state_error is None:
        findings.append(
            Finding(
                DANGER, "no_table", f"There is no Delta table at {found.address.uri}.", "Check the address."
            )
        )
    for check in (
        _log,
        _checkpoints,
        _doubled,
        _put_together_twice,
        _table,
        other_writers.lock_table,
        other_writers.attempts,
        waiting_writes.examine,
        forgotten_keys.examine,
        set_back.examine,
        _lifecycle,
    ):
        findings += check(found)
    findings += data_files.examine(found, deep=deep)
    if probe:
        findings += _probe(found)
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


# --- settings and clock -------------------------------------------------------------------------------
def _settings(options: Mapping[str, str] | None, environment: Mapping[str, str]) -> Findings:
    places = (("the storage options", options or {}), ("the environment", environment))
    for where, settings in places:
        for name, value in settings.items():
            try:
                refuse_unsafe({name: value}, {"": ""})
            except UnsafeConfigError:
                yield Finding(
                    DANGER, "unsafe_setting", f"{name}={value} in {where} lets writers overwrite each other.",
                    f"Remove {name}; stop the writers that were started with it.",
                )  # fmt: skip
            if name.upper() == "AWS_S3_LOCKING_PROVIDER":
                yield Finding(
                    WARNING, "ignored_lock_setting",
                    f"{name}={value} in {where} is ignored by deltalake from 1.6.1 on: such a writer commits by "
                    "conditional PUT and takes no lock.",
                    "Write by safewrite, or know that those writers go past the lock table.",
                )  # fmt: skip


def _clock(found: Inspection) -> Findings:
    if found.skew_ms is not None and abs(found.skew_ms) > SKEW_MS_MAX:
        yield Finding(
            WARNING, "clock_skew",
            f"This machine's clock is {abs(found.skew_ms) / 1000:.0f} s off the store's. safewrite does not mind; "
            "writers that set expireTime by their own clock may have entries removed too early.",
            "Set the clock (NTP).", {"skew_ms": found.skew_ms},
        )  # fmt: skip


# --- the log ----------------------------------------------------------------------------------------
def _log(found: Inspection) -> Findings:
    for version, why in found.torn.items():
        yield Finding(
            DANGER, "torn_commit", f"{why} Readers fail there, or stop early.",
            "Compare with the temp file of that version in _delta_log/.tmp/ or a versioned copy of the object; put "
            "the whole commit back, or restore the table to the version before.",
            {"version": version},
        )  # fmt: skip
    for version, commit in sorted(found.commits.items()):
        if (named := _files_named(commit)) > (there := len(commit.adds())):
            yield Finding(
                DANGER, "torn_commit",
                f"Version {version} of the log ends early: it says that it adds {named} files, and it adds {there}. The rows of the "
                "others are lost to readers, while their keys are told `already_committed`.",
                "Put the whole commit back, from a versioned copy of the object or the temp file of that version in _delta_log/.tmp/; or "
                "restore the table to the version before, and write the batches again under new keys.",
                {"version": version, "files": named - there},
            )  # fmt: skip
    base = max((c.version for c in found.listing.checkpoints), default=-1)
    first = min(found.listing.commits, default=0)
    start = min(first, base + 1)
    holes = (
        sorted(set(range(start, found.head)) - set(found.listing.commits)) if found.listing.commits else []
    )
    if holes:
        yield Finding(
            DANGER, "log_hole",
            f"Commits {some(holes)} are missing although later ones stand: the rows in them are lost to readers.",
            "Look for their temp files in _delta_log/.tmp/ or versioned copies, and put them back; find who "
            "deletes files of the log.",
            {"versions": holes[:EXAMPLES], "count": len(holes)},
        )  # fmt: skip
    if found.state_error is not None and not found.torn and not holes:
        yield Finding(
            DANGER, "unreadable_log", found.state_error.message, "Restore the log from a versioned copy."
        )


def _files_named(commit: Commit) -> int:
    """How many new files an append of safewrite says that it has; 0 of any other commit."""
    info = commit.commit_info or {}
    count = str((info.get("operationMetrics") or {}).get("numFiles"))
    return int(count) if ENGINE in info and info.get("isBlindAppend") and count.isdecimal() else 0


def _checkpoints(found: Inspection) -> Findings:
    newest = max((c.version for c in found.listing.checkpoints), default=None)
    behind = found.head - (newest if newest is not None else -1)
    if behind > COMMITS_WITHOUT_CHECKPOINT:
        ours = found.state is None or not features.unwritable(found.state)
        yield Finding(
            WARNING, "long_log", f"There is no checkpoint for the last {behind} commits: opening the table is slow.",
            "Make one: safewrite.open(...).checkpoint(), or let safewrite write (checkpoints=True)." if ours
            else "Let the engine that writes the table make one.",
            {"commits": behind},
        )  # fmt: skip
    pointer = found.listed.get(actions.LAST_CHECKPOINT)
    if newest is not None and pointer is None:
        yield Finding(
            INFO, "no_last_checkpoint", "Checkpoints stand without _last_checkpoint: readers must list the log.",
            "The next checkpoint writes it.",
        )  # fmt: skip
    if pointer is not None:
        answer = found.world.perform(Get(actions.LAST_CHECKPOINT))
        named = hint(answer.value) if isinstance(answer, Ok) and isinstance(answer.value, bytes) else None
        if named is None or not all(path in found.listed for path in named.paths):
            yield Finding(
                WARNING, "bad_last_checkpoint",
                "_last_checkpoint is garbled or names a checkpoint that is not there; some readers fail on it.",
                "Delete _delta_log/_last_checkpoint: it is a hint, and the next checkpoint writes it.",
            )  # fmt: skip


def _doubled(found: Inspection) -> Findings:
    """The same data file added twice without a remove in between (a lost answer), or one key twice."""
    live: dict[actions.FileKey, int] = {}
    twice: dict[str, list[int]] = {}
    keys = Places()
    for version in sorted(found.commits):
        commit = found.commits[version]
        for action in commit.removes():
            live.pop(actions.file_key(action), None)
        for action in commit.adds():
            name = actions.file_key(action)
            if action.get("dataChange") is not False and name in live:
                twice.setdefault(name[0], [live[name]]).append(version)
            live[name] = version
        keys.add(version, vanished.hashes_of(commit))
    if twice:
        yield Finding(
            DANGER, "file_added_twice",
            f"{len(twice)} data files are added by more than one commit: a writer took its own landed commit for a "
            "conflict after a lost answer. Change feeds and streams see the rows twice; if a compaction ran in "
            "between, every reader does.",
            "Read the rows of these versions once when consuming changes; delete the second copy by key if a "
            "compaction ran in between. Write by safewrite, which recognises its own commit.",
            {"files": dict(list(twice.items())[:EXAMPLES]), "count": len(twice)},
        )  # fmt: skip
    repeated = keys.repeated()
    if repeated:
        yield Finding(
            DANGER, "key_committed_twice", f"{len(repeated)} idempotency keys stand in more than one commit.",
            "Delete the second copy of their rows; please report it with the two commit files.",
            {"keys": dict(list(repeated.items())[:EXAMPLES]), "count": len(repeated)},
        )  # fmt: skip


def _put_together_twice(found: Inspection) -> Findings:
    """A compaction that landed although its files were gone: their rows are in the table twice.

    deltalake 1.6 lets its own land after any other (delta-rs #3982: it takes a removal that changes no data for no conflict).
    """
    live: set[actions.FileKey] = set()
    gone: dict[actions.FileKey, int] = {}
    twice: dict[int, list[int]] = {}
    for version in sorted(found.commits):
        commit = found.commits[version]
        removed = {actions.file_key(one): one.get("dataChange") is False for one in commit.removes()}
        added = {actions.file_key(one) for one in commit.adds()}
        before = {gone[one] for one, moved in removed.items() if moved and one in gone}
        if before and not added <= live:
            twice[version] = sorted(before)
        gone.update(dict.fromkeys(removed.keys() - gone.keys(), version))
        for one in added:
            gone.pop(one, None)
        live.difference_update(removed)
        live |= added
    if twice:
        engines = sorted({_engine(found.commits[version]) or "unknown" for version in twice})
        yield Finding(
            DANGER, "compacted_twice",
            f"Compactions {some(list(twice))} of {', '.join(engines)} put files together that a commit before had removed, so the "
            "rows of those are in the table twice since then, and some as they were before.",
            "Stop one of the two who put files together: beside safewrite maintain no compaction of deltalake may run. Restore the "
            "table to the version before, or write the rows once, by key, from that version. A table that was restored since is sound.",
            {"versions": dict(list(twice.items())[:EXAMPLES]), "count": len(twice)},
        )  # fmt: skip


def _table(found: Inspection) -> Findings:
    if found.state is None:
        return
    yield from _features(found, found.state)
    if (copy := iceberg_compat.copy_of(found.state)) and not features.unwritable(found.state):
        yield Finding(
            INFO, "iceberg_metadata_later", copy,
            "Let the engine that keeps the metadata run after writes of safewrite, or tell readers of Iceberg to wait for it.",
        )  # fmt: skip
    if not features.unwritable(found.state):
        try:
            features.check_retention(found.state, horizon_s=LEDGER_TTL_S, txn=True)
        except NotCommittedError as error:
            yield Finding(
                DANGER, "retention_too_short", error.message,
                "Set it to 'interval 30 days': safewrite repair TABLE --set-retention.",
            )  # fmt: skip
    text = found.state.properties.get("delta.deletedFileRetentionDuration", "interval 1 week")
    try:
        short = features.interval_s(text) < DAY_S
    except UnsafeConfigError as error:
        yield Finding(WARNING, "unreadable_interval", error.message, "Set it to 'interval 1 week'.")
        return
    if short:
        yield Finding(
            WARNING, "vacuum_too_soon",
            f"delta.deletedFileRetentionDuration is {text!r}: VACUUM may delete the files of a write that is still "
            "under way. safewrite notices and commits nothing; other writers commit dead paths.",
            "Set it to a day at least (the default is a week), with Spark: ALTER TABLE ... SET TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 1 week').",
        )  # fmt: skip


def _features(found: Inspection, state: Snapshot) -> Findings:
    """What safewrite may do with a table whose features it does not all honour, and who made it so."""
    unread, unwritten = features.unreadable(state), features.unwritable(state)
    reasons = {**unwritten, **unread}
    if not reasons:
        return
    maker = next((by for _, one in sorted(found.commits.items()) if (by := _engine(one))), None)
    does = "neither reads nor writes this table" if unread else "reads this table, and does not write to it"
    yield Finding(
        WARNING if unread else INFO, "unsupported_feature",
        f"safewrite {does}: {features.listed(reasons)}. The table itself is sound, as far as this tells. "
        f"Its maker: {maker or 'not known'}; its features: {', '.join(sorted(features.features(state)))}.",
        features.advice(reasons),
        {"reads": not unread, "writes": False, "appends": False, "maker": maker, "features": sorted(features.features(state))},
    )  # fmt: skip


def _engine(commit: Commit) -> str | None:
    info = commit.commit_info or {}
    by = info.get("engineInfo") or info.get("clientVersion")
    return by if isinstance(by, str) else None


# --- the store ---------------------------------------------------------------------------------------
def _lifecycle(found: Inspection) -> Findings:
    if found.s3 is None:
        return
    held = ObjectLedger(found.world.objects).path_of(MARK)
    newest = [actions.commit_path(found.head)] if found.head in found.listing.commits else []
    yield from lifecycle.examine(
        found.s3,
        found.address.bucket,
        found.address.prefix,
        lifecycle.DELTA,
        [*newest, held, *_some_file(found)],
    )


def _some_file(found: Inspection) -> list[str]:
    """The path of a data file in the table's folder, if a commit that was read names one."""
    for _, commit in sorted(found.commits.items(), reverse=True):
        for action in commit.adds():
            if ":" not in action["path"]:
                return [actions.file_key(action)[0]]
    return []


def _probe(found: Inspection) -> Findings:
    try:
        probe_objects(found.world.objects, found.world, ASKS)
        if found.lock_table is not None and found.entries_error is None:
            from safewrite.stores.dynamodb import DynamoDBLocks

            scratch = DynamoDBLocks(
                found.dynamodb, found.lock_table, f"safewrite:probe:{found.world.new_id()}"
            )
            probe_locks(scratch, found.world, ASKS, remove=scratch.remove)
    except NotCommittedError as error:
        danger = isinstance(error, UnsafeConfigError)
        yield Finding(
            DANGER if danger else WARNING, "dishonest_store" if danger else "probe_failed", error.message,
            "Move the table to a store that honours If-None-Match." if danger else "Check permissions and address.",
        )  # fmt: skip
