"""Says where the groups of a run are put together: in this process, or by executors, as their bytes and what runs took so far tell."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from safewrite.engine.abc import Engine, ExecutorsLackPythonError
from safewrite.engine.choice import Choice, Cost, Executors

BYTES = Cost(0.05, 16e-9, 2**28), Cost(1.0, 20e-9, 2**28)
"""What a byte of groups takes in this process, and by one core of executors, until a job has measured.

Here it is between Delta's 10 ns and Iceberg's 23.  302 MB of Delta took two executors of a core each 3.7 s by the clock, where these say 4.0,
and this process 3.9, where they say 4.9 (``python -m bench.perf.upkeep --executors 2 --mb 300``).
"""
SMALL = 2**25
"""Fewer bytes are worth no job of Spark's, whatever was measured."""
MODULES = ("safewrite.table.regrouping",)
"""What tasks of tables of any format import."""


@dataclass
class Workplace:
    """Where groups are put together; ``executors`` are None where all are in this process."""

    executors: Executors | None = None
    choice: Choice = field(default_factory=lambda: Choice("bytes to put together"))

    @classmethod
    def of(cls, executors: Executors | None) -> Workplace:
        """That of a job which works on these executors where that takes less, or on them alone."""
        if executors is None or executors.is_forced:
            return cls(executors)
        return cls(executors, Choice.among("bytes to put together", BYTES, executors.cores))

    def is_there(self, size: int) -> bool:
        """Whether executors put so many bytes together."""
        return self.executors is not None and self.choice.is_there(size, small=SMALL, most=sys.maxsize)

    @property
    def engine(self) -> Engine[Any] | None:
        """What runs tasks on the executors; None where they cannot, or not now."""
        return None if self.executors is None else self.executors.ready()

    @property
    def cores(self) -> int:
        """How many groups executors put together at once."""
        return 1 if self.executors is None else self.executors.cores

    @property
    def is_forced(self) -> bool:
        """Whether a user asked for executors by name."""
        return self.executors is not None and self.executors.is_forced

    def leaves(self, error: ExecutorsLackPythonError) -> bool:
        """Whether the job goes on without executors that cannot run tasks."""
        return self.executors is not None and self.executors.leaves(error)


def workplace_of(engine: object) -> Workplace:
    """That of ``engine=``: the name of an engine, or what a job works with.

    Raises:
        InvalidInputError: there is no such engine.
        MissingExtraError, StorageError: as ``safewrite.engine.spark.executors_of``.
    """
    if isinstance(engine, Workplace):
        return engine
    from safewrite.engine.spark import executors_of

    return Workplace.of(executors_of(engine, MODULES))
