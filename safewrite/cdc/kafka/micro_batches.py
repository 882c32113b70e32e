"""Takes the records of a micro-batch into the driver, or lets executors decode them: all at once where they are few, else part by part."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safewrite.cdc.kafka.batch_split import Cell, Limit, cut
from safewrite.cdc.kafka.executor_records import ExecutorRecords
from safewrite.cdc.kafka.source import Source, Told
from safewrite.cdc.kafka.workplace import Workplace
from safewrite.cdc.records.batch import Batch, Partition, Ranges, ranges_of
from safewrite.cdc.records.prefixes import Prefixes
from safewrite.cdc.records.records import KafkaRecords
from safewrite.engine.spark import arrow_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("safewrite")

_MARGIN = 4
"""A batch is taken whole without being weighed if it would fit with records this many times as heavy as any before."""
_FADES = 0.9
_PREFIXES_MAX = 64
_ROWS_MIN, _ROWS_MAX, _ARROW_BYTES = 16, 4096, 16 * 2**20
"""At least, and at most, how many records go from Java to Python at a time, and about how many bytes: they fit also where some records are a hundred times as heavy."""
_SIZE = (
    "coalesce(octet_length(key), 0L) + coalesce(octet_length(value), 0L) + coalesce(aggregate(headers, 0L, "
    "(sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0L)), 0L)"
)


class MicroBatches:
    """Takes micro-batches of one source, within limits of records and bytes: of the driver, and of executors.

    Args:
        keys, values: prefixes that the executors cut off keys and values, so that they are not sent to the driver.
        place: says which records are left on the executors, which decode and land them.
        there: the limit of these.
    """

    def __init__(
        self,
        source: Source,
        limit: Limit,
        keys: Prefixes | None = None,
        values: Prefixes | None = None,
        *,
        place: Workplace | None = None,
        there: Limit | None = None,
    ) -> None:
        self._source, self._limit, self._there = source, limit, there or limit
        self.place = place or Workplace()
        self._shortener = Shortener(keys or Prefixes(), values or Prefixes())
        self._heaviest: float | None = None
        """Bytes of a record as Kafka has it, in that batch of this process whose records weighed most; None before the first."""
        self._heaviest_cut: float | None = None
        """The same of what the driver got, once there was anything to cut off."""
        self._came = 0.0
        """The part of the records with executors that came to the driver all the same, of the batches before."""

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
        is_there = self._of_known(told)
        if is_there is not None:
            records = self._taken(self._shortener.shortened(frame), is_there=is_there)
            yield Batch(number, records, told.ranges({}), told.joined, engine=self.place.told)
            return
        done = positions()
        if told.known is not None and all(
            _is_done(self._source.job, told.known, where, done) for where in told.known
        ):
            return
        # It is read from Kafka once, and kept on the disks of the executors: the heap of a driver that is an executor too is
        # needed for the parts.
        kept = self._shortener.shortened(frame, weighed=True).persist(_kept_on_disk())
        try:
            cells, read = self._weigh(kept, told.ids)
            count, size = sum(one.records for one in cells), sum(one.size for one in cells)
            is_there = self.place.is_there(count, fits=self._limit.holds(count, size))
            parts = cut(told.ranges(read), cells, self._limit_of(is_there=is_there))
            if len(parts) > 1:
                log.info("batch %s of %s is landed in %s parts", number, self._source.job, len(parts))
            for part in parts:
                if all(_is_done(self._source.job, part, where, done) for where in part):
                    continue
                # No name here holds the records while the next part is taken.
                yield Batch(
                    number,
                    self._taken(kept.where(_within(part)).drop("size"), is_there=is_there),
                    part,
                    told.joined,
                    engine=self.place.told,
                )
        finally:
            kept.unpersist()

    def smaller(self, batch: Batch, *, is_there: bool) -> Generator[Batch]:
        """A batch whose records are with executors, in parts that the driver can take."""
        given = batch.records
        assert isinstance(given, ExecutorRecords)
        self._came = 1.0
        ids = {where.topic: where.topic_id for where in batch.ranges}
        kept = given.frame.selectExpr("*", f"{_SIZE} AS size").persist(_kept_on_disk())
        try:
            cells, _ = self._weigh(kept, ids)
            parts = cut(batch.ranges, cells, self._limit)
            log.info(
                "batch %s of %s is landed in %s smaller parts", batch.number, self._source.job, len(parts)
            )
            for part in parts:
                frame = kept.where(_within(part)).drop("size")
                records = ExecutorRecords(frame, given.prefixes, self._learn, self._rows_a_batch)
                taken = records if is_there else records.taken
                yield Batch(batch.number, taken, part, batch.joined, engine=self.place.told)
        finally:
            kept.unpersist()

    def _taken(self, shortened: DataFrame, *, is_there: bool) -> KafkaRecords:
        prefixes = self._shortener.prefixes
        if is_there:
            return ExecutorRecords(
                shortened, prefixes, self._learn, self._rows_a_batch, most=self._limit.size
            )
        data = arrow_of(shortened)
        records = KafkaRecords.of_frame(data, prefixes)
        self._learn(len(records), data.nbytes + records.cut_bytes, data.nbytes if prefixes else None)
        return records

    @property
    def _rows_a_batch(self) -> int:
        """At most how many records go to Python at a time: few of heavy ones, for Java has at most 2 GiB of them in one piece."""
        return max(_ROWS_MIN, min(_ROWS_MAX, int(_ARROW_BYTES / (self._heaviest or _ARROW_BYTES))))

    def _of_known(self, told: Told) -> bool | None:
        """Who lands a batch that is within the limit, by its offsets and by what records weighed until now; None: it is to be weighed.

        Prefixes that are not known yet come whole.
        """
        if told.known is None or self._heaviest is None:
            return None
        counts = [end - start for start, end in told.known.values()]
        records, most = sum(counts), max(counts, default=0)
        usual = self._heaviest if self._heaviest_cut is None else self._heaviest_cut
        heavy = max(self._heaviest, usual * _MARGIN)
        fits = self._limit.holds(records, records * self._heaviest)  # what may be heavier is weighed first
        is_there = self.place.is_there(records, fits=fits)
        if is_there:  # a task's memory is not the driver's: Spark tries it again
            heavy = self._heaviest
        limit = self._limit_of(is_there=is_there)
        return is_there if limit.holds(records, records * heavy, (most, most * heavy)) else None

    def _limit_of(self, *, is_there: bool) -> Limit:
        """The limit of who lands records: so that the driver can take what comes to it of those with executors, if it is as much as before."""
        if not is_there:
            return self._limit
        if not self._came:
            return self._there
        size = min(self._there.size, int(self._limit.size / self._came))
        return replace(self._there, size=max(1, size))

    def _learn(self, records: int, size: float, taken: float | None = None, came: int | None = None) -> None:
        if not records:
            return
        if came is not None:
            self._came = max(came / records, self._came * _FADES)
        self._heaviest = max(self._heaviest or 0, size / records)
        if taken is not None:
            self._heaviest_cut = max(self._heaviest_cut or 0, taken / records)

    def _weigh(self, frame: DataFrame, ids: Mapping[str, str]) -> tuple[list[Cell], Ranges]:
        """What the records weigh, and their first and last offsets; added up on the executors."""
        from pyspark.sql import functions as f

        cells = frame.selectExpr(
            "topic", "partition", "offset", f"offset div {self._limit.cell} AS cell", "size"
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


def _kept_on_disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY


class Shortener:
    """Lets the executors cut prefixes off keys and values.

    What Spark is told of them is kept, as long as they are the same: each part of it is a round trip to Java.
    """

    def __init__(self, keys: Prefixes, values: Prefixes) -> None:
        self._known = {"key": keys, "value": values}
        self.prefixes: tuple[bytes, ...] = ()
        """Those that records name by their number."""
        self._cut: dict[str, set[bytes]] = {}
        self._columns: list[Any] = []
        self._in_java: Any = None
        """The columns as Java has them, which is to be told of each by itself."""

    def shortened(self, frame: DataFrame, *, weighed: bool = False) -> DataFrame:
        """The columns of records, without the prefixes that are known now; with what they weigh, if so asked."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as f

        known = {name: tuple(one.newest(_PREFIXES_MAX)) for name, one in self._known.items()}
        # Which of them was met last changes with each batch, and does not matter here.
        if {name: set(one) for name, one in known.items()} != self._cut or not self._columns:
            self._cut = {name: set(one) for name, one in known.items()}
            self.prefixes = (*known["key"], *known["value"])
            self._columns = [
                *_without("key", known["key"], 0), *_without("value", known["value"], len(known["key"])),
                *(f.col(name) for name in ("topic", "partition", "offset", "headers")),
                f.expr("unix_millis(timestamp) AS timestamp_ms"),
            ]  # fmt: skip
            self._in_java = None
        if weighed:
            return frame.select(*self._columns, f.expr(f"{_SIZE} AS size"))
        given: Any = frame
        if self._in_java is None:
            self._in_java = given._jcols(*self._columns)  # noqa: SLF001 - PySpark has no other way to it
        return DataFrame(given._jdf.select(self._in_java), frame.sparkSession)  # noqa: SLF001


def _without(name: str, prefixes: Sequence[bytes], first: int) -> list[Any]:
    """Keys or values without these prefixes where they had them, and the prefixes' numbers."""
    from pyspark.sql import functions as f

    data, number, length = f.col(name), f.lit(None), f.lit(0)
    for place, prefix in reversed([*enumerate(prefixes, first)]):
        has = f.startswith(data, f.lit(bytearray(prefix)))
        number, length = f.when(has, place).otherwise(number), f.when(has, len(prefix)).otherwise(length)
    if prefixes:
        data = data.substr(length + 1, f.octet_length(data)).alias(name)
    return [data, number.cast("int").alias(f"{name}_prefix")]


def _is_done(job: str, ranges: Ranges, where: Partition, positions: Mapping[str, int]) -> bool:
    return ranges[where].end <= positions.get(where.name(job), -1)


def _within(ranges: Ranges) -> str:
    """A condition of Spark; names of topics are of letters, digits, dots, dashes and underscores."""
    return " OR ".join(
        f"(topic = '{where.topic}' AND partition = {where.number} AND offset >= {start} AND offset < {end})"
        for where, (start, end) in sorted(ranges.items())
    )
