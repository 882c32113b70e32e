"""A pytest plugin that writes the outcome of each test into a JSON file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure in set-up or teardown counts as one of the test."""
    if report.when == "call" or report.outcome != "passed":
        known = _outcomes.get(report.nodeid)
        _outcomes[report.nodeid] = known if known == "failed" else report.outcome


def pytest_sessionfinish() -> None:
    Path(os.environ["SAFEWRITE_SUITE_REPORT"]).write_text(json.dumps(_outcomes))
