"""Spark leaves out files by our statistics, and never one that holds a row it was asked for (H7)."""

from __future__ import annotations

from pathlib import Path

import pytest

import safewrite as sw
from safewrite.delta.log.indexing import NUM_INDEXED_COLS, STATS_COLUMNS
from tests.delta.test_indexing import indexed
from tests.spark.edges import FILTERS, SCHEMA, frames
from tests.spark.session import Spark


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one file for each frame of edge values."""
    root = tmp_path_factory.mktemp("skipping") / "table"
    table = sw.create(str(root), SCHEMA)
    for frame in frames():
        table.append(frame)
    return root


@pytest.mark.long
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


CHOICES: list[dict[str, str]] = [
    {},
    {NUM_INDEXED_COLS: "0"},
    {NUM_INDEXED_COLS: "4"},
    {NUM_INDEXED_COLS: "-1"},
    {STATS_COLUMNS: "NUMBER,inner.deep"},
    {STATS_COLUMNS: "`odd.name`, inner.x", NUM_INDEXED_COLS: "2"},
    {STATS_COLUMNS: ""},
]


@pytest.mark.long
def test_spark_has_statistics_of_the_same_columns_for_the_same_properties(
    spark: Spark, tmp_path: Path
) -> None:
    """One append of Spark, one of ours, to tables that Spark made."""
    for number, properties in enumerate(CHOICES):
        folder = tmp_path / str(number)
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        spark.run(
            f"CREATE TABLE delta.`{folder}` (day STRING, tags ARRAY<BIGINT>, flag BOOLEAN, inner STRUCT<x: BIGINT, deep: "
            "STRUCT<y: STRING, z: BIGINT>>, id BIGINT, number BIGINT, `odd.name` STRING) USING delta PARTITIONED BY (day) "
            + (f"TBLPROPERTIES ({listed})" if listed else "")
        )
        spark.run(
            f"INSERT INTO delta.`{folder}` VALUES ('d', array(1), true, named_struct('x', 1, 'deep', "
            "named_struct('y', 'a', 'z', 1)), 1, 1, 'a')"
        )
        theirs = indexed(folder)
        rows = {
            "day": "d", "tags": [2], "flag": True, "inner": {"x": 2, "deep": {"y": "b", "z": 2}}, "id": 2,
            "number": 2, "odd.name": "b",
        }  # fmt: skip
        sw.open(folder).append([rows])
        assert indexed(folder) == theirs, properties
        filters = {"number = 2": [2], "`odd.name` = 'b'": [2], "inner.deep.z = 2": [2], "flag": [1, 2]}
        assert spark.filtered(folder, list(filters)) == filters, properties
