"""The examples do what they say, on tables of the tests' servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from examples import rate_to_delta, rate_to_iceberg, spark_and_pandas
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake

pytestmark = pytest.mark.long


def test_spark_and_pandas(hooked: Callable[[str], HookedTable]) -> None:
    end = hooked("dynamodb")
    with end.spark.careless():
        receipts = spark_and_pandas.write_both(end.spark.session, end.place.open(create=True))
    first, again = receipts[:2], receipts[2:]
    assert [one.outcome for one in receipts] == ["committed"] * 2 + ["already_committed"] * 2
    assert [one.version for one in again] == [one.version for one in first]
    assert end.ids().total() == 5


def test_rate_to_delta(hooked: Callable[[str], HookedTable], tmp_path: Path) -> None:
    end = hooked("dynamodb")
    with end.spark.careless():
        for _ in range(2):
            table = end.place.open(create=True)
            receipt = rate_to_delta.stream_into(end.spark.session, table, str(tmp_path))
    assert receipt.rows >= 100
    assert set(end.ids().values()) == {1}


def test_rate_to_iceberg(lakes: Callable[[CatalogKind], Lake], tmp_path: Path) -> None:
    lake = lakes("rest")
    table = sw.open(lake.new(), catalog=lake.load(), create=True)
    with lake.spark.careless():
        receipt = rate_to_iceberg.stream_into(lake.spark.session, table, str(tmp_path), lake.name)
        ids = [row.id for row in lake.spark.session.table(lake.sql(str(table.uri))).collect()]
    assert receipt.rows == len(ids) == len(set(ids))
