"""How a protocol asks again: bounded repeats of effects that may be asked twice."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from safewrite.errors import StorageError
from safewrite.protocol.effects import Backoff, Busy, Effect, Failed, Outcome, Unknown


@dataclass(frozen=True)
class Limits:
    """How patient a write is; none of these decides what is true, only when to give up asking.

    ``attempts`` counts tries at a version number, ``asks`` repeats of one request of which the
    answer was lost or refused for now, ``timeout_s`` the whole commit, ``lease_s`` how long an
    unmoving queue is watched before its holder is passed over, ``recheck_s`` how old the check of
    the data files may be at a commit.
    """

    attempts: int = 200
    asks: int = 12
    timeout_s: float = 300.0
    lease_s: float = 3.0
    recheck_s: float = 60.0


def ask(effect: Effect, limits: Limits) -> Generator[Effect, Outcome, Outcome]:
    """Ask until the answer is clear.

    Only for reads and for writes that may be performed twice (unique names, idempotent updates).
    Returns the last answer; ``Busy`` or ``Unknown`` only after ``limits.asks`` tries.
    """
    outcome: Outcome = Unknown("never asked")
    for attempt in range(1, limits.asks + 1):
        outcome = yield effect
        if not isinstance(outcome, Busy | Unknown):
            return outcome
        if attempt < limits.asks:
            yield Backoff(attempt, name=f"{effect.name}.backoff")
    return outcome


def unanswered(effect: Effect, outcome: Outcome) -> StorageError:
    """The error for an effect that got no usable answer while nothing could have been committed."""
    detail = getattr(outcome, "detail", "") or type(outcome).__name__
    hint = (
        "check permissions and the address"
        if isinstance(outcome, Failed)
        else "this often passes: call again with the same key"
    )
    return StorageError(
        f"The store did not answer {effect.name or type(effect).__name__!r}: {detail}. "
        f"Nothing was committed by this call; {hint}."
    )
