"""Refuses to go on from positions of sources whose rows a RESTORE took out of the table."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from safewrite.delta.log import actions
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.features import check_txns_stay
from safewrite.delta.log.restore import Restore, restore_of, undone_by
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.conflicts import moved_in, positions_of
from safewrite.errors import ConflictError, Kind
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Ok, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.protocol.positions import Moves, must_stand
from safewrite.text.rendering import shown

LOOK_BACK = 1000
"""At most this many commits before those that a snapshot was read from are searched for a RESTORE."""


def check_stand(state: Snapshot | None, moves: Moves, key: str) -> None:
    """Refuse to move positions that are elsewhere in a version, or that the table may forget."""
    if moves:
        if state is not None:
            check_txns_stay(state, "how far sources were taken, and their rows could come twice")
        must_stand(positions_of(state), moves, key)


def check_in_effect(
    state: Snapshot | None, moves: Moves, rows: int, key: str, limits: Limits
) -> Generator[Effect, Outcome, None]:
    """Refuse to move positions that were reached after the version that a later RESTORE brought back (I13).

    The commits between the one that moved a position and those that the snapshot was read from are read, for a checkpoint
    does not tell of a RESTORE.  A commit without rows that moves a position nowhere or back declares it, and may follow.

    Raises:
        ConflictError: kind POSITION_MOVED.
    """
    left = _to_check(state, moves, rows)
    if state is None or not left:
        return
    first = min(moved_in(state, name) for name in left) + 1
    earlier = yield from _restores(max(first, state.read_from - LOOK_BACK), state.read_from, limits)
    _refuse_undone(state, left, (*earlier, *state.restores), key)


def check_rival(state: Snapshot | None, moves: Moves, rows: int, key: str, commit: Commit) -> None:
    """Refuse to follow a commit that landed first, if it is such a RESTORE."""
    restored = restore_of(commit)
    if restored is not None and state is not None:
        _refuse_undone(state, _to_check(state, moves, rows), (*state.restores, restored), key)


def _to_check(state: Snapshot | None, moves: Moves, rows: int) -> list[str]:
    """The names of positions that the table has, and that this commit does not declare."""
    known = positions_of(state)
    return [
        name
        for name, move in moves.items()
        if name in known and (rows or move.start is None or move.end > move.start)
    ]


def _refuse_undone(state: Snapshot, names: Sequence[str], restores: Sequence[Restore], key: str) -> None:
    """Raise for the first position whose last move is not in effect."""
    for name in names:
        landed = moved_in(state, name)
        undone = undone_by(landed, restores)
        if undone is not None:
            raise _undone(name, landed, positions_of(state)[name], undone, key)


def _restores(first: int, end: int, limits: Limits) -> Generator[Effect, Outcome, list[Restore]]:
    """The RESTOREs among the commits from ``first`` to before ``end``; those that were cleaned up are passed over."""
    versions = range(first, end)
    gets = [Get(actions.commit_path(version), name="state.get_commit") for version in versions]
    answers = (yield from fetch(gets, limits, name="state.get_commits")) if gets else ()
    found = []
    for version, answer in zip(versions, answers, strict=True):
        if isinstance(answer, Ok):
            assert isinstance(answer.value, bytes)
            restored = restore_of(actions.parse(answer.value, version))
            if restored is not None:
                found.append(restored)
    return found


def _undone(name: str, landed: int, position: int, restore: Restore, key: str) -> ConflictError:
    to = f"to version {restore.target}" if restore.target >= 0 else "to an earlier version"
    return ConflictError(
        f"Version {restore.version} restored the table {to}, and its position {position} of {shown(name)} was reached in version "
        f"{landed}: the rows up to there may have gone, and to go on would pass over them. Nothing was committed. Find out how "
        f"far the table holds that source, and declare it by a commit of no rows: append(nothing, positions={{{name!r}: "
        f"({position}, N)}}), N at most {position}; then go on from N, with batches that were committed before under new keys.",
        kind=Kind.POSITION_MOVED,
        key=key,
    )
