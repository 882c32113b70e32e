"""The dashboards show each metric that the code emits, under the names and dimensions that it has there."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

import safewrite as sw
from safewrite.cli.app import app
from safewrite.metrics import METRICS, cloudwatch, dashboard, emf
from safewrite.metrics.dashboards import SECTIONS, prometheus_name
from safewrite.metrics.measures import STUCK_ENTRIES

SEARCH = re.compile(r"SEARCH\('\{(.+)\} MetricName=\"(\w+)\"', '(Sum|Maximum|p50|p99)', 300\)")


def searches(of: dict[str, Any]) -> list[tuple[list[str], str, str]]:
    """The names of the namespace and the dimensions, the metric and the statistic of each line."""
    found = []
    for widget in of["widgets"]:
        for (line,) in widget["properties"].get("metrics", ()):
            match = SEARCH.fullmatch(line["expression"])
            assert match, line
            found.append((json.loads(f"[{match[1]}]"), match[2], match[3]))
    return found


def test_each_metric_is_in_one_panel() -> None:
    shown = [metric for section in SECTIONS for panel in section.panels for metric in panel.metrics]
    assert sorted(metric.name for metric in shown) == sorted(metric.name for metric in METRICS)


def test_cloudwatch_is_asked_for_what_a_line_has(capsys: pytest.CaptureFixture[str]) -> None:
    """Namespace and dimensions of a search are those under which ``emf`` prints the metric."""
    printed = set()
    line = emf(namespace="lake/w", dimensions={"Service": "orders"}, job="shop")
    for kind, details in {
        "commit": {"attempts": 2, "outcome": "committed", "rows": 3, "elapsed_s": 0.5, "members": 3, "led_by_us": True, "waited_s": 1.0},
        "failed": {}, "turn": {"wait_s": 1.0}, "repair": {"passed_over": "a"}, "checkpoint": {"elapsed_s": 1.0},
        "table_run": dict.fromkeys(["files", "rows", "quarantined", "applied", "failed", "elapsed_s", "lag_files", "lag_commits", "lag_s"], 1),
        "table_batch": dict.fromkeys(["records", "applied", "late", "duplicate", "superseded", "tombstoned", "dead", "commit_s", "lag_s", "valid_through_s"], 1),
        "stream": dict.fromkeys(["lag_records", "batch_s", "failed"], 1),
        "upkeep": dict.fromkeys(["files_in", "files_after", "elapsed_s", "failed"], 1),
    }.items():  # fmt: skip
        line(sw.Event(kind, "shop.t", "", details))
    line(sw.Event("checkpoint", "shop.t", "", {"error": "x"}))
    cloudwatch.print_line(cloudwatch.stuck_entries_line(1, "locks", namespace="lake/w", more={}))
    for text in capsys.readouterr().out.splitlines():
        (directive,) = json.loads(text)["_aws"]["CloudWatchMetrics"]
        for one in directive["Metrics"]:
            printed |= {
                (one["Name"], directive["Namespace"], *sorted(names)) for names in directive["Dimensions"]
            }
    asked = {
        (name, space, *sorted(names))
        for (space, *names), name, _ in searches(
            dashboard("cloudwatch", namespace="lake/w", dimensions=["Service"])
        )
    }
    assert asked <= printed
    assert {name for name, *_ in asked} == {name for name, *_ in printed} == {one.name for one in METRICS}


def test_grafana_asks_for_the_names_that_prometheus_has() -> None:
    found = dashboard("grafana")
    text = " ".join(target["expr"] for panel in found["panels"] for target in panel.get("targets", ()))
    names = set(re.findall(r"safewrite_[a-z_]+(?=\{)", text))
    assert "safewrite_commit_latency_seconds_bucket" in names
    assert "safewrite_commit_attempts_total" in names
    wanted = {prometheus_name(metric) for metric in METRICS if metric is not STUCK_ENTRIES}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} == wanted


def test_no_two_widgets_share_a_place() -> None:
    for widgets in (
        [(w["x"], w["y"], w["width"], w["height"]) for w in dashboard("cloudwatch")["widgets"]],
        [(*(p["gridPos"][k] for k in "xywh"),) for p in dashboard("grafana")["panels"]],
    ):
        cells = [(x + a, y + b) for x, y, w, h in widgets for a in range(w) for b in range(h)]
        assert len(cells) == len({*cells})
        assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--namespace", "AWS/S3"], "is no namespace"), (["--dimension", ":a"], "no name of a")],
)
def test_what_cloudwatch_would_not_take_is_refused(words: list[str], said: str) -> None:
    ended = CliRunner().invoke(app, ["dashboard", *words])
    assert (ended.exit_code, said in ended.output) == (2, True)


def test_the_command_prints_json() -> None:
    ended = CliRunner().invoke(app, ["dashboard", "--for", "grafana"])
    assert json.loads(ended.output) == dashboard("grafana")
    made = json.loads(CliRunner().invoke(app, ["dashboard", "--region", "eu-west-1"]).output)
    assert made == dashboard("cloudwatch", region="eu-west-1")
    assert {w["properties"]["region"] for w in made["widgets"] if w["type"] == "metric"} == {"eu-west-1"}


@pytest.mark.parametrize(
    ("of", "more", "said"),
    [
        ("prometheus", {}, "one of cloudwatch, grafana"),
        (None, {}, "one of cloudwatch, grafana"),
        (["grafana"], {}, "cannot be read|one of cloudwatch"),
        ("cloudwatch", {"dimensions": "Service"}, "in a list"),
        ("cloudwatch", {"dimensions": None}, "cannot be read"),
        ("cloudwatch", {"dimensions": ["Table"]}, "that a line has already"),
        ("cloudwatch", {"dimensions": ["a'b"]}, "a quote in it"),
        ("cloudwatch", {"region": 3}, "the name of a region"),
        ("cloudwatch", {"namespace": None}, "is no namespace"),
        ("grafana", {"dimensions": ["Service"]}, "for one of grafana"),
    ],
)
def test_a_slip_in_an_argument_is_refused_not_guessed(of: Any, more: dict[str, Any], said: str) -> None:
    """Any other form made a dashboard of CloudWatch, and a text a dimension of each of its letters."""
    with pytest.raises(sw.InvalidInputError, match=said):
        dashboard(of, **more)
