"""Reads several objects at once, and asks again for those whose answer was lost."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Missing, Ok, Outcome, Together

BATCH = 256
"""Most effects in one ``Together``: bounds what is held in flight."""


def fetch(
    effects: Sequence[Effect], limits: Limits, *, name: str
) -> Generator[Effect, Outcome, list[Ok | Missing]]:
    """Perform reads together; each answer is ``Ok`` or ``Missing``.

    Raises:
        StorageError: one of them got no answer in ``limits.asks`` tries.
    """
    answers: list[Ok | Missing] = []
    for first in range(0, len(effects), BATCH):
        batch = tuple(effects[first : first + BATCH])
        together: Outcome = Ok(((yield batch[0]),)) if len(batch) == 1 else (yield Together(batch, name=name))
        # The answer to the whole batch may be lost as well.
        outcomes = together.value if isinstance(together, Ok) else (together,) * len(batch)
        assert isinstance(outcomes, tuple)
        for effect, outcome in zip(batch, outcomes, strict=True):
            clear = outcome if isinstance(outcome, Ok | Missing) else (yield from ask(effect, limits))
            if not isinstance(clear, Ok | Missing):
                raise unanswered(effect, clear)
            answers.append(clear)
    return answers


def fetch_one(effect: Effect, limits: Limits) -> Generator[Effect, Outcome, Ok | Missing]:
    """Perform one read; the answer is ``Ok`` or ``Missing``.  Raises StorageError as ``fetch`` does."""
    answer = yield from ask(effect, limits)
    if not isinstance(answer, Ok | Missing):
        raise unanswered(effect, answer)
    return answer
