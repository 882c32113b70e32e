"""Remembers how long commits take, so that none is begun that would not end in time."""

from __future__ import annotations

from collections import deque

KEPT = 100
FLOOR_S, MARGIN_S = 0.5, 0.2


class Deadline:
    """How long the last commits of a table took, in seconds of one process."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=KEPT)

    def note(self, took_s: float, attempts: int) -> None:
        """Note a commit; one that needed many attempts counts as that many."""
        self._took_s.append(took_s / max(attempts, 1))

    def reserve_s(self, timeout_s: float) -> float:
        """How much of a call's time must be left when a commit is begun; never more than half of it.

        That is the slowest of the last commits (their 99th percentile, as 100 are kept) and a margin.
        """
        slowest_s = max(self._took_s, default=0.0)
        return min(max(slowest_s, FLOOR_S) + MARGIN_S, timeout_s / 2)
