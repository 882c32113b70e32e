"""A Kafka topic of one partition as the source of a stream."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.spark.session import Spark
from tests.spark.stream import Stream


@dataclass(frozen=True)
class Topic(Stream):
    """Each record is an id; three of them are a batch, and their values are others in each attempt."""

    servers: str = field(kw_only=True)
    name: str = field(kw_only=True)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def read(self, spark: Spark) -> Any:
        options = {"subscribe": self.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
        stream = spark.session.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        records = stream.options(**options | dict(self.options)).load()
        return records.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id", "uuid() AS value")

    def make(self, spark: Spark, *ids: int) -> Topic:
        """Create it with some records."""
        with self._admin(spark) as admin:
            topic = spark.session.sparkContext._jvm.org.apache.kafka.clients.admin.NewTopic(self.name, 1, 1)
            admin.createTopics([topic]).all().get()
        self.add(spark, *ids)
        return self

    def make_anew(self, spark: Spark, *ids: int) -> None:
        """Delete it and create another of its name."""
        with self._admin(spark) as admin:
            admin.deleteTopics([self.name]).all().get()
        self.make(spark, *ids)

    def add(self, spark: Spark, *ids: int) -> None:
        """More records, in this order."""
        with spark.careless():
            frame = spark.session.createDataFrame([(str(number),) for number in ids], "value STRING")
            writer = frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", self.servers)
            writer.option("topic", self.name).save()

    def forget(self, *parts: str) -> None:
        """Delete parts of the checkpoint, or all of it."""
        for part in parts or (".",):
            shutil.rmtree(self.folder / self.checkpoint / part)

    @contextmanager
    def _admin(self, spark: Spark) -> Iterator[Any]:
        kafka = spark.session.sparkContext._jvm.org.apache.kafka.clients.admin
        admin = kafka.Admin.create({"bootstrap.servers": self.servers})
        try:
            yield admin
        finally:
            admin.close()
