"""Runs that are killed at named points, at random, and side by side: nothing is lost, nothing twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.medallion.dms import Dms, SourceTable
from bench.medallion.harness import Harness, lab
from bench.medallion.killed_run import POINTS

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
FORMATS = ("delta", "iceberg")


def start(job: Harness, point: str, times: int) -> subprocess.Popen[str]:
    given = [sys.executable, "-m", "bench.medallion.killed_run", str(job.write_config()), point, str(times)]
    return subprocess.Popen(given, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def spoil(dms: Dms, table: SourceTable) -> int:
    """A record that cannot be taken, in a change file of its own."""
    if table.kind != "csv":
        return 0
    path = f"{table.name.replace('.', '/')}/2025{dms.clock:%m%d-%H%M%S}999.csv"
    good = next(content for name, content in table.written.items() if "LOAD" not in name).decode()
    head = good.split("\n")[0] + "\n" if table.header else ""
    (dms.root / path).write_text(head + "X,what is this\n")
    return 1


def tell(job: Harness, points: list[tuple[str, int]]) -> int:
    """Change the source, kill a run at each point, and see that the next one mends it; how many records are spoiled."""
    job.begin(10)
    job.go_on(10)
    job.run()
    spoiled = 0
    for point, times in points:
        for table in job.tables:
            job.dms.change(table, 10)
            job.dms.flush(table)
            job.dms.clock = job.dms.clock.replace(microsecond=0)
            spoiled += spoil(job.dms, table)
        victim = start(job, point, times)
        victim.communicate(timeout=TIMEOUT_S)
        assert victim.returncode == -signal.SIGKILL, point
    for table in job.tables:
        job.dms.deliver_held(table)
    job.run()
    return spoiled


def check(job: Harness, spoiled: int) -> None:
    assert job.wrong() == {}
    assert job.flaws() == []
    assert job.read("bronze", job.tables[0].name).num_rows > 0
    assert sum(one.landed.quarantined for one in job.run().tables) == 0
    assert job.aside().num_rows == spoiled


LENIENT = {"quality": {"quarantined_share_max": 1.0}}


@pytest.mark.sweep("delta-points0")
@pytest.mark.parametrize(
    ("table_format", "points"),
    [
        ("delta", ("quarantine:after", "bronze:after", "silver:after", "state:before")),
        ("iceberg", ("bronze:after", "silver:after")),
        pytest.param("delta", POINTS, marks=pytest.mark.long),
        pytest.param("iceberg", POINTS, marks=pytest.mark.long),
    ],
)
def test_a_run_may_be_killed_at_every_named_point(
    table_format: str, points: tuple[str, ...], tmp_path: Path
) -> None:
    """One table, so that each point is met; the source goes on between the kills."""
    job = lab(tmp_path, table_format, tables=1, defaults=LENIENT)
    check(job, tell(job, [(point, 1) for point in points]))


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_runs_over_eight_tables_may_be_killed_again_and_again(
    table_format: str, seed: int, tmp_path: Path
) -> None:
    job = lab(tmp_path, table_format, tables=8, seed=seed, defaults=LENIENT)
    draw = random.Random(seed)
    check(job, tell(job, [(point, draw.randrange(1, 6)) for point in POINTS for _ in range(3)]))


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_two_runs_at_once_land_everything_once(table_format: str, tmp_path: Path) -> None:
    """Two processes with the same news: one may be told that the other moved silver first, never worse."""
    job = lab(tmp_path, table_format, tables=3)
    job.begin()
    job.run()
    job.go_on()
    for table in job.tables:
        job.dms.deliver_held(table)
    rivals = [start(job, "nowhere:before", 1) for _ in range(2)]
    said = [rival.communicate(timeout=TIMEOUT_S)[0] for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0, 0]
    assert all(one == "ok" for one in said), said
    job.run()
    assert job.wrong() == {}
    assert job.flaws() == []


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
def test_runs_may_be_killed_at_random_while_the_source_goes_on(table_format: str, tmp_path: Path) -> None:
    job = lab(tmp_path, table_format, tables=8)
    draw = random.Random(8)
    job.begin()
    for _ in range(12):
        job.go_on(5)
        victim = start(job, "nowhere:before", 1)
        try:
            victim.communicate(timeout=draw.uniform(0.8, 4.0))
        except subprocess.TimeoutExpired:
            victim.kill()
            victim.communicate(timeout=TIMEOUT_S)
    for table in job.tables:
        job.dms.deliver_held(table)
    job.run()
    assert job.wrong() == {}
    assert job.flaws() == []
