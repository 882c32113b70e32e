"""Which cases of a long table run in ``make test``: a sample that is the same everywhere; the others are ``long``.

A sample is every fourth case (or as the table says), and more where that leaves a value of any column out:
each kind of fault, each step, each arbiter and each catalog is in it at least once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings

EVERY = 4
EXAMPLES = [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
"""For properties that are dear: a quarter of the profile's examples, and marked ``long`` all of them."""


def examples(part: int) -> settings:
    """The profile's settings with its examples divided by a value of ``EXAMPLES``."""
    return settings(deadline=None, max_examples=max(1, settings().max_examples // part))


def no_more_than(most: int) -> settings:
    """The profile's settings with so many examples at most, for properties whose examples are dear."""
    return settings(deadline=None, max_examples=min(most, settings().max_examples))


def some(cases: Iterable[Any], *, every: int = EVERY) -> list[Any]:
    """The cases as parameters of a test; those that are not in the sample are marked ``long``."""
    cases = list(cases)
    chosen = sample(cases, every)
    return [
        pytest.param(*columns(case), marks=() if number in chosen else pytest.mark.long)
        for number, case in enumerate(cases)
    ]


def short_and_long(cases: Iterable[Any], short: int, long: int, *, every: int = EVERY) -> list[Any]:
    """The sample with ``short`` as its last column, and marked ``long`` all cases with ``long`` there."""
    cases = list(cases)
    chosen = sorted(sample(cases, every))
    return [
        *(pytest.param(*columns(cases[number]), short) for number in chosen),
        *(pytest.param(*columns(case), long, marks=pytest.mark.long) for case in cases),
    ]


def first(cases: Iterable[Any], count: int) -> list[Any]:
    """The first few cases of one column as parameters, the others ``long``: of kinds that faster tests have too."""
    return [
        pytest.param(case, marks=() if number < count else pytest.mark.long)
        for number, case in enumerate(cases)
    ]


def sample(cases: Sequence[Any], every: int = EVERY) -> set[int]:
    """The numbers of the cases that are in the sample.

    They lie on diagonals of the table, so that the values of one column meet different ones of another.
    """
    table = [columns(case) for case in cases]
    places: list[dict[Any, int]] = []
    for column in zip(*table, strict=True):
        known: dict[Any, int] = {}
        for value in column:
            known.setdefault(value, len(known))
        places.append(known)
    diagonals = [sum(known[value] for known, value in zip(places, row, strict=True)) for row in table]
    chosen = {number for number, diagonal in enumerate(diagonals) if diagonal % every == 0}
    met = {cell for number in chosen for cell in enumerate(table[number])}
    while missing := {cell for row in table for cell in enumerate(row)} - met:
        best = max(range(len(table)), key=lambda number: len(missing & set(enumerate(table[number]))))
        chosen.add(best)
        met |= set(enumerate(table[best]))
    return chosen


def columns(case: Any) -> tuple[Any, ...]:
    """A case of one column is that column's value."""
    return case if isinstance(case, tuple) else (case,)


def some_points(points: Iterable[str], *, every: int = EVERY, met: Collection[str] = ()) -> list[str]:
    """Every fourth step of a write and each kind of step once, before it and after it in turn.

    Kinds in ``met`` are left out, but for every fourth step: another test is killed at all of them.
    """
    chosen: list[str] = []
    kinds = set(met)
    for number, step in enumerate(dict.fromkeys(point.rpartition(":")[0] for point in points)):
        kind = kind_of(step)
        if number % every == 0 or kind not in kinds:
            chosen.append(f"{step}:{('before', 'after')[len(chosen) % 2]}")
        kinds.add(kind)
    return chosen


def kind_of(point: str) -> str:
    """The kind of a point's step: ``commit.list`` of ``commit.list#2:after``."""
    return point.partition(":")[0].partition("#")[0]
