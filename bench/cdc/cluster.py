"""Runs drivers as clients of a Spark cluster whose executors are processes of their own, and kills executors."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from bench.cdc.source_stack import ROOT, SMALL_SPARK
from bench.servers.spark import Cluster

_BETWEEN_S = (2.0, 12.0)
"""How long an executor has until the next one is killed."""


def on_cluster(cluster: Cluster, jobs: int = 1) -> dict[str, str]:
    """Spark's settings of a driver that shares the cores of a cluster with so many jobs."""
    return {
        **SMALL_SPARK,
        "spark.master": cluster.master.endpoint_url,
        "spark.cores.max": str(max(1, cluster.workers // jobs)),
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # A killed executor leaves its tasks to be tried again, and the cluster is never given up.
        "spark.task.maxFailures": "20",
        "spark.speculation": "true",
    }


class ExecutorKiller:
    """Kills executors at random while its block runs, until it has killed so many."""

    def __init__(self, cluster: Cluster, kills: int, seed: int) -> None:
        self._cluster, self._kills, self._draw = cluster, kills, random.Random(seed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executor-killer")
        self.done = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while self.done < self._kills and not self._ends.wait(self._draw.uniform(*_BETWEEN_S)):
            self.done += self._cluster.kill_executor(self._draw)
