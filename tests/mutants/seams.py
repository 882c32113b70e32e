"""Seams: the functions, methods and effects at which a fault is switched on, in a process that ends with it.

A fault replaces one function of safewrite by another that lacks a protection.  The new one is given the function
as it was, so a fault may leave out an argument, change an effect on its way, or hide an answer.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, get_args

from safewrite.protocol.effects import Effect, Ok, Outcome, Together
from tests.mutants.killers import Killer, alone

Replacement = Callable[..., Any]
"""Takes the function as it was, then what that one takes."""
Change = Callable[[Effect], Effect | Outcome]
"""Another effect in the place of one, or an answer to it without performing it."""


@dataclass(frozen=True, slots=True)
class Seam:
    """A function, or a method of a class, by its module below ``safewrite`` and its name there."""

    module: str
    name: str

    @classmethod
    def of(cls, text: str) -> Seam:
        """``"stores.s3:S3Objects.put"``."""
        module, _, name = text.partition(":")
        return cls(f"safewrite.{module}", name)

    def found(self) -> tuple[Any, str, Any]:
        """Who has it, under which name, and what it is; raises if it is gone."""
        owner: Any = importlib.import_module(self.module)
        *path, name = self.name.split(".")
        for part in path:
            owner = getattr(owner, part)
        return owner, name, inspect.getattr_static(owner, name)


@dataclass(frozen=True, slots=True)
class Fault:
    """A protection taken away: what goes wrong without it, where, and the test or model that notices.

    ``says`` is what the killer prints when it notices.
    """

    id: str
    name: str
    seam: Seam
    replacement: Replacement
    killer: Killer
    says: str

    def __str__(self) -> str:
        return f"{self.id}-{self.name}"

    def switch_on(self, reached: list[str]) -> None:
        """Replace the function wherever safewrite knows it by name; ``reached`` grows with each call."""
        owner, name, was = self.seam.found()

        @functools.wraps(was)
        def faulty(*args: Any, **kwargs: Any) -> Any:
            reached.append(str(self))
            return self.replacement(was, *args, **kwargs)

        setattr(owner, name, faulty)
        if inspect.ismodule(owner):
            for module in [
                one for key, one in sys.modules.items() if key.startswith(("safewrite.", "tests."))
            ]:
                for known in [key for key, value in vars(module).items() if value is was]:
                    setattr(module, known, faulty)


FAULTS: list[Fault] = []


def fault(id: str, seam: str, killer: str | Killer, says: str = "") -> Callable[[Replacement], Replacement]:  # noqa: A002
    """Add a fault, whose replacement is what is decorated; ``killer`` is a model, or a test that stands for itself."""

    def add(replacement: Replacement) -> Replacement:
        by = alone(killer) if isinstance(killer, str) else killer
        failed = f"FAILED {by.arguments[-1]}" if by.is_test else ""
        FAULTS.append(Fault(id, replacement.__name__, Seam.of(seam), replacement, by, says or failed))
        return replacement

    return add


# --- replacements that several faults share ---------------------------------------------------------
def meddled(steps: Generator[Effect, Outcome, Any], change: Change) -> Generator[Effect, Outcome, Any]:
    """Steps whose effects go through ``change``."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = yield from _answer(effect, change)
            except Exception as error:  # noqa: BLE001 - the steps may catch it
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as end:
        return end.value


def _answer(effect: Effect, change: Change) -> Generator[Effect, Outcome, Outcome]:
    if not isinstance(effect, Together):
        changed = change(effect)
        return changed if isinstance(changed, get_args(Outcome)) else (yield changed)
    if all(change(part) is part for part in effect.effects):
        return (yield effect)
    answers: tuple[Outcome, ...] = ()
    for part in effect.effects:
        answers = (*answers, (yield from _answer(part, change)))
    return Ok(answers)


def no_steps(value: Any = None) -> Generator[Effect, Outcome, Any]:
    """Steps that ask for nothing."""
    yield from ()
    return value
