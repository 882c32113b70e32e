"""A small stress run with Spark among the writers and a protection taken out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "--seed", "3", "--writers", "3", "--appends", "4", "--rows", "20", "--pause-s", "1", "--spark", "1",
    "--steps", "commit.put_commit",
)  # fmt: skip


def stress(folder: Path, *options: str, checkout: Path = ROOT) -> tuple[int, dict[str, Any]]:
    """Run the command; its exit code and its report."""
    command = [sys.executable, "-m", "bench.stress", "--json", "--out", str(folder), *SMALL, *options]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SAFEWRITE_")}
    jars = {"SAFEWRITE_JARS": os.environ.get("SAFEWRITE_JARS", str(ROOT / "jars"))}
    done = subprocess.run(
        command, cwd=checkout, env={**clean, **jars, "PYTHONPATH": str(checkout)}, capture_output=True,
        text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


DEAF = (
    "return LANDED if self.commits.commit(path, body) else EXISTS",
    "self.commits.commit(path, body); return LANDED",
)
"""Spark is told that its commit stands there, though another's does."""


def test_a_run_in_which_spark_is_not_told_of_rivals_is_invalid(tmp_path: Path) -> None:
    checkout = tmp_path / "mutant"
    for package in ("safewrite", "bench"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    module = checkout / "safewrite" / "spark" / "hook.py"
    text = module.read_text()
    assert text.count(DEAF[0]) == 1
    module.write_text(text.replace(*DEAF))
    options = ("--arms", "safewrite-dynamodb", "--spark-kills", "0", "--appends", "12", "--no-spark-reader")
    code, report = stress(tmp_path, *options, checkout=checkout)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert any("lost" in reason for reason in report["reasons"])
