"""The examples of Lambda functions: their templates hold what docs/lambda.md advises, their handlers write once."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aws_lambda_powertools
import deltalake
import pyarrow as pa
import pytest
import yaml

import safewrite as sw
from bench.servers.aws_lambda.function import Function
from bench.servers.aws_lambda.mapping import EventSourceMapping, Feed
from bench.servers.aws_lambda.sandbox import Setup
from bench.servers.aws_lambda.sqs import Queue
from bench.servers.servers import Ministack
from safewrite.aws_lambda import mappings
from tests.aws_lambda.samples import batch, created

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ARMS = Path(os.environ.get("SAFEWRITE_ARMS_DIR", ROOT / ".envs"))
BOTH = ("lambda_sqs", "lambda_s3_event", "lambda_kinesis")
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's tags as what they stand for."""


def _tagged(loader: Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    return {suffix if suffix == "Ref" else f"Fn::{suffix}": getattr(node, "value", None)}


Loader.add_multi_constructor("!", _tagged)


def template(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((EXAMPLES / name / "template.yaml").read_text(), Loader)
    return found


def properties(name: str, resource: str) -> dict[str, Any]:
    found: dict[str, Any] = template(name)["Resources"][resource]["Properties"]
    return found


def allowed(name: str) -> list[tuple[str, str]]:
    """Each action that the function may take, and on what."""
    (policy,) = properties(name, "Writer")["Policies"]
    found = []
    for statement in policy["Statement"]:
        actions, (target,) = statement["Action"], statement["Resource"].values()
        found += [(one, target) for one in (actions if isinstance(actions, list) else [actions])]
    return found


def advised() -> set[str]:
    """The actions in the row of docs/lambda.md for a writer of Delta tables with a lock table."""
    row = re.search(
        r"^\| writes Delta, DynamoDB arbiter \|(.*)$", (ROOT / "docs" / "lambda.md").read_text(), re.MULTILINE
    )
    assert row is not None
    bucket, lock_table = row[1].split(" | ")
    names = re.findall(r"`(?:dynamodb:)?(\w+)`", lock_table)
    return {*re.findall(r"`(s3:\w+)`", bucket), *(f"dynamodb:{name}" for name in names)}


# --- templates ------------------------------------------------------------------------------------------
@pytest.mark.long
def test_cfn_lint_finds_nothing() -> None:
    lint = ARMS / "cfn-lint" / "bin" / "cfn-lint"
    assert lint.exists(), "make test-long builds the environment of cfn-lint"
    done = subprocess.run(
        [lint, *(EXAMPLES / name / "template.yaml" for name in BOTH)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", BOTH)
def test_the_function_may_do_what_the_page_says_and_no_more(name: str) -> None:
    granted = allowed(name)
    own = [
        (action, target) for action, target in granted if "landing" not in target and "GivenUp" not in target
    ]
    assert {action for action, _ in own} == advised()
    assert len(own) == len(advised()) == 9
    on_objects = [target for action, target in own if action.startswith("s3:") and action != "s3:ListBucket"]
    assert {target.rpartition(":::")[2] for target in on_objects} == {"${LakeBucket}/${TablePrefix}/*"}
    assert {action for action, target in granted if "landing" in target} <= {
        "s3:GetObject",
        "s3:GetObjectVersion",
    }


@pytest.mark.parametrize("name", BOTH)
def test_the_lock_table_is_the_one_that_safewrite_makes(name: str, ministack: Ministack) -> None:
    wanted = properties(name, "LockTable")
    assert wanted["TimeToLiveSpecification"] == {"AttributeName": "expireTime", "Enabled": True}
    assert wanted["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert wanted["BillingMode"] == "PAY_PER_REQUEST"
    assert template(name)["Resources"]["LockTable"]["DeletionPolicy"] == "Retain"
    assert lock_table_of(name, ministack)


def lock_table_of(name: str, ministack: Ministack) -> str:
    """The lock table of a template, made in the emulator."""
    wanted = properties(name, "LockTable")
    made = f"{name}-{os.urandom(4).hex()}"
    names = ("AttributeDefinitions", "KeySchema", "BillingMode")
    client = ministack.boto3_client("dynamodb")
    client.create_table(TableName=made, **{one: wanted[one] for one in names})
    keys = client.describe_table(TableName=made)["Table"]["KeySchema"]
    assert [(key["AttributeName"], key["KeyType"]) for key in keys] == [
        ("tablePath", "HASH"),
        ("fileName", "RANGE"),
    ]
    return made


def test_failed_messages_are_delivered_again_and_end_as_dead_letters() -> None:
    writer, queue = properties("lambda_sqs", "Writer"), properties("lambda_sqs", "Orders")
    source = writer["Events"]["Orders"]["Properties"]
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    window_s = source["MaximumBatchingWindowInSeconds"]
    assert queue["VisibilityTimeout"] >= 6 * writer["Timeout"] + window_s
    assert queue["RedrivePolicy"]["maxReceiveCount"] >= 5
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": "DeadOrders.Arn"}
    assert properties("lambda_sqs", "DeadOrders")["MessageRetentionPeriod"] == 14 * 24 * 3600


def test_t3_d2_the_mapping_of_a_stream_is_one_that_doctor_has_nothing_against() -> None:
    """T3-D2: no template said BisectBatchOnFunctionError."""
    source = properties("lambda_kinesis", "Writer")["Events"]["Orders"]["Properties"]
    mapping = {**source, "UUID": "u", "EventSourceArn": "arn:aws:kinesis:eu-west-1:1:stream/orders"}
    mapping["DestinationConfig"] = {"OnFailure": {"Destination": "arn:aws:s3:::given-up"}}

    def no_client(service: str) -> Any:
        raise AssertionError(service)

    assert list(mappings.judge(mapping, 60, no_client)) == []
    assert source["BisectBatchOnFunctionError"] is True
    hours = properties("lambda_kinesis", "Orders")["RetentionPeriodHours"]
    assert hours * 3600 > source["MaximumRecordAgeInSeconds"]


def test_failed_s3_events_go_to_a_queue_and_objects_have_versions() -> None:
    invoked = properties("lambda_s3_event", "Writer")["EventInvokeConfig"]
    assert invoked["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": "Failed.Arn"}
    assert properties("lambda_s3_event", "Failed")["MessageRetentionPeriod"] == 14 * 24 * 3600
    assert properties("lambda_s3_event", "Landing")["VersioningConfiguration"] == {"Status": "Enabled"}


@pytest.mark.parametrize("name", BOTH)
def test_an_alarm_rings_on_the_errors_of_the_function(name: str) -> None:
    alarm = properties(name, "Failing")
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "Errors")
    assert alarm["Dimensions"][0]["Value"] == {"Ref": "Writer"}


@pytest.mark.parametrize("name", BOTH)
def test_a_template_names_a_handler_and_a_runtime_that_are_there(name: str) -> None:
    writer = properties(name, "Writer")
    assert is_handler(name, writer["Handler"])
    assert writer["Runtime"] == f"python{sys.version_info[0]}.{sys.version_info[1]}"
    variables = set(writer["Environment"]["Variables"])
    assert variables == set(
        re.findall(r'os\.environ\["(\w+)"\]', (EXAMPLES / name / "handler.py").read_text())
    )
    assert (EXAMPLES / name / "README.md").read_text().count("\n") <= 10


def is_handler(name: str, handler: str) -> bool:
    """Whether a module of an example defines what ``module.function`` names."""
    module, _, function = handler.partition(".")
    tree = ast.parse((EXAMPLES / name / f"{module}.py").read_text())
    assigned = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return function in {one.id for one in assigned if isinstance(one, ast.Name)}


def test_the_image_installs_an_extra_and_a_handler_that_are_there() -> None:
    text = (EXAMPLES / "lambda_sqs" / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (base,) = re.findall(r"^FROM public\.ecr\.aws/lambda/python:(\S+)$", text, re.MULTILINE)
    assert base == project["requires-python"].removeprefix(">=")
    (extra,) = re.findall(
        r'^RUN pip install .*"\$\(echo /wheels/safewrite_lake-\*\.whl\)\[(\w+)\]"$', text, re.MULTILINE
    )
    assert extra in project["optional-dependencies"]
    (handler,) = re.findall(r'^CMD \["(.*)"\]$', text, re.MULTILINE)
    assert is_handler("lambda_sqs", handler)
    (source,) = re.findall(r"^COPY (examples/\S+) \$\{LAMBDA_TASK_ROOT\}/$", text, re.MULTILINE)
    assert (ROOT / source).is_file()


# --- handlers -------------------------------------------------------------------------------------------
Deploy = Callable[..., tuple[Function, str]]


@pytest.fixture
def deploy(ministack: Ministack, bucket: str, tmp_path: Path) -> Iterator[Deploy]:
    """``deploy(example)`` is the function behind AWS's runtime on the emulator, and the address of its table."""
    with ExitStack() as stack:

        def deployed(name: str, *, python: str, path: Path, concurrency: int = 1) -> tuple[Function, str]:
            uri, lock_table, options = (
                f"s3://{bucket}/{name}",
                lock_table_of(name, ministack),
                ministack.storage_options(),
            )
            sw.create(uri, SCHEMA, lock_table=lock_table, storage_options=options)
            wanted = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION")
            given = {one: options[one] for one in wanted if one in options}
            variables = {**given, "ORDERS": uri, "LOCK_TABLE": lock_table, "PYTHONPATH": str(path)}
            setup = Setup(
                properties(name, "Writer")["Handler"],
                EXAMPLES / name,
                python,
                timeout_s=60,
                variables=variables,
            )
            return stack.enter_context(Function(setup, tmp_path / name, concurrency=concurrency)), uri

        yield deployed


def ids_in(uri: str, ministack: Ministack) -> list[int]:
    table = deltalake.DeltaTable(uri, storage_options=ministack.storage_options())
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.mark.long
def test_messages_of_a_queue_are_in_the_table_once(deploy: Deploy, ministack: Ministack) -> None:
    function, uri = deploy("lambda_sqs", python=sys.executable, path=ROOT, concurrency=2)
    queue = Queue(ministack.boto3_client("sqs"), f"orders-{os.urandom(4).hex()}", received_max=5)
    bodies = [f'[{{"id": {number}, "amount": 0.5}}]' for number in range(25)] + ['{"id": 25, "amount": 1.0}']
    queue.send(bodies)
    (poison,) = queue.send(['{"id": "x"}'])
    feed = EventSourceMapping(queue, function, Feed(retry_s=0, uneven=True), deliveries=lambda message_id: 2)
    with feed:
        assert feed.wait_until_empty(120)
    assert ids_in(uri, ministack) == list(range(26))
    assert queue.dead_ids() == [poison]
    assert feed.counts["repeat"] >= 26


def test_objects_of_a_bucket_are_in_the_table_once_each_in_its_version(
    deploy: Deploy, ministack: Ministack, bucket: str, tmp_path: Path
) -> None:
    """In awswrangler's environment, as beside AWS's managed layer: of ours only safewrite and powertools are there."""
    python = ARMS / "awswrangler" / "bin" / "python"
    assert python.exists(), "make arms builds the environment of awswrangler"
    layer = tmp_path / "layer"
    layer.mkdir()
    (layer / "safewrite").symlink_to(ROOT / "safewrite")
    (layer / "aws_lambda_powertools").symlink_to(Path(str(aws_lambda_powertools.__file__)).parent)
    function, uri = deploy("lambda_s3_event", python=str(python), path=layer)
    s3 = ministack.boto3_client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    name = "in/a [1] é.csv"
    versions = [
        s3.put_object(Bucket=bucket, Key=name, Body=f"id,amount\n{number},0.5\n".encode())["VersionId"]
        for number in (1, 2)
    ]
    s3.put_object(Bucket=bucket, Key="in/bad.csv", Body=b"id,colour\n3,red\n")
    events = [batch(created(bucket, "in/a+%5B1%5D+%C3%A9.csv", versionId=version)) for version in versions]
    for event in (*events, *reversed(events)):
        invocation = function.invoke(event)
        assert invocation.status == "result", invocation.body
    assert ids_in(uri, ministack) == [1, 2]
    failed = function.invoke(batch(created(bucket, "in/bad.csv", eTag="e", sequencer="01")))
    assert (failed.status, failed.error_type) == ("error", "WouldAlterError")
    assert ids_in(uri, ministack) == [1, 2]
