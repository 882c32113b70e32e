"""Leaves the records of a micro-batch on Spark's executors, which decode them; the driver gets what they decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change_set import Place
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.table.by_tasks import ExecutorWork
from safewrite.cdc.table.decode_task import DecodeReport
from safewrite.engine.spark import SparkEngine, arrow_of, bound_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Learn = Callable[[int, float, float | None, int | None], None]


class ExecutorRecords(KafkaRecords):
    """Records that Spark reads where they are wanted; whoever looks at one takes them into the driver.

    Args:
        frame: the columns of records, one partition for each of Kafka.
        prefixes: bytes that Spark cuts off keys and values.
        learn: is asked to remember how many they were, what they weighed as Kafka and as Spark has them, and how many came to the driver.
        rows_a_batch: at most this many of them come to a task at a time.
        most: at most so many bytes of them come to the driver; None: what they are is little enough.
    """

    def __init__(
        self,
        frame: DataFrame,
        prefixes: Sequence[bytes],
        learn: Learn,
        rows_a_batch: int,
        starts: Mapping[Place, int] | None = None,
        *,
        most: int | None = None,
    ) -> None:
        self.frame, self.prefixes, self.learn, self.starts = frame, tuple(prefixes), learn, starts
        self.rows_a_batch, self.most = rows_a_batch, most

    @property
    def data(self) -> pa.Table:
        return self.taken.data

    @property
    def whereabouts(self) -> pa.Table:
        return self.taken.data

    @cached_property
    def taken(self) -> KafkaRecords:
        """The records in the driver."""
        taken = KafkaRecords.of_frame(arrow_of(self.frame), self.prefixes)
        return taken if self.starts is None else taken.since(self.starts)

    def since(self, starts: Mapping[Place, int]) -> ExecutorRecords:
        """The records from these offsets on; none of a partition that is not named."""
        return ExecutorRecords(
            self.frame, self.prefixes, self.learn, self.rows_a_batch, starts, most=self.most
        )


@dataclass
class ExecutorRecordsWork:
    """Gives records that are with executors to tasks there; a decoder of the driver remembers what these met.

    Frames of a stream are of a copy of the session that Spark made for it, so that their settings are this job's.
    """

    decoder: Decoder
    _rows_a_batch: int | None = field(default=None, init=False)
    """As the stream's session has it."""

    def __call__(self, records: KafkaRecords) -> ExecutorWork:
        """The work of a batch: there, or here for records that are in the driver already."""
        if not isinstance(records, ExecutorRecords):
            return ExecutorWork.here(records)
        session = records.frame.sparkSession
        if records.rows_a_batch != self._rows_a_batch:
            bound_rows(session, records.rows_a_batch)
            self._rows_a_batch = records.rows_a_batch
        return ExecutorWork(
            SparkEngine(session),
            records.frame,
            records.prefixes,
            records.starts,
            session.sparkContext.defaultParallelism,
            partial(self._learn, records),
            records.rows_a_batch,
            most=records.most,
        )

    def _learn(self, records: ExecutorRecords, reports: Sequence[DecodeReport]) -> None:
        size, cut = sum(one.size for one in reports), sum(one.cut for one in reports)
        records.learn(
            sum(one.records for one in reports), size, size - cut if records.prefixes else None,
            sum(one.by_columns + one.others for one in reports),
        )  # fmt: skip
        for report in reports:
            for known, met in zip((self.decoder.keys, self.decoder.values), report.prefixes, strict=True):
                for data in met:
                    known.of(data)
