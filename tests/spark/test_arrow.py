"""Frames of Kafka's records come into the driver as they are, by PySpark 4's way and by the one that 3.5 has in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyspark
import pytest

import safewrite as sw
from safewrite.cdc.kafka.arrow import refuse_other_sessions
from safewrite.cdc.records.records import KafkaRecords
from safewrite.engine.spark import arrow_of
from tests.spark.session import Spark

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp_ms LONG"
)
ROWS: list[tuple[Any, ...]] = [
    (b"k", b"\x00\xff", "t", 0, 2**62, [("a", b"1"), ("a", None), ("", b"")], 1_700_000_000_123),
    (None, b"", "t", 1, 0, None, -1),
    (b"", None, "t", 2_000_000_000, 7, [], 0),
]
"""What Kafka has: tombstones, no key, empty bytes, headers twice, without a value, and none."""


@dataclass
class OfSpark35:
    """A frame as PySpark 3.5 has it: without ``toArrow``."""

    frame: Any

    @property
    def columns(self) -> list[str]:
        found: list[str] = self.frame.columns
        return found

    def _collect_as_arrow(self) -> Any:
        return self.frame._collect_as_arrow()


@pytest.mark.sweep("3.5")
@pytest.mark.parametrize("of", [lambda frame: frame, OfSpark35], ids=["own", "3.5"])
def test_rows_come_with_their_types_and_nulls(spark: Spark, of: Any) -> None:
    with spark.careless():
        frame = spark.session.createDataFrame(ROWS, COLUMNS).repartition(3)
        taken = arrow_of(of(frame))
        empty = arrow_of(of(frame.where("offset < 0")))
    plain = []
    for row in taken.sort_by("offset").to_pylist():
        headers = row["headers"] and [(*one.values(),) for one in row["headers"]]
        plain.append((*({**row, "headers": headers}).values(),))
    assert plain == sorted(ROWS, key=lambda row: row[4])
    assert {type(value) for row in plain for value in row[:2]} == {bytes, type(None)}
    assert (empty.num_rows, empty.column_names) == (0, taken.column_names)
    assert list(KafkaRecords.of_frame(empty, [])) == []
    assert [(one.offset, one.headers[:1]) for one in KafkaRecords.of_frame(taken, [])] == [
        (2**62, (("a", b"1"),)),
        (0, ()),
        (7, ()),
    ]


class _Remote:
    """A session of Spark Connect."""

    def range(self, end: int) -> object:
        return object()


def test_a_session_that_cannot_be_read_is_refused(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is, and what to do."""
    refuse_other_sessions(spark.session)
    with pytest.raises(sw.UnsafeConfigError, match=r"with a session of Spark Connect\. Nothing was read"):
        refuse_other_sessions(_Remote())  # type: ignore[arg-type]
    for version in ("3.5.4-amzn-0", "4.2.0.dev1"):
        monkeypatch.setattr(pyspark, "__version__", version)
        refuse_other_sessions(spark.session)
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(sw.UnsafeConfigError, match=r"needs PySpark 3\.5 or newer.*is PySpark 3\.4\.4\."):
        refuse_other_sessions(spark.session)
