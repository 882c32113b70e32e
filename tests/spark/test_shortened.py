"""Executors cut off what the driver knows already, and the driver has the same records as before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from safewrite.cdc.kafka.micro_batches import Shortener
from safewrite.cdc.records.prefixes import Prefix, Prefixes
from safewrite.cdc.records.records import KafkaRecords
from safewrite.engine.spark import arrow_of
from tests.spark.session import Spark

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NOW = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
KEYS, VALUES = (b"k:", b"k:k:", b"\xff\x00"), (b"{a", b"{ab", b"{", b"\xe2\x82")
DATA = [
    None,
    b"",
    b"k:",
    b"k:1",
    b"k:k:2",
    b"\xff\x00\xfe",
    b"{a",
    b"{abc",
    b"{",
    b"\xe2\x82\xac",
    b"a{",
    b"K:1",
    b"\xe2",
]


def known(data: tuple[bytes, ...]) -> Prefixes:
    made = Prefixes()
    for one in data:
        made.meet(Prefix(one, {}))
    return made


def frame_of(spark: Spark) -> Any:
    rows = [
        (key, value, "t", at % 3, 13 * at + place, NOW, [("h", b"k:1")] if place % 2 else None)
        for at, key in enumerate(DATA)
        for place, value in enumerate(DATA)
    ]
    return (
        spark.session.createDataFrame(rows, COLUMNS)
        .repartition(2)
        .sortWithinPartitions("topic", "partition", "offset")
    )


def test_records_that_were_cut_are_the_same_records(spark: Spark) -> None:
    with spark.careless():
        frame = frame_of(spark)
        whole, cut = Shortener(Prefixes(), Prefixes()), Shortener(known(KEYS), known(VALUES))
        plain = KafkaRecords.of_frame(arrow_of(whole.shortened(frame)), whole.prefixes)
        found = KafkaRecords.of_frame(arrow_of(cut.shortened(frame)), cut.prefixes)
        weighed = arrow_of(cut.shortened(frame, weighed=True))
    assert list(found) == list(plain)
    assert len(plain) == len(DATA) ** 2
    assert found.cut_bytes > 0
    assert found.data.nbytes + found.cut_bytes >= plain.data.nbytes
    assert {one.timestamp_ms for one in found} == {int(NOW.timestamp() * 1000)}
    sizes = {(row["topic"], row["partition"], row["offset"]): row["size"] for row in weighed.to_pylist()}
    for record in plain:
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        size = len(record.key or b"") + len(record.value or b"") + headers
        assert sizes[record.topic, record.partition, record.offset] == size, "it is weighed as Kafka has it"


def test_spark_is_told_again_only_of_other_prefixes(spark: Spark) -> None:
    keys, values = known(KEYS), known(VALUES)
    shortener = Shortener(keys, values)
    with spark.careless():
        frame = frame_of(spark)
        shortener.shortened(frame)
        columns, before = shortener._columns, shortener.prefixes
        values.meet([*values][-1])
        shortener.shortened(frame)
        assert shortener._columns is columns, "another one was met last"
        values.meet(Prefix(b"new", {}))
        shortener.shortened(frame)
    assert shortener._columns is not columns
    assert set(shortener.prefixes) == {*before, b"new"}
