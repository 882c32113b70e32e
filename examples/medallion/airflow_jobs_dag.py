"""An Airflow DAG that starts a job of AWS Glue or EMR Serverless for each table of a medallion job, and waits for its end.

Airflow's workers only wait: they need boto3, and no safewrite.  MEDALLION_CONFIG names the configuration, an object of S3.
MEDALLION_GLUE_JOB names a job of Glue, or MEDALLION_EMR_RUN is the call StartJobRun of EMR Serverless, as JSON; docs/medallion/clusters.md
has both.  A task may be retried, killed and run beside another one: what was committed is not done again.
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

import boto3

try:
    from airflow.sdk import dag, task
except ModuleNotFoundError:  # Airflow 2.10
    from airflow.decorators import dag, task

TABLES_AT_ONCE = 8
"""Glue's job needs this many concurrent runs (MaxConcurrentRuns)."""
POLL_S = float(os.environ.get("MEDALLION_POLL_S", "20"))
log = logging.getLogger(__name__)


class Service(Protocol):
    """What runs jobs: ``succeeded`` and ``failed`` are the states of those that ended."""

    succeeded: frozenset[str]
    failed: frozenset[str]

    def start(self, arguments: dict[str, str]) -> str: ...

    def state(self, run: str) -> tuple[str, str]: ...

    def stop(self, run: str) -> None: ...


class Glue:
    """A job of Glue."""

    succeeded = frozenset({"SUCCEEDED"})
    failed = frozenset({"FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED"})

    def __init__(self, job: str) -> None:
        self.job = job

    @cached_property
    def client(self) -> Any:
        return boto3.client("glue")

    def start(self, arguments: dict[str, str]) -> str:
        return str(self.client.start_job_run(JobName=self.job, Arguments=arguments)["JobRunId"])

    def state(self, run: str) -> tuple[str, str]:
        found = self.client.get_job_run(JobName=self.job, RunId=run)["JobRun"]
        return found["JobRunState"], found.get("ErrorMessage", "")

    def stop(self, run: str) -> None:
        self.client.batch_stop_job_run(JobName=self.job, JobRunIds=[run])


class EmrServerless:
    """An application of EMR Serverless; ``call`` is that which starts a run, without arguments."""

    succeeded = frozenset({"SUCCESS"})
    failed = frozenset({"FAILED", "CANCELLED"})

    def __init__(self, call: dict[str, Any]) -> None:
        self.call = {name: value for name, value in call.items() if name != "clientToken"}  # boto3 makes one

    @cached_property
    def client(self) -> Any:
        return boto3.client("emr-serverless")

    def start(self, arguments: dict[str, str]) -> str:
        submit = self.call["jobDriver"]["sparkSubmit"]
        given = [word for pair in arguments.items() for word in pair]
        driver = {"sparkSubmit": {**submit, "entryPointArguments": given}}
        return str(self.client.start_job_run(**{**self.call, "jobDriver": driver})["jobRunId"])

    def state(self, run: str) -> tuple[str, str]:
        found = self.client.get_job_run(applicationId=self.call["applicationId"], jobRunId=run)["jobRun"]
        return found["state"], found["stateDetails"]

    def stop(self, run: str) -> None:
        self.client.cancel_job_run(applicationId=self.call["applicationId"], jobRunId=run)


def service() -> Service:
    """What the environment names."""
    if "MEDALLION_GLUE_JOB" in os.environ:
        return Glue(os.environ["MEDALLION_GLUE_JOB"])
    return EmrServerless(json.loads(os.environ["MEDALLION_EMR_RUN"]))


def run_job(**arguments: str) -> None:
    """Start a job and wait for its end; a task that is stopped stops its job too."""
    runs = service()
    given = {
        f"--{name}": value for name, value in {"config": os.environ["MEDALLION_CONFIG"], **arguments}.items()
    }
    run = runs.start(given)
    log.info("%s: started with %s", run, given)
    try:
        while True:
            state, why = runs.state(run)
            if state in runs.succeeded | runs.failed:
                break
            time.sleep(POLL_S)
    except BaseException:
        runs.stop(run)
        raise
    if state in runs.failed:
        raise RuntimeError(f"{run} with {given} ended as {state}: {why}")


def alert(context: Any) -> None:
    """Is called once a task failed for good; put your pager here."""
    log.error("ALERT %s: %s", context["task_instance"].task_id, context.get("exception"))


@dag(
    dag_id="medallion_jobs",
    schedule=os.environ.get("MEDALLION_SCHEDULE", "*/30 * * * *") or None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # each table starts a job, which costs more than its rows where there are few
    default_args={
        "retries": 1,
        "retry_delay": timedelta(minutes=1),
        "execution_timeout": timedelta(hours=6),
        "on_failure_callback": alert,
    },
)
def medallion_jobs() -> None:
    """All tables of a job, each in a job of the cluster, and in the end what belongs to none."""

    @task
    def tables() -> list[str]:
        bucket, _, key = os.environ["MEDALLION_CONFIG"].removeprefix("s3://").partition("/")
        return list(
            json.loads(boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())["tables"]
        )

    @task(max_active_tis_per_dagrun=TABLES_AT_ONCE, map_index_template="{{ table }}")
    def run(table: str) -> None:
        run_job(tables=table)

    # A run of all costs little where there is no news. It reports files of no configured table; and it fails as long as a table
    # does, for the state of a DAG's run is that of its last task.
    @task(trigger_rule="all_done")
    def rest() -> None:
        run_job()

    run.expand(table=tables()) >> rest()


medallion_jobs()
