"""Chooses where work is done, in this process or by executors, from what both took so far in this job.

The choice changes no result: the tasks are the same, and whoever does the work again may choose otherwise.  So seconds may be asked.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from safewrite.engine.abc import Engine, EngineError, ExecutorsLackPythonError, TaskAttempt, bodies
from safewrite.errors import SafewriteError
from safewrite.version import __version__

log = logging.getLogger("safewrite")

FADES = 0.9
"""What was measured counts so much less with each piece of work that comes after it, wherever that is done."""
_YOUNG = 4
"""A side that has done fewer pieces is not warm yet: what was measured of it fades so many times as soon, divided by how many it has done."""
_BEGUN = 0.1
"""What was measured elsewhere counts so much, where a piece of this job counts 1."""
_TRIED = 1.5
"""A side of which nothing is known by now is tried where it would take so many times as long as the other one, or less."""


@dataclass(frozen=True)
class Cost:
    """Seconds that a piece of work takes, by its size: ``each``, whatever is in it, and so many for each unit.

    These two were measured elsewhere.  They stand for two pieces, one without a size and a ``usual`` one, that count little, and do not
    fade.
    """

    each: float
    unit: float
    usual: float
    sums: tuple[float, ...] = (0.0,) * 5
    """Of what was measured: pieces, sizes, seconds, squares of sizes, products of sizes and seconds."""
    done: int = 0
    """How many pieces were measured."""

    def after(self, size: float, seconds: float) -> Cost:
        """With one more measure."""
        one = (1.0, size, seconds, size * size, size * seconds)
        sums = tuple(a + b for a, b in zip(self.sums, one, strict=True))
        return replace(self, sums=sums, done=self.done + 1)

    def faded(self) -> Cost:
        """With measures that count less."""
        left = FADES ** max(1, _YOUNG // max(1, self.done))
        return replace(self, sums=tuple(one * left for one in self.sums))

    @property
    def is_known(self) -> bool:
        """Whether pieces of this job count more than what was measured elsewhere."""
        return self.sums[0] > _BEGUN

    @property
    def pace(self) -> float:
        """How many times as long pieces of this job took as elsewhere: the machine, the records, and what the tables ask for."""
        pieces, sizes, seconds, _, _ = self.sums
        return seconds / (pieces * self.each + sizes * self.unit) if pieces else 1.0

    def of(self, size: float, pace: float = 1.0) -> float:
        """Seconds for a piece of this size, by the line that is nearest to all measures; ``pace``: of the other side, which is shared."""
        usual = self.each + self.unit * self.usual
        ones = (
            (1.0, 0.0, self.each * pace, 0.0, 0.0),
            (1.0, self.usual, usual * pace, self.usual**2, self.usual * usual * pace),
        )
        pieces, sizes, seconds, squares, products = (
            told + _BEGUN * (one + other) for told, one, other in zip(self.sums, *ones, strict=True)
        )
        slope = max(0.0, (pieces * products - sizes * seconds) / (pieces * squares - sizes * sizes))
        base = (seconds - slope * sizes) / pieces
        return base + slope * size if base >= 0 else products / squares * size


Costs = tuple[Cost, Cost]
"""Those of this process, and those of executors."""


@dataclass(frozen=True)
class Chosen:
    """Where a piece of work is done, and why."""

    is_there: bool
    why: str


def chosen(size: int, here: Cost, there: Cost, most: int) -> Chosen:
    """Where a piece of this size takes less; this process takes at most so much at once."""
    if size > most:
        return Chosen(True, "they are more than this process takes at once")
    one, other = here.of(size, there.pace), there.of(size, here.pace)
    why = f"some {other:.2f} s by executors and {one:.2f} s in this process"
    if here.is_known is not there.is_known:
        known, unknown, pace = (one, there, here.pace) if here.is_known else (other, here, there.pace)
        hoped = unknown.of(size, min(1.0, pace))  # what makes one side slow may not be of the other
        if hoped <= _TRIED * known:
            return Chosen(here.is_known, f"{why}, and nothing was measured there lately")
    return Chosen(other < one, why)


@dataclass
class Choice:
    """Chooses for one kind of work of a job, and remembers what both sides took; threads may share it.

    ``costs`` are those of this process and of executors; None: executors do all that is not small.  ``what`` says what sizes count.
    """

    what: str
    costs: Costs | None = None
    last: str = ""
    """What was chosen last, and why."""
    _was: bool | None = None
    _begun: set[bool] = field(default_factory=set, repr=False)
    """The sides that have done a piece: what starts and what Java compiles is in the first of each, which is not counted."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def among(cls, what: str, costs: Costs, cores: int, *, driver: float = 0.0) -> Choice:
        """A choice between this process and so many cores of executors.

        ``costs`` has what one core takes; ``driver`` is what a unit of executors' work takes in this process besides.
        """
        here, there = costs
        return cls(what, (here, replace(there, unit=driver + there.unit / cores)))

    def is_there(self, size: int, *, small: int, most: int) -> bool:
        """Whether executors do a piece of this size: never one that is ``small``, or less; always one of more than ``most``."""
        if self.costs is None or not size:
            return size > small
        with self._lock:
            few = Chosen(False, "they are worth no job of Spark's")
            found = few if size <= small else chosen(size, *self.costs, most)
            where = "executors" if found.is_there else "this process"
            self.last = f"{size:,} {self.what} by {where}: {found.why}"
            is_news, self._was = found.is_there is not self._was, found.is_there
        log.log(logging.INFO if is_news else logging.DEBUG, "engine auto: %s", self.last)
        return found.is_there

    def took(self, size: int, seconds: float, *, is_there: bool) -> None:
        """Remember what a piece took, but for the first one of a side."""
        if self.costs is None or not size:
            return
        with self._lock:
            if is_there not in self._begun:
                self._begun.add(is_there)
                return
            here, there = (one.faded() for one in self.costs)
            self.costs = (
                (here, there.after(size, seconds)) if is_there else (here.after(size, seconds), there)
            )


@dataclass(frozen=True)
class Probe:
    """Reports the version of safewrite where it runs, which has imported these modules."""

    modules: tuple[str, ...]
    columns: pa.Schema | None = None

    def __call__(self, batches: Iterable[Any], at: TaskAttempt) -> Generator[Any, None, str]:
        yield from ()
        for one in self.modules:
            importlib.import_module(one)
        return __version__


@dataclass
class Executors:
    """Executors that a job works on as long as they can: they are asked once, when there is work for them.

    ``modules`` are what their tasks import, ``cores`` how many tasks they run at once.  ``lacking`` says what they lack.
    ``is_forced``: a user asked for them by name, so they are not asked, and what they lack is an error.
    """

    engine: Engine[Any]
    modules: tuple[str, ...]
    cores: int = 1
    is_forced: bool = False
    lacking: str | None = None
    _is_asked: bool = field(default=False, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ready(self) -> Engine[Any] | None:
        """The engine; None where executors cannot run tasks, or not now."""
        with self._lock:
            if not (self.is_forced or self._is_asked):
                try:
                    versions = {*bodies(self.engine.run([Probe(self.modules)] * self.cores))}
                except EngineError as error:
                    log.info("engine auto: this process works, for executors gave no answer: %s", error)
                    return None
                except SafewriteError as error:
                    self._lack(error.message)
                else:
                    self._is_asked = True
                    if versions != {__version__}:
                        self._lack(
                            f"They have safewrite {', '.join(sorted(versions))}, and the driver {__version__}."
                        )
            return None if self.lacking else self.engine

    def leaves(self, error: ExecutorsLackPythonError) -> bool:
        """Whether the job goes on without executors that cannot run tasks, as a new one may not."""
        if not self.is_forced:
            self.lack(error.message)
        return not self.is_forced

    def lack(self, why: str) -> None:
        """Leave executors alone from now on, for they cannot run tasks."""
        with self._lock:
            self._lack(why)

    def _lack(self, why: str) -> None:
        is_news, self._is_asked, self.lacking = self.lacking is None, True, why
        if is_news:
            log.warning("engine auto: this process does all work, for executors cannot. %s", why)
