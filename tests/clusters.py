"""Checks the calls of AWS that pages on clusters show against AWS's own models of these APIs."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^<!-- ([^\n]+) -->\n```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NOT_CALLS = {"s3:ListBucket": "ListObjectsV2"}
"""Actions that are called otherwise than the request that needs them."""


def shown(page: str) -> dict[str, Any]:
    """What a page shows, by the names of its blocks; all of it has one."""
    found = {name: json.loads(text) for name, text in _BLOCK.findall(page)}
    assert page.count("```json") == len(found)
    return found


def faults(call: str, given: Mapping[str, Any]) -> str:
    """What botocore, by which the AWS CLI sends it, would refuse; members that it does not know too."""
    service, operation = call.split()
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    return str(ParamValidator().validate(given, shape).generate_report())


def check_call(call: str, given: Mapping[str, Any]) -> None:
    """A call has all that is required, and nothing that is not known."""
    assert faults(call, given) == ""
    first = next(iter(given))
    assert "Unknown parameter" in faults(call, {**given, f"{first}s": 1})
    assert faults(call, {**given, first: 1})


def check_policies(policy: Mapping[str, Any], trust: str) -> None:
    """Actions of the policies are requests that there are."""
    for one in (policy, json.loads(trust)):
        assert set(one) == {"Version", "Statement"}
        assert all(part["Effect"] == "Allow" for part in one["Statement"])
    session = botocore.session.get_session()
    for action in [action for one in policy["Statement"] for action in one["Action"]]:
        service, name = action.split(":")
        if service != "kafka-cluster":  # of the brokers' own protocol, of which no model is there
            assert _NOT_CALLS.get(action, name) in session.get_service_model(service).operation_names
    assert all(one["Resource"] and "*" not in one["Resource"] for one in policy["Statement"])


def check_modules(job: Mapping[str, Any], *extras: str) -> None:
    """The modules beside the wheel are those of its extras, for Glue installs a wheel without them."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[<>=]", one)[0] for name in extras for one in known[name]}
    wheel, *modules = job["DefaultArguments"]["--additional-python-modules"].split(",")
    assert wheel.endswith("/safewrite_lake-VERSION-py3-none-any.whl")
    assert {re.split(r"[<>=]", one)[0] for one in modules} == needed
