"""A small stress run with Spark among the writers and a protection taken out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.runs import mutant, stress

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
SMALL = (
    "--seed", "3", "--writers", "3", "--appends", "4", "--rows", "20", "--pause-s", "1", "--spark", "1",
    "--steps", "commit.put_commit",
)  # fmt: skip


DEAF = {
    "delta/spark/hook.py": (
        "return LANDED if self.commits.commit(path, body) else EXISTS",
        "self.commits.commit(path, body); return LANDED",
    )
}
"""Spark is told that its commit stands there, though another's does."""


def test_a_run_in_which_spark_is_not_told_of_rivals_is_invalid(tmp_path: Path) -> None:
    options = ("--arms", "safewrite-dynamodb", "--spark-kills", "0", "--appends", "12", "--no-spark-reader")
    code, report, _ = stress(tmp_path, *SMALL, *options, checkout=mutant(tmp_path, DEAF), limit_s=900)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert any("lost" in reason for reason in report["reasons"])
