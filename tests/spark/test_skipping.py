"""Spark leaves out files by our statistics, and never one that holds a row it was asked for (H7)."""

from __future__ import annotations

from pathlib import Path

import pytest

import safewrite as sw
from tests.spark.edges import FILTERS, SCHEMA, frames
from tests.spark.session import Spark

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one file for each frame of edge values."""
    root = tmp_path_factory.mktemp("skipping") / "table"
    table = sw.create(str(root), SCHEMA)
    for frame in frames():
        table.append(frame)
    return root


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_filters_on_edge_values_find_their_rows(spark: Spark, root: Path, stride: int) -> None:
    expected = dict(list(FILTERS.items())[::stride])
    assert spark.filtered(root, list(expected)) == expected


def test_spark_does_skip_files_by_our_statistics(spark: Spark, root: Path) -> None:
    """Else the test above says nothing about the statistics."""
    for filter_ in ("number = 9223372036854775807", "day <= DATE'0001-01-01'", "id = 7"):
        assert spark.files_scanned(root, filter_) == 1, filter_
    assert spark.files_scanned(root, "double = double('NaN')") == 1, (
        "a file with NaN has no bounds, others have"
    )
