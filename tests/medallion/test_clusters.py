"""The calls that the page on clusters shows, and those of the DAG that makes them, fit AWS's own models of these APIs."""

from __future__ import annotations

import io
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from bench.medallion.harness import lab
from safewrite.medallion import pipeline
from safewrite.medallion.tables.engine import Workplace
from tests.clusters import check_call, check_modules, check_policies, shown
from tests.medallion.test_dag import Tasks, loaded
from tests.sleeping import sleeps_by

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "medallion" / "clusters.md").read_text()
EXAMPLES = ROOT / "examples" / "medallion"
SHOWN = shown(PAGE)
CALLS = [name for name in SHOWN if " " in name]
CONFIG = "s3://BUCKET/job/shop.json"
TABLES = ["shop.orders", "shop.lines"]
RUN = "01234567890abcdef"
STOPPED = "stopped"


@pytest.mark.parametrize("call", CALLS)
def test_a_call_has_all_that_is_required_and_nothing_that_is_not_known(call: str) -> None:
    check_call(call, SHOWN[call])


def test_roles_and_modules_are_what_the_job_needs() -> None:
    assert CALLS == ["glue CreateJob", "glue StartJobRun", "emr-serverless CreateApplication", "emr-serverless StartJobRun", "iam CreateRole"]  # fmt: skip
    check_policies(SHOWN["policy"], SHOWN["iam CreateRole"]["AssumeRolePolicyDocument"])
    check_modules(SHOWN["glue CreateJob"], "medallion", "delta", "iceberg")


class Stubs:
    """Answers calls in their order, and refuses arguments and answers that AWS's models do not know."""

    def __init__(self, service: str) -> None:
        self.stubs = {}
        for name in ("s3", service):
            client = boto3.Session().client(
                name, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
            )
            self.stubs[name] = Stubber(client)
        body = json.dumps({"tables": {name: {} for name in TABLES}}).encode()
        self.add("s3", "get_object", {"Body": StreamingBody(io.BytesIO(body), len(body))}, Bucket="BUCKET", Key="job/shop.json")  # fmt: skip

    def add(self, service: str, call: str, answer: dict[str, Any], **given: Any) -> None:
        self.stubs[service].add_response(call, answer, given)

    def client(self, service: str) -> Any:
        self.stubs[service].activate()
        return self.stubs[service].client

    def check(self) -> None:
        for one in self.stubs.values():
            one.assert_no_pending_responses()


def _glue(stubs: Stubs, ends: list[str]) -> None:
    for number, end in enumerate(ends):
        tables = {"--tables": TABLES[number]} if number < len(TABLES) else {}
        stubs.add("glue", "start_job_run", {"JobRunId": RUN}, JobName="medallion", Arguments={"--config": CONFIG, **tables})  # fmt: skip
        for state in ["RUNNING", *({end} - {STOPPED})]:
            answer = {"JobRun": {"JobRunState": state, "ErrorMessage": "of the job"}}
            stubs.add("glue", "get_job_run", answer, JobName="medallion", RunId=RUN)
        if end == STOPPED:
            stubs.add("glue", "batch_stop_job_run", {}, JobName="medallion", JobRunIds=[RUN])


def _emr(stubs: Stubs, ends: list[str]) -> None:
    run = SHOWN["emr-serverless StartJobRun"]
    call = {name: value for name, value in run.items() if name != "clientToken"}
    submit = run["jobDriver"]["sparkSubmit"]
    for number, end in enumerate(ends):
        given = ["--config", CONFIG, *(["--tables", TABLES[number]] if number < len(TABLES) else [])]
        driver = {"sparkSubmit": {**submit, "entryPointArguments": given}}
        answer = {"applicationId": "APPLICATION", "jobRunId": RUN, "arn": "arn:aws:emr-serverless:eu-west-1:123456789012:/applications/a/jobruns/r"}  # fmt: skip
        stubs.add("emr-serverless", "start_job_run", answer, **{**call, "jobDriver": driver})
        for state in ["PENDING", *({end} - {STOPPED})]:
            found = {
                "applicationId": "APPLICATION", "jobRunId": RUN, "arn": answer["arn"], "createdBy": run["executionRoleArn"], "createdAt": 0, "updatedAt": 0, "executionRole": run["executionRoleArn"],
                "state": state, "stateDetails": "of the job", "releaseLabel": "RELEASE", "jobDriver": run["jobDriver"],
            }  # fmt: skip
            stubs.add(
                "emr-serverless", "get_job_run", {"jobRun": found}, applicationId="APPLICATION", jobRunId=RUN
            )
        if end == STOPPED:
            done = {"applicationId": "APPLICATION", "jobRunId": RUN}
            stubs.add("emr-serverless", "cancel_job_run", done, **done)


SERVICES: dict[str, tuple[Callable[[Stubs, list[str]], None], str, str]] = {
    "glue": (_glue, "SUCCEEDED", "FAILED"),
    "emr-serverless": (_emr, "SUCCESS", "CANCELLED"),
}


@pytest.fixture(params=SERVICES)
def start(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[bool | None]], Tasks]:
    """``start([True, False, None])``: a run of the DAG, whose jobs end well, badly, or not by themselves."""
    calls, good, bad = SERVICES[request.param]
    monkeypatch.setenv("MEDALLION_CONFIG", CONFIG)
    monkeypatch.setenv("MEDALLION_POLL_S", "0")
    if request.param == "glue":
        monkeypatch.setenv("MEDALLION_GLUE_JOB", "medallion")
    else:
        monkeypatch.setenv("MEDALLION_EMR_RUN", json.dumps(SHOWN["emr-serverless StartJobRun"]))

    def run(ends: list[bool | None]) -> Tasks:
        stubs = Stubs(request.param)
        calls(stubs, [{True: good, False: bad, None: STOPPED}[one] for one in ends])
        monkeypatch.setattr(boto3, "client", stubs.client)
        try:
            return loaded(EXAMPLES / "airflow_jobs_dag.py", monkeypatch)
        finally:
            stubs.check()

    return run


def test_the_dag_starts_a_job_for_each_table_and_waits_for_it(
    start: Callable[[list[bool | None]], Tasks],
) -> None:
    tasks = start([True, True, True])
    assert tasks.done == [("tables", None), *(("run", name) for name in TABLES), ("rest", None)]
    tasks = start([False, True, False])
    assert [(name, table) for name, table, _ in tasks.failed] == [("run", TABLES[0]), ("rest", None)]
    assert all("of the job" in why for _, _, why in tasks.failed)


def test_states_that_the_dag_waits_in_are_no_ends(start: Callable[[list[bool | None]], Tasks]) -> None:
    """Every state that AWS's models name is known to be an end, or to be followed by one."""
    module = start([True, True, True]).module
    session = botocore.session.get_session()
    waits = {"STARTING", "RUNNING", "STOPPING", "WAITING", "PENDING", "SUBMITTED", "SCHEDULED", "QUEUED", "CANCELLING"}  # fmt: skip
    for service, runs in (("glue", module.Glue), ("emr-serverless", module.EmrServerless)):
        states = session.get_service_model(service).shape_for("JobRunState").enum
        assert set(states) - waits == runs.succeeded | runs.failed


def test_a_task_that_is_stopped_stops_its_job(
    start: Callable[[list[bool | None]], Tasks], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    sleeps_by(monkeypatch, sleep)
    with pytest.raises(KeyboardInterrupt):
        start([None])


def test_the_script_takes_some_tables_or_all_and_fails_as_a_table_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's session and engine are left out: ``tests/spark/test_medallion`` has them."""
    job = lab(tmp_path, "delta", tables=2, defaults={"on_overwritten": "raise"})
    job.begin(5)
    for table in job.tables:
        job.dms.deliver_held(table)
    one, other = job.dms.tables
    sql = ModuleType("pyspark.sql")
    sql.SparkSession = type("Session", (), {"builder": _Builder()})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql", sql)
    monkeypatch.setattr(pipeline, "engine_of", lambda name: Workplace() if name == "spark" else None)

    def run(*given: str) -> dict[str, Any]:
        config = str(job.write_config())
        monkeypatch.setattr(sys, "argv", ["job.py", "--JOB_ID", "j_1", "--config", config, *given])
        runpy.run_path(str(EXAMPLES / "job.py"), run_name="__main__")
        return dict(json.loads(capsys.readouterr().out))

    assert [table["table"] for table in run("--tables", one)["tables"]] == [one]
    assert [table["table"] for table in run()["tables"]] == [one, other]
    assert job.wrong() == {}
    job.dms.overwrite(job.tables[0])
    with pytest.raises(SystemExit, match=f"Tables failed.*{one}"):
        run()


class _Builder:
    def appName(self, name: str) -> _Builder:  # noqa: N802 - as PySpark spells it
        return self

    def getOrCreate(self) -> None:  # noqa: N802
        return None
