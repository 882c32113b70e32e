"""What writers that contend for one table do: they break off what others overtook, and spread their attempts."""

from __future__ import annotations

import math

from safewrite.protocol.effects import Backoff

WAIT_S_MAX = 10.0
"""No pause is longer, however many rivals there are."""


class BaseMovedError(Exception):
    """The table is not what a plan was bound to any more: it goes on from what the table is now.

    ``is_try``: much was done for it already, so that the plan has lost a try.
    """

    def __init__(self, *, is_try: bool = False) -> None:
        super().__init__()
        self.is_try = is_try


def spread(
    attempts: int, rivals: int, lost_s: float, name: str, *, rebases: bool, left_s: float = math.inf
) -> Backoff:
    """Wait so long that about one writer tries at a time: as long as a lost attempt took, for each rival.

    ``rivals`` is the number of commits that landed since the attempt before; where none is in sight yet, the
    number of lost attempts tells how many there are.  ``left_s`` is the time that the write has left.

    A plan that ``rebases`` does not wait after its first loss.  The rival that made it lose has just committed: one that commits again
    and again is overtaken before its next commit, and would make the plan lose again after a pause.
    """
    if rebases and attempts == 1:
        return Backoff(attempts, 0.0, name=name)
    ceiling_s = min(lost_s * (1 + max(rivals, attempts)), WAIT_S_MAX, max(left_s, 0.0))
    return Backoff(attempts, ceiling_s, name=name)
