"""What is unsafe about a Lambda function's event source mappings is found, on an emulator of Lambda and SQS."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.aws_lambda import mappings
from safewrite.findings import Finding
from safewrite.stores.world import LEDGER_TTL_S
from tests.test_cli import run, run_json

FAILURES = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
BISECT = {"BisectBatchOnFunctionError": True}
STREAMS = {
    "kinesis": "arn:aws:kinesis:us-east-1:000000000000:stream/orders",
    "dynamodb": "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-11-22T00:00:00.000",
}


@dataclass
class Lab:
    """A Lambda function with queues, on the emulator."""

    server: Ministack
    name: str

    def __post_init__(self) -> None:
        self.lambda_, self.sqs = self.server.boto3_client("lambda"), self.server.boto3_client("sqs")

    def function(self, timeout_s: int = 60, **more: Any) -> None:
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("app.py", "def handler(event, context):\n    return {}\n")
        self.lambda_.create_function(
            FunctionName=self.name, Runtime="python3.12", Role="arn:aws:iam::000000000000:role/r", Handler="app.handler",
            Code={"ZipFile": code.getvalue()}, Timeout=timeout_s, **more,
        )  # fmt: skip

    def queue(self, suffix: str = "", **attributes: object) -> str:
        """Make a queue; returns its ARN."""
        url = self.sqs.create_queue(
            QueueName=f"{self.name}{suffix}",
            Attributes={name: str(value) for name, value in attributes.items()},
        )["QueueUrl"]
        arn: str = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        return arn

    def sound_queue(self, **changed: object) -> str:
        """A queue with which nothing is wrong, but for what is given."""
        dead = self.queue("-dead", MessageRetentionPeriod=LEDGER_TTL_S)
        redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 5})
        settings: dict[str, object] = {"VisibilityTimeout": 360, "RedrivePolicy": redrive}
        return self.queue("-in", **(settings | changed))

    def map(self, arn: str, **settings: Any) -> str:
        made = self.lambda_.create_event_source_mapping(
            FunctionName=self.name, EventSourceArn=arn, Enabled=False, **settings
        )
        uid: str = made["UUID"]
        return uid

    def found(self) -> dict[str, Finding]:
        """Findings by code, without that of a disabled mapping: here each is, so that nothing is polled."""
        looked = mappings.examine(self.name, self.server.storage_options())
        codes = [finding.code for finding in looked.findings if finding.code != "lambda_mapping_disabled"]
        assert len(set(codes)) == len(codes)
        return {finding.code: finding for finding in looked.findings if finding.code in codes}


@pytest.fixture
def lab(ministack: Ministack) -> Lab:
    return Lab(ministack, f"f-{uuid.uuid4().hex[:12]}")


def levels(found: dict[str, Finding]) -> dict[str, str]:
    return {code: str(finding.severity) for code, finding in found.items()}


def test_a_function_whose_queue_and_mapping_are_right_has_one_note_about_its_time(lab: Lab) -> None:
    lab.function()
    lab.map(lab.sound_queue(), **FAILURES)
    found = lab.found()
    assert levels(found) == {"lambda_timeout": "info"}
    assert "with 42 or less" in found["lambda_timeout"].mend


def test_a_mapping_without_partial_batches_is_a_danger_with_the_command_that_cures_it(lab: Lab) -> None:
    lab.function(timeout_s=60)
    uid = lab.map(lab.sound_queue())
    found = lab.found()["lambda_no_partial_batches"]
    assert (
        found.severity,
        f"--uuid {uid} --function-response-types ReportBatchItemFailures" in found.mend,
    ) == ("danger", True)


@pytest.mark.parametrize(
    ("visible_s", "window_s", "level"),
    [(59, 0, "danger"), (60, 0, "warning"), (359, 0, "warning"), (360, 0, None), (360, 20, "warning"), (380, 20, None)],
)  # fmt: skip
def test_the_visibility_timeout_is_compared_with_the_functions(
    lab: Lab, visible_s: int, window_s: int, level: str | None
) -> None:
    lab.function(timeout_s=60)
    lab.map(lab.sound_queue(VisibilityTimeout=visible_s), MaximumBatchingWindowInSeconds=window_s, **FAILURES)
    assert levels(lab.found()).get("lambda_visibility") == level


def test_a_queue_without_dead_letters_and_one_that_gives_up_early_or_forgets_them_are_warnings(
    lab: Lab,
) -> None:
    lab.function()
    lab.map(lab.queue("-bare", VisibilityTimeout=360), **FAILURES)
    assert levels(lab.found()) == {"lambda_timeout": "info", "lambda_no_dead_letters": "warning"}
    dead = lab.queue("-short", MessageRetentionPeriod=4 * 86_400)
    redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 4})
    source = lab.queue("-in", VisibilityTimeout=360, RedrivePolicy=redrive, MessageRetentionPeriod=4 * 86_400)
    lab.map(source, **FAILURES)
    found = lab.found()
    assert levels(found) == {
        "lambda_timeout": "info", "lambda_no_dead_letters": "warning", "lambda_dead_letters_early": "warning",
        "lambda_dead_letters_expire": "warning",
    }  # fmt: skip
    assert "4 days" in found["lambda_dead_letters_expire"].message


@pytest.mark.parametrize("kind", ["kinesis", "dynamodb"])
def test_a_stream_that_retries_for_ever_or_drops_records_is_found(lab: Lab, kind: str) -> None:
    target = {"OnFailure": {"Destination": "arn:aws:sqs:us-east-1:000000000000:failed"}}
    found = {}
    for name, settings in {
        "endless": {"MaximumRetryAttempts": -1, "MaximumRecordAgeInSeconds": -1},
        "dropped": {"MaximumRetryAttempts": 0, "MaximumRecordAgeInSeconds": 60},
        "right": {"MaximumRetryAttempts": 10, "MaximumRecordAgeInSeconds": 3600, "DestinationConfig": target},
        "whole": {
            "MaximumRecordAgeInSeconds": 3600,
            "DestinationConfig": target,
            "BisectBatchOnFunctionError": False,
        },
        "unsaid": {"DestinationConfig": target},
    }.items():
        mapping = {"UUID": "u", "EventSourceArn": STREAMS[kind], **FAILURES, **BISECT, **settings}
        found[name] = [
            one.code for one in mappings.judge(mapping, 60, _no_client) if one.code != "lambda_replay_horizon"
        ]
    assert found == {
        "endless": ["lambda_endless_retries"], "dropped": ["lambda_no_failure_destination"], "right": [],
        "whole": ["lambda_no_bisection"], "unsaid": ["lambda_endless_retries"],
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["kinesis", "dynamodb"])
def test_t3_d2_no_advice_for_a_stream_is_what_loses_its_records(kind: str) -> None:
    """T3-D2: doctor advised ten retries, and never that a batch is split, so good records went with a bad one."""
    settings = {"MaximumRetryAttempts": -1, "MaximumRecordAgeInSeconds": -1}
    mapping = {"UUID": "u", "EventSourceArn": STREAMS[kind], **FAILURES, **settings}
    found = {one.code: one for one in mappings.judge(mapping, 60, _no_client)}
    advice = found["lambda_endless_retries"].mend
    assert (
        "--bisect-batch-on-function-error --maximum-record-age-in-seconds 86400 --destination-config"
        in advice
    )
    assert "--maximum-retry-attempts" not in advice
    assert found["lambda_no_bisection"].severity == "warning"


def _no_client(service: str) -> Any:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": service}}, "Describe")


class Kinesis:
    """A stream that keeps records for so many hours."""

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def describe_stream_summary(self, **_: Any) -> Any:
        return {"StreamDescriptionSummary": {"RetentionPeriodHours": self.hours}}


@pytest.mark.parametrize(
    ("kind", "age_s", "hours", "found"),
    [
        ("kinesis", -1, 14 * 24, False), ("kinesis", -1, 15 * 24, True), ("kinesis", 604_800, 15 * 24, False),
        ("kinesis", -1, None, True), ("dynamodb", -1, None, False),
    ],
)  # fmt: skip
def test_records_that_may_come_again_after_their_keys_are_forgotten_are_found(
    kind: str, age_s: int, hours: int | None, found: bool
) -> None:
    mapping = {"UUID": "u", "EventSourceArn": STREAMS[kind], "MaximumRecordAgeInSeconds": age_s, **FAILURES}
    client = _no_client if hours is None else lambda _: Kinesis(hours)
    codes = [one.code for one in mappings.judge(mapping, 60, client)]
    assert ("lambda_replay_horizon" in codes) is found


@pytest.mark.parametrize(
    ("timeout_s", "level"),
    [(3, "warning"), (18, "warning"), (19, "info"), (318, "info"), (319, None), (900, None)],
)
def test_the_functions_timeout_is_compared_with_that_of_a_write(
    lab: Lab, timeout_s: int, level: str | None
) -> None:
    lab.function(timeout_s=timeout_s)
    assert levels(lab.found()).get("lambda_timeout") == level


def test_a_function_without_mappings_is_noted(lab: Lab) -> None:
    lab.function()
    assert levels(lab.found())["lambda_no_mapping"] == "info"


def test_a_mapping_that_is_disabled_is_noted(lab: Lab) -> None:
    lab.function()
    lab.map(lab.sound_queue(), **FAILURES)
    looked = mappings.examine(lab.name, lab.server.storage_options())
    assert "lambda_mapping_disabled" in [finding.code for finding in looked.findings]


def test_a_source_outside_aws_or_of_another_kind_is_left_alone() -> None:
    for arn in ("arn:aws:kafka:us-east-1:000000000000:cluster/c/1", None):
        assert list(mappings.judge({"UUID": "u", "EventSourceArn": arn}, 60, _no_client)) == []


def test_a_queue_that_cannot_be_looked_at_is_a_warning(lab: Lab) -> None:
    lab.function()
    lab.map("arn:aws:sqs:us-east-1:000000000000:not-there", **FAILURES)
    assert levels(lab.found())["lambda_source_unreadable"] == "warning"


@pytest.mark.long
def test_many_mappings_are_read_page_by_page(lab: Lab) -> None:
    lab.function()
    source = lab.sound_queue()
    for _ in range(101):
        lab.map(source, **FAILURES)
    assert len(mappings.examine(lab.name, lab.server.storage_options()).sources) == 101


def test_a_function_that_is_not_there_is_wrong_input_and_a_service_that_refuses_is_not(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (lab.name, "not a name!", ""):
        with pytest.raises(sw.InvalidInputError, match="There is no Lambda function"):
            mappings.examine(wrong, lab.server.storage_options())
    refused = ClientError(
        {"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetFunctionConfiguration"
    )

    class Denied:
        def get_function_configuration(self, **_: Any) -> Any:
            raise refused

    monkeypatch.setattr(mappings, "shared_client", lambda *_: Denied())
    with pytest.raises(sw.StorageError, match="Allow lambda:GetFunctionConfiguration"):
        mappings.examine("orders", {})


# --- the command --------------------------------------------------------------------------------------
@pytest.fixture
def here(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name, value in lab.server.storage_options().items():
        monkeypatch.setenv(name, value)
    return lab


def test_doctor_looks_at_a_function_alone_and_beside_a_table(here: Lab, tmp_path: Any) -> None:
    here.function()
    here.map(here.queue("-in", VisibilityTimeout=360))
    code, answer = run_json("doctor", "--lambda", here.name)
    assert (code, answer["counts"]["danger"]) == (1, 1)
    assert answer["functions"] == [
        {"function": here.name, "timeout_s": 60, "sources": answer["functions"][0]["sources"]}
    ]
    assert answer["findings"][0]["code"] == "lambda_no_partial_batches"
    assert "table" not in answer
    code, printed = run("doctor", "--lambda", here.name)
    assert (
        code,
        "lambda_no_partial_batches" in printed,
        f"event source mappings of {here.name}" in printed,
    ) == (1, True, True)
    table = sw.open(tmp_path / "orders", create=True)
    table.append([{"id": 1}])
    code, answer = run_json("doctor", tmp_path / "orders", "--lambda", here.name)
    assert (code, answer["table"], answer["functions"][0]["function"]) == (1, table.uri, here.name)
    assert run_json("doctor", tmp_path / "orders")[0] == 0


def test_a_function_that_is_not_there_and_options_of_a_table_without_one_are_wrong_usage(here: Lab) -> None:
    code, answer = run_json("doctor", "--lambda", here.name)
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")
    here.function()
    code, answer = run_json("doctor", "--lambda", here.name, "--deep")
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")
    assert run("doctor")[0] == 2


def test_a_cut_connection_is_an_error_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of such an error botocore's ``response`` is None."""

    class Cut:
        def get_function_configuration(self, **_: Any) -> Any:
            raise ConnectionClosedError(endpoint_url="http://127.0.0.1:1")

    monkeypatch.setattr(mappings, "shared_client", lambda *_: Cut())
    with pytest.raises(sw.StorageError, match="Lambda did not describe the function"):
        mappings.examine("orders", {})
