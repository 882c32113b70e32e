"""Spark leaves out Iceberg files by our metrics, and never one that holds a row it was asked for (H7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.servers.catalogs import CatalogKind
from safewrite.iceberg.table import IcebergTable
from tests.spark.edges import FILES, FILTERS, SCHEMA, frames
from tests.spark.lake import Lake
from tests.spark.session import Spark

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def lake(lakes: Callable[[CatalogKind], Lake]) -> Lake:
    return lakes("rest")


# Each file is a task of its own, so that tasks can be counted.
ONE_EACH = {
    "read.split.target-size": "1",
    "read.split.open-file-cost": "1",
    "read.split.adaptive-size.enabled": "false",
}


@pytest.fixture(scope="module")
def table(lake: Lake) -> IcebergTable:
    """A table with one file for each frame of edge values."""
    table = lake.create(SCHEMA, properties=ONE_EACH)
    for frame in frames():
        table.append(frame)
    return table


def test_filters_on_edge_values_find_their_rows(spark: Spark, lake: Lake, table: IcebergTable) -> None:
    assert spark.filtered(lake.sql(table), list(FILTERS)) == FILTERS


def test_spark_does_skip_files_by_our_metrics(spark: Spark, lake: Lake, table: IcebergTable) -> None:
    """Else the test above says nothing about the metrics."""
    name = lake.sql(table)
    assert spark.tasks(f"SELECT * FROM {name}") == len(FILES)
    for filter_ in ("number = 9223372036854775807", "day <= DATE'0001-01-01'", "id = 7"):
        assert spark.tasks(f"SELECT * FROM {name} WHERE {filter_}") == 1, filter_
    assert spark.tasks(f"SELECT * FROM {name} WHERE double > 5") > 1, "a file with NaN has no upper bound"
