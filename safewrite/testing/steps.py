"""Acts at a named step of a write: lists it, kills, pauses, runs a rival, loses an answer.

Wrap a table's world, and everything it does from then on passes through::

    table.world = KillAt(table.world, "commit.put_entry", "after")
    table.append(rows, key="k")          # the process dies once the lock-table entry is put

**Points.**  Every effect of the protocol is a step with a name (``commit.put_entry``); the second time
it is performed it is ``commit.put_entry#2``, and so on.  A *point* is a step and a side of it:
``commit.put_entry:before``, ``commit.put_entry#2:after``.  Effects that a world performs in parallel
(``Together``) are performed one after the other here, so that a point lies between any two of them; the
bracket itself is no step.  An effect without a name goes by its class (``Now``).  Nobody has to know the
names: :class:`Recorder` lists the steps of a write as it was, :func:`points` their points.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from safewrite.protocol.effects import Backoff, Effect, Now, Ok, Outcome, Sleep, Together, Unknown, WallClock

if TYPE_CHECKING:
    from safewrite.stores.world import Performer

Side = Literal["before", "after"]


def points(steps: Iterable[str]) -> list[str]:
    """The points before and after every step."""
    return [f"{step}:{side}" for step in steps for side in ("before", "after")]


class Stepwise:
    """Performs effects one by one on an inner world; subclasses look at the steps."""

    def __init__(self, world: Performer) -> None:
        self.world = world
        self._seen: Counter[str] = Counter()
        self._counting = threading.Lock()

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect, or the parts of a ``Together`` in their order."""
        if isinstance(effect, Together):
            return Ok(tuple(self.perform(part) for part in effect.effects))
        name = effect.name or type(effect).__name__
        with self._counting:  # tasks of one process share a world
            self._seen[name] += 1
            count = self._seen[name]
        return self._step(name if count == 1 else f"{name}#{count}", effect)

    def _step(self, step: str, effect: Effect) -> Outcome:
        raise NotImplementedError


class Recorder(Stepwise):
    """Lists in ``steps`` what is performed; clocks and waits, which change nothing, are left out."""

    def __init__(self, world: Performer) -> None:
        super().__init__(world)
        self.steps: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        if not isinstance(effect, Now | WallClock | Sleep | Backoff):
            self.steps.append(step)
        return self.world.perform(effect)


class At(Stepwise):
    """Calls ``act`` once, before or after one step; ``reached`` says whether the write reached it."""

    def __init__(self, world: Performer, step: str, side: Side, act: Callable[[], object]) -> None:
        if side not in ("before", "after"):
            raise ValueError(f"a point lies before or after a step, not {side!r}")
        super().__init__(world)
        self.step = step
        self.side = side
        self.act = act
        self.reached = False

    def _step(self, step: str, effect: Effect) -> Outcome:
        here = step == self.step
        if here and self.side == "before":
            self._act()
        outcome = self.world.perform(effect)
        if here and self.side == "after":
            self._act()
        return outcome

    def _act(self) -> None:
        self.reached = True
        self.act()


class KillAt(At):
    """Ends this process by SIGKILL, before or after one step."""

    def __init__(self, world: Performer, step: str, side: Side) -> None:
        super().__init__(world, step, side, lambda: os.kill(os.getpid(), signal.SIGKILL))


class PauseAt(At):
    """Stops this process by SIGSTOP, before or after one step, until a SIGCONT comes (D1)."""

    def __init__(self, world: Performer, step: str, side: Side) -> None:
        super().__init__(world, step, side, lambda: os.kill(os.getpid(), signal.SIGSTOP))


class Answers(Stepwise):
    """Answers the first ``times`` steps of one name with ``outcome`` instead of their own.

    ``name`` is without a number: every repeat counts.  With ``perform=False`` they are not performed either.
    """

    def __init__(
        self,
        world: Performer,
        name: str,
        outcome: Outcome | None = None,
        *,
        perform: bool = True,
        times: int | None = None,
    ) -> None:
        super().__init__(world)
        self.name = name
        self.outcome = outcome or Unknown("the answer was lost")
        self.performs = perform
        self.times = times
        self.given = 0

    def _step(self, step: str, effect: Effect) -> Outcome:
        if step.partition("#")[0] != self.name or (self.times is not None and self.given >= self.times):
            return self.world.perform(effect)
        self.given += 1
        if self.performs:
            self.world.perform(effect)
        return self.outcome


def side_of(point: str) -> tuple[str, Side]:
    """The step and the side of a point."""
    step, _, side = point.rpartition(":")
    if step and side == "before":
        return step, "before"
    if step and side == "after":
        return step, "after"
    raise ValueError(f"a point is 'step:before' or 'step:after', not {point!r}")
