"""A small stream of JSON files, a batch for each, into sinks; also as a driver of its own that is killed.

``python -m tests.spark.stream FOLDER`` is that driver: it dies when the first batch is committed to all
sinks, before Spark notes in the checkpoint that it is done.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safewrite.table.sink import Sink
from tests.integration.places import Place
from tests.spark.session import Spark

_ROOT = Path(__file__).resolve().parents[2]
Batches = Callable[[Any, int], None]


@dataclass(frozen=True)
class Stream:
    """Where the rows come from and where Spark keeps its place in them."""

    folder: Path
    checkpoint: str = "checkpoint"

    def feed(self, name: str, *ids: int) -> None:
        """One more file, which becomes one more batch."""
        (self.folder / "source").mkdir(exist_ok=True)
        lines = (json.dumps({"id": number, "value": f"v{number}"}) for number in ids)
        file = self.folder / "source" / f"{name}.json"
        file.write_text("\n".join(lines))
        later_s = file.stat().st_mtime + len(list(file.parent.iterdir()))
        os.utime(file, (later_s, later_s))  # Spark takes the oldest first

    def read(self, spark: Spark) -> Any:
        """The rows to come."""
        stream = spark.session.readStream.schema("id BIGINT, value STRING").option("maxFilesPerTrigger", 1)
        return stream.json(str(self.folder / "source"))

    def run(self, spark: Spark, batches: Batches) -> None:
        """Write all batches that there are."""
        writer = self.read(spark).writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", str(self.folder / self.checkpoint))
        with spark.careless():
            writer.trigger(availableNow=True).start().awaitTermination()


def dies(batches: Batches) -> Batches:
    """A driver that is gone before the batch is in the checkpoint."""

    def dying(frame: Any, epoch: int) -> None:
        batches(frame, epoch)
        raise RuntimeError("the driver dies here")

    return dying


def pooled(sinks: Sequence[Batches], after_each: Callable[[], object] = lambda: None) -> Batches:
    """Writes a batch to all sinks by a pool of threads, as is usual where there are many; an error ends the batch."""

    def write(frame: Any, epoch: int) -> None:
        def one(sink: Batches) -> None:
            sink(frame, epoch)
            after_each()

        frame.persist()
        try:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(one, sinks))
        finally:
            frame.unpersist()

    return write


@dataclass(frozen=True)
class Killed:
    """What the driver that dies is told; ``after``: by a pool of threads, once so many tables are written."""

    stream: Stream
    sinks: Sequence[Sink]
    place: Place
    catalogs: Mapping[str, dict[str, str]]
    after: int | None = None

    def run(self) -> int:
        """Run it; how its process ended."""
        task = base64.b64encode(pickle.dumps(self))
        with tempfile.TemporaryDirectory(prefix="driver-") as folder:
            command = [sys.executable, "-m", __name__, folder]
            done = subprocess.run(command, cwd=_ROOT, input=task, check=False, timeout=300)
        return done.returncode


def main() -> None:
    """Start Spark, write a batch to each sink, die."""
    task: Killed = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))

    def one_by_one(frame: Any, epoch: int) -> None:
        for sink in task.sinks:
            sink(frame, epoch)
        os.kill(os.getpid(), signal.SIGKILL)

    written = itertools.count(1)

    def kill_in_between() -> None:
        if next(written) == task.after:
            os.kill(os.getpid(), signal.SIGKILL)

    batches = one_by_one if task.after is None else pooled(task.sinks, kill_in_between)

    with Spark(Path(sys.argv[1])) as spark:
        spark.reach(task.place.uri.split("/")[2], task.place.storage_options["AWS_ENDPOINT_URL"])
        for name, properties in task.catalogs.items():
            spark.know(name, properties)
        task.stream.run(spark, batches)


if __name__ == "__main__":
    main()
