"""The same seed gives the same history, byte for byte, so that any failure can be replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stateful.histories import trace

ROOT = Path(__file__).parents[2]


def _trace_in_another_process(seed: int, *, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.stateful.histories", str(seed), "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_trace_in_any_process(seed: int) -> None:
    assert _trace_in_another_process(seed, hash_seed=str(seed)) == trace(seed)


def test_another_seed_gives_another_trace() -> None:
    assert trace(1, 10) != trace(2, 10)
