"""Upkeep by cron, Lambda and Airflow: the examples, as they stand, put a table's files together."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import safewrite as sw
from tests.medallion.airflow import HOME, ROOT, Airflow
from tests.medallion.test_dag import loaded

EXAMPLES = ROOT / "examples" / "upkeep"
BIN = ROOT / ".venv" / "bin"


def small_files(place: Path) -> sw.Table:
    table = sw.open(place, create=True)
    for number in range(12):
        table.append([{"id": number}])
    return table


def crontab() -> tuple[dict[str, str], list[str]]:
    """The variables of the crontab, and its commands as cron gives them to the shell."""
    lines = [one for one in (EXAMPLES / "crontab").read_text().splitlines() if not one.startswith("#")]
    variables = dict(one.split("=", 1) for one in lines if re.match(r"[A-Z]+=", one))
    commands = [re.split(r"\s+", one, maxsplit=5)[5] for one in lines if re.match(r"[0-9*]", one)]
    assert len(variables) + len(commands) == len(lines)
    return variables, commands


def test_the_commands_of_the_crontab_maintain_a_table(tmp_path: Path) -> None:
    table, (variables, commands) = small_files(tmp_path / "orders"), crontab()
    assert len(commands) == 2
    assert not any("%" in one for one in commands), "cron makes new lines of them"
    given = {"TABLE": table.uri, "LOG": str(tmp_path / "log"), "PATH": f"{BIN}:{variables['PATH']}"}
    assert given.keys() == variables.keys()
    for command in commands:
        subprocess.run(
            ["/bin/sh", "-c", command], env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), **given}, check=True,
        )  # fmt: skip
    first, second = json.loads("[" + (tmp_path / "log").read_text().replace("}\n{", "},{") + "]")
    assert (first["files_before"], first["files_after"]) == (12, 1)
    assert second["groups"] == 0
    assert table.refresh().row_count() == 12


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "maintain.md").read_text()
    _, commands = crontab()
    assert all(one in page for one in commands)
    assert (EXAMPLES / "lambda_handler.py").read_text().partition('"""\n\n')[2].strip() in page
    assert all(f"examples/upkeep/{one.name}" in page for one in EXAMPLES.iterdir() if one.is_file())


def test_the_function_maintains_the_table_of_its_event(tmp_path: Path) -> None:
    table = small_files(tmp_path / "orders")
    spec = importlib.util.spec_from_file_location("upkeep_handler", EXAMPLES / "lambda_handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    report = module.handler({"table": table.uri}, None)
    assert (report["files_before"], report["files_after"]) == (12, 1)


@pytest.mark.parametrize("version", [3, 2])
def test_the_dag_maintains_each_table_and_fails_for_those_that_it_cannot(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks without an Airflow, under the names of Airflow 3 and of 2.10."""
    table = small_files(tmp_path / "orders")
    monkeypatch.setenv("UPKEEP_TABLES", f"{tmp_path / 'gone'} {table.uri}")
    monkeypatch.setenv("SAFEWRITE_COMMAND", str(BIN / "safewrite"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tasks = loaded(EXAMPLES / "airflow_dag.py", monkeypatch, version=version)
    assert tasks.done == [("maintain", table.uri)]
    ((task, place, why),) = tasks.failed
    assert (task, place) == ("maintain", str(tmp_path / "gone"))
    assert "There is no Delta table" in why
    assert sw.open(table.uri).maintain().groups == 0
    assert tasks.given["dag"]["catchup"] is False


@pytest.mark.long
def test_airflow_runs_the_short_dag_of_upkeep(tmp_path: Path) -> None:
    """A real one, by ``airflow dags test``: it reads the file, and runs its tasks one after another."""
    assert HOME.exists(), "make test-airflow builds the environment of Airflow"
    table, dags = small_files(tmp_path / "orders"), tmp_path / "dags"
    dags.mkdir()
    shutil.copy(EXAMPLES / "airflow_dag.py", dags)
    airflow = Airflow(
        tmp_path / "home", dags, SAFEWRITE_COMMAND=str(BIN / "safewrite"), PYTHONPATH=str(ROOT), UPKEEP_TABLES=table.uri,
        UPKEEP_SCHEDULE="",
    )  # fmt: skip
    (tmp_path / "home").mkdir()
    airflow.command("db", "migrate")
    airflow.command("dags", "test", "upkeep")
    assert sw.open(table.uri).maintain().groups == 0
    assert sw.open(table.uri).row_count() == 12
