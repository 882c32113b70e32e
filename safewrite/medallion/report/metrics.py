"""Reports how far each table has come: a line in the log, and an event for metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import safewrite as sw
from safewrite.errors import SafewriteError
from safewrite.intake.reporting import Listener, report
from safewrite.medallion.bronze.state import BronzeState
from safewrite.medallion.files.layout import SourceFile
from safewrite.medallion.lineage.lineage import Lineage

if TYPE_CHECKING:
    from safewrite.medallion.report.run import TableRun


def note_lag(
    run: TableRun, state: BronzeState | None, sources: Sequence[SourceFile], lineage: Lineage | None
) -> None:
    """Note in ``run`` which files and commits of bronze are still to be taken, and since when."""
    waiting = [one for one in sources if state is None or not state.knows(one.raw, is_load=one.is_load)]
    run.lag_files = len(waiting)
    since_ms = [one.raw.changed_ms for one in waiting]
    if run.error is None and run.news:
        run.lag_commits = 0
    elif run.refined.watermark is not None:  # of another's bronze: its commits are not followed
        run.lag_commits = None
        since_ms.append(run.refined.watermark // 1000)
    elif lineage is not None and run.refined.position is not None:
        try:
            pending = lineage.since(run.refined.position)
        except (SafewriteError, OSError):  # then silver cannot follow, as the run's own error says
            run.lag_commits = None
        else:
            run.lag_commits = len(pending)
            since_ms += [int(one.timestamp.timestamp() * 1000) for one in pending if one.timestamp]
    elif run.news:
        run.lag_commits = None
    run.lag_s = max(0.0, time.time() - min(since_ms) / 1000) if since_ms else 0.0


def tell(run: TableRun, on_event: Listener | None) -> None:
    """Write a line about a table to the log, and tell the listener; what that raises stops nothing."""
    landed, refined = run.landed, run.refined
    numbers = {
        "files": landed.files, "rows": landed.rows, "quarantined": landed.quarantined + refined.quarantined,
        "applied": refined.rows, "failed": int(not run.ok), "elapsed_s": run.elapsed_s, "lag_files": run.lag_files,
        "lag_commits": run.lag_commits, "lag_s": run.lag_s,
    }  # fmt: skip
    if not run.news:
        text = "no news"
    else:
        text = ", ".join(
            f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in numbers.items()
        )
    details = {**numbers, **({"error": run.error_kind} if run.error_kind else {})}
    line = f"{run.table}: {text}"
    level = logging.INFO if run.news else logging.DEBUG
    report(f"medallion: {line}", sw.Event("table_run", run.table, line, details), on_event, level=level)
