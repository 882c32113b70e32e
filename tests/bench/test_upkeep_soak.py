"""The stress run of upkeep runs, and says that the table is as it should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.stress import upkeep
from tests.medallion.airflow import ROOT


@pytest.mark.parametrize("seconds", [20.0, 120.0, 2400.0])
def test_a_call_of_the_soak_ends_before_its_files_are_old(tmp_path: Path, seconds: float) -> None:
    upkeep._create("delta", tmp_path)
    table = upkeep._opened("delta", tmp_path, seconds)
    assert table._format.limits.timeout_s <= upkeep._aged_s(seconds) / 2


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_short_soak_of_upkeep_finds_all_rows(table_format: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "bench.stress.upkeep", "--format", table_format]
    command += ["--seconds", "20", "--writers", "3", "--kills", "4"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all rows are as they should be" in ran.stdout
    assert "by two engines" in ran.stdout
