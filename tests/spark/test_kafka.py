"""Streams over Kafka: a batch is known by its offsets in a topic that is still the same one."""

from __future__ import annotations

import base64
import json
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from bench.servers.catalogs import CatalogKind
from bench.servers.kafka import Kafka
from safewrite.frames.spark import kafka as spark_kafka
from safewrite.frames.spark import stream
from safewrite.iceberg.table import IcebergTable
from tests.integration.places import once
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.stream import Killed, dies
from tests.spark.topic import Topic

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]


@pytest.fixture
def topic(kafka: Kafka, spark: Spark, tmp_path: Path) -> Topic:
    """Two batches."""
    made = Topic(tmp_path, servers=kafka.endpoint_url, name=f"orders-{uuid.uuid4().hex[:8]}")
    return made.make(spark, 1, 2, 3, 4, 5)


@pytest.fixture(params=["delta", pytest.param("sql", marks=pytest.mark.long)])
def end(request: pytest.FixtureRequest, hooked: Hooked, lakes: Lakes) -> End:
    """A new table of each format."""
    return delta(hooked("dynamodb")) if request.param == "delta" else iceberg(lakes("sql"))


def stored(end: End) -> Counter[int]:
    """How often each id is in the table, by a reader that is not Spark."""
    if end.hooked is not None:
        return end.hooked.place.replayed_ids()
    table = end.open()
    assert isinstance(table, IcebergTable)
    return Counter(table.iceberg.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def die_after_the_first_batch(topic: Topic, end: End) -> None:
    """Ids 1 to 3 are committed, and the checkpoint does not know it."""
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        topic.run(end.spark, dies(end.open().sink(app_id="orders")))
    assert stored(end) == once(1, 2, 3)


def refused(topic: Topic, end: End, why: str) -> None:
    """The stream stops, with nothing more in the table."""
    with pytest.raises(StreamingQueryException, match=why):
        topic.run(end.spark, end.open().sink(app_id="orders"))
    assert stored(end) == once(1, 2, 3)


def test_a_replayed_batch_of_a_topic_is_known_by_its_offsets(end: End, topic: Topic) -> None:
    """E1, with ``uuid()`` in the batch."""
    receipts: list[Any] = []

    def batches(frame: Any, epoch: int) -> None:
        sink = end.open().sink(app_id="orders")
        sink(frame, epoch)
        receipts.append(sink.last_receipt)

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        topic.run(end.spark, dies(batches))
    assert stored(end) == once(1, 2, 3)
    topic.run(end.spark, batches)
    assert stored(end) == once(1, 2, 3, 4, 5)
    assert [receipt.outcome for receipt in receipts] == ["committed", "already_committed", "committed"]
    assert [receipt.fingerprint.split(":")[:2] for receipt in receipts] == [
        ["offsets1", "3"],
        ["offsets1", "3"],
        ["offsets1", "2"],
    ]
    assert receipts[0].fingerprint == receipts[1].fingerprint


@pytest.mark.long
def test_the_same_offsets_of_a_topic_that_was_made_anew_are_other_rows(end: End, topic: Topic) -> None:
    """E2: the checkpoint, the topic's name, the offsets and the number of rows are all the same."""
    die_after_the_first_batch(topic, end)
    topic.make_anew(end.spark, 6, 7, 8, 9)
    refused(topic, end, "other offsets")


@pytest.mark.long
def test_a_batch_of_a_killed_driver_is_known_by_its_offsets(
    hooked: Hooked, lakes: Lakes, topic: Topic
) -> None:
    """E1, in both formats, with the Java process gone."""
    lake, table = lakes("sql"), hooked("dynamodb")
    ends = [delta(table), iceberg(lake)]
    sinks = [end.open().sink(app_id="orders") for end in ends]
    killed = Killed(topic, sinks, table.place, {lake.name: lake.properties})
    assert killed.run() == -signal.SIGKILL
    assert [stored(end) for end in ends] == [once(1, 2, 3)] * 2

    def both(frame: Any, epoch: int) -> None:
        for sink in sinks:
            sink(frame, epoch)

    topic.run(table.spark, both)
    assert [stored(end) for end in ends] == [once(1, 2, 3, 4, 5)] * 2


@pytest.mark.long
def test_the_same_offsets_in_another_cluster_are_other_rows(end: End, topic: Topic, tmp_path: Path) -> None:
    """E2: its id is the same too, for it was started by the same recipe."""
    die_after_the_first_batch(topic, end)
    with Kafka(tmp_path / "other") as other:
        moved = replace(topic, servers=other.endpoint_url)
        moved.make(end.spark, 6, 7, 8, 9)
        refused(moved, end, "other offsets")


@pytest.mark.long
def test_after_a_lost_checkpoint_nothing_is_skipped_or_doubled(end: End, topic: Topic) -> None:
    """E2: also the old ones at the old offsets, of which it cannot be told whether they are to be written anew."""
    die_after_the_first_batch(topic, end)
    topic.forget()
    topic.add(end.spark, 6)
    refused(topic, end, r"another checkpoint.*new app.id")


@pytest.mark.long
def test_a_first_batch_that_begins_elsewhere_is_another(end: End, topic: Topic) -> None:
    """E2: where it begins is in a file of the source's; here it is lost, and the program makes one row of all."""

    def total(frame: Any, epoch: int) -> None:
        end.open().sink(app_id="orders")(frame.selectExpr("sum(id) AS id", "uuid() AS value"), epoch)

    later = replace(topic, options={"startingOffsets": json.dumps({topic.name: {"0": 2}})})
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        later.run(end.spark, dies(total))
    assert stored(end) == once(3 + 4 + 5)
    topic.forget("sources")
    with pytest.raises(StreamingQueryException, match="other offsets"):
        topic.run(end.spark, total)
    assert stored(end) == once(3 + 4 + 5)


@pytest.mark.long
def test_a_topic_that_is_made_anew_during_a_replay_is_noticed(
    end: End, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E2: after the batch was named, before its rows are counted."""
    die_after_the_first_batch(topic, end)
    named = stream.batch_of
    calls: list[int] = []

    def batch_of(frame: Any, epoch: int) -> Any:
        found = named(frame, epoch)
        if not calls:
            topic.make_anew(end.spark, 6, 7, 8, 9)
        calls.append(epoch)
        return found

    monkeypatch.setattr(stream, "batch_of", batch_of)
    refused(topic, end, "made anew while its rows were counted")
    assert len(calls) == 2


@pytest.mark.long
@pytest.mark.parametrize("doubt", ["records may be left out", "no ids of topics", "no admin client"])
def test_in_any_doubt_the_rows_are_hashed(
    end: End, topic: Topic, doubt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a replay of the same rows is known by them."""
    if doubt == "records may be left out":
        topic = replace(topic, options={"failOnDataLoss": "false"})
    if doubt == "no ids of topics":
        monkeypatch.setattr(spark_kafka, "_topic_ids", lambda *_: None)
    kinds = []

    def batches(frame: Any, epoch: int) -> None:
        sink = end.open().sink(app_id="orders")
        sink(frame.selectExpr("id", "'v' AS value"), epoch)
        assert sink.last_receipt is not None
        kinds.append(sink.last_receipt.fingerprint.split(":")[0])

    deprecated = "true" if doubt == "no admin client" else "false"
    with end.spark.setting("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", deprecated):
        with pytest.raises(StreamingQueryException, match="the driver dies here"):
            topic.run(end.spark, dies(batches))
        topic.run(end.spark, batches)
    assert stored(end) == once(1, 2, 3, 4, 5)
    assert kinds == ["spark1"] * 3


def test_only_ids_that_are_drawn_at_random_name_a_topic() -> None:
    """A cluster without ids says 0; a hash of the name would be the same for a topic that was made anew."""
    found = {}
    for name, one in {
        "drawn": uuid.uuid4(),
        "none": uuid.UUID(int=0),
        "hashed": uuid.uuid5(uuid.NAMESPACE_DNS, "orders"),
    }.items():
        found[name] = spark_kafka._is_random(base64.urlsafe_b64encode(one.bytes).decode().rstrip("="))
    assert found == {"drawn": True, "none": False, "hashed": False}
