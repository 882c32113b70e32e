"""The calls that the page on clusters shows fit AWS's own models of these APIs, and its files name what there is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cdc" / "clusters.md").read_text()
BLOCK = re.compile(r"^<!-- ([^\n]+) -->\n```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = {name: json.loads(text) for name, text in BLOCK.findall(PAGE)}
CALLS = [name for name in SHOWN if " " in name]
NOT_CALLS = {"s3:ListBucket": "ListObjectsV2"}
"""Actions that are called otherwise than the request that needs them."""


def faults(call: str, given: Mapping[str, Any]) -> str:
    """What botocore, by which the AWS CLI sends it, would refuse; members that it does not know too."""
    service, operation = call.split()
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    return str(ParamValidator().validate(given, shape).generate_report())


def test_each_call_is_on_the_page() -> None:
    assert CALLS == ["emr-serverless CreateApplication", "emr-serverless StartJobRun", "glue CreateJob", "iam CreateRole"]  # fmt: skip
    assert PAGE.count("```json") == len(SHOWN)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_has_all_that_is_required_and_nothing_that_is_not_known(call: str) -> None:
    assert faults(call, SHOWN[call]) == ""
    first = next(iter(SHOWN[call]))
    assert "Unknown parameter" in faults(call, {**SHOWN[call], f"{first}s": 1})
    assert faults(call, {**SHOWN[call], first: 1})


def test_actions_of_the_policy_are_requests_that_there_are() -> None:
    trust = json.loads(SHOWN["iam CreateRole"]["AssumeRolePolicyDocument"])
    for policy in (SHOWN["policy"], trust):
        assert set(policy) == {"Version", "Statement"}
        assert all(one["Effect"] == "Allow" for one in policy["Statement"])
    actions = [action for one in SHOWN["policy"]["Statement"] for action in one["Action"]]
    session = botocore.session.get_session()
    for action in actions:
        service, name = action.split(":")
        if service != "kafka-cluster":  # of the brokers' own protocol, of which no model is there
            assert NOT_CALLS.get(action, name) in session.get_service_model(service).operation_names
    assert all(one["Resource"] and "*" not in one["Resource"] for one in SHOWN["policy"]["Statement"])


def test_glue_installs_what_the_wheel_needs() -> None:
    """The modules beside the wheel are those of its extras, for Glue installs a wheel without them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[<>=]", one)[0] for name in ("cdc", "delta", "iceberg") for one in extras[name]}
    wheel, *modules = SHOWN["glue CreateJob"]["DefaultArguments"]["--additional-python-modules"].split(",")
    assert wheel.endswith("/safewrite_lake-VERSION-py3-none-any.whl")
    assert {re.split(r"[<>=]", one)[0] for one in modules} == needed


def test_the_job_starts_with_these_arguments() -> None:
    """The script reads ``--config`` and passes over what a cluster adds."""
    run = SHOWN["emr-serverless StartJobRun"]["jobDriver"]["sparkSubmit"]
    assert run["entryPointArguments"] == ["--config", "s3://BUCKET/job/tables.json"]
    assert SHOWN["glue CreateJob"]["DefaultArguments"]["--config"] == "s3://BUCKET/job/tables.json"
    assert "parse_known_args" in (ROOT / "examples" / "cdc" / "job.py").read_text()
    settings = re.findall(r"--conf (\S+)=(\S+)", run["sparkSubmitParameters"])
    assert len(settings) * 2 == len(run["sparkSubmitParameters"].split())
