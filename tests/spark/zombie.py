"""A driver of a stream that stops inside its first commit until it is told to go on: ``python -m tests.spark.zombie``.

Two of them are a cluster that was given up and lives on, and the one that took its place (E7).
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import safewrite as sw
from safewrite.sink import Sink
from safewrite.spark import attach
from safewrite.spark.session import hook_of
from safewrite.testing.steps import At
from tests.integration.places import Place
from tests.spark.session import Spark
from tests.spark.stream import Stream

_ROOT = Path(__file__).resolve().parents[2]
_INSIDE = "inside"


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


class Driver:
    """The driver's process, as its parent sees it."""

    def __init__(self, task: Task) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._say(base64.b64encode(pickle.dumps(task)))

    def inside(self) -> None:
        """Wait until it is in its commit."""
        assert self._hear() == _INSIDE

    def go_on(self) -> None:
        """Let it go on."""
        self._say(b"go on")

    def said(self) -> dict[str, Any]:
        """Wait until its stream has ended: ``outcome`` and ``version`` of its batch, or ``error`` and ``text``."""
        found: dict[str, Any] = json.loads(self._hear())
        return found

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line, "the driver ended; it said why on its standard error"
        return line

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:
            if kind is not None:
                process.kill()  # its Java process ends with the pipe between the two


def main() -> None:
    """Start Spark, run the stream, say what became of its batch."""
    task: Task = pickle.loads(base64.b64decode(sys.stdin.buffer.readline()))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Java prints is no answer

    def inside() -> None:
        answers.write(_INSIDE + "\n")
        sys.stdin.buffer.readline()

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
    answers.write(json.dumps(said) + "\n")


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
        commits.know(table.connection)
        hook = commits.table(table.uri)
        hook.world = At(hook.world, task.step, "before", inside)
    task.sink._live.table = table


if __name__ == "__main__":
    main()
