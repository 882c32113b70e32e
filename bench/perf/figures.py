"""Holds what a scenario measured: lines, their ratios to a peer, and the aims held against them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    n: int
    min: float
    median: float
    mean: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ``ValueError`` where nothing was measured."""
        if not values:
            raise ValueError("nothing was measured")
        return cls(len(values), min(values), statistics.median(values), statistics.fmean(values), max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One arm in one case: ``values`` in ``unit``, one per round, and what else was counted.

    ``ratios`` are those of each round to the same round of ``peer``: both met the same noise.
    """

    case: str
    arm: str
    unit: str
    values: tuple[float, ...]
    peer: str | None = None
    ratios: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spread(self) -> Spread:
        """The spread of the values."""
        return Spread.of(self.values)

    @property
    def ratio(self) -> Spread | None:
        """The spread of the ratios; None where there is no peer."""
        return Spread.of(self.ratios) if self.ratios else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "case": self.case, "arm": self.arm, "unit": self.unit, "values": list(self.values),
            "spread": _plain(self.spread), "peer": self.peer,
            "ratio": _plain(self.ratio) if self.ratio else None, "extra": dict(self.extra),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim, and what was measured; ``bound`` is a limit from above or from below."""

    text: str
    bound: str
    limit: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether the measured value keeps the bound; no rounding in our favour."""
        return self.measured <= self.limit if self.bound == "<=" else self.measured >= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {"text": self.text, "bound": self.bound, "limit": self.limit}
        return {**plain, "measured": self.measured, "met": self.met}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of several series over one quantity, both on logarithmic axes."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        series = {name: [list(point) for point in points] for name, points in self.series.items()}
        return {"title": self.title, "x": self.x, "y": self.y, "series": series}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario's result.  ``broken`` holds failures of the promise itself: rows unacked or missing."""

    name: str
    title: str
    measures: str
    lines: tuple[Line, ...]
    aims: tuple[Aim, ...] = ()
    notes: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    curves: tuple[Curve, ...] = ()
    """Drawn instead of the lines."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name, "title": self.title, "measures": self.measures,
            "elapsed_s": round(self.elapsed_s, 1), "lines": [line.to_dict() for line in self.lines],
            "curves": [curve.to_dict() for curve in self.curves],
            "aims": [aim.to_dict() for aim in self.aims], "notes": list(self.notes), "broken": list(self.broken),
        }  # fmt: skip


def at_most(text: str, limit: float, measured: float) -> Aim:
    """An aim that is met by small values."""
    return Aim(text, "<=", limit, measured)


def at_least(text: str, limit: float, measured: float) -> Aim:
    """An aim that is met by large values."""
    return Aim(text, ">=", limit, measured)


def paired(values: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    """Ratios round by round; nothing against nothing is alike, and meets no aim."""
    return tuple(_ratio(value, other) for value, other in zip(values, others, strict=True))


def _ratio(value: float, other: float) -> float:
    if other:
        return value / other
    return math.inf if value else 1.0


def interleave(arms: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call every arm once per round; what each gave, round by round.

    So a drift of the machine affects all alike.
    """
    found: dict[str, list[T]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name, given in in_turn(arms, turn).items():
            found[name].append(given)
    return found


def in_turn(arms: Mapping[str, Callable[[], T]], turn: int) -> dict[str, T]:
    """Call every arm once, A B C, then B C A: no arm always runs after the same other one."""
    names = list(arms)
    first = turn % len(names)
    return {name: arms[name]() for name in names[first:] + names[:first]}


def _plain(spread: Spread) -> dict[str, float]:
    return {
        "n": spread.n, "min": spread.min, "median": spread.median, "mean": spread.mean, "max": spread.max,
    }  # fmt: skip
