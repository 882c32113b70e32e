"""Tasks on Spark's executors: the cases that threads pass as well."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from zipfile import ZipFile

import pytest

import safewrite as sw
from safewrite.engine.abc import EngineError
from safewrite.engine.local import LocalEngine
from safewrite.engine.spark import (
    ExecutorsLackPythonError,
    SparkEngine,
    _hashing_to,
    _leave_archives,
    _murmur3,
    spark_errors,
)
from safewrite.frames.spark.computed_frame import ComputedFrame
from tests.engine.cases import CASES
from tests.engine.tasks import Count, Deal, Gather
from tests.spark.session import Spark


def _source_of(spark: Spark) -> Callable[[Sequence[range]], Any]:
    def made(ranges: Sequence[range]) -> Any:
        numbers = _hashing_to(len(ranges))
        rows = [(numbers[part], id_) for part, ids in enumerate(ranges) for id_ in ids]
        frame = spark.session.createDataFrame(rows, "part INT, id LONG").repartition(len(ranges), "part")
        return frame.select("id").toDF("a.b")

    return made


@pytest.mark.sweep(
    "tasks_without_input_report_in_their_order",
    "fewer_parts_than_were_dealt_to_take_them_by_their_remainder",
    "numbers_come_one_to_each_input",
    "rows_stay_and_are_the_next_source",
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_executors_run_tasks(spark: Spark, case: Callable[..., None]) -> None:
    with spark.careless():
        case(SparkEngine(spark.session), _source_of(spark))


def test_few_rows_come_into_this_process_where_that_is_allowed(spark: Spark) -> None:
    source, task = _source_of(spark)([range(7), range(7, 9)]), Deal(4)
    with spark.careless(), SparkEngine(spark.session, few_here=True).map(source, task) as dealt:
        assert SparkEngine(spark.session).here(dealt.rows) is None
        here = SparkEngine(spark.session, few_here=True).here(dealt.rows)
        assert here is not None
        local = LocalEngine()
        with local.map(local.exchange(here, 2), Gather()) as gathered:
            found = gathered.bodies()
    assert [ids for _, _, ids in found] == [[0, 2, 4, 6, 8], [1, 3, 5, 7]]


def test_rows_come_so_many_at_a_time_whatever_they_weigh(spark: Spark) -> None:
    """By the session's own settings each row would come alone, for one byte is its limit."""
    engine, source = SparkEngine(spark.session), _source_of(spark)([range(10)])
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.session.conf.get(limit)
    spark.session.conf.set(limit, "1")
    try:
        with (
            spark.careless(),
            engine.map(source, Deal(1)) as alone,
            engine.map(source, Deal(1), 4) as four,
        ):
            assert [one.rows.count() - 1 for one in (alone, four)] == [10, 3]  # and one that goes aside
        assert spark.session.conf.get(limit) == "1"
    finally:
        spark.session.conf.set(limit, before)


def test_archives_that_modules_came_from_are_not_read_again_before_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with ZipFile(archive, "w") as zipped:
        for name in ("came_first", "came_then"):
            zipped.writestr(f"{name}.py", "here = 1")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("came_first").here
    assert str(archive) in sys.path_importer_cache
    _leave_archives()
    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("came_then").here


def test_the_hash_is_spark_s(spark: Spark) -> None:
    rows = spark.sql("SELECT CAST(id AS INT) AS number, hash(CAST(id AS INT)) AS hash FROM range(-5, 300)")
    assert [_murmur3(row["number"] & 0xFFFFFFFF) for row in rows.to_pylist()] == rows["hash"].to_pylist()


def test_an_error_of_spark_s_is_one_of_ours(spark: Spark) -> None:
    """A row that cannot be computed."""
    frame = spark.session.range(4).selectExpr("CAST(raise_error('broken row') AS BIGINT) AS `a.b`")
    engine = SparkEngine(spark.session)
    match = "could not run the tasks"
    with spark.careless(), pytest.raises(sw.StorageError, match=match), engine.map(frame, Count()):
        pytest.fail("Spark computed the row")


def test_executors_without_safewrite_are_told_from_other_errors() -> None:
    from pyspark.errors import PySparkException

    with (
        pytest.raises(ExecutorsLackPythonError, match=r"Install safewrite on every node.*PYSPARK_PYTHON"),
        spark_errors("x"),
    ):
        raise PySparkException("ModuleNotFoundError: No module named 'safewrite'")
    with (
        pytest.raises(sw.StorageError, match=r"could not x: java\.lang\.OutOfMemoryError\. Nothing"),
        spark_errors("x"),
    ):
        raise PySparkException("java.lang.OutOfMemoryError")


def test_rows_that_spark_cannot_begin_to_compute_are_an_error_of_ours() -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    frame = mock.MagicMock()
    frame._jdf.queryExecution.return_value.toRdd.side_effect = Py4JError("java.lang.X: no plan.\n\tat x.Y")
    text = r"could not compute the rows: java\.lang\.X: no plan\. Nothing was committed"
    with pytest.raises(EngineError, match=text):
        ComputedFrame(frame, frame.sparkSession).running(frame)
