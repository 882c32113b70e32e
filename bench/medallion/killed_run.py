"""A medallion run in a process of its own that is killed at a named point: ``victim.py job.json bronze:after 1``."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import safewrite.medallion.pipeline as pipelines
from bench.medallion.engines import ON_CLUSTERS, leave_executors, ran, take_session
from safewrite.medallion.tables.job import JobPlaces
from safewrite.table.verbs import Table

_LIFE_S = 90.0
"""So long a run on Spark lives at most: there the tables that it is behind with are dear."""
POINTS = tuple(
    f"{what}:{side}" for what in ("quarantine", "bronze", "silver", "state") for side in ("before", "after")
)


def dies(call: Callable[..., Any], side: str, times: int) -> Callable[..., Any]:
    """The call, around which the process dies the given time that it is made."""
    calls = itertools.count(1)

    def instead(*given: Any, **named: Any) -> Any:
        is_last = next(calls) == times  # by whichever thread
        if is_last and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = call(*given, **named)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return instead


def dies_in(seconds: float) -> None:
    """Let the process die then, wherever it is: few runs come to the point that was meant."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def main(path: str, point: str, times: int, engine: str = "local") -> None:
    """Run, and die where it was said."""
    what, _, side = point.partition(":")
    if engine in ON_CLUSTERS:
        take_session()
        dies_in(_LIFE_S)
    if what == "bronze":
        Table.append_many = dies(Table.append_many, side, times)  # type: ignore[method-assign]
    elif what == "silver":
        Table.apply_changes = dies(Table.apply_changes, side, times)  # type: ignore[method-assign]
    elif what == "quarantine":
        JobPlaces.put_aside = dies(JobPlaces.put_aside, side, times)  # type: ignore[method-assign]
    elif what == "state":
        pipelines.write_state = dies(pipelines.write_state, side, times)
    run = ran(path, engine, is_killed=True)
    leave_executors()
    sys.stdout.write("ok" if run.ok else f"failed: {run.to_dict()}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
