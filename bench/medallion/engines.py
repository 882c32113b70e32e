"""Runs a medallion job by tasks, in threads of this process or on a Spark cluster whose executors are killed."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cdc.cluster import on_cluster
from bench.servers.spark import Cluster
from safewrite.engine.local import LocalEngine
from safewrite.medallion import Pipeline, Run
from safewrite.medallion.silver import apply, tasks

_BETWEEN_S, _WITHIN_S = (1.0, 12.0), 3.0
"""How long executors have until the next is killed; and how long it may be at its tasks by then."""
_POLL_S = 0.2
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


def ran(config: dict[str, object] | str, engine: str) -> Run:
    """Run a job once, with few rows in a task, so that there are several."""
    if engine == "local":
        return Pipeline(config).run()
    apply.SMALL_ROWS, tasks.PIECE_ROWS = 0, 5
    if engine == "tasks":
        pipeline = Pipeline(config)
        pipeline.places.engine = LocalEngine()
        return pipeline.run()
    from pyspark.sql import SparkSession

    try:
        return Pipeline(config, engine="spark").run()
    finally:
        session = SparkSession.getActiveSession()
        if session is not None:  # another run is to have its executors
            session.stop()


@contextmanager
def killing(folder: Path, kills: int, seed: int) -> Iterator[Counter[str]]:
    """A cluster for the runs of a block, of which executors and their Python processes are killed; how often, by what was killed."""
    done: Counter[str] = Counter()
    draw, ends = random.Random(seed), threading.Event()
    before = os.environ.get(_ARGUMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    with Cluster(folder) as cluster:
        settings = on_cluster(cluster) | {"spark.ui.enabled": "false"}
        given = [f'--conf "{name}={value}"' for name, value in settings.items()]
        os.environ[_ARGUMENTS] = " ".join([*given, "pyspark-shell"])

        def kill() -> None:
            while done["executors"] < kills and not ends.wait(draw.uniform(*_BETWEEN_S)):
                while not cluster.python_workers() and not ends.wait(_POLL_S):
                    pass  # it runs no task of ours: to kill it is to make the session wait for another
                ends.wait(draw.uniform(0.0, _WITHIN_S))
                if draw.random() < 0.5:
                    done["workers of Python"] += cluster.kill_python_worker(draw)
                else:
                    done["executors"] += cluster.kill_executor(draw)

        thread = threading.Thread(target=kill, name="executor-killer")
        thread.start()
        try:
            yield done
        finally:
            ends.set()
            thread.join()
            os.environ.pop(_ARGUMENTS)
            if before is not None:
                os.environ[_ARGUMENTS] = before
