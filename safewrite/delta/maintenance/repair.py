"""Repairs a table: finishes claims, commits vanished versions again, deletes old temp files.

Each part decides from an inspection what to do, and does it by the ordinary commit protocol.  So it may run
while others write, twice, or on several machines at once.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from safewrite.delta.log import actions, features
from safewrite.delta.log.actions import Action, Commit
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.delta.log.stamps import ROW_IDS
from safewrite.delta.maintenance import vanished
from safewrite.delta.maintenance.inspection import (
    ASKS,
    Inspection,
    now_ms,
    same_place,
)
from safewrite.delta.maintenance.vanished import CommitStatus, Lost
from safewrite.delta.write.abc import Write
from safewrite.delta.write.staging import StagedFile
from safewrite.delta.write.transaction import Transaction
from safewrite.errors import ConflictError, InvalidInputError, NotCommittedError
from safewrite.findings import Step, Steps
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta import claim
from safewrite.protocol.delta.commit import Arbiter, commit
from safewrite.protocol.effects import GetTail, Ok
from safewrite.protocol.staging import Mark
from safewrite.protocol.values import Entry, Tail
from safewrite.stores.world import World, run

DAY_MS = 24 * 3600 * 1000
SWEEP_DAYS_MIN = 1
TAIL_BYTES = 64 * 1024
BATCH = 256
SWEPT = frozenset(
    {
        CommitStatus.LANDED,
        CommitStatus.REPLAYED,
        CommitStatus.REFUSED,
        CommitStatus.STALE,
        CommitStatus.EXPIRED,
    }
)
"""Commit statuses whose temp file nobody can need: it holds no acknowledged row that is not in the log."""


# --- finish -----------------------------------------------------------------------------------------
def finish(found: Inspection, world: World, *, dry_run: bool = False) -> Steps:
    """Bring every incomplete entry of this table to its end, oldest first (A5 to A8)."""
    for entry in sorted(found.entries, key=found.version):
        if entry.settled:
            continue
        if found.stale(entry):
            yield Step("finish", entry.file_name, "skipped", "of a dropped table: safewrite locks clear")
        elif dry_run:
            yield Step("finish", entry.file_name, "would", version=found.version(entry))
        else:
            yield _finish(found, world, entry)


def _finish(found: Inspection, world: World, entry: Entry) -> Step:
    try:
        run(claim.finish(entry, ASKS), world)
    except NotCommittedError as error:
        return Step("finish", entry.file_name, "failed", error.message)
    return Step("finish", entry.file_name, "done", version=found.version(entry))


# --- rescue -----------------------------------------------------------------------------------------
@dataclass
class RescueCandidate(Transaction):
    """A blind append of another engine, to be committed again: its own files, and its stream's ``txn``."""

    carried: tuple[Action, ...] = ()

    def file_actions(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """``txn`` and ``add`` actions as the vanished commit had them; ids of rows are given again."""
        new, there = super().file_actions()
        return [*({"txn": txn} for txn in self.carried), *new], there

    def check_conflict(self, version: int, commit: Commit) -> None:
        """Check as for any append; besides, nobody else may have brought the rows back meanwhile."""
        super().check_conflict(version, commit)
        ours = {file.mark.path for file in self.files}
        batches = {(txn["appId"], txn["version"]) for txn in self.carried}
        if any(actions.file_key(action)[0] in ours for action in commit.adds()) or any(
            (txn["appId"], txn["version"]) in batches for txn in commit.txns
        ):
            raise ConflictError(
                f"Version {version} has brought these rows back meanwhile. Nothing was committed; nothing is left to do."
            )


def rescue(
    found: Inspection,
    world: World,
    *,
    arbiter: Arbiter,
    limits: Limits,
    leave: Collection[str] = (),
    engine_version: str = "",
    dry_run: bool = False,
) -> Steps:
    """Recommit, once, the blind appends that were acknowledged and vanished (A12).

    The key of each is derived from its temp file, so any number of rescues commits it once.  ``leave`` holds
    temp paths of entries that were open a moment ago.  A repair has closed them since, which does not tell
    whether their writer lived to acknowledge.
    """
    entries = {actions.LOG + entry.temp_path for entry in found.entries}
    attempts = found.attempts([item for item in found.temps if item.path in entries])
    gone = [one for one in vanished.judge(found, attempts) if one.fate is CommitStatus.VANISHED]
    for one in sorted(gone, key=lambda one: one.attempt.version):
        target = one.attempt.temp_path
        assert one.attempt.entry is not None
        why = _not_blind(one.commit) or _moved_on(found, world, one)
        if one.attempt.entry.temp_path in leave:
            why = (
                "its entry was open until now: if its writer says that it succeeded, ask for the rescue again"
            )
        files = () if why else staged_in_place(world, one.commit.adds())
        if isinstance(files, str):
            why, files = files, ()
        if why:
            yield Step("rescue", target, "skipped", why, rows=one.rows)
        elif dry_run:
            yield Step("rescue", target, "would", rows=sum(file.rows for file in files))
        else:
            candidate = _candidate(found, one, files, limits=limits, commit_id=world.new_id())
            candidate.engine_version = engine_version
            yield _rescue(candidate, world, arbiter, one)


def _not_blind(commit: Commit) -> str | None:
    """Why a commit is more than an append of files, or None."""
    info = commit.commit_info or {}
    mode = str((info.get("operationParameters") or {}).get("mode", "Append")).strip('"').lower()
    names = {name for action in commit.actions for name in action if action.get(name) is not None}
    more = names - {"commitInfo", "add", "txn"}
    if {one["domain"] for one in commit.domain_metadata} == {ROW_IDS}:
        more -= {"domainMetadata"}
    if more:
        return f"it holds {', '.join(sorted(more))} actions: run the operation again"
    if info.get("isBlindAppend") is False or mode != "append":
        return "it read the table before it wrote: run the operation again"
    if not commit.adds():
        return "it adds no files"
    if any(add.get("deletionVector") or add.get("dataChange") is False for add in commit.adds()):
        return "it rewrites files: run the operation again"
    return None


def _moved_on(found: Inspection, world: World, one: Lost) -> str | None:
    """Why the table as it is now cannot take the commit, or None."""
    if found.state is None:
        return "the table's log cannot be read"
    try:
        features.check_append(found.state)
        before = run(load(at=one.attempt.version - 1, limits=ASKS), world)
    except NotCommittedError as error:
        return error.message
    if before is None or _shape(before) != _shape(found.state):
        return "the table's schema, partitioning or protocol has changed since: run the write again"
    return None


def _shape(state: Snapshot) -> tuple[object, ...]:
    return state.table_id, state.schema_string, state.partition_by, state.protocol


def staged_in_place(world: World, adds: Iterable[Action]) -> tuple[StagedFile, ...] | str:
    """The files that a commit is to add, as they lie in the store, or what is wrong with one of them."""
    staged = []
    for action in adds:
        path = actions.file_key(action)[0]
        file = _staged(world, path, action)
        if file is None:
            return f"its data file {path} is gone, or not whole: write the rows again from their source"
        staged.append(file)
    return tuple(staged)


def _staged(world: World, path: str, action: Mapping[str, Any]) -> StagedFile | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail = _tail(world, path, TAIL_BYTES)
    if tail is None or tail.size != action["size"] or tail.data[-4:] != b"PAR1":
        return None
    footer_bytes = int.from_bytes(tail.data[-8:-4], "little") + 8
    if footer_bytes > len(tail.data):
        tail = _tail(world, path, footer_bytes)
        if tail is None or len(tail.data) < footer_bytes:
            return None
    try:
        rows = pq.read_metadata(io.BytesIO(b"PAR1" + tail.data[-footer_bytes:])).num_rows
    except (pa.ArrowInvalid, OSError):
        return None
    end = tail.data[-min(footer_bytes, TAIL_BYTES) :]
    return StagedFile(Mark.of(path, tail.size, end), int(rows), {"add": dict(action)})


def _tail(world: World, path: str, length: int) -> Tail | None:
    answer = world.perform(GetTail(path, length, name="rescue.check_data"))
    return answer.value if isinstance(answer, Ok) and isinstance(answer.value, Tail) else None


def _rescue(candidate: RescueCandidate, world: World, arbiter: Arbiter, one: Lost) -> Step:
    target, rows = one.attempt.temp_path, candidate.write.rows
    try:
        # Any earlier rescue stands after the vanished version: each commit since is searched for the key.
        landed = run(commit(candidate, one.attempt.version, arbiter=arbiter, limits=candidate.limits), world)
    except NotCommittedError as error:
        return Step("rescue", target, "failed", error.message, rows=rows)
    detail = "by an earlier rescue" if landed.already else f"key {candidate.write.key}"
    return Step("rescue", target, "done", detail, version=landed.version, rows=rows)


def _candidate(
    found: Inspection, one: Lost, files: tuple[StagedFile, ...], *, limits: Limits, commit_id: str
) -> RescueCandidate:
    state = found.state
    assert state is not None
    rows = sum(file.rows for file in files)
    digest = hashlib.sha256(f"{state.table_id}/{one.attempt.temp_path}".encode()).hexdigest()[:32]
    write = Write(
        f"rescue:{one.attempt.version}:{digest}",
        f"v1:{rows}:{digest}",
        rows,
        len(files),
        fingerprint_int63=int(digest[:15], 16),
    )
    return RescueCandidate(
        commit_id=commit_id,
        write=write,
        timestamp_ms=now_ms(found),
        limits=limits,
        state=state,
        files=files,
        carried=tuple(t for t in one.commit.txns if state.txns.get(t["appId"], -1) < t["version"]),
    )


# --- sweep ------------------------------------------------------------------------------------------
def sweep(found: Inspection, world: World, *, older_than_days: float = 7, dry_run: bool = False) -> Steps:
    """Remove temp files that no entry names and that are older by the store's own times.

    A temp file with another engine's rows that are nowhere in the log stays: it may be the only trace of an
    acknowledged commit.

    Raises:
        InvalidInputError: less than a day; a slow writer may still claim its temp file.
    """
    if not older_than_days >= SWEEP_DAYS_MIN:  # NaN too
        raise InvalidInputError(
            f"Temp files must be {SWEEP_DAYS_MIN} day old at least to be swept, not {older_than_days:g}: a slow writer "
            "may still need younger ones. Nothing was removed."
        )
    if found.temps and (found.lock_table is None or found.entries_error is not None):
        raise InvalidInputError(
            f"The lock table was not read ({found.entries_error or 'none was named'}), so it is not known which temp "
            "files are needed. Nothing was removed. Give --lock-table, or run `safewrite doctor` on the table."
        )
    before_ms = now_ms(found) - older_than_days * DAY_MS
    named = {actions.LOG + entry.temp_path for entry in found.entries}
    old = [item for item in found.temps if item.path not in named and item.modified_ms < before_ms]
    for start in range(0, len(old), BATCH):
        for one in vanished.judge(found, found.attempts(old[start : start + BATCH])):
            path = one.attempt.temp_path
            if one.fate not in SWEPT:
                yield Step("sweep", path, "skipped", f"kept: {one.fate}", version=one.attempt.version)
            elif dry_run:
                yield Step("sweep", path, "would", str(one.fate), version=one.attempt.version)
            else:
                removed = isinstance(world.objects.delete(path), Ok)
                yield Step("sweep", path, "done" if removed else "failed", str(one.fate), one.attempt.version)


# --- entries of a dropped table -----------------------------------------------------------------------
def clear(found: Inspection, *, force: bool = False, dry_run: bool = False) -> Steps:
    """Remove entries that a dropped table left in the lock table (A17).

    An entry whose version the log holds stays.  So does the next version's, which may be a writer's at work,
    unless ``force`` is given and its temp file is gone, so that nobody can finish it.
    """
    head = max(found.head, found.head_later)
    for entry in sorted(found.entries, key=found.version):
        version = found.version(entry)
        unfinishable = not entry.settled and actions.LOG + entry.temp_path not in found.listed
        if version <= head:
            if found.stale(entry):
                yield Step("clear", entry.file_name, "skipped", "the log holds this version", version=version)
        elif not found.stale(entry) and not (force and unfinishable):
            detail = (
                "it may be a writer at work: safewrite repair" if not unfinishable else "--force removes it"
            )
            yield Step("clear", entry.file_name, "skipped", detail, version=version)
        elif dry_run:
            yield Step("clear", entry.file_name, "would", version=version)
        else:
            found.locks.remove(entry)
            yield Step("clear", entry.file_name, "done", version=version)


def clear_spelling(found: Inspection, spelling: str, *, dry_run: bool = False) -> Steps:
    """Remove finished entries that stopped writers left under another spelling of the path (A15).

    An open entry stays: its commit may be nowhere else.

    Raises:
        InvalidInputError: not another spelling of this table's path.
    """
    from safewrite.stores.dynamodb import DynamoDBLocks

    ours: str = found.locks.table_path
    if spelling == ours or not same_place(spelling, ours):
        raise InvalidInputError(
            f"{spelling!r} is not another spelling of {ours}. Nothing was removed. `safewrite doctor` names those in use."
        )
    theirs = DynamoDBLocks(found.dynamodb, found.locks.table_name, spelling)
    for entry in theirs.entries():
        target = f"{spelling} {entry.file_name}"
        if not entry.settled:
            yield Step(
                "clear",
                target,
                "skipped",
                "it is not finished; let its writer finish it",
                found.version(entry),
            )
        elif dry_run:
            yield Step("clear", target, "would", version=found.version(entry))
        else:
            theirs.remove(entry)
            yield Step("clear", target, "done", version=found.version(entry))
