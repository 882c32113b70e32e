"""T3-B3 on a broker: what Kafka's own cleaner leaves while the job is down is enough (``tests.cdc.worlds`` does as it does)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from bench.cdc.producer import Producer
from bench.cdc.topic import copy
from bench.servers.kafka import Kafka
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.jobs import Job
from tests.cdc.worlds import PARTITIONS, Source

TOPIC = "shop.public.a"


class Compacting(Kafka):
    """A broker that compacts its topics as soon as it can, and keeps tombstones."""

    def _settings(self) -> Path:
        file = super()._settings()
        settings = {
            "log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0.01", "log.roll.ms": "300",
            "log.cleaner.backoff.ms": "200", "log.cleaner.delete.retention.ms": str(86_400_000),
        }  # fmt: skip
        with file.open("a") as more:
            more.writelines(f"{name}={value}\n" for name, value in settings.items())
        return file

    def cleaned(self) -> dict[int, int]:
        """How far the cleaner got in each partition of the topic."""
        file = self.run_dir / f"kafka-{self.port}" / "cleaner-offset-checkpoint"
        lines = file.read_text().split("\n")[2:] if file.exists() else []
        parts = [line.split(" ") for line in lines if line.startswith(f"{TOPIC} ")]
        return {int(number): int(offset) for _, number, offset in parts}


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_rows_that_were_deleted_while_the_job_was_down_go(tmp_path: Path, form: str) -> None:
    job = Job(tmp_path, [{"table": "a", "source": "shop.public.a"}], form, schemas=False)
    draw, source = random.Random(1), Source("shop", "a", False, True)
    for at in range(1, 60):
        source.change(draw, at)
    landed = list(source.log)
    job.landing().land(Batch.of_records(0, landed, {TOPIC: "id"}))
    ends = list(source.ends)
    for at in range(60, 400):
        source.change(draw, at)
    with (
        Compacting(tmp_path) as kafka,
        Producer(kafka, TOPIC, PARTITIONS, tmp_path / "producer.log") as producer,
    ):
        for one in source.log:
            producer.send(one.partition, one.key, one.value)
        producer.flush()
        wanted = list(source.ends)
        at = 400

        def is_clean() -> bool:
            """Changes of one row more in each partition let it begin another segment, and the one before is cleaned."""
            nonlocal at
            for key in range(PARTITIONS):
                at += 1
                first = len(source.log)
                source.write(1000 + key, at)
                for one in source.log[first:]:
                    producer.send(one.partition, one.key, one.value)
            producer.flush()
            cleaned = kafka.cleaned()
            return all(cleaned.get(number, 0) >= end for number, end in enumerate(wanted))

        deadline = time.monotonic() + 120
        while not is_clean():
            assert time.monotonic() < deadline, kafka.cleaned()
            time.sleep(0.4)  # a segment is closed after 0.3 s
        left = copy(kafka.endpoint_url, tmp_path / "topic", TOPIC)
    assert left.num_rows < len(source.log)
    records = [one for one in KafkaRecords.of_frame(left) if one.offset >= ends[one.partition]]
    deletes = {(one.partition, one.key) for one in records if one.value and b'"op":"d"' in one.value}
    lone = [one for one in records if one.value is None and (one.partition, one.key) not in deletes]
    assert lone  # tombstones whose delete is gone
    job.landing().land(Batch.of_records(1, KafkaRecords.of(records), {TOPIC: "id"}))
    assert sorted(job.rows("a")) == sorted(source.rows)
    assert {key: row["n"] for key, row in job.rows("a").items()} == {
        key: row["n"] for key, row in source.rows.items()
    }
    assert not job.letters()
    assert not job.verdict().faults
