"""What the example's DAG calls, task by task, without an Airflow: one costs 10 s of CPU before its first task (``test_airflow``)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.medallion.harness import Harness, lab
from safewrite.cli.app import app
from tests.medallion.airflow import ROOT

DAG = ROOT / "examples" / "medallion" / "airflow_dag.py"


class FailError(RuntimeError):
    """As Airflow's, after which there is no retry."""


class Tasks:
    """As much of ``airflow.sdk`` as the DAG uses: tasks run at once, in the order in which they are named."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str | None]] = []
        self.failed: list[tuple[str, str | None, str]] = []
        self.for_good: list[tuple[str, str | None]] = []
        self.given: dict[str, dict[str, Any]] = {}
        self.module: Any = None

    def dag(self, **settings: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        self.given["dag"] = settings
        return lambda flow: flow

    def task(self, function: Any = None, **settings: Any) -> Any:
        if function is None:
            return lambda function: self.task(function, **settings)
        self.given[function.__name__] = settings
        return _Task(self, function)


class _Task:
    def __init__(self, tasks: Tasks, function: Callable[..., Any]) -> None:
        self.tasks, self.function = tasks, function

    def __call__(self) -> Any:
        return self._run(None)

    def expand(self, *, table: list[str]) -> _Task:
        for one in table:
            self._run(one)
        return self

    def __rshift__(self, after: Any) -> Any:
        return after

    def _run(self, table: str | None) -> Any:
        name = self.function.__name__
        try:
            found = self.function() if table is None else self.function(table)
        except RuntimeError as error:
            self.tasks.failed.append((name, table, str(error)))
            self.tasks.for_good += [(name, table)] if isinstance(error, FailError) else []
            return None
        self.tasks.done.append((name, table))
        return found


def loaded(dag: Path, monkeypatch: pytest.MonkeyPatch, *, version: int = 3) -> Tasks:
    """A run of a DAG, under the names of Airflow 3 or of 2.10."""
    sdk_name, errors_name = (
        ("airflow.sdk", "airflow.sdk.exceptions")
        if version == 3
        else ("airflow.decorators", "airflow.exceptions")
    )
    tasks, sdk, errors = Tasks(), ModuleType(sdk_name), ModuleType(errors_name)
    errors.AirflowFailException = FailError  # type: ignore[attr-defined]
    sdk.dag, sdk.task = tasks.dag, tasks.task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, sdk_name, sdk)
    monkeypatch.setitem(sys.modules, errors_name, errors)
    spec = importlib.util.spec_from_file_location("medallion_dag", dag)
    assert spec is not None
    assert spec.loader is not None
    tasks.module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tasks.module)
    return tasks


def run_dag(job: Harness, monkeypatch: pytest.MonkeyPatch, *, version: int = 3) -> Tasks:
    """A run of the example's DAG, its commands in this process."""

    def command(given: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        done = CliRunner().invoke(app, given[1:], prog_name="safewrite")
        return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)

    monkeypatch.setenv("SAFEWRITE_MEDALLION_CONFIG", str(job.write_config()))
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", command)
        return loaded(DAG, monkeypatch, version=version)


def test_the_dag_maps_each_table_and_ends_with_a_run_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lab(tmp_path, "delta", tables=2, defaults={"on_overwritten": "raise"})
    job.begin(5)
    for table in job.tables:
        job.dms.deliver_held(table)
    tasks = run_dag(job, monkeypatch)
    names = list(job.dms.tables)
    assert tasks.done == [("tables", None), *(("run", name) for name in names), ("rest", None)]
    assert tasks.given["rest"] == {"trigger_rule": "all_done"}
    assert job.wrong() == {}

    bad, good = job.tables
    job.dms.overwrite(bad)
    job.dms.change(good, 5)
    job.dms.flush(good)
    tasks = run_dag(job, monkeypatch)
    assert [(name, table) for name, table, _ in tasks.failed] == [("run", bad.name), ("rest", None)]
    assert "written again with other content" in tasks.failed[0][2]
    assert tasks.for_good == [("run", bad.name), ("rest", None)], "no retry heals a file (T3-C11)"
    assert tasks.given["dag"]["max_active_runs"] > 1, (
        "a table that waits for its retry holds back no other (T3-C11)"
    )
    for report in ('{"tables": [{"error": "no answer", "error_kind": "storage"}]}', "", '{"tables": []}'):
        assert tasks.module.may_pass(report), "what may pass is tried again"
    assert job.wrong() == {}


def test_the_dag_is_one_of_airflow_2_10_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the decorators and the exception have other places."""
    job = lab(tmp_path, "delta", tables=1, defaults={"on_overwritten": "raise"})
    job.begin(5)
    (table,) = job.tables
    job.dms.deliver_held(table)
    assert [name for name, _ in run_dag(job, monkeypatch, version=2).done] == ["tables", "run", "rest"]
    job.dms.overwrite(table)
    assert run_dag(job, monkeypatch, version=2).for_good == [("run", table.name), ("rest", None)]
