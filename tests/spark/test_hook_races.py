"""Spark beside other writers of one table: nothing is lost, nothing is there twice, and Spark gets its turn."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.places import once, rows, visible
from tests.spark import driver, pandas_writer
from tests.spark.hooked import HookedTable
from tests.spark.ordered import each

pytestmark = pytest.mark.long
Hooked = Callable[[str], HookedTable]

WRITERS, APPENDS, SPARK_APPENDS = 4, 15, 6


def test_four_processes_of_pandas_beside_spark_lose_and_double_nothing(hooked: Hooked) -> None:
    table = hooked("dynamodb")
    table.place.open(create=True).append(rows(0), key="first")
    parts = [range(1000 * n, 1000 * n + APPENDS) for n in range(1, WRITERS + 1)]
    spark_ids = range(1, SPARK_APPENDS + 1)
    with each(*(pandas_writer.start(table.place, ids) for ids in parts)) as writers:
        for writer in writers:
            writer.ready()
        for writer in writers:
            writer.say("go")
        for number in spark_ids:
            table.write(number)
        assert [writer.hear() for writer in writers] == ["done"] * WRITERS
    expected = once(0, *spark_ids, *(number for ids in parts for number in ids))
    assert visible(table.readers()) == expected
    assert len(table.place.commits()) == expected.total()


def test_threads_of_one_driver_by_conditional_put_alone_lose_and_double_nothing(hooked: Hooked) -> None:
    table = hooked("object-store")
    table.write(0)
    session, ids = table.spark.session, range(1, 9)
    texts = [f"INSERT INTO delta.`{table.uri}` VALUES ({number}, 'v{number}')" for number in ids]
    with table.spark.careless(), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: session.sql(text).collect(), texts))
    assert visible(table.readers()) == once(0, *ids)


def test_a_driver_killed_after_its_claim_is_finished_by_the_next_pandas_writer(hooked: Hooked) -> None:
    """A5: the driver, with its Java process, is gone between PREPARE and COMMIT; nobody was told of its rows."""
    table = hooked("dynamodb")
    table.write(1)
    killed = driver.append(table.place, (2,), kill_at="commit.put_commit:before")
    assert killed == -signal.SIGKILL
    assert visible(table.readers()) == once(1)
    assert table.place.entries()[-1]["complete"]["S"] == "false"
    table.place.open().append(rows(3), key="pandas")
    assert visible(table.readers()) == once(1, 2, 3)
