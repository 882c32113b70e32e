"""An Airflow DAG with one mapped task for each table of a medallion job.

Airflow needs no safewrite in its own environment: tasks call the command ``safewrite`` (or the one that SAFEWRITE_COMMAND names)
with the configuration that SAFEWRITE_MEDALLION_CONFIG names.  A task may be retried, killed and run beside another one: what was
committed is not done again.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

try:
    from airflow.sdk import dag, task
    from airflow.sdk.exceptions import AirflowFailException
except ModuleNotFoundError:  # Airflow 2.10
    from airflow.decorators import dag, task
    from airflow.exceptions import AirflowFailException

TABLES_AT_ONCE = 8
PASSING = {"storage", "retries_exhausted", "commit_unknown", "position_moved", "held_back", "internal"}
"""The kinds of errors that may be gone with the next try; all others need somebody to look at files or configuration."""
log = logging.getLogger(__name__)


def safewrite(*given: str) -> str:
    """Run a command of the job, and fail with what it says."""
    command = [os.environ.get("SAFEWRITE_COMMAND", "safewrite"), "medallion", *given, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.info("%s%s", done.stdout, done.stderr)
    if done.returncode:
        told = f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise (RuntimeError if may_pass(done.stdout) else AirflowFailException)(told)
    return done.stdout


def may_pass(report: str) -> bool:
    """Whether another try may help: not where every table that failed has an error that stays."""
    try:
        kinds = {one["error_kind"] for one in json.loads(report)["tables"] if one["error"]}
    except (ValueError, KeyError, TypeError):
        return True  # the command told nothing, as where it was killed
    return not kinds or bool(kinds & PASSING)


def alert(context: Any) -> None:
    """Is called once a task failed for good; put your pager here."""
    log.error("ALERT %s: %s", context["task_instance"].task_id, context.get("exception"))


@dag(
    dag_id="medallion",
    schedule=os.environ.get("MEDALLION_SCHEDULE", "*/10 * * * *") or None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # The schedule tries again what failed, and runs may overlap: a table that waits for its retry holds back no other table's next run.
    max_active_runs=4,
    default_args={
        "retries": int(os.environ.get("MEDALLION_RETRIES", "1")),
        "retry_delay": timedelta(seconds=float(os.environ.get("MEDALLION_RETRY_S", "60"))),
        "execution_timeout": timedelta(hours=2),
        "on_failure_callback": alert,
    },
)
def medallion() -> None:
    """All tables of a job, each in a task of its own, and in the end what belongs to none."""

    @task
    def tables() -> list[str]:
        return list(json.loads(safewrite("check"))["tables"])

    @task(max_active_tis_per_dagrun=TABLES_AT_ONCE, map_index_template="{{ table }}")
    def run(table: str) -> None:
        safewrite("run", "--table", table)

    # A run of all costs little where there is no news. It reports files of no configured table; and it fails as long as a table
    # does, for the state of a DAG's run is that of its last task.
    @task(trigger_rule="all_done")
    def rest() -> None:
        safewrite("run")

    run.expand(table=tables()) >> rest()


medallion()
