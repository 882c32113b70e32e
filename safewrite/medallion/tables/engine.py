"""Finds what runs the tasks of a job: this process, or the executors of Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from safewrite.engine.abc import Engine, ExecutorsLackPythonError
from safewrite.engine.choice import Choice, Cost, Executors

FILES = Cost(0.02, 45e-9, 2**26), Cost(1.0, 75e-9, 2**26)
ROWS = Cost(0.05, 5e-6, 250_000), Cost(1.5, 8e-6, 250_000)
"""What a byte of raw files and a row for silver take in this process, and by one core of executors, until a job has measured (docs/sizes.md)."""
_MODULES = ("safewrite.medallion.bronze.tasks", "safewrite.medallion.silver.tasks")


@dataclass
class Workplace:
    """Where the tasks of a job run: in this process, by ``executors``, or wherever a piece of work takes less.

    ``files`` and ``rows`` choose for raw files by their bytes, and for rows on their way to silver.
    """

    executors: Executors | None = None
    files: Choice = field(default_factory=lambda: Choice("bytes of files"))
    rows: Choice = field(default_factory=lambda: Choice("rows for silver"))

    @property
    def there(self) -> Engine[Any] | None:
        """What runs tasks in other processes; None if none can."""
        return None if self.executors is None else self.executors.ready()

    def leaves(self, error: ExecutorsLackPythonError) -> bool:
        """Whether the job goes on without executors that cannot run tasks."""
        return self.executors is not None and self.executors.leaves(error)

    @property
    def told(self) -> str:
        """What was chosen last, and why."""
        if self.executors is None:
            return "all in this process"
        found = [self.executors.lacking or "", self.files.last, self.rows.last]
        return "; ".join(one for one in found if one) or "executors, but for what is small"


def by_executors(engine: Engine[Any]) -> Workplace:
    """Where an engine in other processes does all that is not small."""
    return Workplace(Executors(engine, _MODULES, is_forced=True))


def engine_of(name: str) -> Workplace:
    """Where a job of this engine works: ``auto`` takes executors where this process is of a Spark that has some of their own.

    Raises:
        InvalidInputError: there is no such engine.
        MissingExtraError: Spark is not installed, or there is no Java.
        StorageError: Spark does not start.
    """
    from safewrite.engine.spark import executors_of

    executors = executors_of(name, _MODULES, few_here=True)
    if executors is None or executors.is_forced:
        return Workplace(executors)
    files = Choice.among("bytes of files", FILES, executors.cores)
    return Workplace(executors, files, Choice.among("rows for silver", ROWS, executors.cores))
