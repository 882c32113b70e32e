"""Prints metrics as lines of CloudWatch's embedded metric format (EMF).

A Lambda function needs no more than that: CloudWatch Logs makes the metrics from the lines of its log.  Elsewhere the
CloudWatch agent does, or whatever carries standard output to CloudWatch Logs.  The format:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError
from safewrite.metrics.measures import METRICS, STUCK_ENTRIES, Metric, measured
from safewrite.stores.events import Event
from safewrite.text.rendering import shown
from safewrite.text.strings import is_text, plain

TABLE, JOB, LOCK_TABLE = "Table", "Job", "LockTable"
DIMENSIONS_MAX, NAME_MAX, VALUE_MAX = 30, 250, 1024
"""CloudWatch's limits: dimensions of a metric, letters of a dimension's name, letters of its value."""
_NAMESPACE = re.compile(r"(?!AWS/)[A-Za-z0-9._\-/#][A-Za-z0-9._\-/#:]{0,254}")
_PRINTED = ("operation", "outcome", "error", "key", "version", "files", "removed_rows")
"""Details that a line carries with its metrics, for a search in the log: they cost no metric."""


@dataclass(frozen=True)
class Emf:
    """A listener that prints one line for each event that has metrics."""

    namespace: str
    dimensions: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    def __call__(self, event: Event) -> None:
        values = measured(event)
        if values:
            named = {"kind": event.kind} | {
                name: event.details[name] for name in _PRINTED if event.details.get(name) is not None
            }
            sets = [{**self.dimensions, TABLE: event.table}]
            if self.job is not None:
                sets.append({**self.dimensions, JOB: self.job})
            print_line(line(self.namespace, sets, values, named))


def emf(
    *, namespace: str = "safewrite", dimensions: Mapping[str, str] | None = None, job: str | None = None
) -> Emf:
    """A listener for ``on_event=`` that prints EMF lines to standard output.

    Args:
        namespace: CloudWatch's namespace of the metrics.
        dimensions: besides ``Table``, such as ``{"Service": "orders"}``.  CloudWatch keeps, and charges for, each metric
            under each combination of values: an id that changes with the event is not a dimension.
        job: the name of a job of many tables: each line is then under ``Job`` too, so that one alarm is on all its tables.

    Raises:
        InvalidInputError: a namespace or a dimension that CloudWatch would not take.
    """
    with reading("An argument of emf()"):
        given = dict(dimensions or {})
        if job is not None:
            _check_value(JOB, _ascii(job) if is_text(job) else job)
        names = checked_dimensions(given, [] if job is None else [JOB])
        for name, value in given.items():
            _check_value(name, value)
        own = dict(zip(names, map(plain, given.values()), strict=True))
        return Emf(checked_namespace(namespace), own, None if job is None else plain(job))


def _check_value(name: str, value: object) -> None:
    if not _is_printable(value, VALUE_MAX):
        raise InvalidInputError(
            f"{shown(value)} is no value of the dimension {name}: 1 to {VALUE_MAX} ASCII letters. Nothing was written."
        )


def checked_dimensions(given: Collection[object], jobs: Collection[str] = ()) -> list[str]:
    """Names that CloudWatch takes for dimensions besides those that a line has.

    Raises:
        InvalidInputError: one is none, or they are too many.
    """
    taken = {TABLE, *jobs, "_aws", "kind", *_PRINTED, *(metric.name for metric in METRICS)}
    names: list[str] = []
    for name in given:
        if not is_text(name) or not _is_printable(name, NAME_MAX) or name.startswith(":") or name in taken:
            raise InvalidInputError(
                f"{shown(name)} is no name of a dimension: 1 to {NAME_MAX} ASCII letters, not beginning with a colon, and "
                f"none of those that a line has already ({', '.join(sorted(taken))}). Nothing was written."
            )
        names.append(plain(name))
    if len(names) >= DIMENSIONS_MAX:
        raise InvalidInputError(
            f"CloudWatch takes {DIMENSIONS_MAX} dimensions with Table, not {len(names) + 1}. Nothing was written. "
            "Leave some out."
        )
    return names


def checked_namespace(namespace: object) -> str:
    """A namespace that CloudWatch takes for metrics of one's own.

    Raises:
        InvalidInputError: it is none.
    """
    if not is_text(namespace) or not _NAMESPACE.fullmatch(plain(namespace)):
        raise InvalidInputError(
            f"{shown(namespace)} is no namespace: 1 to 255 of A-Z a-z 0-9 . _ - / # :, neither beginning with a colon nor with "
            "AWS/. Nothing was written."
        )
    return plain(namespace)


def line(
    namespace: str,
    sets: Sequence[Mapping[str, str]],
    values: Mapping[Metric, float],
    more: Mapping[str, Any],
) -> str:
    """One line: the metrics under each set of dimensions, and more members that a search in the log finds."""
    named = {
        name: _ascii(value)[:VALUE_MAX] or "none" for dimensions in sets for name, value in dimensions.items()
    }
    directive = {
        "Namespace": namespace,
        "Dimensions": [list(one) for one in sets],
        "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in values],
    }
    about = {"Timestamp": time.time_ns() // 1_000_000, "CloudWatchMetrics": [directive]}
    return json.dumps(
        {"_aws": about, **more, **named, **{metric.name: value for metric, value in values.items()}}
    )


def stuck_entries_line(count: int, lock_table: str, *, namespace: str, more: Mapping[str, Any]) -> str:
    """The line of one look at a lock table.

    Raises:
        InvalidInputError: the namespace is none.
    """
    return line(checked_namespace(namespace), [{LOCK_TABLE: lock_table}], {STUCK_ENTRIES: count}, more)


def print_line(text: str) -> None:
    """Print a line at once and in one piece, so that lines of threads do not mix."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _is_printable(value: object, most: int) -> bool:
    if not is_text(value):
        return False
    text = plain(value)
    return 0 < len(text) <= most and text.isascii() and text.isprintable() and not text.isspace()
