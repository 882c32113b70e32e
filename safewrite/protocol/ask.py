"""Repeats effects that may be asked twice, within limits, until the answer is clear."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

from safewrite.errors import NotCommittedError, StorageError, UnsupportedTableError
from safewrite.protocol.effects import (
    Backoff,
    Busy,
    Effect,
    Failed,
    Now,
    Ok,
    Outcome,
    Together,
    Unknown,
    WallClock,
)

THROTTLED_ASKS_MAX = 2_000
"""How often a request is asked that is refused for now, whatever time is left."""


@dataclass(frozen=True)
class Limits:
    """Limits the patience of a write: they decide when to give up asking, never what is true.

    ``attempts`` counts tries at a version number.  ``asks`` counts repeats of one request whose answer was
    lost or refused for now; a throttled one is repeated for as long as ``timeout_s`` and ``until_s`` allow.
    ``timeout_s`` limits the whole commit.  ``lease_s`` is how long an unmoving
    queue is watched before its holder is passed over.  ``recheck_s`` is how old the check of the data files
    may be at a commit.  ``until_s`` is the monotonic time after which no attempt is begun.  Before the next try
    after one that took ``long_s`` others are asked to wait (``held_version``).
    """

    attempts: int = 200
    asks: int = 10
    timeout_s: float = 300.0
    lease_s: float = 3.0
    recheck_s: float = 60.0
    until_s: float = math.inf
    long_s: float = 0.5

    def elsewhere(self) -> Limits:
        """These limits for another machine, whose monotonic time began at another moment."""
        return replace(self, until_s=math.inf)


@dataclass
class Patience:
    """Counts the tries of one request, and says after each whether another is worth it."""

    limits: Limits
    tries: int = 0
    until_s: float = math.inf

    def again(self, *outcomes: Outcome) -> Generator[Effect, Outcome, bool]:
        """Whether to ask again after these outcomes of a try.

        ``limits.asks`` bounds the tries.  A store that throttles is up and says that the request was refused for now, so
        it is asked until the write's time is used up (Amazon S3 User Guide, "Best practices design patterns":
        503 SlowDown lasts while a prefix scales, which takes minutes).
        """
        self.tries += 1
        unclear = [outcome for outcome in outcomes if isinstance(outcome, Busy | Unknown)]
        if any(one.asks_max is not None and self.tries >= one.asks_max for one in unclear):
            return False
        if self.tries < self.limits.asks:
            return True
        if not any(one.throttled for one in unclear) or self.tries >= THROTTLED_ASKS_MAX:
            return False
        answer = yield Now()
        assert isinstance(answer, Ok)
        assert isinstance(answer.value, float)
        if self.tries == self.limits.asks:
            self.until_s = min(answer.value + self.limits.timeout_s, self.limits.until_s)
        return answer.value < self.until_s


def ask(effect: Effect, limits: Limits) -> Generator[Effect, Outcome, Outcome]:
    """Ask until the answer is clear.

    Only for reads and for writes that may be performed twice (unique names, idempotent updates).
    Returns the last answer.  It is ``Busy`` or ``Unknown`` only after as many tries as :class:`Patience` allows, or
    where no other answer can come.
    """
    patience = Patience(limits)
    outcome: Outcome = Unknown("never asked")
    while limits.asks:
        outcome = yield effect
        if not isinstance(outcome, Busy | Unknown) or not (yield from patience.again(outcome)):
            return outcome
        yield Backoff(patience.tries, name=f"{effect.name}.backoff")
    return outcome


def wall_ms() -> Generator[Effect, Outcome, int]:
    """What time this process's clock shows, in epoch milliseconds."""
    answer = yield WallClock()
    assert isinstance(answer, Ok)
    assert isinstance(answer.value, int)
    return answer.value


def overdue(limits: Limits, started_s: float) -> Generator[Effect, Outcome, bool]:
    """Whether a write that began at ``started_s`` has used up its time."""
    answer = yield Now()
    assert isinstance(answer, Ok)
    assert isinstance(answer.value, float)
    return answer.value - started_s > limits.timeout_s or answer.value > limits.until_s


def side_by_side(
    *steps: Generator[Effect, Outcome, object],
) -> Generator[Effect, Outcome, tuple[object, ...]]:
    """Run independent generators in step, and ask for each round's effects together.

    Returns their results in order; if one raises, the others are closed where they stand.
    """
    results: dict[int, object] = {}
    asking: dict[int, Effect] = {}
    for number, generator in enumerate(steps):
        try:
            asking[number] = next(generator)
        except StopIteration as end:
            results[number] = end.value
    while asking:
        if len(asking) == 1:
            answers: tuple[Outcome, ...] = ((yield next(iter(asking.values()))),)
        else:
            flat = [e.effects if isinstance(e, Together) else (e,) for e in asking.values()]
            joined = yield Together(tuple(effect for part in flat for effect in part), name="together")
            answers = _unflatten(asking, flat, joined)
        for number, answer in zip(list(asking), answers, strict=True):
            try:
                asking[number] = steps[number].send(answer)
            except StopIteration as end:
                results[number] = end.value
                del asking[number]
    return tuple(results[number] for number in range(len(steps)))


def _unflatten(
    asking: dict[int, Effect], flat: list[tuple[Effect, ...]], joined: Outcome
) -> tuple[Outcome, ...]:
    """Deal the answers of one round back to the generators that asked."""
    assert isinstance(joined, Ok)
    assert isinstance(joined.value, tuple)
    pending = iter(joined.value)
    dealt: list[Outcome] = []
    for effect, part in zip(asking.values(), flat, strict=True):
        own = tuple(next(pending) for _ in part)
        dealt.append(Ok(own) if isinstance(effect, Together) else own[0])
    return tuple(dealt)


def unanswered(effect: Effect, outcome: Outcome) -> NotCommittedError:
    """The error for an effect that got no usable answer while nothing could have been committed."""
    if isinstance(outcome, Failed) and outcome.unsupported:
        return UnsupportedTableError(outcome.detail)
    detail = getattr(outcome, "detail", "") or type(outcome).__name__
    advice = getattr(outcome, "advice", "") or (
        "Check permissions and the address."
        if isinstance(outcome, Failed)
        else "This often passes: call again with the same key."
    )
    return StorageError(
        f"{effect} failed: {detail.rstrip('.')}. Nothing was committed by this call. {advice}"
    )
