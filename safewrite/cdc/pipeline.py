"""Runs a job on Spark: each micro-batch of Kafka is read once and landed in all of its tables."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import safewrite as sw
from safewrite.cdc.config.job import RECORDS_HERE, Config, load
from safewrite.cdc.kafka.admin import reason_of
from safewrite.cdc.kafka.arrow import refuse_other_sessions
from safewrite.cdc.kafka.batch_split import TASK, Limit, part_of_heap
from safewrite.cdc.kafka.ending import BatchUnderWay, run_until_ended
from safewrite.cdc.kafka.executor_records import ExecutorRecords, ExecutorRecordsWork
from safewrite.cdc.kafka.micro_batches import MicroBatches
from safewrite.cdc.kafka.session import heap_of
from safewrite.cdc.kafka.source import Source
from safewrite.cdc.kafka.workplace import Workplace
from safewrite.cdc.landing.landing import Landing, WorkOf
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.table.by_tasks import TooMuchHereError
from safewrite.engine.abc import ExecutorsLackPythonError
from safewrite.errors import without_secrets
from safewrite.intake.reporting import OnEvent, listener
from safewrite.intake.upkeep import TablesMaintained, maintain_all
from safewrite.upkeep.workplace import Workplace as UpkeepPlace
from safewrite.upkeep.workplace import workplace_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("safewrite")


class Pipeline:
    """Lands change data of Kafka in Delta and Iceberg tables::

        query = cdc.Pipeline("tables.json").start(spark)
        query.awaitTermination()

    Args:
        config: a ``Config``, a dict, JSON text, or the path of a JSON file.
        on_event: is called with an event ``table_batch`` for each table of a batch that landed, ``stream`` when the query
            tells how far it is, and with those of the tables' writes; :func:`safewrite.metrics.emf` and ``otel`` make
            metrics of them.  What it raises is logged.

    Every table's rows and the offsets that they come from are one commit.  A batch that failed, a lost checkpoint, a
    killed driver and a second job of the same name lose and double nothing; docs/cdc/failures.md says what each of them meets.
    Records are in the driver's memory while they land: a batch that is larger than ``parts`` lands part by part.

    Raises:
        InvalidInputError: each field of the configuration that is wrong, or ``on_event`` is nothing to call.
        MissingExtraError: a library that the configuration needs is not installed.
    """

    @without_secrets
    def __init__(
        self, config: Config | dict[str, Any] | str | Path, *, on_event: OnEvent | None = None
    ) -> None:
        self.config = load(config)
        self._on_event = listener(on_event)
        self.landing = Landing(self.config, on_event=self._on_event)
        self.under_way = BatchUnderWay()
        self._told: threading.Event | None = None
        """Set when who listens to the query was told that it ended."""
        self.last: list[LedgerEntry] = []
        """The ledger's lines of the last batch that landed."""
        self.error: Exception | None = None
        """What the last batch failed with; Spark tells of it in hundreds of lines."""

    @without_secrets
    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the stream; it runs until it is stopped, or until all is landed (``available_now``).

        Raises:
            UnsafeConfigError: the session is of Spark Connect, or older than Spark 3.5.
        """
        refuse_other_sessions(spark)
        config = self.config
        source = Source(config.kafka, config.job)
        decoder = self.landing.decoder
        asked = config.parts
        limit = Limit(asked.records or RECORDS_HERE, asked.bytes or part_of_heap(heap_of(spark)))
        there = Limit(asked.records or sys.maxsize, asked.bytes or sys.maxsize, TASK)
        place = Workplace.of(config, spark)
        self.landing.upkeep.place = UpkeepPlace.of(place.executors)
        micro_batches = MicroBatches(source, limit, decoder.keys, decoder.values, place=place, there=there)
        work_of = ExecutorRecordsWork(decoder)
        checkpoint = config.checkpoint

        @without_secrets
        def batches(frame: DataFrame, number: int) -> None:
            self.last, self.error = [], None
            positions = self.landing.ledger.positions
            made = micro_batches.batches(spark, frame, number, checkpoint, positions)
            try:
                with self.under_way.landing(), closing(made) as parts:
                    begun = time.perf_counter()
                    for part in parts:
                        self._land(part, micro_batches, work_of)
                        ends = {where: one.end for where, one in part.ranges.items()}
                        records = sum(end - start for start, end in part.ranges.values())
                        is_there = isinstance(part.records, ExecutorRecords)
                        del part  # before the next one is taken into memory
                        source.commit(spark, ends)
                        place.choice.took(records, time.perf_counter() - begun, is_there=is_there)
                        begun = time.perf_counter()
            except Exception as error:
                self.error = error
                raise

        stream = source.read(spark, self.landing.ledger.positions())
        name = f"safewrite-cdc-{config.job}"
        writer = stream.writeStream.queryName(name).foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = writer.trigger(**config.trigger.of_spark)
        from safewrite.cdc.kafka.listener import QueryListener

        told = self._told = threading.Event()

        def ended() -> None:
            source.close()
            told.set()

        listener = QueryListener(config.job, name, spark, self._on_event, ended)
        spark.streams.addListener(listener)
        try:
            return writer.start()
        except Exception:
            spark.streams.removeListener(listener)
            source.close()
            raise

    def _land(self, part: Batch, micro_batches: MicroBatches, work_of: WorkOf) -> None:
        """Land a part of a batch; what is too much for the driver, or for executors that cannot work, in smaller ones."""
        place = micro_batches.place
        try:
            self.last += self.landing.land(part, work_of)
            return
        except TooMuchHereError as error:
            log.info("batch %s of %s: %s", part.number, self.config.job, error)
            is_there = True
        except ExecutorsLackPythonError as error:
            if place.executors is None or not place.executors.leaves(error):
                raise
            is_there = False
        with closing(micro_batches.smaller(part, is_there=is_there)) as parts:
            for smaller in parts:
                self.last += self.landing.land(smaller, work_of)

    @without_secrets
    def wait(self, query: StreamingQuery) -> None:
        """Wait until a query of ``start`` ends; on SIGTERM (in the main thread) the batch that is under way lands, and it is stopped.

        Raises:
            SafewriteError: what it ended of: of a batch, as the batch raised it.
        """
        try:
            run_until_ended(query, self.under_way, told=self._told)
        except Exception as error:
            if isinstance(self.error, sw.SafewriteError):
                raise self.error from error
            if _is_gone(error) or _is_gone(self.error):
                raise sw.StorageError(
                    f"Spark's Java process of the job {self.config.job!r} ended, most often for want of memory. What was committed "
                    "stays, and the job goes on from its tables when it starts again. Raise spark.driver.memory, or lower parts.bytes "
                    "and kafka.max_offsets_per_trigger, and start it."
                ) from error
            why = reason_of(self.error or error)
            if any(lost in f"{self.error}{error}" for lost in _DATA_LOSS):
                raise sw.StorageError(
                    f"Kafka deleted records before the job {self.config.job!r} read them ({why}). What was committed stays, and the changes "
                    "between do not come again, so the job goes no further. Give the topic a longer retention; then land by a job of another "
                    "name with a raised epoch, and have the source send its rows again (a snapshot)."
                ) from error
            if self.error is not None and why:
                why = f"{type(self.error).__name__}: {why}"
            raise sw.StorageError(
                f"The stream of the job {self.config.job!r} ended by an error ({why}). What was committed stays, and the job goes on "
                "from its tables when it starts again. Correct the cause, and start it."
            ) from error

    @without_secrets
    def maintain(
        self,
        *,
        dry_run: bool = False,
        budget_s: float | None = None,
        budget_bytes: int | None = None,
        remove_unused: bool = False,
        engine: Literal["auto", "local", "spark"] = "auto",
    ) -> TablesMaintained:
        """Put small data files of all tables of the job together, one table after another; see ``Table.maintain``.

        The budget is that of all tables.  It may run beside the job.

        Raises:
            InvalidInputError: an argument that ``Table.maintain`` refuses.
            MissingExtraError: ``spark`` was asked for, and there is no Spark.
        """
        tables = [(one.name, partial(self.landing.targets.find, one)) for one in self.landing.tables()]
        return maintain_all(
            tables,
            dry_run=dry_run,
            budget_s=budget_s,
            budget_bytes=budget_bytes,
            remove_unused=remove_unused,
            place=workplace_of(engine),
        )

    def restart(self, table: str) -> None:
        """Declare that a table that was dropped, or created again, begins with what comes now.

        Raises:
            InvalidInputError: the job never landed rows in a table of that name.
        """
        self.landing.ledger.restart(table)


_DATA_LOSS = ("OffsetOutOfRange", "KAFKA_DATA_LOSS", "may have been lost")
"""How Spark's source says that Kafka has records no more that it was to read."""


def _is_gone(error: BaseException | None) -> bool:
    """Whether an error is py4j's where Java does not answer any more."""
    return isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
