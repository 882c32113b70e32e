"""Runs drivers as clients of a Spark cluster whose executors are processes of their own, and kills executors."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bench.cdc.source_stack import ROOT, SMALL_SPARK, Job
from bench.servers.spark import Cluster, read_classes

_BETWEEN_S = (1.0, 8.0)
"""How long executors have until the next one is killed."""
_AIMED, _WITHIN_S = 0.8, 1.0
"""So many kills wait for a batch that executors land, and let it go on for so long; the others come at any time."""


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


def short_lived() -> dict[str, str]:
    """Spark's settings of drivers and executors that live for half a minute: their Java takes a third of the CPU until it works.

    It compiles quickly rather than well, and begins with classes that another one has read.
    """
    options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:SharedArchiveFile={read_classes()}"
    return {f"spark.{kind}.extraJavaOptions": options for kind in ("driver", "executor")}


class ExecutorKiller:
    """Kills executors, and Python processes of executors between them, while its block runs, until it has killed so many executors.

    It aims at batches that executors land, as the drivers of ``jobs`` say; ``hits`` counts the kills that came within one.
    """

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], kills: int, seed: int) -> None:
        self._cluster, self._jobs, self._kills, self._draw = cluster, jobs, kills, random.Random(seed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="executor-killer")
        self.done = self.python = self.hits = 0

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
            aims = self._draw.random() < _AIMED
            while aims and not self._aimed and not self._ends.is_set():
                time.sleep(0.02)
            time.sleep(self._draw.uniform(0.0, _WITHIN_S))
            is_hit, is_python = self._aimed, self._draw.random() < 0.4
            if is_python:
                killed = self._cluster.kill_python_worker(self._draw)
                self.python += killed
            else:
                killed = self._cluster.kill_executor(self._draw)
                self.done += killed
            self.hits += killed and is_hit

    @property
    def _aimed(self) -> bool:
        return any(job.is_with_executors for job in self._jobs)
