"""Stress runs by their command, with faults switched on in its writers, or on a copy with another example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FAULTY = Path(__file__).with_name("faulty")
_FOLDERS = {"SAFEWRITE_JARS": "jars", "SAFEWRITE_ARMS_DIR": ".envs"}
"""What a run uses of this checkout, or of elsewhere if the environment says so; a copy has neither."""


def stress(
    folder: Path, *options: str, checkout: Path = ROOT, faults: Sequence[str] = (), limit_s: int = 300
) -> tuple[int, dict[str, Any], str]:
    """Run the command, its writers with ``faults`` switched on; its exit code, its report, and the page."""
    command = [sys.executable, "-m", "bench.stress", "--output", "json", "--out", str(folder), *options]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SAFEWRITE_")}
    folders = {name: os.environ.get(name, str(ROOT / default)) for name, default in _FOLDERS.items()}
    paths = [str(FAULTY), str(checkout)] if faults else [str(checkout)]
    switched = {"PYTHONPATH": os.pathsep.join(paths), "FAULTS_OF_THE_RUN": " ".join(faults)}
    done = subprocess.run(
        command, cwd=checkout, env={**clean, **folders, **switched}, capture_output=True, text=True, timeout=limit_s,
        check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    (page,) = folder.glob("*/report.html")
    return done.returncode, json.loads(done.stdout), page.read_text()


def arm(report: dict[str, Any], name: str) -> dict[str, Any]:
    """What the report says of an arm."""
    (found,) = [arm for arm in report["arms"] if arm["name"] == name]
    return found


def mutant(folder: Path, flaws: Mapping[str, tuple[str, str]]) -> Path:
    """A copy of the checkout in which, for each module of safewrite or of ``bench/``, sound text has become flawed."""
    checkout = folder / "mutant"
    for package in ("safewrite", "bench"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (sound, flawed) in flaws.items():
        module = checkout / (name if name.startswith("bench/") else f"safewrite/{name}")
        text = module.read_text()
        assert text.count(sound) == 1
        module.write_text(text.replace(sound, flawed))
    return checkout
