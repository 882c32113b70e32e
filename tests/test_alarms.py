"""The pages of operations name the metrics, the findings and the dimensions that the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import safewrite as sw
from safewrite.metrics import METRICS, cloudwatch
from safewrite.metrics.measures import STUCK_ENTRIES

ROOT = Path(__file__).parent.parent
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
LAMBDA = (ROOT / "docs" / "lambda.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \|", re.MULTILINE)


MONITORING = (ROOT / "docs" / "cdc" / "monitoring.md").read_text()


def alarms(page: str = OPERATIONS) -> dict[str, dict[str, Any]]:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    template = yaml.safe_load(block)
    json.dumps(template)  # no tag that only CloudFormation knows
    assert {resource["Type"] for resource in template["Resources"].values()} == {"AWS::CloudWatch::Alarm"}
    named = set(re.findall(r"Ref: (\w+)", block))
    assert named == set(template["Parameters"])
    return {name: resource["Properties"] for name, resource in template["Resources"].items()}


def metrics_of(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    return [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", ()) if "MetricStat" in one] or [alarm]


def test_the_alarms_are_on_metrics_that_exist_under_the_dimensions_that_they_have() -> None:
    ours = [
        metric
        for alarm in alarms().values()
        for metric in metrics_of(alarm)
        if metric["Namespace"] == "safewrite"
    ]
    assert {metric["MetricName"] for metric in ours} == {"StuckEntries", "CommitConflicts", "CommitAttempts"}
    for metric in ours:
        line = json.loads(cloudwatch.stuck_entries_line(0, "locks", namespace="safewrite", more={}))
        of_writes = [cloudwatch.TABLE]
        (of_look,) = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
        wanted = of_look if metric["MetricName"] == STUCK_ENTRIES.name else of_writes
        assert [one["Name"] for one in metric["Dimensions"]] == wanted
        assert metric["MetricName"] in {one.name for one in METRICS}


def test_the_alarm_of_a_change_data_job_is_on_a_metric_of_its_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (alarm,) = alarms(MONITORING).values()
    cloudwatch.emf(namespace=alarm["Namespace"], job="shop")(sw.Event("table_batch", "db.a", "", {"dead": 1}))
    (directive,) = json.loads(capsys.readouterr().out)["_aws"]["CloudWatchMetrics"]
    assert alarm["MetricName"] in {one["Name"] for one in directive["Metrics"]}
    assert [one["Name"] for one in alarm["Dimensions"]] in directive["Dimensions"]
    assert directive["Dimensions"] == [[cloudwatch.TABLE], [cloudwatch.JOB]]


def test_the_alarms_are_whole() -> None:
    found = alarms() | alarms(MONITORING)
    stuck = found["StuckClaims"]
    assert (stuck["Threshold"], stuck["Period"] * stuck["EvaluationPeriods"]) == (0, 300)
    for alarm in found.values():
        assert {"EvaluationPeriods", "Threshold", "ComparisonOperator", "TreatMissingData"} <= set(alarm)
        assert ("MetricName" in alarm) is not ("Metrics" in alarm)
    ids = {one["Id"] for one in found["Contention"]["Metrics"]}
    expression = found["Contention"]["Metrics"][0]["Expression"]
    assert set(re.findall(r"\b[a-z]+\b", expression)) == ids - {"rate"}


def test_the_page_has_a_row_for_each_metric() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (?:`([a-z.]+)` )?\| (\w+) \|", OPERATIONS, re.MULTILINE)
    assert rows == [
        (metric.name, "" if metric is STUCK_ENTRIES else metric.instrument, metric.unit) for metric in METRICS
    ]


def severities(module: str, prefix: str) -> dict[str, set[str]]:
    """The codes of the findings that a module makes, with their severities."""
    text = (ROOT / "safewrite" / module).read_text()
    found: dict[str, set[str]] = {}
    for severity, code in re.findall(rf'\b(DANGER|WARNING|INFO),\s*"({prefix}_\w+)"', text):
        found.setdefault(code, set()).add(severity.lower())
    return found


def test_the_pages_have_a_row_for_each_finding_with_its_severities() -> None:
    for page, module, prefix in (
        (OPERATIONS, "stores/lock_table.py", "lock_table"),
        (LAMBDA, "aws_lambda/mappings.py", "lambda"),
    ):
        rows = {code: set(text.split(", ")) for code, text in ROW.findall(page) if code.startswith(prefix)}
        assert len(rows) > 5
        assert rows == severities(module, prefix)
