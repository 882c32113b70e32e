"""Runs ``safewrite dashboard``: prints a dashboard of the metrics for CloudWatch or Grafana."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from safewrite.cli.shared import Screen


class Of(StrEnum):
    """Whose form the dashboard has."""

    CLOUDWATCH = "cloudwatch"
    GRAFANA = "grafana"


def dashboard(
    context: typer.Context,
    *,
    of: Annotated[
        Of, typer.Option("--for", help="cloudwatch, or grafana (over Prometheus, metrics of --otel).")
    ] = Of.CLOUDWATCH,
    namespace: Annotated[
        str, typer.Option(envvar="SAFEWRITE_NAMESPACE", help="CloudWatch namespace of the metrics.")
    ] = "safewrite",
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            "--dimension",
            metavar="NAME",
            help="A dimension that emf(dimensions=) was given; may be repeated.",
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            envvar="SAFEWRITE_REGION", help="AWS region of the metrics (default: that of who looks)."
        ),
    ] = None,
) -> None:
    """Print a dashboard of all metrics as JSON.

    For CloudWatch: safewrite dashboard > d.json && aws cloudwatch put-dashboard --dashboard-name safewrite --dashboard-body file://d.json
    """
    with Screen(context, None).errors():
        from safewrite.metrics import dashboard as made

        found = made(of.value, namespace=namespace, dimensions=dimension or (), region=region)
        typer.echo(json.dumps(found, indent=1))
