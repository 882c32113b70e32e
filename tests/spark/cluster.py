"""A Spark cluster of two workers on loopback, and an application on it that appends rows.

``python -m tests.spark.cluster`` is the application's driver.  Spark starts no second attempt of a task in
local mode, nor on a host that has the first: each worker has an address of its own, 127.0.0.2 and 127.0.0.3.
"""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.servers.spark import WORKERS
from tests.spark.session import Spark

_ROOT = Path(__file__).resolve().parents[2]


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


if __name__ == "__main__":
    main()
