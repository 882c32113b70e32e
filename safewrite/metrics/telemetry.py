"""Records metrics with an OpenTelemetry meter."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.metrics.measures import METRICS, STUCK_ENTRIES, Metric, measured
from safewrite.stores.events import Event
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text, plain


class Otel:
    """A listener that records each event that has metrics: counters of counts, histograms of seconds and levels."""

    def __init__(self, meter: Any, attributes: Mapping[str, str], *, is_global: bool) -> None:
        self.attributes = attributes
        self._is_global = is_global
        self._recorders = {
            metric: _histogram(meter, metric).record
            if metric.unit == "Seconds" or metric.is_level
            else meter.create_counter(metric.instrument, unit=metric.counts, description=metric.text).add
            for metric in METRICS
            if metric is not STUCK_ENTRIES
        }

    def __call__(self, event: Event) -> None:
        named = {"safewrite.table": event.table} | {
            f"safewrite.{name}": str(event.details[name])
            for name in ("operation", "outcome", "error")
            if name in event.details
        }
        for metric, value in measured(event).items():
            self._recorders[metric](value, {**self.attributes, **named})

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._is_global:
            raise TypeError("a meter of one's own does not travel")
        return _again, (dict(self.attributes),)


def otel(meter: Any = None, *, attributes: Mapping[str, str] | None = None) -> Otel:
    """A listener for ``on_event=`` that records with an OpenTelemetry meter.

    Args:
        meter: an ``opentelemetry.metrics.Meter``; without one, that of the global provider (extra ``[otel]``).
        attributes: of every measurement, besides ``safewrite.table``, ``.operation``, ``.outcome`` and ``.error``.

    Raises:
        InvalidInputError: something else than a meter, or attributes that are no texts.
        MissingExtraError: no meter was given, and opentelemetry-api is not installed.
    """
    with reading("An argument of otel()"):
        given = dict(attributes or {})
        if not all(is_text(name) and name and is_text(value) for name, value in given.items()):
            raise InvalidInputError(
                f"attributes= are texts by name, not {shown(given)}. Nothing was written. Convert them with str()."
            )
        if meter is not None and not all(
            callable(getattr(meter, f"create_{kind}", None)) for kind in ("counter", "histogram")
        ):
            raise InvalidInputError(
                f"meter= is an OpenTelemetry meter, not {shown(meter)}. Nothing was written. Leave it out to take that of the "
                "global provider."
            )
    named = {plain(name): plain(value) for name, value in given.items()}
    return Otel(_global_meter() if meter is None else meter, named, is_global=meter is None)


_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Bounds of buckets for what lasts: the SDK's own begin at 5, so that each commit would fall into one."""


def _histogram(meter: Any, metric: Metric) -> Any:
    given: dict[str, Any] = {"unit": metric.counts, "description": metric.text}
    # An advice, which a view of the user goes before; meters of opentelemetry-api before 1.30 have none.
    takes = signature(meter.create_histogram).parameters
    if metric.unit == "Seconds" and "explicit_bucket_boundaries_advisory" in takes:
        given["explicit_bucket_boundaries_advisory"] = _SECONDS
    return meter.create_histogram(metric.instrument, **given)


def _again(attributes: dict[str, str]) -> Otel:
    return otel(attributes=attributes)


def _global_meter() -> Any:
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise MissingExtraError(
            "otel() needs opentelemetry-api, which is not installed. Nothing was written. Install it: "
            f"{MissingExtraError.command('otel')}, and an SDK that exports; or give a meter."
        ) from error
    return metrics.get_meter("safewrite")
