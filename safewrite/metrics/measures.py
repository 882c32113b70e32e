"""Defines the metrics, and measures them from events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
    is_level: bool = False
    """Whether a value says how things stand, so that a sum of values means nothing."""


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
SHARED_MEMBERS = Metric(
    "SharedCommitWrites", "Count", "safewrite.commit.shared.writes", "{write}",
    "writes that a shared commit carries, from the writer that made it", is_level=True,
)  # fmt: skip
SHARED_WAIT = Metric(
    "SharedCommitWait", "Seconds", "safewrite.commit.shared.wait", "s",
    "time in the queue of writers that share commits, of the writes that waited there",
)  # fmt: skip
SHARED_TAKEOVERS = Metric(
    "SharedCommitTakeovers", "Count", "safewrite.commit.shared.takeovers", "{writer}",
    "writers that were to make a shared commit, did not move, and were passed over",
)  # fmt: skip
CHECKPOINT_TIME = Metric(
    "CheckpointTime", "Seconds", "safewrite.checkpoint.time", "s", "time that a checkpoint took; no write waits for it"
)  # fmt: skip
CHECKPOINT_FAILURES = Metric(
    "CheckpointFailures", "Count", "safewrite.checkpoint.failures", "{checkpoint}", "checkpoints that could not be made"
)  # fmt: skip
STUCK_ENTRIES = Metric(
    "StuckEntries", "Count", "safewrite.stuck_entries", "{entry}",
    "unfinished claims that are older than asked for; from `safewrite locks watch --emf`",
)  # fmt: skip
TABLE_RUN = {
    "files": Metric("FilesLanded", "Count", "safewrite.medallion.files", "{file}", "raw files of a medallion job that came to bronze in a run"),
    "rows": Metric("RowsLanded", "Count", "safewrite.medallion.rows", "{row}", "their rows in bronze"),
    "quarantined": Metric("RowsQuarantined", "Count", "safewrite.medallion.quarantined", "{row}", "records and rows that a run put into quarantine"),
    "applied": Metric("RowsApplied", "Count", "safewrite.medallion.applied", "{row}", "rows of bronze that silver took in a run"),
    "failed": Metric("TableFailures", "Count", "safewrite.medallion.failures", "{run}", "1 if a run failed for the table, else 0"),
    "elapsed_s": Metric("TableRunTime", "Seconds", "safewrite.medallion.time", "s", "time that a run took for the table"),
    "lag_files": Metric("LagFiles", "Count", "safewrite.medallion.lag.files", "{file}", "raw files that a run left for the next one", is_level=True),
    "lag_commits": Metric("LagCommits", "Count", "safewrite.medallion.lag.commits", "{commit}", "commits of bronze that silver has yet to take", is_level=True),
    "lag_s": Metric("LagTime", "Seconds", "safewrite.medallion.lag.time", "s", "age of the oldest of these files and commits; 0 if there is none", is_level=True),
}  # fmt: skip
"""Of a medallion job's run over one table, by the detail of its event."""
TABLE_BATCH = {
    "records": Metric("RecordsIn", "Count", "safewrite.cdc.records", "{record}", "records of a batch that belong to the table"),
    "applied": Metric("ChangesApplied", "Count", "safewrite.cdc.applied", "{change}", "changes that took effect: inserts, updates, deletes, truncates"),
    "late": Metric("ChangesLate", "Count", "safewrite.cdc.late", "{change}", "changes that are older than what the table has of their key"),
    "duplicate": Metric("ChangesDuplicate", "Count", "safewrite.cdc.duplicate", "{change}", "changes that the table has already"),
    "superseded": Metric("ChangesSuperseded", "Count", "safewrite.cdc.superseded", "{change}", "changes that a newer one of their batch covers"),
    "tombstoned": Metric("ChangesTombstoned", "Count", "safewrite.cdc.tombstoned", "{change}", "deletes of keys that had no row; they are among those applied"),
    "dead": Metric("DeadLetters", "Count", "safewrite.cdc.dead", "{record}", "records that became dead letters"),
    "commit_s": Metric("BatchCommitTime", "Seconds", "safewrite.cdc.commit.time", "s", "time that the table's commit took"),
    "lag_s": Metric("SourceLag", "Seconds", "safewrite.cdc.lag.time", "s", "age of the newest change of a batch, by the clock of its source, when the batch had landed", is_level=True),
    "valid_through_s": Metric("ValidThrough", "Seconds", "safewrite.cdc.valid.through", "s", "when that change was made, in seconds since 1970", is_level=True),
}  # fmt: skip
"""Of a table's share of a batch of change data, by the detail of its event."""
UPKEEP = {
    "files_in": Metric("FilesCompacted", "Count", "safewrite.upkeep.files", "{file}", "small data files that `maintain` put together"),
    "files_after": Metric("LiveFiles", "Count", "safewrite.upkeep.live.files", "{file}", "live data files of the table when `maintain` had ended", is_level=True),
    "elapsed_s": Metric("UpkeepTime", "Seconds", "safewrite.upkeep.time", "s", "time that a call of `maintain` took"),
    "failed": Metric("UpkeepFailures", "Count", "safewrite.upkeep.failures", "{table}", "1 if a job could not maintain a table"),
}  # fmt: skip
"""Of the upkeep of a table, by the detail of its event."""
STREAM = {
    "lag_records": Metric("LagRecords", "Count", "safewrite.cdc.lag.records", "{record}", "records in the topics that had not landed when a batch ended", is_level=True),
    "batch_s": Metric("BatchTime", "Seconds", "safewrite.cdc.batch.time", "s", "time that a batch took, from its offsets to its end"),
    "failed": Metric("StreamFailures", "Count", "safewrite.cdc.failures", "{stream}", "1 if the stream ended by an error"),
}  # fmt: skip
"""Of the stream of a job of change data, by the detail of its event."""
_OF_DETAILS = {"table_run": TABLE_RUN, "table_batch": TABLE_BATCH, "stream": STREAM, "upkeep": UPKEEP}
METRICS = (
    COMMIT_ATTEMPTS, COMMIT_CONFLICTS, COMMIT_FAILURES, ROWS_COMMITTED, COMMIT_LATENCY, TURN_WAIT, SHARED_MEMBERS,
    SHARED_WAIT, SHARED_TAKEOVERS, CHECKPOINT_TIME, CHECKPOINT_FAILURES, STUCK_ENTRIES,
    *UPKEEP.values(), *TABLE_RUN.values(), *TABLE_BATCH.values(), *STREAM.values(),
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
            } | _shared(details)
        case "failed":
            return {COMMIT_FAILURES: 1}
        case "turn":
            return {TURN_WAIT: float(details["wait_s"])}
        case "repair" if details.get("passed_over"):
            return {SHARED_TAKEOVERS: 1}
        case "checkpoint":
            return (
                {CHECKPOINT_FAILURES: 1}
                if "error" in details
                else {CHECKPOINT_TIME: float(details["elapsed_s"])}
            )
        case _:
            return {
                metric: float(details[name])
                for name, metric in _OF_DETAILS.get(event.kind, {}).items()
                if details.get(name) is not None
            }


def _shared(details: Mapping[str, Any]) -> dict[Metric, float]:
    """What a write says of others that it shared a commit with; nothing of most writes."""
    led = (
        {SHARED_MEMBERS: int(details["members"])}
        if details.get("led_by_us") and details["members"] > 1
        else {}
    )
    waited = {SHARED_WAIT: float(details["waited_s"])} if details.get("waited_s") else {}
    return {**led, **waited}
