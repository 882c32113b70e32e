"""One stream into many tables by a pool of threads inside foreachBatch, which is how many tables are usually written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from bench.servers.catalogs import CatalogKind
from safewrite.table.sink import Sink
from tests.integration.places import once
from tests.spark.ends import End, delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.stream import Killed, Stream, pooled

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]


def ends_of(hooked: Hooked, lakes: Lakes, each: int) -> list[End]:
    return [delta(hooked("dynamodb")) for _ in range(each)] + [iceberg(lakes("sql")) for _ in range(each)]


def sinks_of(ends: list[End]) -> list[Sink]:
    return [end.open().sink(app_id="orders") for end in ends]


@pytest.mark.long
def test_a_batch_that_fails_between_tables_is_in_each_of_them_once(
    spark: Spark, hooked: Hooked, lakes: Lakes, tmp_path: Path
) -> None:
    """Iceberg's library looks for its catalogs in the active session, which a thread of a pool has none of."""
    stream, ends = Stream(tmp_path), ends_of(hooked, lakes, 2)
    stream.feed("a", 1, 2, 3)
    stream.feed("b", 4)
    sinks = sinks_of(ends)
    guard, done = threading.Lock(), 0

    def fail_in_between() -> None:
        nonlocal done
        with guard:
            done += 1
            if done in (2, 7):
                raise RuntimeError("one of the tables")

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="one of the tables"):
            stream.run(spark, pooled(sinks, fail_in_between))
    stream.run(spark, pooled(sinks))
    for end in ends:
        assert end.ids() == once(1, 2, 3, 4)


@pytest.mark.long
@pytest.mark.parametrize("after", [1, 7, 13, 20])
def test_a_driver_that_is_killed_between_twenty_tables_leaves_each_row_once(
    spark: Spark, hooked: Hooked, lakes: Lakes, tmp_path: Path, after: int
) -> None:
    stream, ends = Stream(tmp_path), ends_of(hooked, lakes, 10)
    stream.feed("a", 1, 2, 3)
    lake = lakes("sql")
    assert ends[0].hooked is not None
    task = Killed(stream, sinks_of(ends), ends[0].hooked.place, {lake.name: lake.properties}, after)
    assert task.run() == -signal.SIGKILL
    stream.run(spark, pooled(sinks_of(ends)))
    for end in ends:
        assert end.ids() == once(1, 2, 3)
