"""Spreads the attempts of writers that contend for one table."""

from __future__ import annotations

from safewrite.protocol.effects import Backoff


def spread(attempts: int, rivals: int, lost_s: float, name: str) -> Backoff:
    """Wait so long that about one writer tries at a time: as long as a lost attempt took, for each rival.

    ``rivals`` is the number of commits that landed since the attempt before; where none is in sight yet, the
    number of lost attempts tells how many there are.
    """
    return Backoff(attempts, lost_s * (1 + max(rivals, attempts)), name=name)
