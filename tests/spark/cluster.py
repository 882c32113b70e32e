"""A Spark cluster of two workers on loopback, and an application on it that appends rows.

``python -m tests.spark.cluster`` is the application's driver.  Spark starts no second attempt of a task in
local mode, nor on a host that has the first: each worker has an address of its own, 127.0.0.2 and 127.0.0.3.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.servers import servers
from tests.spark.session import Spark

_ROOT = Path(__file__).resolve().parents[2]
_DEPLOY = "org.apache.spark.deploy"
WORKERS = 2


class Master(servers.Server):
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
        import socket

        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()


class Cluster:
    """A master and its workers, of one core each; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        self.master = self._stack.enter_context(Master(self._folder))
        for number in range(WORKERS):
            self._start_worker(f"127.0.0.{2 + number}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_worker(self, host: str) -> None:
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        options += ["--work-dir", str(self._folder / host), self.master.endpoint_url]
        command = [_program(), f"{_DEPLOY}.worker.Worker", *options]
        with (self._folder / f"worker-{host}.log").open("ab") as log:
            worker = servers.spawn(command, log, env=os.environ | _loopback(host), cwd=self._folder)
        self._stack.callback(servers.end, worker)


@dataclass(frozen=True)
class Appends:
    """Rows for some tables, one append after the other, by what Spark calls them and what opens them.

    Each row has a value that is another whenever it is computed.  ``bucket`` and ``catalogs`` are reached by Spark at ``endpoint_url`` and by these properties.
    """

    folder: Path
    master: str
    tables: Mapping[str, Callable[[], Any]]
    rows: int
    bucket: str
    endpoint_url: str
    catalogs: Mapping[str, dict[str, str]]
    settings: Mapping[str, str]

    def run(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Two receipts for each table, and what Spark's log of events says.

        The second is that of what the table has then, once more under the same key.
        """
        task = base64.b64encode(pickle.dumps(self))
        command = [sys.executable, "-m", __name__]
        subprocess.run(command, cwd=_ROOT, input=task, check=True, timeout=400)
        receipts = json.loads((self.folder / "receipts.json").read_text())
        (log,) = (self.folder / "events").iterdir()
        return receipts, [json.loads(line) for line in log.read_text().splitlines()]


def main() -> None:
    """Start the application, append, say what the receipts say."""
    task: Appends = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))
    (task.folder / "events").mkdir()
    app = Spark(task.folder)
    builder = app._builder.master(task.master)
    # The jars are where the workers are: nothing need be sent.
    jars = builder._options["spark.jars"].split(",")
    settings = {
        "spark.jars": ",".join(f"local:{jar}" for jar in jars),
        "spark.executor.memory": "600m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (task.folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        **task.settings,
    }
    for name, value in settings.items():
        builder.config(name, value)
    with app as spark:
        spark.reach(task.bucket, task.endpoint_url)
        for name, properties in task.catalogs.items():
            spark.know(name, properties)
        ids = spark.session.range(0, task.rows, 1, WORKERS)
        frame = ids.selectExpr("id", "reflect('java.util.UUID', 'randomUUID') AS value")
        receipts = []
        for name, reopen in task.tables.items():
            receipts.append(reopen().append(frame, key="event-1").to_dict())
            stored = spark.session.table(name)
            receipts.append(reopen().append(stored, key="event-1").to_dict())
    (task.folder / "receipts.json").write_text(json.dumps(receipts))


def _home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _program() -> str:
    return str(_home() / "bin" / "spark-class")


def _loopback(host: str) -> dict[str, str]:
    return {"SPARK_HOME": str(_home()), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}


if __name__ == "__main__":
    main()
