"""Runs the steps of a protocol against answers that are written down before."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from safewrite.protocol.effects import Effect, Outcome


@dataclass
class Script:
    """The answers to come, and the effects that were asked for, in their order."""

    answers: list[Outcome]
    asked: list[Effect] = field(default_factory=list)

    def run(self, steps: Generator[Effect, Outcome, Any]) -> Any:
        """Run steps to their end with these answers; none may be left over, and none be missing."""
        pending = iter(self.answers)
        try:
            effect = next(steps)
            while True:
                self.asked.append(effect)
                effect = steps.send(next(pending))
        except StopIteration as end:
            assert next(pending, None) is None, "an answer is left over"
            return end.value

    @property
    def names(self) -> list[str]:
        """How the effects were called."""
        return [effect.name or type(effect).__name__ for effect in self.asked]


def script(*answers: Outcome) -> Script:
    """A script of these answers."""
    return Script(list(answers))
