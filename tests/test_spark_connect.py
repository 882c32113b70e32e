"""What is asked of a session of Spark Connect: nothing of a Java process.  Real ones are in ``make test-spark-connect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import safewrite as sw
import safewrite.spark
from safewrite.engine.spark import kept
from safewrite.frames.spark.computed_frame import held
from safewrite.frames.spark.stream import batch_of
from safewrite.frames.spark.tallied import executors_lack_python
from safewrite.iceberg.spark.files import has_library


def _made(name: str, **has: Any) -> Any:
    """An object of PySpark's client, which has nothing else."""
    kind = type(name, (), has)
    kind.__module__ = f"pyspark.sql.connect.{name.lower()}"
    return kind()


@pytest.fixture
def frame() -> Any:
    rows = object()
    session = _made("SparkSession")
    return _made("DataFrame", sparkSession=session, localCheckpoint=lambda self, eager: rows)


def test_a_frame_is_written_in_its_own_session(frame: Any) -> None:
    with held(frame) as given:
        assert given.rows is frame
        assert given.session is frame.sparkSession
        assert given.context is None
        assert not executors_lack_python(given.context)
    assert not has_library(frame.sparkSession)
    assert batch_of(frame, 0) is None
    with kept(frame) as rows:
        assert rows is frame.localCheckpoint(eager=False)


def test_what_is_not_there_is_said(frame: Any, tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"Spark Connect session.*Spark's own commits"):
        safewrite.spark.attach(frame.sparkSession)
    table = sw.create(str(tmp_path / "t"), pa.schema({"id": pa.int64()}))
    with (
        mock.patch("pyspark.__version__", "3.5.9"),
        pytest.raises(sw.InvalidInputError, match=r"from Spark 4\.0 on"),
    ):
        table.append(frame)
    no_store = mock.patch("safewrite.delta.connect.Connection.store", return_value=None)
    with no_store, pytest.raises(sw.InvalidInputError, match=r"Delta's library.*frame\.toArrow"):
        table.append(frame)
    assert table.row_count() == 0
