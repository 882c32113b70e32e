"""Defines the metrics, and measures them from events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from safewrite.receipt import Outcome
from safewrite.stores.events import Event


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.  ``name`` and ``unit`` are CloudWatch's; ``instrument`` and ``counts`` are OpenTelemetry's."""

    name: str
    unit: Literal["Count", "Seconds"]
    instrument: str
    counts: str
    text: str


COMMIT_ATTEMPTS = Metric(
    "CommitAttempts", "Count", "safewrite.commit.attempts", "{attempt}",
    "tries at a version of an acknowledged write: 1 without contention, 0 if an earlier call had committed it",
)  # fmt: skip
COMMIT_CONFLICTS = Metric(
    "CommitConflicts", "Count", "safewrite.commit.conflicts", "{attempt}",
    "those of its tries that other writers won",
)  # fmt: skip
COMMIT_FAILURES = Metric(
    "CommitFailures", "Count", "safewrite.commit.failures", "{write}", "writes that raised an error"
)
ROWS_COMMITTED = Metric(
    "RowsCommitted", "Count", "safewrite.rows.committed", "{row}",
    "rows that were written, each once: a repeat counts none",
)  # fmt: skip
COMMIT_LATENCY = Metric(
    "CommitLatency", "Seconds", "safewrite.commit.latency", "s", "time from the call to the receipt"
)
TURN_WAIT = Metric(
    "TurnWait", "Seconds", "safewrite.turn.wait", "s",
    "time in the queue of writers, of the writes that had to wait there",
)  # fmt: skip
STUCK_ENTRIES = Metric(
    "StuckEntries", "Count", "safewrite.stuck_entries", "{entry}",
    "unfinished claims that are older than asked for; from `safewrite locks watch --emf`",
)  # fmt: skip
METRICS = (
    COMMIT_ATTEMPTS, COMMIT_CONFLICTS, COMMIT_FAILURES, ROWS_COMMITTED, COMMIT_LATENCY, TURN_WAIT, STUCK_ENTRIES,
)  # fmt: skip


def measured(event: Event) -> dict[Metric, float]:
    """What an event says about metrics; nothing where it is about something else."""
    details = event.details
    match event.kind:
        case "commit":
            attempts = int(details["attempts"])
            is_first = details["outcome"] == Outcome.COMMITTED
            return {
                COMMIT_ATTEMPTS: attempts,
                COMMIT_CONFLICTS: max(0, attempts - 1),
                ROWS_COMMITTED: int(details["rows"]) if is_first else 0,
                COMMIT_LATENCY: float(details["elapsed_s"]),
            }
        case "failed":
            return {COMMIT_FAILURES: 1}
        case "turn":
            return {TURN_WAIT: float(details["wait_s"])}
        case _:
            return {}
