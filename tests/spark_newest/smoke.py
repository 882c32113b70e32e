"""What the newest PySpark must do without any jar: frames, change logs, streams and medallion jobs, by tasks on its executors.

Its name keeps it out of `make test`, which runs with another Spark.  The tests of frames are those of Spark Connect, in a session
of this process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyspark
import pytest

import safewrite as sw
from safewrite.medallion import Pipeline
from tests.spark_connect.smoke import (  # noqa: F401 - run here
    end,
    test_a_stream_writes_each_batch_once_and_a_repeated_one_no_second_time,
    test_changes_are_applied_here_or_by_executors,
    test_frames_are_written_once_and_read_by_others,
    test_the_first_frame_of_a_stream_makes_the_table,
)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """A session in a zone of its own; executors find safewrite where it is."""
    root = str(Path(__file__).parents[2])
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with mock.patch.dict(os.environ, {"PYTHONPATH": root, **python}):
        from pyspark.sql import SparkSession

        made: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        made = made.config("spark.sql.session.timeZone", "America/New_York").getOrCreate()
        yield made
        made.stop()


def test_this_is_a_spark_that_nobody_else_writes_from() -> None:
    assert tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3)


def test_a_medallion_job_lands_by_executors(session: Any, tmp_path: Path) -> None:
    (tmp_path / "raw/shop/orders").mkdir(parents=True)
    lines = "".join(f"{one},2026-01-0{one} 10:00:00\n" for one in range(1, 6))
    (tmp_path / "raw/shop/orders/LOAD00000001.csv").write_text(f"id,at\n{lines}")
    job = {
        "job": "m", "raw": {"location": str(tmp_path / "raw")}, "state": str(tmp_path / "s"), "quarantine": str(tmp_path / "q"),
        "defaults": {
            "format": "delta", "keys": ["id"], "files": {"kind": "csv", "header": True},
            **{layer: f"{tmp_path}/{layer}/{{schema}}/{{table}}" for layer in ("bronze", "silver")},
        },
        "tables": {"shop.orders": {"columns": {"id": "int64", "at": "timestamp"}}},
    }  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps(job))
    for _ in range(2):
        assert Pipeline(tmp_path / "m.json", engine="spark").run().ok
    assert sw.open(tmp_path / "silver/shop/orders").row_count() == 5
