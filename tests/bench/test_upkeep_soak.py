"""The stress run of upkeep runs, and says that the table is as it should be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.medallion.airflow import ROOT


@pytest.mark.long
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_short_soak_of_upkeep_finds_all_rows(table_format: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "bench.stress.upkeep", "--format", table_format]
    command += ["--seconds", "20", "--writers", "3", "--kills", "4"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all rows are as they should be" in ran.stdout
    assert "by two engines" in ran.stdout
