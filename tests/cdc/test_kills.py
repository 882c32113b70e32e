"""Drivers are killed at any moment, and started again without a checkpoint: the tables end as their sources."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cdc.jobs import Source
from tests.cdc.killed import CHANGES, KINDS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "kills", "kind"),
    [
        ("delta", 3, "changes"),
        *(
            pytest.param(form, 15, kind, marks=pytest.mark.long)
            for form in ("delta", "iceberg")
            for kind in ("changes", "appended")
        ),
    ],
)
def test_a_job_that_is_killed_again_and_again_ends_exact(
    tmp_path: Path, form: str, kills: int, kind: str
) -> None:
    """E1, E2: SIGKILL after a random time, each driver with other batches; then one that is left alone."""
    (tmp_path / "lake").mkdir()
    draw, seed, alive = random.Random(kills), kills, 0
    for kill in range(kills + 1):
        command = [
            sys.executable,
            "-m",
            "tests.cdc.killed",
            str(tmp_path),
            form,
            str(seed),
            str(draw.randrange(5, 60)),
            kind,
        ]
        driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        try:
            code = driver.wait(None if kill == kills else draw.uniform(0.05, 1.5))
            assert code == 0
            alive += kill < kills
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
        driver.stdout.close()
    assert alive < kills, "no driver was killed"
    job, source = KINDS[kind](tmp_path, form), Source(seed)
    source.run(CHANGES)
    if kind == "changes":
        assert {name: job.rows(name) for name in source.tables} == source.rows
    else:
        found = [job.read(name).select(["part", "at"]).to_pylist() for name in source.tables]
        told = [(one.partition, one.offset) for one in source.records if one.value is not None]
        assert sorted((row["part"], row["at"]) for rows in found for row in rows) == sorted(told)
    verdict = job.verdict()
    assert verdict.faults == ()
    assert sum(one.totals["records"] for one in verdict.accounts) == len(source.records)
