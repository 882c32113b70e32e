"""An Airflow DAG that maintains each table in a task of its own (docs/maintain.md).

Airflow needs no safewrite in its own environment: tasks call the command ``safewrite`` (or the one that SAFEWRITE_COMMAND names).
UPKEEP_TABLES has the tables, with blanks between them.  A task may be retried, killed and run beside another one: the next one goes
on from whatever is there.
"""

from __future__ import annotations

import logging
import os
import subprocess
from datetime import UTC, datetime, timedelta

try:
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2.10
    from airflow.decorators import dag, task

TABLES = os.environ.get("UPKEEP_TABLES", "s3://lake/orders").split()
log = logging.getLogger(__name__)


@dag(
    dag_id="upkeep",
    schedule=os.environ.get("UPKEEP_SCHEDULE", "17 * * * *") or None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 1, "execution_timeout": timedelta(hours=1)},
)
def upkeep() -> None:
    """All tables; one that fails holds up no other."""

    @task(max_active_tis_per_dagrun=4, map_index_template="{{ table }}")
    def maintain(table: str) -> None:
        command = [os.environ.get("SAFEWRITE_COMMAND", "safewrite"), "maintain", table, "--seconds", "600"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log.info("%s%s", done.stdout, done.stderr)
        if done.returncode:  # 1: nobody could tell whether its commit landed, and the next run decides
            raise RuntimeError(f"{table}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    maintain.expand(table=TABLES)


upkeep()
