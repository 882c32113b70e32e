"""The job on Spark: Kafka's records of three tables land in Delta and Iceberg, whatever dies or is lost on the way."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

import safewrite as sw
from bench.servers.kafka import Kafka
from safewrite.cdc import Pipeline
from safewrite.cdc import pipeline as pipeline_module
from safewrite.cdc.kafka import workplace
from safewrite.cdc.kafka.source import Source as KafkaSource
from safewrite.cdc.landing.landing import TableBatch
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table.task_shares import TaskShare
from safewrite.changes.members.table_chunks import UnfitError
from safewrite.cli.app import app
from safewrite.engine import spark as engine_spark
from safewrite.engine.abc import ExecutorsLackPythonError
from safewrite.engine.choice import Cost
from safewrite.engine.spark import SparkEngine
from tests.cdc.events import record
from tests.cdc.jobs import Job, Source, change
from tests.cdc.test_history import KEEPING, assert_kept
from tests.spark.parted import RECORDS, pipeline
from tests.spark.session import Spark

pytestmark = pytest.mark.xdist_group("spark")


@dataclass
class Stream:
    """A topic of two partitions, and the job that lands it: three tables of one format."""

    spark: Spark
    kafka: Kafka
    job: Job
    topic: str = field(default_factory=lambda: f"cdc-{uuid.uuid4().hex[:8]}")
    engine: str = "local"

    @property
    def checkpoint(self) -> Path:
        return self.job.folder / "checkpoint"

    def make(self) -> Stream:
        self._admin(lambda admin, kafka: admin.createTopics([kafka.NewTopic(self.topic, 2, 1)]).all().get())
        return self

    def make_anew(self) -> None:
        self._admin(lambda admin, _: admin.deleteTopics([self.topic]).all().get())
        self.make()

    def send(self, *records: KafkaRecord) -> None:
        """Records, each to its partition, in their order."""
        rows = [(one.key, one.value, one.partition, list(one.headers)) for one in records]
        with self.spark.careless():
            frame = self.spark.session.createDataFrame(
                rows,
                "key BINARY, value BINARY, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
            )
            writer = frame.coalesce(1).write.format("kafka").option("includeHeaders", "true")
            writer.option("kafka.bootstrap.servers", self.kafka.endpoint_url).option(
                "topic", self.topic
            ).save()

    def pipeline(self, **more: Any) -> Pipeline:
        """The job in a new driver."""
        kafka = {
            "servers": self.kafka.endpoint_url,
            "topics": [self.topic],
            "max_offsets_per_trigger": 20,
            **more.pop("kafka", {}),
        }
        given = {"kafka": kafka, "checkpoint": str(self.checkpoint), "trigger": {"available_now": True}}
        given |= {"engine": self.engine}
        made = Pipeline(self.job.landing(**given | more).config)
        made.landing.decoder.fewest = 1
        return made

    def run(self, pipeline: Pipeline | None = None) -> None:
        """Land all that there is."""
        with self.spark.careless():
            (pipeline or self.pipeline()).start(self.spark.session).awaitTermination()

    def equal(self, source: Source) -> None:
        assert {name: self.job.rows(name) for name in source.tables} == source.rows
        verdict = self.job.verdict()
        assert verdict.faults == ()
        if self.job.form == "delta":  # Spark's own reader finds the same
            for name, rows in source.rows.items():
                with self.spark.careless():
                    table = self.spark.session.sql(
                        f"SELECT id, name, n FROM delta.`{self.job.folder}/db/{name}`"
                    )
                    found = [row.asDict() for row in table.collect()]
                assert sorted(found, key=lambda row: row["id"]) == [rows[key] for key in sorted(rows)]

    def _admin(self, what: Callable[[Any, Any], object]) -> None:
        kafka = self.spark.session.sparkContext._jvm.org.apache.kafka.clients.admin
        admin = kafka.Admin.create({"bootstrap.servers": self.kafka.endpoint_url})
        try:
            what(admin, kafka)
        finally:
            admin.close()


_LONG = [pytest.param(one, marks=pytest.mark.long) for one in (("iceberg", "local"), ("iceberg", "spark"))]


@pytest.fixture(params=[("delta", "local"), ("delta", "spark"), *_LONG], ids="-".join)
def stream(request: pytest.FixtureRequest, spark: Spark, kafka: Kafka, tmp_path: Path) -> Stream:
    (tmp_path / "lake").mkdir()
    form, engine = request.param
    job = Job(tmp_path, [{"table": name} for name in "abc"], form)
    return Stream(spark, kafka, job, engine=engine).make()


def ended(query: StreamingQuery) -> str | None:
    """Wait for a query; what it failed of."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    return None


def dies(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after: int) -> Pipeline:
    """The driver dies when so many tables have committed, in whatever batch that is."""
    apply, done = pipeline.landing._apply, list[str]()

    def crash(share: TableBatch) -> None:
        if len(done) == after:
            raise RuntimeError("the driver dies here")
        done.append(share.table.name)
        apply(share)

    monkeypatch.setattr(pipeline.landing, "_apply", crash)
    return pipeline


@pytest.mark.long
def test_a_topic_of_three_tables_lands_whatever_dies(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """E1, E2: killed between the commits of two tables, replayed; killed, and the checkpoint lost; a poison record."""
    source = Source(11)
    stream.send(*source.run(40), record(b"\xff poison", b"k", headers={"why": b"none"}))
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(stream.pipeline(parallel_tables=1), monkeypatch, 4))
    stream.run()
    stream.equal(source)
    stream.send(*source.run(30))
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(stream.pipeline(parallel_tables=1), monkeypatch, 2))
    shutil.rmtree(stream.checkpoint)
    stream.send(*source.run(10))
    stream.run(stream.pipeline(kafka={"max_offsets_per_trigger": 7}))
    stream.equal(source)
    (letter,) = stream.job.letters()
    assert (letter["value"], letter["key"], letter["topic"]) == (b"\xff poison", b"k", stream.topic)
    totals = sum(one.totals["records"] for one in stream.job.verdict().accounts)
    assert totals == len(source.records) + 1


@pytest.mark.long
def test_topics_of_events_are_appended_whatever_dies(
    spark: Spark, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic for a Delta table and one for an Iceberg table, read by others: killed between them, and the checkpoint lost."""
    (tmp_path / "lake").mkdir()
    other = Job(tmp_path, [], "iceberg")
    where = {"part": "partition", "at": "offset", "agent": "headers", "k": "key"}
    job = Job(tmp_path, [], settings={"envelope": "events-json", "catalog": other.catalog()})
    streams = [Stream(spark, kafka, job, engine=engine).make() for engine in ("spark", "local")]
    job.tables = [
        {"table": name, "source": one.topic, "format": form, "mode": "append", "metadata": where}
        for name, form, one in zip(("clicks", "views"), ("delta", "iceberg"), streams, strict=True)
    ]
    topics = {"topics": [one.topic for one in streams]}

    def send(first: int, end: int) -> None:
        for one in streams:
            one.send(
                *(
                    record(
                        {"n": at, "deep": {"x": [at]}}, b"k%d" % at, partition=at % 2, headers={"a": b"\xff"}
                    )
                    for at in range(first, end)
                )
            )

    send(0, 50)
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        streams[0].run(dies(streams[0].pipeline(parallel_tables=1, kafka=topics), monkeypatch, 3))
    streams[1].run(streams[1].pipeline(kafka=topics))
    shutil.rmtree(streams[0].checkpoint)
    send(50, 70)
    group = f"lag-{streams[0].topic}"
    streams[0].run(streams[0].pipeline(kafka={**topics, "max_offsets_per_trigger": 7, "commit_group": group}))
    ends: dict[str, int] = {}

    def look(admin: Any, _: Any) -> None:
        offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        ends.update({str(one): int(offsets[one].offset()) for one in offsets})

    streams[0]._admin(look)
    assert ends == {f"{one.topic}-{part}": 35 for one in streams for part in (0, 1)}
    for found in (job.read("clicks"), other.read("views")):
        rows = found.to_pylist()
        assert sorted(row["n"] for row in rows) == list(range(70))
        assert len({(row["part"], row["at"]) for row in rows}) == 70
        assert all(row["k"] == b"k%d" % row["n"] and row["deep"] == f'{{"x":[{row["n"]}]}}' for row in rows)
        assert {row["agent"][0]["value"] for row in rows} == {b"\xff"}
    verdict = job.verdict()
    assert verdict.faults == ()
    assert [one.totals["applied"] for one in verdict.accounts] == [0, 70, 70]


@pytest.mark.long
def test_a_batch_many_times_larger_than_the_driver_takes_lands_whatever_dies(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1, E2: one batch of Spark in a hundred parts; killed between the tables of a part, by SIGKILL, the checkpoint lost."""
    source, folder = Source(14), stream.job.folder
    stream.send(*source.run(3_000))
    given = (stream.job.form, stream.kafka.endpoint_url, stream.topic, stream.engine)
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(pipeline(folder, *given), monkeypatch, 14))
    command = [sys.executable, "-m", "tests.spark.parted", str(folder), *given]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        for _ in range(9):
            assert driver.stdout.readline() == b"part\n"
        driver.kill()
    before = sum(one.totals["records"] for one in stream.job.verdict().accounts)
    assert 9 * RECORDS / 2 < before < len(source.records) / 2
    assert sum(one.totals["earlier"] for one in stream.job.verdict().accounts) == 0
    stream.send(*source.run(500))
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(pipeline(folder, *given), monkeypatch, 50))
    shutil.rmtree(stream.checkpoint)
    stream.run(pipeline(folder, *given))
    stream.equal(source)
    lines = stream.job.read("job_ledger", "cdc").to_pylist()
    assert sum(line["records"] for line in lines) == len(source.records)
    assert len({line["offsets"] for line in lines}) > len(source.records) / RECORDS
    assert {line["batch"] for line in lines} == {0}


@pytest.mark.long
def test_versions_and_marked_rows_land_whatever_dies(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """E1, E2: killed between the commits of two tables, replayed; killed, and the checkpoint lost."""
    source, job = Source(17), stream.job
    job.tables = KEEPING
    stream.send(*source.run(50))
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(stream.pipeline(parallel_tables=1), monkeypatch, 4))
    stream.run()
    stream.send(*source.run(40))
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        stream.run(dies(stream.pipeline(parallel_tables=1), monkeypatch, 2))
    shutil.rmtree(stream.checkpoint)
    stream.send(*source.run(20))
    stream.run()
    assert_kept(job, source)
    lines = [line for line in job.read("job_ledger", "cdc").to_pylist() if line["table"]]
    there = {line["table"] for line in lines if line["by_executors"] == line["records"] > 0}
    assert there == ({"db.a", "db.b", "db.c"} if stream.engine == "spark" else set())


def by_batch(stream: Stream) -> list[tuple[int, bool, str]]:
    """Of each batch, or part of one: its records, whether executors landed them, and what the ledger says of that."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in stream.job.read("job_ledger", "cdc").to_pylist():
        found.setdefault(line["offsets"], []).append(line)
    counts = [
        (
            sum(line["records"] for line in lines),
            sum(line["by_executors"] for line in lines),
            next(line["engine"] for line in lines if line["table"] is None),
        )
        for lines in sorted(found.values(), key=lambda lines: lines[0]["closed_ms"])
    ]
    return [(records, there > 0, engine) for records, there, engine in counts]


@pytest.mark.long
def test_auto_sends_much_to_executors_and_bounds_what_comes_of_it(
    spark: Spark, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session's own executor is taken for two in other processes; ``tests/spark/test_auto`` has such."""
    (tmp_path / "lake").mkdir()
    stream = Stream(spark, kafka, Job(tmp_path, [{"table": name} for name in "abc"]), engine="auto").make()
    source, all_at_once = Source(5), {"kafka": {"max_offsets_per_trigger": 1000}}
    caplog.set_level(logging.INFO, "safewrite")
    with (
        mock.patch.object(engine_spark, "cores_elsewhere", return_value=2),
        mock.patch.object(workplace, "RECORDS", (Cost(0.0, 1.0, 100), Cost(30.0, 0.0, 100))),
        mock.patch.object(workplace, "SMALL", 0),
    ):
        stream.send(*source.run(40))
        stream.run(made := stream.pipeline(**all_at_once))
        stream.send(*source.run(9))
        stream.run(made)
        (much, is_there, why), (few, few_there, _) = by_batch(stream)
        assert (much >= 40, is_there, few < 30, few_there) == (True, True, True, False)
        assert "records by executors: some 30.00 s by executors" in why
        stream.equal(source)
        stream.send(*source.run(60))
        with (
            mock.patch.object(pipeline_module, "part_of_heap", return_value=12_000),
            mock.patch.object(TaskShare, "prepared", side_effect=UnfitError("a test says so")),
        ):
            stream.run(made)  # all of it is to come to the driver
        assert "bytes of" in caplog.text
        assert "smaller parts" in caplog.text
        assert len(by_batch(stream)) > 4
        stream.equal(source)
        lacking = ExecutorsLackPythonError("Install safewrite.")
        stream.send(*source.run(50))
        with mock.patch.object(SparkEngine, "map", side_effect=lacking):
            stream.run(stream.pipeline(**all_at_once))
        assert caplog.text.count("executors cannot. Install safewrite.") == 1
        assert by_batch(stream)[-1][1:] == (False, "Install safewrite.")
        stream.equal(source)


@pytest.mark.long
def test_a_second_job_of_the_same_name_is_fenced(stream: Stream) -> None:
    """E7: it has a checkpoint of its own, as on another cluster; both run until one of them meets the other."""
    source = Source(12)
    stream.send(*source.run(60))
    first = stream.pipeline()
    rival = Stream(stream.spark, stream.kafka, stream.job, stream.topic, stream.engine).pipeline(
        checkpoint=str(stream.job.folder / "other"), kafka={"max_offsets_per_trigger": 13}
    )
    with stream.spark.careless():
        queries = [first.start(stream.spark.session), rival.start(stream.spark.session.newSession())]
        told = [ended(query) for query in queries]
    assert [error for error in told if error and "position" not in error] == []
    stream.run()
    stream.equal(source)


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_refused_until_the_checkpoint_goes(stream: Stream) -> None:
    """E2: the offsets of the new one are those of the old one, and its records would be passed over."""
    stream.send(*(change("c", "a", n, {"id": n}, lsn=n, offset=0) for n in range(3)))
    stream.run()
    stream.make_anew()
    stream.send(*(change("c", "a", n, {"id": n}, lsn=n, offset=0) for n in range(10, 15)))
    with pytest.raises(StreamingQueryException, match=r"created again|offset was changed"):
        stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.run()
    assert set(stream.job.rows("a")) == {0, 1, 2, 10, 11, 12, 13, 14}


@pytest.mark.sweep("delta-local")
def test_the_command_lands_topics_of_a_pattern(stream: Stream) -> None:
    """Also a topic that comes later; the job's tables tell where to go on, not the configuration."""
    other = Stream(stream.spark, stream.kafka, stream.job, f"{stream.topic}-more")
    file = stream.job.folder / "tables.json"
    kafka = {"topics": None, "pattern": f"{stream.topic}.*"}
    file.write_text(stream.pipeline(kafka=kafka).config.model_dump_json())

    def land() -> None:
        with stream.spark.careless():
            found = CliRunner().invoke(app, ["cdc", "run", "--config", str(file)])
        assert found.exit_code == 0, found.output

    stream.send(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    land()
    other.make()
    other.send(change("c", "a", 2, {"id": 2}, lsn=2, offset=0))
    shutil.rmtree(stream.checkpoint)
    land()
    assert set(stream.job.rows("a")) == {1, 2}
    stream.send(change("d", "a", 1, None, lsn=3, offset=0))
    assert standing(file)["a"] == ("behind", 1)
    land()
    assert standing(file)["a"] == ("ok", 0)
    assert set(stream.job.rows("a")) == {2}
    found = CliRunner().invoke(app, ["cdc", "verify", "--config", str(file), "--output", "json"])
    assert found.exit_code == 0, found.output
    totals = json.loads(found.stdout)["tables"]
    assert [(one["table"], one["records"], one["earlier"]) for one in totals if one["records"]] == [
        ("db.a", 3, 0)
    ]


def standing(file: Path) -> dict[str, tuple[str, int]]:
    """State and lag of each table, as ``cdc status`` says when it asks Kafka."""
    found = CliRunner().invoke(app, ["cdc", "status", "--kafka", "--config", str(file), "--output", "json"])
    assert found.exit_code == 0, found.output
    return {
        one["table"].rpartition(".")[2]: (one["state"], one["lag"])
        for one in json.loads(found.stdout)["tables"]
    }


@pytest.mark.long
def test_the_stream_tells_how_far_it_is_and_of_what_it_ended(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows by table are told before the batch ends; what Spark tells of the query comes beside it, or later."""
    stream.send(*Source(13).run(40))
    events: list[sw.Event] = []
    failed, landed = threading.Event(), threading.Event()

    def note(event: sw.Event) -> None:
        events.append(event)
        if event.kind == "stream" and event.details.get("failed"):
            failed.set()
        if event.kind == "stream" and event.details.get("lag_records") == 0:
            landed.set()

    config = stream.pipeline(kafka={"max_offsets_per_trigger": 20}).config
    with pytest.raises(StreamingQueryException):
        stream.run(dies(Pipeline(config, on_event=note), monkeypatch, 0))
    assert failed.wait(60)
    assert not landed.is_set()
    assert [event for event in events if event.kind == "table_batch"] == []
    stream.run(Pipeline(config, on_event=note))
    assert landed.wait(60)
    told = [event.details for event in events if event.kind == "stream" and "lag_records" in event.details]
    assert [one["lag_records"] for one in told] == sorted((one["lag_records"] for one in told), reverse=True)
    assert told[0]["lag_records"] > 0
    assert all(one["batch_s"] > 0 for one in told)
    records = sum(event.details["records"] for event in events if event.kind == "table_batch")
    assert records == sum(one.totals["records"] for one in stream.job.verdict().accounts)
    before = len(events)
    Stream(stream.spark, stream.kafka, Job(stream.job.folder / "x", [{"table": "a"}])).make().run()
    assert len(events) == before, "it was told of another query"


def test_a_topic_that_is_not_there_is_told(stream: Stream) -> None:
    with pytest.raises(sw.InvalidInputError, match="does not have all topics"):
        stream.pipeline(kafka={"topics": ["nobody-made-it"]}).start(stream.spark.session)


def test_kafka_says_that_a_topic_has_no_tiered_storage(stream: Stream) -> None:
    config = stream.pipeline().config
    waits = KafkaSource(config.kafka, config.job).waits(stream.spark.session)
    assert waits == {"kafka.fetch.max.wait.ms": "1"}
