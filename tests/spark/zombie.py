"""A driver of a stream that stops inside its first commit until it is told to go on: ``python -m tests.spark.zombie``.

Two of them are a cluster that was given up and lives on, and the one that took its place (E7).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safewrite as sw
from safewrite.delta.spark.session import hook_of
from safewrite.spark import attach
from safewrite.table.sink import Sink
from safewrite.testing.steps import At
from tests.integration.places import Place
from tests.spark.child import Child, Parent
from tests.spark.session import Spark
from tests.spark.stream import Stream


@dataclass(frozen=True)
class Task:
    """What a driver is to run; ``step`` is where it stops, before it is done.

    ``shift`` is added to the ids, as by another release of the job.  ``place`` is None for a table that is not
    Delta's.
    """

    stream: Stream
    sink: Sink
    step: str
    shift: int = 0
    place: Place | None = None
    catalogs: Mapping[str, dict[str, str]] = field(default_factory=dict)


def start(task: Task) -> Child:
    """A driver that is ready when it is in its commit, goes on when it is told a word, and says how that ended.

    It says ``outcome`` and ``version`` of its batch, or ``error`` and ``text``.
    """
    return Child(__name__, task)


def main() -> None:
    """Start Spark, run the stream, say what became of its batch."""
    parent = Parent()
    task: Task = parent.hear()

    def inside() -> None:
        parent.say("ready")
        parent.hear()

    said: dict[str, Any] = {}

    def batches(frame: Any, epoch: int) -> None:
        try:
            task.sink(frame.selectExpr(f"id + {task.shift}L AS id", "value"), epoch)
        except sw.SafewriteError as error:
            said.update(error=type(error).__name__, text=str(error))
        else:
            receipt = task.sink.last_receipt
            assert receipt is not None
            said.update(outcome=receipt.outcome, version=receipt.version, epoch=epoch)

    with tempfile.TemporaryDirectory(prefix="driver-") as folder, Spark(Path(folder)) as spark:
        _stop_inside(spark, task, inside)
        task.stream.run(spark, batches)
    parent.say(said)


def _stop_inside(spark: Spark, task: Task, inside: Any) -> None:
    """Delta's commits go by the hook's world, Iceberg's by that of the sink's table."""
    for name, properties in task.catalogs.items():
        spark.know(name, properties)
    table = task.sink.reopen()
    if task.place is None:
        table.world = At(table.world, task.step, "before", inside)
    else:
        spark.reach(task.place.uri.split("/")[2], task.place.storage_options["AWS_ENDPOINT_URL"])
        commits = hook_of(attach(spark.session)).commits
        commits.know(table._format.connection)
        hook = commits.table(table.uri)
        hook.world = At(hook.world, task.step, "before", inside)
    task.sink._live.table = table


if __name__ == "__main__":
    main()
