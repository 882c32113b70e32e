"""Takes the records of a micro-batch into the driver: all at once where they are few, else part by part."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from safewrite.cdc.arrow import arrow_of
from safewrite.cdc.batch import Batch, Partition, Ranges, ranges_of
from safewrite.cdc.parts import Cell, Limit, cut
from safewrite.cdc.records import Records
from safewrite.cdc.source import Source, Told

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("safewrite")

_MARGIN = 4
"""A batch is taken whole without being weighed if it would fit with records so many times as heavy as any before."""
_SIZE = (
    "coalesce(octet_length(key), 0L) + coalesce(octet_length(value), 0L) + coalesce(aggregate(headers, 0L, "
    "(sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0L)), 0L) AS size"
)


class Intake:
    """Takes micro-batches of one source, within a limit of records and bytes."""

    def __init__(self, source: Source, limit: Limit) -> None:
        self._source, self._limit = source, limit
        self._heaviest: float | None = None
        """Bytes of a record, in that batch of this process whose records weighed most; None before the first."""

    def batches(
        self,
        spark: SparkSession,
        frame: DataFrame,
        number: int,
        checkpoint: str,
        positions: Callable[[], Mapping[str, int]],
    ) -> Generator[Batch]:
        """The micro-batch, or its parts one after another, without those that are behind the job's positions."""
        told = self._source.told(spark, number, checkpoint)
        if self._is_small(told):
            yield self._whole(frame, number, told)
            return
        done = positions()
        if told.known is not None and all(
            _is_done(self._source.job, told.known, where, done) for where in told.known
        ):
            return
        frame.persist()  # it is read from Kafka once, and kept where the executors are
        try:
            cells, read = self._weigh(frame, told.ids)
            parts = cut(told.ranges(read), cells, self._limit)
            if len(parts) > 1:
                log.info("batch %s of %s is landed in %s parts", number, self._source.job, len(parts))
            for part in parts:
                if all(_is_done(self._source.job, part, where, done) for where in part):
                    continue
                # No name here holds the records while the next part is taken.
                yield Batch(number, Records.of_frame(arrow_of(frame.where(_within(part)))), part, told.joined)
        finally:
            frame.unpersist()

    def _whole(self, frame: DataFrame, number: int, told: Told) -> Batch:
        data = arrow_of(frame)
        self._learn(data.num_rows, data.nbytes)
        found = Batch.of_records(number, Records.of_frame(data), told.ids)
        return Batch(number, found.records, told.ranges(found.ranges), told.joined)

    def _is_small(self, told: Told) -> bool:
        """Whether a batch is within the limit, by its offsets and by what records weighed until now."""
        if told.known is None or self._heaviest is None:
            return False
        most = sum(end - start for start, end in told.known.values())
        return most <= self._limit.records and most * self._heaviest * _MARGIN <= self._limit.size

    def _learn(self, records: int, size: int) -> None:
        if records:
            self._heaviest = max(self._heaviest or 0, size / records)

    def _weigh(self, frame: DataFrame, ids: Mapping[str, str]) -> tuple[list[Cell], Ranges]:
        """What the records weigh, and their first and last offsets; added up on the executors."""
        from pyspark.sql import functions as f

        cells = frame.selectExpr(
            "topic", "partition", "offset", f"offset div {self._limit.cell} AS cell", _SIZE
        )
        summed = cells.groupBy("topic", "partition", "cell").agg(
            f.count("*").alias("records"), f.sum("size").alias("size"),
            f.min("offset").alias("first"), f.max("offset").alias("last"),
        )  # fmt: skip
        rows = arrow_of(summed).to_pylist()
        found = [
            Cell(
                Partition(row["topic"], row["partition"], ids.get(row["topic"], "")),
                row["cell"],
                row["records"],
                row["size"],
            )
            for row in rows
        ]
        self._learn(sum(one.records for one in found), sum(one.size for one in found))
        places = ((row["topic"], row["partition"], row[name]) for row in rows for name in ("first", "last"))
        return found, ranges_of(places, ids)


def _is_done(job: str, ranges: Ranges, where: Partition, positions: Mapping[str, int]) -> bool:
    return ranges[where].end <= positions.get(where.name(job), -1)


def _within(ranges: Ranges) -> str:
    """A condition of Spark; names of topics are of letters, digits, dots, dashes and underscores."""
    return " OR ".join(
        f"(topic = '{where.topic}' AND partition = {where.number} AND offset >= {start} AND offset < {end})"
        for where, (start, end) in sorted(ranges.items())
    )
