"""The example's DAG on a real Airflow: its own scheduler, DAG processor and API server, and a database in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.medallion.harness import Harness, lab
from tests.medallion.airflow import HOME, ROOT, Airflow

pytestmark = pytest.mark.long
DAG = ROOT / "examples" / "medallion" / "airflow_dag.py"
TIMEOUT_S = 3600


def airflow(job: Harness, folder: Path) -> Airflow:
    assert HOME.exists(), "make test-long builds the environment of Airflow"
    (folder / "dags").mkdir()
    shutil.copy(DAG, folder / "dags")
    return Airflow(
        folder / "home", folder / "dags", SAFEWRITE_COMMAND=str(ROOT / ".venv" / "bin" / "safewrite"), PYTHONPATH=str(ROOT),
        SAFEWRITE_MEDALLION_CONFIG=str(job.write_config()), MEDALLION_RETRIES="1", MEDALLION_SCHEDULE="", MEDALLION_RETRY_S="1",
    )  # fmt: skip


@pytest.mark.parametrize("tables", [pytest.param(2, id="short"), pytest.param(80, id="eighty")])
def test_a_dag_runs_its_mapped_tables(tmp_path: Path, tables: int) -> None:
    """The short one is ``make test-airflow``."""
    job = lab(tmp_path, "delta", tables=tables)
    job.begin(5)
    for table in job.tables:
        job.dms.deliver_held(table)
    with airflow(job, tmp_path) as scheduler:
        assert scheduler.run("medallion", timeout_s=TIMEOUT_S) == "success"
        tasks = scheduler.tasks("medallion")
    mapped = {one["rendered_map_index"] for one in tasks if one["task_id"] == "run"}
    assert mapped == set(job.dms.tables)
    assert len(mapped) == tables
    assert {one["state"] for one in tasks} == {"success"}
    assert job.wrong() == {}
    assert job.flaws() == []


def test_a_table_that_fails_fails_the_run_and_no_other_table_and_is_not_tried_again_in_vain(
    tmp_path: Path,
) -> None:
    job = lab(tmp_path, "delta", tables=3, defaults={"on_overwritten": "raise"})
    job.begin(5)
    for table in job.tables:
        job.dms.deliver_held(table)
    job.run()
    bad, good, _ = job.tables
    path = job.dms.overwrite(bad)
    job.dms.change(good, 5)
    job.dms.flush(good)
    with airflow(job, tmp_path) as scheduler:
        assert scheduler.run("medallion", timeout_s=TIMEOUT_S) == "failed"
        tasks = {(one["task_id"], one["rendered_map_index"]): one for one in scheduler.tasks("medallion")}
        states = {name: one["state"] for (_, name), one in tasks.items() if name is not None}
        assert states == {bad.name: "failed", good.name: "success", job.tables[2].name: "success"}
        assert tasks["run", bad.name]["try_number"] == 1
        assert "ALERT run" in "".join(log.read_text() for log in (tmp_path / "home" / "logs").rglob("*.log"))
        assert job.wrong() == {}
        (job.dms.root / path).write_bytes(bad.written[path])  # the first content comes back
        assert scheduler.run("medallion", timeout_s=TIMEOUT_S) == "success"
    assert job.flaws() == []
