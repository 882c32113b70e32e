"""Removes commits and checkpoints that are older than a table keeps its log, as ``delta.logRetentionDuration`` says.

What time it is the newest commit tells, by the store's own clock, or this process's clock if that is earlier: no writer's clock decides, and
no single one.  All that stays can be read from the oldest checkpoint that stays: that is one of before the time, so that each version of since
then is there as it was.  The checkpoint that ``_last_checkpoint`` names stays too, also where whoever made a newer one was killed before it said so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress

from safewrite.delta.log import actions, segment
from safewrite.delta.log.checkpoint import is_same_log
from safewrite.delta.log.features import LOG_RETENTION_DEFAULT, interval_s
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.errors import StorageError
from safewrite.protocol.ask import Limits, wall_ms
from safewrite.protocol.effects import Delete, Effect, Get, List, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.values import Listed
from safewrite.stores.world import LEDGER_TTL_S

DAY_S = 24 * 3600
KEPT_S = LEDGER_TTL_S + DAY_S
"""Keys are in the log for as long as a write may be repeated, whatever the property says."""
AT_ONCE = 500
"""So many files are removed between two looks whether it is the table still."""
REMOVED_MAX = 5000
"""A run removes no more; the next one goes on."""
PROTECTED = "checkpointProtection"
"""The table feature by which a table forbids to remove what it has of before some version."""
_NAMED = re.compile(re.escape(actions.LOG) + r"(?:\d{20}\.)?(\d{20})(?:\.json|\.crc|\.compacted\.json)")


def keeps_all(state: Snapshot) -> bool:
    """Whether the table forbids a clean-up of its log."""
    cleans = state.properties.get("delta.enableExpiredLogCleanup", "true").strip().lower() != "false"
    return not cleans or PROTECTED in (state.protocol.get("writerFeatures") or ())


def kept_ms(state: Snapshot) -> int:
    """How long the log is kept.

    Raises:
        UnsafeConfigError: the property is no duration.
    """
    text = state.properties.get("delta.logRetentionDuration", LOG_RETENTION_DEFAULT)
    return int(max(interval_s(text, key="delta.logRetentionDuration"), KEPT_S) * 1000)


def expired(
    listed: Sequence[Listed], keep_ms: int, now_ms: int, hinted: float = math.inf
) -> tuple[int, list[Listed]]:
    """The version of the oldest checkpoint that stays, and the files of the log before it, the oldest first; none if nothing is to go.

    ``hinted`` is the version that readers are told to begin at.
    """
    found = segment.read(listed, whole=True)
    times = times_of(found)
    if not times:
        return 0, []
    aged = last_before(times, min(now_ms, max(times.values())) - keep_ms)
    bases = [
        one.version for one in found.checkpoints if one.version <= min(aged, hinted) and one.version in times
    ]
    base = max(bases, default=0)
    of = {one: _version_of(one.path) for one in listed}
    old = [(version, one.path, one) for one, version in of.items() if version is not None and version < base]
    return base, [one for _, _, one in sorted(old, key=lambda each: each[:2])]


def times_of(found: segment.LogSegment) -> dict[int, int]:
    """When each commit was stored, by the store's clock."""
    return {version: found.files[actions.commit_path(version)].modified_ms for version in found.commits}


def last_before(times: Mapping[int, int], at_ms: int) -> int:
    """The last version before a time, of commits with theirs by the store's clock; that before the first where all are younger."""
    last = min(times, default=0) - 1
    for version in sorted(times):  # in a log that was copied times are in no order
        if times[version] >= at_ms:
            break
        last = version
    return last


def _version_of(path: str) -> int | None:
    """The last version that a file of the log is of; None of one that stays: hints, sidecars and checkpoints that have some."""
    part = actions.checkpoint_part_of(path)
    if part is not None:
        return part[0]
    match = _NAMED.fullmatch(path)
    return int(match[1]) if match else None


def clean(
    state: Snapshot, limits: Limits, *, dry_run: bool = False
) -> Generator[Effect, Outcome, dict[str, int]]:
    """Remove what is older than the table keeps; how many commits and checkpoints went, or would go.

    Raises:
        UnsafeConfigError: the property is no duration.
        StorageError: the store gave no answer.
    """
    if keeps_all(state) or state.anchor is None or not state.anchor.digest:
        return {}
    keep_ms = kept_ms(state)
    first = yield from _listed(limits, AT_ONCE)
    if not first or not (yield from _may_be_old(state, first, keep_ms, limits)):
        return {}
    listed, now_ms = (yield from _listed(limits)), (yield from wall_ms())
    base, old = expired(listed, keep_ms, now_ms, (yield from _hinted(limits)))
    if not old or not (yield from _stands(base, limits)):
        return {}
    removed = old if dry_run else (yield from _removed(state, old[:REMOVED_MAX], limits))
    commits = sum(actions.version_of(one.path) is not None for one in removed)
    checkpoints = {actions.checkpoint_version_of(one.path) for one in removed} - {None}
    return {"commits": commits, "checkpoints": len(checkpoints)}


def _listed(limits: Limits, most: int = 0) -> Generator[Effect, Outcome, Sequence[Listed]]:
    effect = List(actions.LOG, start_after=segment.FROM_START, limit=most, name="clean.list")
    answer = yield from fetch_one(effect, limits)
    value = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(value, tuple)
    return value


def _hinted(limits: Limits) -> Generator[Effect, Outcome, float]:
    """The version that ``_last_checkpoint`` names; where nobody is told one, all look at the whole log."""
    answer = yield from fetch_one(Get(actions.LAST_CHECKPOINT, name="clean.get_hint"), limits)
    hint = segment.hint(answer.value) if isinstance(answer, Ok) and isinstance(answer.value, bytes) else None
    return math.inf if hint is None else hint.version


def _may_be_old(
    state: Snapshot, first: Sequence[Listed], keep_ms: int, limits: Limits
) -> Generator[Effect, Outcome, bool]:
    """Whether the first files of the log may be older than it is kept; two requests tell of most logs that they are not."""
    newest = List(
        actions.LOG, start_after=f"{actions.LOG}{state.version:020d}", limit=AT_ONCE, name="clean.list_newest"
    )
    answer = yield from fetch_one(newest, limits)
    last = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(last, tuple)
    now_ms = max((one.modified_ms for one in last), default=0)
    return min(one.modified_ms for one in first) < now_ms - keep_ms


def _stands(base: int, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Whether the table can be read from the checkpoint that would be its first."""
    with suppress(StorageError):
        found = yield from load(at=base, limits=limits)
        return found is not None and found.checkpoint is not None and found.checkpoint.version == base
    return False


def _removed(
    state: Snapshot, old: Sequence[Listed], limits: Limits
) -> Generator[Effect, Outcome, list[Listed]]:
    """Remove files, the oldest first, while the table is the one that was read (A17): another one's log has the same names."""
    done: list[Listed] = []
    for start in range(0, len(old), AT_ONCE):
        if not (yield from is_same_log(state, limits)):
            break
        some = old[start : start + AT_ONCE]
        answer = yield Together(
            tuple(Delete(one.path, name="clean.delete") for one in some), name="clean.delete"
        )
        answers = answer.value if isinstance(answer, Ok) else ()
        assert isinstance(answers, tuple)
        done += [one for one, told in zip(some, answers, strict=False) if isinstance(told, Ok)]
        if len(answers) < len(some) or not all(isinstance(told, Ok) for told in answers):
            break
    return done
