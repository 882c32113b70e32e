"""An engine whose tasks are sent as bytes, as executors get them, and which fails as clusters do."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.engine.abc import EngineError, TaskReport
from safewrite.engine.choice import Choice, Executors
from safewrite.engine.local import LocalEngine
from safewrite.upkeep.workplace import Workplace


@dataclass
class Elsewhere(LocalEngine):
    """Runs tasks in this process, as bytes.

    ``fails`` has what happens to one job after the other: ``before`` it writes, ``after`` its tasks wrote, its reports are ``lost``, each
    task runs ``again`` after it wrote, ``twice`` a report comes; an error is raised.
    """

    fails: list[str | Exception] = field(default_factory=list)
    jobs: int = 0
    tasks: int = 0

    def run(self, tasks: Sequence[Any]) -> list[TaskReport]:
        self.jobs += 1
        self.tasks += len(tasks)
        how = self.fails.pop(0) if self.fails else ""
        if isinstance(how, Exception):
            raise how
        if how == "before":
            raise EngineError("an executor is gone")
        reports = self._ran(tasks)
        if how == "after":
            raise EngineError("an executor is gone, and its results with it")
        if how == "again":
            reports = self._ran(tasks)
        if how == "lost":
            return reports[1:]
        return [*reports, *reports[:1]] if how == "twice" else reports

    def _ran(self, tasks: Sequence[Any]) -> list[TaskReport]:
        found: list[TaskReport] = pickle.loads(pickle.dumps(super().run(pickle.loads(pickle.dumps(tasks)))))
        return found


def workplace(engine: Elsewhere, cores: int = 2, *, forced: bool = True) -> Workplace:
    """A place where all that is not small goes to this engine."""
    executors = Executors(engine, (), cores, is_forced=forced)
    return Workplace(executors, Choice("bytes to put together"))
