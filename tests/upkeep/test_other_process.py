"""Groups are put together in processes that know nothing of this one but what a task tells them, as executors are."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.engine.abc import TaskReport
from safewrite.engine.local import LocalEngine
from safewrite.upkeep import workplace
from tests.upkeep import elsewhere, test_delta, test_iceberg

RUN = """
import pickle, sys
from safewrite.engine.local import LocalEngine
sys.stdout.buffer.write(pickle.dumps(LocalEngine().run(pickle.loads(sys.stdin.buffer.read()))))
"""


class Processes(LocalEngine):
    """Runs tasks in a Python of their own, without this one's settings of stores."""

    ran = 0

    def run(self, tasks: Sequence[Any]) -> list[TaskReport]:
        type(self).ran += len(tasks)
        bare = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        done = subprocess.run(
            [sys.executable, "-c", RUN], input=pickle.dumps(tasks), capture_output=True, check=True, env=bare
        )
        found: list[TaskReport] = pickle.loads(done.stdout)
        return found


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> workplace.Workplace:
    monkeypatch.setattr(workplace, "SMALL", 0)
    monkeypatch.setattr(Processes, "ran", 0)
    return elsewhere.workplace(Processes())  # type: ignore[arg-type]


def test_a_delta_table_on_s3_is_reached_by_what_the_task_tells(
    place: workplace.Workplace, ministack: Ministack, bucket: str
) -> None:
    """Its endpoint and its keys; vectors of before are read there."""
    how: dict[str, Any] = {"arbiter": "object-store", "storage_options": ministack.storage_options()}
    table = sw.create(
        f"s3://{bucket}/{uuid.uuid4().hex[:8]}", test_iceberg.SCHEMA, properties=test_delta.VECTORS, **how
    )
    for number in range(3):
        table.append([{"n": 10 * number + n, "s": 1, "day": "a"} for n in range(5)])
    table.delete("n in (1, 12)")
    before = table.rows(where="true").sort_by("n")
    report = table.maintain(engine=place)
    assert (report.groups, report.files_after, report.deleted_rows, Processes.ran) == (1, 1, 2, 1)
    assert table.rows(where="true").sort_by("n").equals(before)


@pytest.mark.parametrize("version", ["2", "3"])
def test_an_iceberg_table_is_reached_by_what_the_task_tells(
    place: workplace.Workplace, tmp_path: Path, version: str
) -> None:
    lake = test_iceberg.Lake(
        tmp_path / "t",
        days=("a",),
        **test_iceberg.MARKS,
        **({"format-version": "3"} if version == "3" else {}),
    )
    test_iceberg.delete(lake, 1, 102)
    before = test_iceberg.read(lake)
    report = lake.open().maintain(engine=place)
    assert (report.groups, report.files_after, report.deleted_rows, Processes.ran) == (1, 1, 2, 1)
    assert test_iceberg.read(lake) == before
