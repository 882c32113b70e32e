"""Writes checkpoints in the classic V1 form: one Parquet file (PROTOCOL.md, "Checkpoint Schema").

Checkpoints never stand in the way of commits.  They are created under a condition, so that no checkpoint is
ever replaced or mixed of two (B2); ``_last_checkpoint`` is a hint only (B3).
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TYPE_CHECKING

from safewrite.delta.log import actions, segment
from safewrite.delta.log.features import check_append
from safewrite.delta.log.replay import read_log
from safewrite.delta.log.segment import Checkpoint
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol.ask import Limits, Patience, ask, unanswered, wall_ms
from safewrite.protocol.delta.catch_up import digest_of, replaced
from safewrite.protocol.effects import (
    Backoff,
    Delete,
    Effect,
    Exists,
    Failed,
    Get,
    Ok,
    Outcome,
    Put,
    PutIfAbsent,
    Unknown,
)
from safewrite.protocol.fetch import fetch_one

if TYPE_CHECKING:
    from safewrite.delta.log.checkpoint_file import Encoded

INTERVAL_DEFAULT = 10
BEHIND = 2
"""After this many intervals without a checkpoint, writers between two due versions make one."""
LEAST_S, BYTES_PER_S = 0.1, 5e6
"""Seconds that a checkpoint takes: at least, and for each byte of the one before (measured on two busy cores)."""
SHARE, LONGEST_S = 0.1, 5.0
"""The share of a caller's time left that a checkpoint may take, and the most seconds."""


def due(state: Snapshot, version: int) -> bool:
    """Whether a checkpoint is due at ``version``: at each multiple of ``delta.checkpointInterval``.

    Each version has one writer, so each checkpoint has one natural maintainer.  Where its maintainer had no
    time for it, it is due between two multiples as well.
    """
    interval = _interval(state)
    if version <= 0 or version % interval == 0:
        return version > 0
    return version % interval == interval // 2 and is_behind(state, version)


def is_behind(state: Snapshot, version: int) -> bool:
    """Whether more than ``BEHIND`` intervals went by without a checkpoint."""
    newest = state.checkpoint.version if state.checkpoint is not None else 0
    return version - newest > BEHIND * _interval(state)


def is_affordable(state: Snapshot, left_s: float | None) -> bool:
    """Whether a checkpoint takes seconds at most, and a tenth of ``left_s`` where a caller waits who has that left.

    The size of the checkpoint before gives a guess of how long it takes.
    """
    size = state.checkpoint.size if state.checkpoint is not None else 0
    most_s = LONGEST_S if left_s is None else min(LONGEST_S, left_s * SHARE)
    return LEAST_S + size / BYTES_PER_S <= most_s


def _interval(state: Snapshot) -> int:
    text = state.properties.get("delta.checkpointInterval", "")
    return int(text) if text.isdecimal() and int(text) > 0 else INTERVAL_DEFAULT


def write_checkpoint(
    state: Snapshot, *, limits: Limits | None = None
) -> Generator[Effect, Outcome, Checkpoint | None]:
    """Write the checkpoint of ``state.version`` from the one before it and the commits since.

    Returns None if there is one already.

    Raises:
        StorageError: the store failed; no checkpoint, or a whole one, is there.
        ConflictError: kind TABLE_REPLACED; the log is another one by now, or gone, and has no checkpoint of ours.
        UnsupportedTableError: the table's features forbid writing.
    """
    from safewrite.delta.log import checkpoint_file

    limits = limits or Limits()
    check_append(state)
    if state.checkpoint is not None and state.checkpoint.version >= state.version:
        return None
    found = yield from read_log(state, limits=limits)
    made = checkpoint_file.encoded(found, (yield from wall_ms()))
    if not (yield from is_same_log(state, limits)):
        raise replaced(state.version)
    paths = actions.checkpoint_paths(state.version)
    if not (yield from _create(paths[0], made.body, limits)):
        return None
    if not (
        yield from is_same_log(state, limits)
    ):  # it went meanwhile: this file alone would pass for a table
        yield from fetch_one(Delete(paths[0], name="checkpoint.delete"), limits)
        raise replaced(state.version)
    yield from _point_at(state.version, made, limits)
    return Checkpoint(state.version, paths, len(made.body))


def is_same_log(state: Snapshot, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Whether the version is still the one that was read (A17): time may have passed, and in another log ours would hide its rows."""
    anchor = state.anchor
    if anchor is None or not anchor.digest:
        return True
    answer = yield from fetch_one(Get(anchor.path, name="checkpoint.get_anchor"), limits)
    return isinstance(answer, Ok) and digest_of(answer.value) == anchor.digest


def _create(path: str, body: bytes, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """True if the checkpoint is ours; False if another stands there, which is then left alone."""
    in_doubt = False
    put = PutIfAbsent(path, body, name="checkpoint.put")
    patience = Patience(limits)
    while True:
        outcome = yield put
        if isinstance(outcome, Ok):
            return True
        if isinstance(outcome, Exists):
            return in_doubt
        if isinstance(outcome, Failed):
            break
        in_doubt = in_doubt or isinstance(outcome, Unknown)
        if not (yield from patience.again(outcome)):
            break
        yield Backoff(patience.tries, name="checkpoint.put.backoff")
    raise unanswered(put, outcome)


def _point_at(version: int, made: Encoded, limits: Limits) -> Generator[Effect, Outcome, None]:
    """Move ``_last_checkpoint`` forward, never back."""
    answer = yield from fetch_one(Get(actions.LAST_CHECKPOINT, name="checkpoint.get_hint"), limits)
    before = (
        segment.hint(answer.value) if isinstance(answer, Ok) and isinstance(answer.value, bytes) else None
    )
    if before is not None and before.version >= version:
        return
    hint = {
        "version": version,
        "size": made.rows,
        "sizeInBytes": len(made.body),
        "numOfAddFiles": made.adds,
    }
    put = Put(
        actions.LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode(), name="checkpoint.put_hint"
    )
    outcome = yield from ask(put, limits)
    if not isinstance(outcome, Ok):
        raise unanswered(put, outcome)
