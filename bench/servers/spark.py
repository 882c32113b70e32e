"""Starts a Spark cluster on loopback: a master, and workers of one core, each a process of its own."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from .servers import Server, end, spawn

_DEPLOY = "org.apache.spark.deploy"
WORKERS = 2
_EXECUTOR, _DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"


class Master(Server):
    """The one whom applications ask for executors."""

    name = "spark-master"
    services = frozenset({"spark"})

    @property
    def endpoint_url(self) -> str:
        """Spark's name for it."""
        return f"spark://127.0.0.1:{self.port}"

    def _command(self) -> tuple[list[str], dict[str, str]]:
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        return [_program(), f"{_DEPLOY}.master.Master", *options], _loopback("127.0.0.1")

    def _ask(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()


class Cluster:
    """A master and its workers, of one core each; a context manager."""

    def __init__(self, folder: Path, workers: int = WORKERS, memory: str = "1g") -> None:
        self._folder, self.workers, self._memory = folder, workers, memory
        self._stack = ExitStack()
        self.pids: list[int] = []
        """The process ids of the workers."""

    def __enter__(self) -> Cluster:
        self.master = self._stack.enter_context(Master(self._folder))
        for number in range(self.workers):
            self._start_worker(f"127.0.0.{2 + number}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_worker(self, host: str) -> None:
        options = ["--host", host, "--cores", "1", "--memory", self._memory, "--webui-port", "0"]
        options += ["--work-dir", str(self._folder / host), self.master.endpoint_url]
        command = [_program(), f"{_DEPLOY}.worker.Worker", *options]
        with (self._folder / f"worker-{host}.log").open("ab") as log:
            worker = spawn(command, log, env=os.environ | _loopback(host), cwd=self._folder)
        self._stack.callback(end, worker)
        self.pids.append(worker.pid)

    def executors(self) -> list[int]:
        """The process ids of the executors that run."""
        found = processes()
        return [pid for pid, (parent, line) in found.items() if parent in self.pids and _EXECUTOR in line]

    def kill_executor(self, draw: random.Random) -> bool:
        """SIGKILL to one executor; its worker starts another.  False where none runs."""
        return _kill(self.executors(), draw)

    def python_workers(self) -> list[int]:
        """The process ids of the Python processes in which executors run tasks now."""
        found, executors = processes(), self.executors()
        daemons = {pid for pid, (parent, line) in found.items() if parent in executors and _DAEMON in line}
        return [pid for pid, (parent, _) in found.items() if parent in daemons]

    def kill_python_worker(self, draw: random.Random) -> bool:
        """SIGKILL to one Python process of an executor, which tries its task again.  False where none runs."""
        return _kill(self.python_workers(), draw)


def _kill(running: list[int], draw: random.Random) -> bool:
    if running:
        try:
            os.kill(draw.choice(sorted(running)), signal.SIGKILL)
        except ProcessLookupError:  # it ended just now
            return False
    return bool(running)


_READ = """
import sys
from pyspark.sql import SparkSession
options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={sys.argv[1]}"
session = SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", options).getOrCreate()
rows = session.range(100).selectExpr("id % 7 AS key", "CAST(id AS binary) AS value")
rows.repartition(2, "key").mapInArrow(lambda batches: batches, rows.schema).groupBy("key").count().collect()
source = session.readStream.format("rate").load()
query = source.writeStream.foreachBatch(lambda batch, number: batch.collect()).trigger(availableNow=True).start()
query.awaitTermination(60)
session.stop()
"""
"""Lets Spark's Java read the classes of jobs like those of the benches, and write them when it ends."""


def read_classes() -> Path:
    """The file of Java's classes that Spark needs, read and checked; made once on this machine.

    Java itself looks whether they are of its version and of the jars in its path, and goes on without them if not.
    """
    made = (
        Path(tempfile.gettempdir()) / f"safewrite-spark-{sha256(str(_home()).encode()).hexdigest()[:12]}.jsa"
    )
    if not made.exists():
        new = made.with_suffix(f".{os.getpid()}")
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
        subprocess.run(
            [sys.executable, "-c", _READ, new], check=False, env=environment, capture_output=True, timeout=300
        )
        if new.exists():
            new.rename(made)
    return made


def _home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _program() -> str:
    return str(_home() / "bin" / "spark-class")


def _loopback(host: str) -> dict[str, str]:
    return {"SPARK_HOME": str(_home()), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}


def processes() -> dict[int, tuple[int, str]]:
    """The processes that run: the parent and the command line of each."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            line = place.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended just now
            continue
        found[int(place.name)] = parent, line
    return found
