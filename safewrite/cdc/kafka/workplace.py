"""Says which records of a job are landed by executors: as its engine has it, or by what batches took so far."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from safewrite.cdc.config.job import Config
from safewrite.engine.choice import Choice, Cost, Executors
from safewrite.engine.spark import SparkEngine, cores_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = Cost(0.05, 60e-6, 100_000), Cost(1.0, 60e-6, 100_000)
DRIVER = 10e-6
"""What a record takes in the driver, and by one core of executors, until the job has measured; ``DRIVER``: of the driver, where executors land it (docs/sizes.md)."""
SMALL = 500
"""Fewer records are worth no job of Spark's, whatever was measured."""

log = logging.getLogger("safewrite")


@dataclass
class Workplace:
    """Where the records of a job are landed; ``executors`` are None where all are by the driver, and land all where they are forced."""

    executors: Executors | None = None
    choice: Choice = field(default_factory=lambda: Choice("records"))

    @classmethod
    def of(cls, config: Config, spark: SparkSession) -> Workplace:
        """That of a job."""
        modules = ("safewrite.cdc.table.decode_task",)
        if config.engine == "spark":
            return cls(Executors(SparkEngine(spark), modules, max(1, cores_elsewhere(spark)), is_forced=True))
        cores = cores_elsewhere(spark) if config.engine == "auto" else 0
        if not cores:
            return cls()
        if config.kafka.divided:
            log.info(
                "engine auto: the driver works, for kafka.options has %s", ", ".join(config.kafka.divided)
            )
            return cls()
        here, there = RECORDS
        costs = here, replace(there, unit=DRIVER + there.unit / cores)
        return cls(Executors(SparkEngine(spark), modules, cores), choice=Choice("records", costs))

    def is_there(self, records: int, *, fits: bool) -> bool:
        """Whether executors land so many records, which the driver can take at once or not."""
        if self.executors is None or self.executors.is_forced:
            return self.executors is not None
        most = records if fits else 0
        return self.choice.is_there(records, small=SMALL if fits else 0, most=most) and (
            self.executors.ready() is not None
        )

    @property
    def told(self) -> str:
        """What was chosen last, and why."""
        if self.executors is None or self.executors.is_forced:
            return f"all by {'this process' if self.executors is None else 'executors'}"
        return self.executors.lacking or self.choice.last
