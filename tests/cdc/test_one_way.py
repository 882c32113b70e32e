"""One record runs the same functions whichever engine lands it: an engine says only where tasks run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import safewrite
from safewrite.changes.members import table_pool
from safewrite.engine import local
from tests.cdc.jobs import change
from tests.cdc.on_executors import Executors, work_of
from tests.cdc.test_by_tasks import job_of

_ROOT = str(Path(safewrite.__file__).parent)
MOST = 60
"""So many functions may be on one side only."""


@contextmanager
def called() -> Iterator[set[str]]:
    """The functions of safewrite that run meanwhile, in any thread."""
    codes: set[CodeType] = set()

    def see(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            codes.add(frame.f_code)

    for module in (local, table_pool):  # their threads of before would not be seen
        module._pool_of.cache_clear()
    found: set[str] = set()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found |= {f"{one.co_filename.removeprefix(_ROOT)}:{one.co_qualname}" for one in codes if one.co_filename.startswith(_ROOT)}  # fmt: skip


def functions_of(folder: Path, executors: Executors | None, mode: str) -> set[str]:
    """Those that a record runs: one that a job's table begins with, and one after it."""
    marks = mode == "marked"
    more: dict[str, Any] = {"deleted_column": "gone"} if marks else {"mode": mode}
    more |= {"metadata": {"op": "op"}} if mode == "append" else {}
    job = job_of(folder, **more)
    landing, work = job.landing(), work_of(executors)
    with called() as found:
        landing.land(job.batch([change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0)]), work)
        landing.land(job.batch([change("u", "a", 1, {"id": 1, "n": 2}, lsn=2, offset=1)], 1), work)
        landing.land(job.batch([change("d", "a", 2, lsn=3, offset=2)] if marks else [], 2), work)
    rows = sorted(row["n"] or 0 for row in job.read("a").to_pylist())
    assert rows == {"upsert": [2], "marked": [0, 2]}.get(mode, [1, 2])
    return found


@pytest.mark.parametrize("mode", ["upsert", "append", "history", "marked"])
def test_a_record_runs_the_same_functions_by_each_engine(tmp_path: Path, mode: str) -> None:
    functions_of(tmp_path / "before", None, mode)  # what a process does once
    here = functions_of(tmp_path / "here", None, mode)
    there = functions_of(tmp_path / "there", Executors(), mode)
    lines = [f"{len(here)} here, {len(there)} by tasks"]
    lines += [f"only here   {one}" for one in sorted(here - there)]
    lines += [f"only there  {one}" for one in sorted(there - here)]
    sys.stdout.write("\n".join(lines))
    assert len(here ^ there) <= MOST
