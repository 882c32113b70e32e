"""Says which records of a job are landed by executors: as its engine has it, or by what batches took so far."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.cdc.config.job import Config
from safewrite.engine.choice import Choice, Cost, Executors
from safewrite.engine.spark import executors_of

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
        executors = executors_of(config.engine, ("safewrite.cdc.table.decode_task",), session=spark)
        if executors is None or executors.is_forced:
            return cls(executors)
        if config.kafka.divided:
            log.info(
                "engine auto: the driver works, for kafka.options has %s", ", ".join(config.kafka.divided)
            )
            return cls()
        return cls(executors, Choice.among("records", RECORDS, executors.cores, driver=DRIVER))

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
