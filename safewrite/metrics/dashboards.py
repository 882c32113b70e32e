"""Makes dashboards of the metrics: for CloudWatch, and for Grafana over Prometheus.

CloudWatch's form: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
Prometheus has a metric of OpenTelemetry under the name that OpenTelemetry's compatibility specification gives it: dots are
underscores, seconds are in the name, counters end in ``_total``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError
from safewrite.metrics.cloudwatch import JOB, LOCK_TABLE, TABLE, checked_dimensions, checked_namespace
from safewrite.metrics.measures import (
    CHECKPOINT_FAILURES,
    CHECKPOINT_TIME,
    COMMIT_ATTEMPTS,
    COMMIT_CONFLICTS,
    COMMIT_FAILURES,
    COMMIT_LATENCY,
    ROWS_COMMITTED,
    SHARED_MEMBERS,
    SHARED_TAKEOVERS,
    SHARED_WAIT,
    STREAM,
    STUCK_ENTRIES,
    TABLE_BATCH,
    TABLE_RUN,
    TURN_WAIT,
    UPKEEP,
    Metric,
)
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text

Of = Literal["cloudwatch", "grafana"]
_WIDTH, _HEIGHT, _COLUMNS = 12, 6, 24
_PERIOD_S = 300


@dataclass(frozen=True)
class Panel:
    """One plot: metrics that are read together, under a dimension."""

    title: str
    metrics: tuple[Metric, ...]
    by: str = TABLE


@dataclass(frozen=True)
class Section:
    """Panels about one thing, under a sentence that says what to look for."""

    title: str
    text: str
    panels: tuple[Panel, ...]


def _some(of: dict[str, Metric], *names: str) -> tuple[Metric, ...]:
    return tuple(of[name] for name in names)


SECTIONS = (
    Section("Writes", "Failures are to be 0. Conflicts and waits cost time, never rows.", (
        Panel("Writes that failed", (COMMIT_FAILURES,)),
        Panel("Rows committed", (ROWS_COMMITTED,)),
        Panel("Time from call to receipt", (COMMIT_LATENCY,)),
        Panel("Tries, and those that other writers won", (COMMIT_ATTEMPTS, COMMIT_CONFLICTS)),
        Panel("Waits for a turn", (TURN_WAIT, SHARED_WAIT)),
        Panel("Writes in a shared commit, and leaders passed over", (SHARED_MEMBERS, SHARED_TAKEOVERS)),
        Panel("Checkpoints: time", (CHECKPOINT_TIME,)),
        Panel("Checkpoints that could not be made", (CHECKPOINT_FAILURES,)),
        Panel("Claims that are stuck", (STUCK_ENTRIES,), LOCK_TABLE),
    )),
    Section("Upkeep", "Files that grow in number ask for `safewrite maintain` more often.", (
        Panel("Live data files", _some(UPKEEP, "files_after")),
        Panel("Files put together", _some(UPKEEP, "files_in")),
        Panel("Time of upkeep", _some(UPKEEP, "elapsed_s")),
        Panel("Tables that a job could not maintain", _some(UPKEEP, "failed")),
    )),
    Section("Change data", "Failures and dead letters are to be 0. A lag that grows asks for more executors.", (
        Panel("Streams that ended by an error", _some(STREAM, "failed"), JOB),
        Panel("Records that have not landed", _some(STREAM, "lag_records"), JOB),
        Panel("Time of a batch", _some(STREAM, "batch_s"), JOB),
        Panel("Age of the newest change at its commit", _some(TABLE_BATCH, "lag_s")),
        Panel("Newest change, in seconds since 1970", _some(TABLE_BATCH, "valid_through_s")),
        Panel("Dead letters", _some(TABLE_BATCH, "dead")),
        Panel("Records and changes", _some(TABLE_BATCH, "records", "applied", "tombstoned")),
        Panel("Changes without effect", _some(TABLE_BATCH, "late", "duplicate", "superseded")),
        Panel("Time of a table's commit", _some(TABLE_BATCH, "commit_s")),
    )),
    Section("Medallion", "Failures and quarantined rows are to be 0. What a run left is the next one's.", (
        Panel("Runs that failed for a table", _some(TABLE_RUN, "failed")),
        Panel("Rows in quarantine", _some(TABLE_RUN, "quarantined")),
        Panel("Age of what is left", _some(TABLE_RUN, "lag_s")),
        Panel("Files and commits that are left", _some(TABLE_RUN, "lag_files", "lag_commits")),
        Panel("Files landed", _some(TABLE_RUN, "files")),
        Panel("Rows landed and applied", _some(TABLE_RUN, "rows", "applied")),
        Panel("Time of a run", _some(TABLE_RUN, "elapsed_s")),
    )),
)  # fmt: skip
"""All metrics, each in one panel."""


def dashboard(
    of: Of, *, namespace: str = "safewrite", dimensions: Sequence[str] = (), region: str | None = None
) -> dict[str, Any]:
    """A dashboard of all metrics, as JSON has it: ``put-dashboard`` of CloudWatch takes it, or the import of Grafana.

    Args:
        of: whose form it has.
        namespace: as in :func:`safewrite.metrics.emf`; CloudWatch only.
        dimensions: the names of the dimensions that were given to ``emf``; CloudWatch finds no metric without them.
        region: where the metrics are, CloudWatch only; None: where the dashboard is looked at from.

    Raises:
        InvalidInputError: another form, or a namespace, dimension or region that CloudWatch would not take.
    """
    with reading("An argument of dashboard()"):
        if of not in get_args(Of):
            raise InvalidInputError(
                f"{shown(of)} is no form of a dashboard. Nothing was written. Give one of {', '.join(get_args(Of))}."
            )
        if is_text(dimensions) or (of == "grafana" and dimensions):
            raise InvalidInputError(
                f"dimensions= are the names of CloudWatch's dimensions in a list, for a dashboard of CloudWatch, not {shown(dimensions)} "
                f"for one of {of}. Nothing was written."
            )
        space, own = checked_namespace(namespace), checked_dimensions(list(dimensions), [JOB, LOCK_TABLE])
        if quoted := [name for name in own if "'" in name]:
            raise InvalidInputError(
                f"A search of CloudWatch cannot name the dimension {quoted[0]!r}, which has a quote in it. Nothing was written. Rename it."
            )
        if region is not None and not (is_text(region) and region):
            raise InvalidInputError(
                f"region= is the name of a region, not {shown(region)}. Nothing was written."
            )
    return _grafana() if of == "grafana" else {"widgets": [*_widgets(space, own, region)]}


# --- CloudWatch --------------------------------------------------------------------------------------------
def _widgets(namespace: str, own: Sequence[str], region: str | None) -> Iterator[dict[str, Any]]:
    y = 0
    for section in SECTIONS:
        text = {"markdown": f"## {section.title}\n{section.text}"}
        yield {"type": "text", "x": 0, "y": y, "width": _COLUMNS, "height": 2, "properties": text}
        y += 2
        for number, panel in enumerate(section.panels):
            place = {
                "x": number % 2 * _WIDTH,
                "y": y + number // 2 * _HEIGHT,
                "width": _WIDTH,
                "height": _HEIGHT,
            }
            yield {"type": "metric", **place, "properties": _properties(panel, namespace, own, region)}
        y += -(-len(section.panels) // 2) * _HEIGHT


def _properties(panel: Panel, namespace: str, own: Sequence[str], region: str | None) -> dict[str, Any]:
    lines: list[list[dict[str, str]]] = []
    for metric in panel.metrics:
        names = [panel.by] if metric is STUCK_ENTRIES else [*own, panel.by]
        schema = ",".join(json.dumps(name) for name in [namespace, *names])
        for stat in _stats(metric):
            # The search finds tables that come later, too.
            search = f"SEARCH('{{{schema}}} MetricName=\"{metric.name}\"', '{stat}', {_PERIOD_S})"
            label = f"{metric.name} {stat} ${{PROP('Dim.{panel.by}')}}"
            lines.append([{"expression": search, "label": label, "id": f"e{len(lines) + 1}"}])
    return {
        "title": panel.title,
        "view": "timeSeries",
        "stacked": False,
        "period": _PERIOD_S,
        "metrics": lines,
        "yAxis": {"left": {"min": 0}},
        **({"region": region} if region else {}),
    }


def _stats(metric: Metric) -> tuple[str, ...]:
    if metric.is_level or metric is STUCK_ENTRIES:
        return ("Maximum",)
    return ("p50", "p99") if metric.unit == "Seconds" else ("Sum",)


# --- Grafana over Prometheus ---------------------------------------------------------------------------------
def _grafana() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for section in SECTIONS:
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        row = {"type": "row", "title": section.title, "collapsed": False, "gridPos": place, "panels": []}
        panels.append({"id": len(panels) + 1, **row})
        y += 1
        shown = [panel for panel in section.panels if panel.metrics != (STUCK_ENTRIES,)]
        for number, panel in enumerate(shown):
            place = {"h": 8, "w": _WIDTH, "x": number % 2 * _WIDTH, "y": y + number // 2 * 8}
            panels.append({"id": len(panels) + 1, **_panel(panel, section.text), "gridPos": place})
        y += -(-len(shown) // 2) * 8
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    table = {
        "name": "table", "type": "query", "label": "Table or job", "multi": True, "includeAll": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"}, "refresh": 2, "datasource": _SOURCE,
        "query": {"query": 'label_values({__name__=~"safewrite_.+"}, safewrite_table)', "refId": "tables"},
    }  # fmt: skip
    return {
        "title": "safewrite",
        "uid": "safewrite",
        "schemaVersion": 39,
        "tags": ["safewrite"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [source, table]},
        "panels": panels,
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _panel(panel: Panel, text: str) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for number, (query, legend) in enumerate(one for metric in panel.metrics for one in _queries(metric))
    ]
    unit = "s" if all(metric.unit == "Seconds" for metric in panel.metrics) else "short"
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _queries(metric: Metric) -> Iterator[tuple[str, str]]:
    """Queries of a metric by table, and the legends of their lines."""
    name = prometheus_name(metric)
    chosen = '{safewrite_table=~"$table"}[$__rate_interval]'
    if name.endswith("_total"):
        yield f"sum by (safewrite_table) (increase({name}{chosen}))", f"{metric.name} {{{{safewrite_table}}}}"
    elif metric.is_level:
        sums = (f"sum by (safewrite_table) (rate({name}_{end}{chosen}))" for end in ("sum", "count"))
        yield " / ".join(sums), f"{metric.name} {{{{safewrite_table}}}}"
    else:
        for share in (0.5, 0.99):
            rate = f"sum by (le, safewrite_table) (rate({name}_bucket{chosen}))"
            yield (
                f"histogram_quantile({share}, {rate})",
                f"p{share:.0%} {{{{safewrite_table}}}}".replace("%", ""),
            )


def prometheus_name(metric: Metric) -> str:
    """What Prometheus calls a metric of OpenTelemetry; a histogram has ``_bucket``, ``_sum`` and ``_count`` after it."""
    name = metric.instrument.replace(".", "_") + ("_seconds" if metric.counts == "s" else "")
    return name if metric.unit == "Seconds" or metric.is_level else f"{name}_total"
