"""The calls that the page on clusters shows fit AWS's own models of these APIs, and its files name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clusters import check_call, check_modules, check_policies, shown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cdc" / "clusters.md").read_text()
SHOWN = shown(PAGE)
CALLS = [name for name in SHOWN if " " in name]


def test_each_call_is_on_the_page() -> None:
    assert CALLS == ["emr-serverless CreateApplication", "emr-serverless StartJobRun", "glue CreateJob", "iam CreateRole"]  # fmt: skip
    assert PAGE.count("```json") == len(SHOWN)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_has_all_that_is_required_and_nothing_that_is_not_known(call: str) -> None:
    check_call(call, SHOWN[call])


def test_actions_of_the_policy_are_requests_that_there_are() -> None:
    check_policies(SHOWN["policy"], SHOWN["iam CreateRole"]["AssumeRolePolicyDocument"])


def test_glue_installs_what_the_wheel_needs() -> None:
    check_modules(SHOWN["glue CreateJob"], "cdc", "delta", "iceberg")


def test_the_job_starts_with_these_arguments() -> None:
    """The script reads ``--config`` and passes over what a cluster adds."""
    run = SHOWN["emr-serverless StartJobRun"]["jobDriver"]["sparkSubmit"]
    assert run["entryPointArguments"] == ["--config", "s3://BUCKET/job/tables.json"]
    assert SHOWN["glue CreateJob"]["DefaultArguments"]["--config"] == "s3://BUCKET/job/tables.json"
    assert "parse_known_args" in (ROOT / "examples" / "cdc" / "job.py").read_text()
    settings = re.findall(r"--conf (\S+)=(\S+)", run["sparkSubmitParameters"])
    assert len(settings) * 2 == len(run["sparkSubmitParameters"].split())
