"""Histories drawn from a seed alone, without Hypothesis.

``python -m tests.stateful.histories FIRST COUNT`` runs so many seeds and prints the trace of each: a hash
of every effect, every answer and every outcome.  A broken promise is an AssertionError.
"""

from __future__ import annotations

import hashlib
import random
import sys

from tests.stateful.calls import Call, Fault, FaultKind, Naming, Verb, Where
from tests.stateful.lake import Lake

CALLS = 40
VERBS = tuple(verb for verb in Verb.__args__ if verb != "maintain")
"""Those of before, so that a seed stays what it was; Hypothesis draws upkeep as well."""
DAYS, NOTES, AMOUNTS = ("a", "b", None), ("x", "", None), (1.5, None, -0.0)


def history(seed: int, calls: int) -> list[Call]:
    """So many calls of a history."""
    rng = random.Random(seed)
    return [_call(rng, VERBS, rival=True) for _ in range(calls)]


def _call(rng: random.Random, verbs: tuple[Verb, ...], *, rival: bool) -> Call:
    shapes = [(rng.choice(DAYS), rng.choice(NOTES), rng.choice(AMOUNTS)) for _ in range(rng.randint(1, 4))]
    faults = [
        Fault(rng.randint(0, 19), rng.choice(FaultKind.__args__), rng.choice((1, 1, 2, 4)))
        for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    return Call(
        rng.choice(verbs),
        rng.randrange(3),
        rng.choice(Naming.__args__),
        rng.randrange(8),
        tuple(shapes),
        rng.choice(Where.__args__),
        tuple(faults),
        _call(rng, ("append", "merge", "overwrite", "peer", "resolve"), rival=False) if rival else None,
    )


def trace(seed: int, calls: int = CALLS) -> str:
    """Hash of all that happens in a history, on either arbiter."""
    seen = hashlib.sha256()
    for arbiter in ("dynamodb", "object-store"):
        lake = Lake(arbiter, trace=seen)
        for call in history(seed, calls):
            lake.do(call)
        for path, body in sorted(lake.objects.blobs.items()):
            seen.update(path.encode())
            seen.update(body)
    return seen.hexdigest()


if __name__ == "__main__":
    first, count = (int(text) for text in sys.argv[1:])
    for number in range(first, first + count):
        sys.stdout.write(f"{trace(number)}\n")
