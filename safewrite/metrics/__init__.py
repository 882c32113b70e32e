"""Turns the events of tables into metrics; nothing is measured unless it is asked for.

Give one of these as ``on_event=`` of ``safewrite.open`` or ``safewrite.create``: :func:`emf` prints lines that
CloudWatch reads from a log, :func:`otel` records with an OpenTelemetry meter.  The metrics are ``METRICS``.  Jobs that send
events of their own do so through :func:`listener`.  :func:`dashboard` makes a dashboard of all metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports
from safewrite.stores.events import Listener, OnEvent, listener

if TYPE_CHECKING:
    from safewrite.metrics.cloudwatch import emf
    from safewrite.metrics.dashboards import dashboard
    from safewrite.metrics.measures import METRICS, Metric
    from safewrite.metrics.telemetry import otel

__all__ = ["METRICS", "Listener", "Metric", "OnEvent", "dashboard", "emf", "listener", "otel"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "emf": "safewrite.metrics.cloudwatch",
        "dashboard": "safewrite.metrics.dashboards",
        "METRICS": "safewrite.metrics.measures",
        "Metric": "safewrite.metrics.measures",
        "otel": "safewrite.metrics.telemetry",
    },
)
