"""Raw files of a medallion job on Spark's executors."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from safewrite.changes.tasks import apply_job
from safewrite.changes.tasks.apply_tasks import ApplyPart
from safewrite.engine import spark as engine_spark
from safewrite.engine.abc import ExecutorsLackPythonError, TaskAttempt
from safewrite.engine.choice import Cost
from safewrite.engine.spark import SparkEngine
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit import accounting
from safewrite.medallion.bronze import landing, tasks
from safewrite.medallion.silver import apply
from safewrite.medallion.silver import tasks as silver_tasks
from safewrite.medallion.tables import engine
from tests.medallion.test_jobs import Shop, set_in
from tests.medallion.test_tasks import VALUES, keys, lines, remembered, tables
from tests.spark.session import Spark


@dataclass(frozen=True)
class Dies:
    """A task whose worker is killed once, when it has written its files."""

    task: Any
    noted: Path

    @property
    def columns(self) -> pa.Schema | None:
        return self.task.columns

    def __call__(self, batches: Iterable[pa.RecordBatch], at: TaskAttempt) -> Generator[Any, None, Any]:
        found = yield from self.task(batches, at)
        if at.part == 1 and not self.noted.exists():
            self.noted.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found


def two_jobs(folder: Path, rows: int) -> tuple[Shop, Shop, Callable[[int], None]]:
    """Of one raw zone: one for this process, one for Spark; and what puts the file of a number there, with so many changes."""
    draw = random.Random(7)
    jobs = []
    for name in ("plain", "spark"):
        (folder / name).mkdir()
        job = Shop(folder / name, {"id": "int64", "name": "string"})
        set_in(job, "raw", "location", to=str(folder / "raw"))
        jobs.append(job)

    def put(number: int) -> None:
        place = folder / f"raw/shop/orders/2026110{number}-000000001.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines(draw, VALUES, rows, op=True, seq=True, first=rows * number))
        place.write_text(f"Op,id,name,seq\n{text}\n")

    return jobs[0], jobs[1], put


def test_what_executors_land_is_what_one_process_lands(spark: Spark, tmp_path: Path) -> None:
    plain, there, put = two_jobs(tmp_path, 400)
    put(1)
    assert Pipeline(plain.config).run().ok
    with (
        spark.careless(),
        mock.patch.object(tasks, "PART_BYTES", 4_000),
        mock.patch.object(tasks, "SMALL_BYTES", 0),
        mock.patch.object(apply_job, "FEW_ROWS", -1),
        mock.patch.object(apply, "SMALL_ROWS", 0),
    ):
        assert Pipeline(there.config, engine="spark").run().ok
    assert tables(plain) == tables(there)
    assert (keys(plain), remembered(plain)) == (keys(there), remembered(there))


@pytest.mark.long
def test_a_killed_worker_leaves_no_row_and_what_is_read_once_more_is_what_one_process_lands(
    spark: Spark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, there, put = two_jobs(tmp_path, 2000)
    put(1)
    put(2)
    assert Pipeline(plain.config).run().ok
    mapped = SparkEngine.map

    def dying(engine: SparkEngine, source: Any, task: Any) -> Any:
        writes = isinstance(task, tasks.WriteMembers)
        return mapped(engine, source, Dies(task, tmp_path / "noted") if writes else task)

    def deciding(engine: SparkEngine, source: Any, task: Any) -> Any:
        decides = isinstance(task, ApplyPart)
        return mapped(engine, source, Dies(task, tmp_path / "decided") if decides else task)

    with (
        spark.careless(),
        mock.patch.object(tasks, "PART_BYTES", 20_000),
        mock.patch.object(tasks, "SMALL_BYTES", 0),
        mock.patch.object(apply_job, "FEW_ROWS", -1),
    ):
        with mock.patch.object(SparkEngine, "map", dying), mock.patch.object(landing, "TRIES", 1):
            failed = Pipeline(there.config, engine="spark").run()
        assert "could not run the tasks" in str(failed.tables[0].error)
        lost = {*(there.folder / "bronze/orders").rglob("*.parquet")}
        assert lost
        assert tables(there)["bronze/orders"] == []
        with (
            mock.patch.object(SparkEngine, "map", deciding),
            mock.patch.object(apply, "SMALL_ROWS", 0),
            mock.patch.object(silver_tasks, "PIECE_ROWS", 300),
            mock.patch.object(apply_job, "TASK_ROWS", 500),
        ):
            with mock.patch.object(apply, "TRIES", 1):
                failed = Pipeline(there.config, engine="spark").run()
            assert "could not run the tasks" in str(failed.tables[0].error)
            assert {*(there.folder / "silver/orders").rglob("*.parquet")}
            assert tables(there)["silver/orders"] == []
            (tmp_path / "decided").unlink()
            assert Pipeline(there.config, engine="spark").run().ok
            assert (tmp_path / "decided").exists()
        assert "are read once more" in caplog.text
    assert tables(plain) == tables(there)
    assert (keys(plain), remembered(plain)) == (keys(there), remembered(there))
    put(3)
    ran: list[str] = []

    def noted(engine: SparkEngine, source: Any, task: Any) -> Any:
        ran.append(type(task).__name__)
        return mapped(engine, source, task)

    with (
        spark.careless(),
        mock.patch.object(SparkEngine, "map", noted),
        mock.patch.object(SparkEngine, "run", lambda engine, given: given and pytest.fail("a job")),
        mock.patch.object(apply, "SMALL_ROWS", 0),
    ):
        assert Pipeline(there.config, engine="spark").run().ok
    assert ran == ["ReadMade"]  # few changes are read by a job, and applied here; a small file has none
    assert Pipeline(plain.config).run().ok
    assert tables(plain) == tables(there)
    caplog.set_level(logging.INFO, "safewrite")
    with (
        spark.careless(),
        mock.patch.object(accounting, "SHARE_ROWS", 500),
        mock.patch.object(accounting, "TASK_SHARES", 2),
    ):
        (audit,) = verify(Pipeline(there.config, engine="spark"))
    assert (audit.clean, "this process does" in caplog.text) == (True, False)


def test_auto_sends_much_to_executors_and_does_little_here(
    spark: Spark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session's own executor is taken for one in another process; ``tests/spark/test_auto`` has such."""
    job = Shop(tmp_path, {"id": "int64", "name": "string"})
    caplog.set_level(logging.INFO, "safewrite")

    def run(number: int, count: int) -> tuple[dict[str, int], str]:
        place = tmp_path / f"raw/shop/orders/2026110{number}-000000001.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(f"I,{10_000 * number + one},a,{one}" for one in range(count))
        place.write_text(f"Op,id,name,seq\n{text}\n")
        done = Pipeline(job.config).run()
        assert done.ok
        return done.to_dict()["tables"][0]["by_executors"], done.engine

    with (
        spark.careless(),
        mock.patch.object(engine_spark, "cores_elsewhere", return_value=2),
        mock.patch.object(engine, "FILES", (Cost(0.0, 1e-4, 1e5), Cost(1.0, 0.0, 1e5))),
        mock.patch.object(engine, "ROWS", (Cost(0.0, 1e-2, 1e3), Cost(10.0, 0.0, 1e3))),
        mock.patch.object(tasks, "SMALL_BYTES", 0),
        mock.patch.object(apply, "SMALL_ROWS", 0),
    ):
        few, why = run(1, 100)
        assert (few, "by this process: some 1.00 s by executors" in why) == (
            {"landed": 0, "applied": 0},
            True,
        )
        many, why = run(2, 2000)
        assert (many, "by executors: some 1.00 s" in why) == ({"landed": 2000, "applied": 2000}, True)
        with mock.patch.object(
            SparkEngine, "run", side_effect=ExecutorsLackPythonError("Install safewrite.")
        ):
            assert run(3, 2000) == ({"landed": 0, "applied": 0}, mock.ANY)
    assert caplog.text.count("executors cannot. Install safewrite.") == 1
    assert run(4, 2000) == ({"landed": 0, "applied": 0}, "all in this process")
    assert verify(Pipeline(job.config))[0].clean
