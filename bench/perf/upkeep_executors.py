"""Measures ``maintain`` by the executors of a Spark cluster beside one process alone: wall, and CPU of all processes.

``python -m bench.perf.upkeep --executors 2 --mb 300`` runs it.  Each run has a driver of its own, and its Spark is there before it begins,
as in a job that keeps its tables in shape.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

import safewrite as sw
from bench.cdc.cluster import on_cluster
from bench.servers.spark import Cluster
from bench.servers.usage import Usage, by_kind

ROOT = Path(__file__).resolve().parents[2]
ROWS, FILES = 100_000, 20
"""The rows of a file before, about; so many files are written by an append."""
FILE_MB = {"delta": 1.25, "iceberg": 0.88}
TARGETS = {"delta": "delta.targetFileSize", "iceberg": "write.target-file-size-bytes"}
_LOOK_S = 0.5


@dataclass(frozen=True)
class Place:
    """A table of one format in a folder, as each process opens it."""

    kind: str
    folder: Path

    @property
    def how(self) -> tuple[str, dict[str, Any]]:
        """What ``safewrite.open`` is given."""
        if self.kind == "delta":
            return str(self.folder / "t"), {}
        warehouse = f"file://{self.folder}/lake"
        uri = f"sqlite:///{self.folder}/catalog.db"
        return "bench.t", {"catalog": {"name": "bench", "type": "sql", "uri": uri, "warehouse": warehouse}}

    def fill(self, mb: int, target_mb: int) -> None:
        """Make the table, of so many megabytes in small files."""
        name, how = self.how
        properties = {TARGETS[self.kind]: str(target_mb * 2**20)}
        more = {"create_namespace": True} if self.kind == "iceberg" else {}
        self.folder.mkdir(parents=True)
        sw.create(name, _rows(0, 1).schema, properties=properties, **how, **more)
        table = sw.open(name, target_file_size=int(FILE_MB[self.kind] * 2**20), **how)
        for number in range(max(1, round(mb / FILE_MB[self.kind] / FILES))):
            table.append(_rows(number, FILES * ROWS))


def _rows(number: int, count: int) -> pa.Table:
    draw = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    names = pa.array([f"name{one}" for one in range(977)]).take(pa.array(ids % 977))
    return pa.table({"id": ids, "amount": draw.random(count), "name": names})


def compared(kind: str, executors: int, mb: int, target_mb: int, say: Callable[[str], None]) -> None:
    """Maintain a table here, and the same table as it was by executors."""
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), executors, "2g") as cluster:
        place, kept = Place(kind, Path(folder) / "place"), Path(folder) / "kept"
        place.fill(mb, target_mb)
        shutil.copytree(place.folder, kept)
        for engine in ("local", "spark"):
            say(f"{engine}: {_measured(place, engine, cluster)}")
            shutil.rmtree(place.folder)
            shutil.copytree(kept, place.folder)


class Driver:
    """The process that maintains a table, with Spark's executors on a cluster; ``usage`` watches it and them.  A context manager."""

    def __init__(self, place: Place, engine: str, cluster: Cluster, **settings: str) -> None:
        given = " ".join(
            f'--conf "{name}={value}"' for name, value in (on_cluster(cluster) | settings).items()
        )
        more = {"PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell", "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-W", "ignore", "-m", "bench.perf.upkeep_executors", place.kind]
        self._log = place.folder / "driver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(place.folder), engine],
                cwd=ROOT,
                env=os.environ | more,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.usage = Usage(self._process.pid, cluster)

    def __enter__(self) -> Driver:
        self._told()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def maintain(self) -> dict[str, Any]:
        """Let it begin; what it says at its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._told())
        return found

    def _told(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._log.read_text()[-3000:])
        return line


def _measured(place: Place, engine: str, cluster: Cluster) -> str:
    settings = {"spark.speculation": "false", "spark.locality.wait": "0"}
    with Driver(place, engine, cluster, **settings) as driver:
        usage, ends = driver.usage, threading.Event()
        usage.look()
        before = by_kind(usage.kinds, usage.cpu_s)

        def watch() -> None:
            while not ends.wait(_LOOK_S):
                usage.look()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            found = driver.maintain()
        finally:
            ends.set()
            watching.join()
        usage.look()
    spent = {kind: one - before[kind] for kind, one in by_kind(usage.kinds, usage.cpu_s).items()}
    peak = max((one for pid, one in usage.peaks_mib.items() if "Python" in usage.kinds[pid]), default=0.0)
    each = ", ".join(f"{kind} {one:.1f}" for kind, one in spent.items() if one > 0)
    return f"{found['wall_s']:.1f} s, CPU {sum(spent.values()):.1f} s ({each}), most memory of a Python process {peak:.0f} MiB; {found['text']}"


def _drive(place: Place, engine: str) -> None:
    """The driver of one run: says when it can begin, waits, and says what it took."""
    name, how = place.how
    if engine == "spark":
        from pyspark.sql import SparkSession

        from safewrite.engine.abc import bodies
        from safewrite.engine.choice import Probe
        from safewrite.engine.spark import SparkEngine
        from safewrite.upkeep.workplace import MODULES

        session = SparkSession.builder.getOrCreate()
        bodies(SparkEngine(session).run([Probe(MODULES)] * 8))
    table = sw.open(name, **how)
    _say("ready")
    sys.stdin.readline()
    began_s = time.perf_counter()
    report = table.maintain(engine=engine)  # type: ignore[arg-type]
    took_s = time.perf_counter() - began_s
    _say(json.dumps({"wall_s": took_s, "text": str(report), "report": report.to_dict()}))
    sys.stdin.readline()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _drive(Place(sys.argv[1], Path(sys.argv[2])), sys.argv[3])
