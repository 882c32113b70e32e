"""What Spark notes of a micro-batch, and which batches are taken without being weighed; the rest is in tests/spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from safewrite.cdc.config.job import Kafka
from safewrite.cdc.kafka import source
from safewrite.cdc.kafka.admin import KafkaAdmin
from safewrite.cdc.kafka.batch_split import Limit
from safewrite.cdc.kafka.micro_batches import MicroBatches, _within
from safewrite.cdc.kafka.source import Source, Told
from safewrite.cdc.kafka.workplace import Workplace
from safewrite.cdc.records.batch import Partition, Range

IDS = {"t": "id-1", "u": "id-2"}
T0, T1, U0 = Partition("t", 0, "id-1"), Partition("t", 1, "id-1"), Partition("u", 0, "id-2")
READ = {T0: Range(7, 9), U0: Range(3, 5)}


def told(ends: Any, starts: Any = None) -> Told:
    return Told(IDS, ends, starts)


def test_offsets_are_those_that_spark_noted_and_else_those_of_the_records() -> None:
    ends = {"t": {"0": 10, "1": 4}, "u": {"0": 6}}
    whole = told(ends, {"t": {"0": 5, "1": 4}, "u": {"0": 0}})
    assert (whole.known, whole.joined) == ({T0: Range(5, 10), U0: Range(0, 6)}, True)
    new = told(ends, {"t": {"0": 5, "1": 2}})  # a topic that came with this batch
    assert (new.known, new.joined) == (None, True)
    assert new.ranges(READ) == {T0: Range(5, 10), T1: Range(2, 4), U0: Range(3, 6)}
    first = told(ends)
    assert (first.known, first.joined, first.ranges(READ)) == (
        None,
        False,
        {T0: Range(7, 10), U0: Range(3, 6)},
    )
    unknown = told(None, {"t": {"0": 5}})
    assert (unknown.known, unknown.joined, unknown.ranges(READ)) == (None, False, READ)


class Admin:
    """A client of Kafka; ``answers`` are topics by name, or an error."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.is_closed = answers, False

    def close(self) -> None:
        self.is_closed = True

    def describeTopics(self, names: list[str]) -> Any:  # noqa: N802 - Kafka's name
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(allTopicNames=lambda: SimpleNamespace(get=lambda: answer))


def test_a_batch_asks_kafka_by_the_client_of_the_one_before_and_reads_only_its_own_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch made a client, and read what Spark noted of the batch before once more."""
    topic = SimpleNamespace(topicId=lambda: SimpleNamespace(toString=lambda: "id-1"))
    away = RuntimeError("org.apache.kafka.common.errors.TimeoutException: no broker")
    answers, made, read = [{"t": topic}, away, {"t": topic}, {"t": topic}], list[Admin](), list[int]()

    def client(self: KafkaAdmin, spark: Any) -> Admin:
        made.append(Admin(answers))
        return made[-1]

    def noted(spark: Any, checkpoint: str, number: int) -> Any:
        read.append(number)
        return {"t": {"0": 10 * number}}

    monkeypatch.setattr(KafkaAdmin, "_made", client)
    monkeypatch.setattr(source, "_offsets", noted)
    spark: Any = None
    of_job = Source(Kafka(servers="none", topics=["t"]), "job")
    of_job._kafka.sleep = lambda _: None
    assert of_job.told(spark, 4, "place").known == {T0: Range(30, 40)}
    assert (len(made), read) == (1, [3, 4])
    assert of_job.told(spark, 5, "place").known == {T0: Range(40, 50)}
    assert ([one.is_closed for one in made], read) == ([True, False], [3, 4, 5]), (
        "a client that failed is left"
    )
    assert of_job.told(spark, 9, "elsewhere").known == {T0: Range(80, 90)}
    assert read[-2:] == [8, 9], "what is known is of another batch"
    of_job.close()
    assert all(one.is_closed for one in made)


class ToldAdmin(Admin):
    """A client of Kafka that knows what is set of its one topic, ``settings``; None: it may not say."""

    def __init__(self, settings: dict[str, str] | None) -> None:
        topic = SimpleNamespace(topicId=lambda: SimpleNamespace(toString=lambda: "id-1"))
        super().__init__([{"t": topic}])
        self.settings = settings

    def describeConfigs(self, asked: list[Any]) -> Any:  # noqa: N802 - Kafka's name
        if self.settings is None:
            raise RuntimeError("org.apache.kafka.common.errors.TopicAuthorizationException: not you")
        entries = {
            name: SimpleNamespace(value=lambda text=text: text) for name, text in self.settings.items()
        }
        answer = dict.fromkeys(asked, entries)
        return SimpleNamespace(all=lambda: SimpleNamespace(get=lambda: answer))


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({}, "1"),
        ({"remote.storage.enable": "false"}, "1"),
        ({"remote.storage.enable": "true"}, None),
        ({"confluent.tier.enable": "true"}, None),
        (None, None),
    ],
)
def test_the_end_of_a_partition_is_not_waited_for_unless_records_may_be_in_tiered_storage(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str] | None,
    waits: str | None,
) -> None:
    """A batch of 40 topics waited for half a second at each partition, of which none had more records."""
    caplog.set_level("INFO", "safewrite")
    made = {f"{source._RESOURCE}$Type": SimpleNamespace(TOPIC="topic"), source._RESOURCE: lambda *of: of}
    monkeypatch.setattr(source, "java_class", lambda _, name: made[name])
    monkeypatch.setattr(KafkaAdmin, "_made", lambda self, spark: ToldAdmin(settings))
    of_job, spark = Source(Kafka(servers="none", topics=["t"]), "job"), cast("Any", None)
    assert of_job.waits(spark).get("kafka.fetch.max.wait.ms") == waits
    assert ["fetch.max.wait.ms to 1" in one for one in caplog.messages] == [True] * (settings is None)


@pytest.mark.parametrize(
    ("records", "start", "heavy", "small"),
    [(100, 0, 100, True), (101, 0, 1, False), (100, 0, 101, False), (100, None, 1, False), (0, 0, 100, True)],
)
def test_a_batch_is_weighed_unless_it_fits_with_records_four_times_as_heavy(
    records: int, start: int | None, heavy: int, small: bool
) -> None:
    batches = MicroBatches(None, Limit(100, 40_000))  # type: ignore[arg-type]
    batch = told({"t": {"0": records}}, None if start is None else {"t": {"0": start}})
    assert batches._of_known(batch) is None, "nothing is known of the records yet"
    batches._learn(0, 0)
    assert batches._of_known(batch) is None, "of no records nothing is learned"
    batches._learn(10, 10 * heavy)
    batches._learn(1000, 10)
    assert batches._of_known(batch) is (False if small else None)


class Place(Workplace):
    """Executors land more than ten records, and what the driver cannot take."""

    def is_there(self, records: int, *, fits: bool) -> bool:
        return records > 10 or not fits


def test_executors_take_what_their_tasks_hold_and_the_driver_what_comes_to_it() -> None:
    """A driver of 1,000 bytes, and tasks of 100 records and 5,000 bytes."""
    batches = MicroBatches(None, Limit(50, 1000), place=Place(), there=Limit(10**9, 10**9, (100, 5000)))  # type: ignore[arg-type]

    def of(*counts: int) -> bool | None:
        ends, starts = (
            {"t": {str(at): one for at, one in enumerate(some)}} for some in (counts, [0] * len(counts))
        )
        return batches._of_known(told(ends, starts))

    batches._learn(10, 100, None, 0)
    assert [of(5), of(5, 4), of(60), of(90, 90, 90, 90)] == [False, False, True, True]
    assert of(101) is None, "a task would have too many"
    assert batches._limit_of(is_there=True).size == 10**9
    batches._learn(100, 1000, None, 50)
    assert batches._limit_of(is_there=True) == Limit(10**9, 2000, (100, 5000)), (
        "half of the records came to the driver"
    )
    assert (of(90, 90), of(90, 90, 30)) == (True, None)
    batches._learn(100, 1000, None, 0)
    assert batches._limit_of(is_there=True).size == 2222
    assert batches._limit_of(is_there=False) == Limit(50, 1000)


class Cheaper(Workplace):
    """This process lands what it can."""

    def is_there(self, records: int, *, fits: bool) -> bool:
        return not fits


def test_a_batch_that_may_be_too_heavy_for_the_driver_is_weighed_before_it_goes_to_executors() -> None:
    """It went there with the note that all records are too many, as long as the prefixes of records were not known."""
    batches = MicroBatches(None, Limit(1000, 1000), place=Cheaper(), there=Limit(10**9, 10**9))  # type: ignore[arg-type]
    batches._learn(10, 100)
    asked = [batches._of_known(told({"t": {"0": count}}, {"t": {"0": 0}})) for count in (25, 26, 100, 101)]
    assert asked == [False, None, None, True]


def test_a_part_is_read_by_its_offsets() -> None:
    assert _within({U0: Range(3, 6), T0: Range(5, 10)}) == (
        "(topic = 't' AND partition = 0 AND offset >= 5 AND offset < 10) OR "
        "(topic = 'u' AND partition = 0 AND offset >= 3 AND offset < 6)"
    )
