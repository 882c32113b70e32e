"""Reads Kafka through a Spark session: the stream, where it starts, and the ids of its topics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import safewrite as sw
from safewrite.cdc.config.job import Kafka
from safewrite.cdc.kafka.admin import KafkaAdmin, reason_of
from safewrite.cdc.records.batch import Partition, Range, Ranges
from safewrite.engine.spark import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("safewrite")

Offsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""By topic and number of a partition."""

_RESOURCE = "org.apache.kafka.common.config.ConfigResource"
_TIERED = ("remote.storage.enable", "confluent.tier.enable")
"""The settings of a topic by which a part of its records is in tiered storage."""
EARLIEST = -2
"""What Spark calls the first offset that is still there."""


@dataclass(frozen=True)
class Source:
    """The topics of a job."""

    kafka: Kafka
    job: str
    _noted: dict[tuple[str, int], Offsets] = field(default_factory=dict, repr=False)
    """The offsets at the end of the last micro-batch, by checkpoint and number: Spark writes them once."""

    def read(self, spark: SparkSession, positions: Mapping[str, int]) -> DataFrame:
        """The stream of records as Spark has them, from where the job's tables are, or from where the configuration says."""
        starts = self.starts(spark, positions)
        reader = spark.readStream.format("kafka")
        for name, value in (self.waits(spark) | self.kafka.spark_options()).items():
            reader = reader.option(name, value)
        return reader.option("startingOffsets", starts).load()

    def waits(self, spark: SparkSession) -> dict[str, str]:
        """Options so that a broker says at once where a partition has no more records; none for topics of which a part may be elsewhere.

        Spark asks where a partition ends after each fetch, and a broker answers only after the fetch that Kafka's client has sent
        ahead by then: at the end of a partition half a second later.  Before Kafka 3.8 that is also how long a broker reads from
        tiered storage before it gives up, and what a topic has there is known only to who may see its configuration.
        """
        try:
            with self._kafka.client(spark) as admin:
                kind = java_class(spark, f"{_RESOURCE}$Type").TOPIC
                asked = [java_class(spark, _RESOURCE)(kind, name) for name in self.ids(spark)]
                found = admin.describeConfigs(asked).all().get()
                entries = [found[one].get(name) for one in asked for name in _TIERED]
        except Exception as error:  # noqa: BLE001 - a broker that does not say it serves the job all the same
            log.info(
                "Kafka does not say whether topics of %s have tiered storage (%s), so a partition that has no more records is waited for "
                "at each batch, half a second each. If none has, or Kafka is 3.8 or later, set kafka.fetch.max.wait.ms to 1 in kafka.options.",
                self.job,
                reason_of(error),
            )
            return {}
        is_tiered = any(one is not None and str(one.value()) == "true" for one in entries)
        return {} if is_tiered else {"kafka.fetch.max.wait.ms": "1"}

    def starts(self, spark: SparkSession, positions: Mapping[str, int]) -> str:
        """``startingOffsets``; a checkpoint goes before them."""
        given = self.kafka.starting_offsets
        topics = self.topics(spark)
        names = {where.name(self.job) for where in topics}
        if not names & set(positions):
            # Also of a job whose topics were all created again: then no offset of the old ones counts.
            return given if isinstance(given, str) else json.dumps(given)
        starts: dict[str, dict[str, int]] = {}
        for where in topics:
            at = positions.get(where.name(self.job), EARLIEST)
            starts.setdefault(where.topic, {})[str(where.number)] = at
        return json.dumps(starts)

    def topics(self, spark: SparkSession) -> list[Partition]:
        """The partitions of the topics, as they are now.

        Raises:
            InvalidInputError: a topic is not there.
        """
        return [
            Partition(name, int(partition.partition()), _id_of(topic))
            for name, topic in self._described(spark).items()
            for partition in _items(topic.partitions())
        ]

    def ids(self, spark: SparkSession) -> dict[str, str]:
        """The ids of the topics, as they are now.

        Raises:
            InvalidInputError: a topic is not there.
        """
        return {name: _id_of(topic) for name, topic in self._described(spark).items()}

    def _described(self, spark: SparkSession) -> dict[str, Any]:
        def asked() -> dict[str, Any]:
            with self._kafka.client(spark) as admin:
                return self._described_once(admin)

        return self._kafka.asked(asked, "its topics")

    def _described_once(self, admin: Any) -> dict[str, Any]:
        names = self.kafka.topics or [
            str(name)
            for name in _items(admin.listTopics().names().get().toArray())
            if re.fullmatch(str(self.kafka.pattern), str(name))
        ]
        try:
            described = admin.describeTopics(sorted(names)).allTopicNames().get()
        except Exception as error:
            if "UnknownTopicOrPartition" not in str(error):
                raise
            raise sw.InvalidInputError(
                f"Kafka at {self.kafka.servers} does not have all topics of {sorted(names)}. Nothing was read. Correct "
                "kafka.topics, or create them."
            ) from error
        return {name: described[name] for name in sorted(names)}

    def reach(self, spark: SparkSession) -> dict[Partition, Range]:
        """The offsets that the topics have now: the first that is there, and the next that will be."""
        where = self.topics(spark)
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        asked = [jvm.org.apache.kafka.common.TopicPartition(one.topic, one.number) for one in where]

        def offsets_of(which: Any) -> Any:
            with self._kafka.client(spark) as admin:
                return admin.listOffsets(dict.fromkeys(asked, which)).all().get()

        found = [
            self._kafka.asked(partial(offsets_of, which), "its offsets")
            for which in (spec.earliest(), spec.latest())
        ]
        return {
            one: Range(*(int(offsets[place].offset()) for offsets in found))
            for one, place in zip(where, asked, strict=True)
        }

    def commit(self, spark: SparkSession, ends: Mapping[Partition, int]) -> None:
        """Give the consumer group of the configuration these offsets, for tools that show its lag; a failure is logged, and no more."""
        group = self.kafka.commit_group
        if group is None or not ends:
            return
        try:
            with self._kafka.client(spark) as admin:
                jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
                offsets = {
                    jvm.org.apache.kafka.common.TopicPartition(
                        one.topic, one.number
                    ): jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(end)
                    for one, end in ends.items()
                }
                admin.alterConsumerGroupOffsets(group, offsets).all().get()
        except Exception as error:  # noqa: BLE001 - the tables have the offsets
            log.warning(
                "The consumer group %s did not get the offsets of a batch that landed (%s). The job goes on, for its tables have them; "
                "until the next batch the lag of the group is too high. Has it members of its own, or may the job not write to it?",
                group,
                reason_of(error),
            )

    @cached_property
    def _kafka(self) -> KafkaAdmin:
        return KafkaAdmin(self.kafka.servers, self.kafka.spark_options())

    def close(self) -> None:
        """Close the connection to Kafka; who asks again opens another one."""
        self._kafka.close()

    def told(self, spark: SparkSession, number: int, checkpoint: str) -> Told:
        """What Spark noted of a micro-batch before it began, and the ids of its topics."""
        ids = self.ids(spark)
        known = self._noted.get((checkpoint, number - 1))
        starts = _offsets(spark, checkpoint, number - 1) if number and known is None else known
        ends = _offsets(spark, checkpoint, number)
        self._noted.clear()
        if ends is not None:
            self._noted[checkpoint, number] = ends
        return Told(ids, ends, starts)


@dataclass(frozen=True)
class Told:
    """The offsets at the start and the end of a micro-batch; None where Spark's notes cannot be read, or there are none."""

    ids: Mapping[str, str]
    ends: Offsets | None
    starts: Offsets | None

    @property
    def joined(self) -> bool:
        """Whether the batch follows one before it."""
        return self.ends is not None and self.starts is not None

    @property
    def known(self) -> Ranges | None:
        """The offsets that the batch covers; None where only its records tell where it starts."""
        if self.ends is None or self.starts is None:
            return None
        has = all(
            number in self.starts.get(topic, {}) for topic, part in self.ends.items() for number in part
        )
        return self.ranges({}) if has else None

    def ranges(self, read: Ranges) -> Ranges:
        """The offsets that the batch covers.

        Args:
            read: those from its first record to its last.
        """
        if self.ends is None:
            return read
        ranges: dict[Partition, Range] = {}
        for topic, partitions in self.ends.items():
            for partition, end in partitions.items():
                where = Partition(topic, int(partition), self.ids.get(topic, ""))
                start = (self.starts or {}).get(topic, {}).get(partition)
                if start is None and where in read:
                    start = read[where].start
                if start is not None and start < end:
                    ranges[where] = Range(start, end)
        return ranges


def _items(listed: Any) -> list[Any]:
    """The items of a list or an array of Java.  Its iterator ends by an exception, which costs py4j some twenty round trips."""
    return [listed[place] for place in range(len(listed))]


def _id_of(topic: Any) -> str:
    return str(topic.topicId().toString())


def _offsets(spark: SparkSession, checkpoint: str, number: int) -> Offsets | None:
    """The offsets at the end of a batch, as Spark notes them before it begins; None where they cannot be told."""
    path = f"{checkpoint.rstrip('/')}/offsets/{number}"
    place = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    files = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        text = str(java_class(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
    finally:
        stream.close()
    try:
        found = json.loads(text.strip().splitlines()[-1])
    except ValueError:
        return None
    fits = isinstance(found, dict) and all(
        isinstance(one, dict) and all(isinstance(at, int) for at in one.values()) for one in found.values()
    )
    return found if fits else None
