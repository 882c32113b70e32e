"""Runs a medallion job by tasks, in threads of this process or on a Spark cluster whose executors are killed."""

from __future__ import annotations

import logging
import os
import pickle
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from bench.cdc.cluster import on_cluster, short_lived
from bench.servers.spark import Cluster
from safewrite.changes.tasks import apply_job
from safewrite.engine import choice
from safewrite.engine.abc import Task, TaskReport
from safewrite.engine.local import LocalEngine
from safewrite.medallion import Pipeline, Run
from safewrite.medallion.bronze import tasks as bronze_tasks
from safewrite.medallion.silver import apply, tasks
from safewrite.medallion.tables.engine import by_executors

_BETWEEN_S, _WITHIN_S = (1.0, 8.0), 2.0
"""How long executors have until the next is killed; and how long it may be at its tasks by then."""
_QUICK = {"spark.locality.wait": "0s"}
"""Tasks take less than executors wait for better ones."""
ON_CLUSTERS = frozenset({"spark", "auto"})
_LIMITS = {
    "tasks": (0, 5, -1, -1),
    "spark": (60, 20, 6000, 120),
    "killed": (14, 8, 1500, 30),
    "auto": (5, 8, 500, 30),
}
"""Rows of silver, of one of its tasks, bytes of bronze, changes that are decided about by the driver: so many are too few for a job."""
_POLL_S = 0.2
_ARGUMENTS, _PORT = "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"


class Away(LocalEngine):
    """Runs tasks as executors do: they, what they report and its rows do not stay with who runs them."""

    @contextmanager
    def map(self, source: Any, task: Any, rows_a_batch: int | None = None) -> Iterator[Any]:
        """See :class:`safewrite.engine.abc.Engine`."""
        with super().map(source, _sent(task), rows_a_batch) as mapped:
            yield replace(mapped, reports=_sent(mapped.reports))

    def run(self, tasks: Sequence[Task]) -> list[TaskReport]:
        """See :class:`safewrite.engine.abc.Engine`."""
        found: list[TaskReport] = _sent(super().run(_sent(tasks)))
        return found

    def at_hand(self, source: Any) -> None:
        """See :class:`safewrite.engine.abc.Engine`."""


def _sent(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


def ran(config: dict[str, object] | str, engine: str, *, is_killed: bool = False) -> Run:
    """Run a job once, with few rows in a task, so that there are several.

    On Spark the limits below which the driver works are such that it does some tables, executors others, and some both by
    turns; a run that is killed has less to itself.  A session of Spark stays for the next run.
    """
    if engine == "local":
        return Pipeline(config, engine="local").run()
    limits = _LIMITS["killed" if engine == "spark" and is_killed else engine]
    apply.SMALL_ROWS, tasks.PIECE_ROWS, bronze_tasks.SMALL_BYTES, apply_job.FEW_ROWS = limits
    if engine == "tasks":
        pipeline = Pipeline(config)
        pipeline.places.work = by_executors(Away())
        return pipeline.run()
    if engine == "spark":
        return Pipeline(config, engine="spark").run()
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    with mock.patch.object(choice, "chosen", drawn):
        return Pipeline(config).run()


def drawn(size: int, here: choice.Cost, there: choice.Cost, most: int) -> choice.Chosen:
    """Chooses by lot, executors twice of three times: what is promised holds whatever is chosen."""
    return choice.Chosen(size > most or random.random() < 0.67, "it was drawn")


def lent_session() -> dict[str, str]:
    """What another process needs in its environment to work in the session of this one: with its Java, and its executors."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    at = gateway.gateway_parameters
    return {_PORT: str(at.port), "PYSPARK_GATEWAY_SECRET": at.auth_token}


def take_session() -> None:
    """Work in the session of another process, where the environment has one."""
    if _PORT not in os.environ:
        return
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # noqa: SLF001
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    made = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    SparkSession(SparkContext(conf=SparkConf(), jsc=made))


def leave_executors() -> None:
    """End the session of this process, if it has one of its own: another process is to have its executors."""
    if "pyspark" in sys.modules and _PORT not in os.environ:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


class Together(logging.Handler):
    """Counts runs in which one task had to have all rows of a commit of silver, by what the others said; of runs of this process."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: Counter[str] = Counter()
        logging.getLogger("safewrite").setLevel(logging.INFO)
        logging.getLogger("safewrite").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Count one."""
        if "one task has all rows" in str(record.msg):
            _, why = record.args or (None, None)
            self.found[re.sub(r"[0-9]+", "n", str(why))[:80]] += 1


@contextmanager
def killing(folder: Path, kills: int, seed: int) -> Iterator[Counter[str]]:
    """A cluster for the runs of a block, of which executors and their Python processes are killed; how often, by what was killed."""
    done: Counter[str] = Counter()
    draw, ends = random.Random(seed), threading.Event()
    before = os.environ.get(_ARGUMENTS)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the Python of the path
    with Cluster(folder) as cluster:
        settings = on_cluster(cluster) | short_lived() | _QUICK
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
            leave_executors()
            ends.set()
            thread.join()
            os.environ.pop(_ARGUMENTS)
            if before is not None:
                os.environ[_ARGUMENTS] = before
