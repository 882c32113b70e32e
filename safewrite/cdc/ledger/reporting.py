"""Tells what became of each batch and how far the stream is: lines in the log, and events for metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import safewrite as sw
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.intake.reporting import Listener, report

log = logging.getLogger("safewrite")


def tell_batch(lines: Sequence[LedgerEntry], on_event: Listener | None) -> None:
    """Tell of a batch whose ledger is written: a line, and an event for each table that it has records of.

    Records that name no table are reported under the name of the job.
    """
    if lines:
        _tell_whole(lines)
    for line in lines:
        if not line.records:
            continue
        text = (
            f"{line.records} records, {line.applied} applied, {line.late} late, {line.duplicate} duplicate, "
            f"{line.superseded} superseded, {line.dead} dead, {line.ignored} ignored"
        )
        event = sw.Event("table_batch", line.table or line.job, f"batch {line.batch}: {text}", _numbers(line))
        text = f"batch {line.batch} of {line.job}: {line.table or 'no table'}: {text}"
        report(text, event, on_event, level=logging.DEBUG)


def _tell_whole(lines: Sequence[LedgerEntry]) -> None:
    """One line in the log for all tables of a batch."""
    first = lines[0]
    names = (
        "records",
        "earlier",
        "applied",
        "late",
        "duplicate",
        "superseded",
        "dead",
        "ignored",
        "by_executors",
    )
    sums: dict[str, int] = {name: sum(getattr(line, name) for line in lines) for name in names}
    tables = sum(line.table is not None for line in lines)
    ages_ms = [
        line.closed_ms - line.source_time_ms
        for line in lines
        if line.closed_ms is not None and line.source_time_ms is not None
    ]
    found: dict[str, Any] = {"job": first.job, "batch": first.batch, "tables": tables, **sums}
    if ages_ms:
        found["lag_s"] = max(0, *ages_ms) / 1000
    said = ", ".join(f"{count} {name}" for name, count in sums.items() if count or name == "records")
    log.info(
        "batch %s of %s: %s tables, %s",
        first.batch,
        first.job,
        tables,
        said,
        extra={"kind": "batch", **found},
    )


def tell_stream(job: str, text: str, numbers: Mapping[str, Any], on_event: Listener | None) -> None:
    """Tell how far the stream of a job is, or that it ended by an error."""
    level = logging.ERROR if numbers.get("failed") else logging.INFO
    report(f"stream of {job}: {text}", sw.Event("stream", job, text, numbers), on_event, level=level)


def _numbers(line: LedgerEntry) -> dict[str, Any]:
    """What a line of the ledger says in numbers; what does not apply to it is left out."""
    found: dict[str, Any] = {
        name: getattr(line, name)
        for name in ("records", "earlier", "ignored", "applied", "late", "duplicate", "superseded", "tombstoned", "dead")
    }  # fmt: skip
    if line.table is None:
        return {"batch": line.batch} | {name: found[name] for name in ("records", "ignored", "dead")}
    found |= {"batch": line.batch, "version": line.version}
    if line.commit_ms is not None:
        found["commit_s"] = line.commit_ms / 1000
    if line.source_time_ms is not None:
        found["valid_through_s"] = line.source_time_ms / 1000
        if line.closed_ms is not None:
            found["lag_s"] = max(0, line.closed_ms - line.source_time_ms) / 1000
    return found
