"""A small stress run with Spark among the writers and a protection taken out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.runs import stress

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]
SMALL = (
    "--seed", "3", "--writers", "3", "--appends", "4", "--rows", "20", "--pause-s", "1", "--spark", "1",
    "--steps", "commit.put_commit",
)  # fmt: skip


def test_a_run_in_which_spark_is_not_told_of_rivals_is_invalid(tmp_path: Path) -> None:
    deaf = "A2-an_engine_is_told_that_anothers_commit_is_its_own"
    options = ("--arms", "safewrite-dynamodb", "--spark-kills", "0", "--appends", "12", "--no-spark-reader")
    code, report, _ = stress(tmp_path, *SMALL, *options, faults=(deaf,), limit_s=900)
    assert (code, report["verdict"]) == (1, "INVALID")
    assert any("lost" in reason for reason in report["reasons"])
