"""Advice fits the cause, and what does not pass is told after one request.

The answers are made by a handler of botocore's ``before-send``, so that its own parsing is under test and nothing is
sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.awsrequest import AWSResponse

import safewrite as sw
from bench.servers import servers
from safewrite.protocol.effects import Busy
from safewrite.stores import advice, aws, clients

pytestmark = pytest.mark.usefixtures("no_aws_settings")


class _Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.data

    def read(self, *_: Any) -> bytes:
        data, self.data = self.data, b""
        return data


@dataclass(eq=False)
class Answering:
    """A boto3 session whose every request has the same answer; counts them."""

    status: int
    code: str
    asked: list[str] = field(default_factory=list)

    def client(self, service: str, **settings: Any) -> Any:
        settings |= {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        made = boto3.Session().client(service, **settings)  # type: ignore[call-overload]
        made.meta.events.register("before-send", self._answer)
        return made

    def _answer(self, request: Any, event_name: str = "", **_: Any) -> AWSResponse:
        self.asked.append(event_name)
        dynamodb = "dynamodb" in event_name
        body = (
            f'{{"__type": "com.amazonaws.dynamodb.v20120810#{self.code}", "message": "no"}}'
            if dynamodb
            else f"<Error><Code>{self.code}</Code><Message>no</Message><BucketName>lake</BucketName></Error>"
        ).encode()
        return AWSResponse(request.url, self.status, {"content-length": str(len(body))}, _Body(body))


S3 = [
    (403, "AccessDenied", "s3:GetObject"),
    (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
    (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
    (403, "RequestTimeTooSkewed", "clock"),
    (401, "Unauthorized", "may not do this"),
    (404, "NoSuchBucket", "bucket 'lake' does not exist"),
    (400, "AuthorizationHeaderMalformed", "another region"),
]


@pytest.mark.parametrize(("status", "code", "word"), S3)
def test_what_s3_refuses_is_told_at_once_with_its_cause(status: int, code: str, word: str) -> None:
    session = Answering(status, code)
    with pytest.raises(sw.StorageError, match=word) as caught:
        sw.open("s3://lake/t", arbiter="object-store", boto3_session=session)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "often passes" not in text
    assert text.startswith("Reading _delta_log/_last_checkpoint failed: ")
    # The first looks are made at once; a refused permission is asked for three times, the rest once.
    assert len(session.asked) <= (6 if status == 403 else 2)


def test_an_expired_token_is_told_as_one() -> None:
    session = Answering(400, "ExpiredToken")
    with pytest.raises(sw.StorageError, match="session token has expired"):
        sw.open("s3://lake/t", arbiter="object-store", boto3_session=session)  # type: ignore[arg-type]


@pytest.mark.sweep("InvalidSignatureException", "UnrecognizedClientException")
@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("AccessDeniedException", "allow dynamodb:GetItem"),
        ("UnrecognizedClientException", "AWS_ACCESS_KEY_ID"),
        ("InvalidSignatureException", "AWS_SECRET_ACCESS_KEY"),
        ("ExpiredTokenException", "has expired"),
        ("UnknownOperationException", "AWS_ENDPOINT_URL_DYNAMODB"),
    ],
)
def test_another_arbiter_is_proposed_only_where_the_lock_table_is_not_there(code: str, word: str) -> None:
    """Writers that go round a lock table because their credentials failed would lose rows."""
    session = Answering(400, code)
    with pytest.raises(sw.StorageError, match=word) as caught:
        sw.open("s3://lake/t", lock_table="delta_log", boto3_session=session)  # type: ignore[arg-type]
    assert "object-store" not in str(caught.value)
    assert caught.value.kind == "lock_table_unusable"
    assert "Nothing was written" in str(caught.value)


def test_a_lock_table_that_is_not_there_can_be_made_or_left_out() -> None:
    session = Answering(400, "ResourceNotFoundException")
    with pytest.raises(
        sw.StorageError, match=r"safewrite locks create --lock-table mine.*arbiter='object-store'"
    ):
        sw.open("s3://lake/t", lock_table="mine", boto3_session=session)  # type: ignore[arg-type]
    catalog = {"type": "in-memory", "warehouse": "/nowhere"}
    with pytest.raises(sw.StorageError, match="leave lock_table= out") as caught:
        sw.open("db.t", catalog=catalog, lock_table="mine", boto3_session=session)  # type: ignore[arg-type]
    assert "object-store" not in str(caught.value)


@pytest.mark.parametrize("arbiter", [None, "object-store"])
def test_without_credentials_they_are_asked_for(arbiter: Any) -> None:
    with pytest.raises(sw.StorageError, match="AWS_ACCESS_KEY_ID") as caught:
        sw.open("s3://lake/t", arbiter=arbiter, storage_options={"AWS_REGION": "us-east-1"})
    assert "arbiter=" not in str(caught.value)


@pytest.mark.parametrize("service", ["s3", "dynamodb"])
def test_credentials_that_are_not_renewed_are_not_called_missing(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4-A7: a role, a program or SSO lends them, and fails; nothing was sent, so a write is not in doubt."""
    (tmp_path / "config").write_text("[default]\ncredential_process = /bin/false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    arbiter: Any = {"arbiter": "object-store"} if service == "s3" else {"lock_table": "delta_log"}
    with pytest.raises(sw.StorageError, match="could not be fetched or renewed") as caught:
        sw.open("s3://lake/t", storage_options={"AWS_REGION": "us-east-1"}, **arbiter)
    assert "No AWS credentials were found" not in str(caught.value)
    error = botocore.exceptions.CredentialRetrievalError(provider="container-role", error_msg="500")
    assert isinstance(aws.classify_error(error, write=True), Busy)


def test_without_a_region_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        clients._clients, "found", OrderedDict()
    )  # no client of the settings that another test had
    with pytest.raises(sw.StorageError, match="Set AWS_REGION"):
        sw.open("s3://lake/t", lock_table="delta_log")


class _GoneError(Exception):
    """A failure of botocore at an address."""

    __module__ = "botocore.exceptions"


def test_an_address_that_answered_before_is_asked_longer_than_one_that_never_did() -> None:
    """A server that is started again comes back; a slip in the address does not."""
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    error = type("EndpointConnectionError", (_GoneError,), {"__module__": "botocore.exceptions"})("gone")
    error.kwargs = {"endpoint_url": f"{url}/lake/key"}
    first = advice.cause_of(error)
    assert first is not None
    assert first.asks_max == advice.UNREACHED_ASKS_MAX
    assert f"127.0.0.1:{port}" in first.advice
    advice.note_answer(AWSResponse(f"{url}/lake", 404, {}, _Body(b"")))
    again = advice.cause_of(error)
    assert again is not None
    assert again.asks_max is None


def test_an_answer_of_a_client_is_noted() -> None:
    session = Answering(403, "AccessDenied")
    url = f"http://127.0.0.1:{servers.free_port()}"
    with pytest.raises(sw.StorageError):
        sw.open(
            "s3://lake/t",
            arbiter="object-store",
            storage_options={"AWS_ENDPOINT_URL": url},
            boto3_session=session,  # type: ignore[arg-type]
        )
    assert url.removeprefix("http://") in advice._answered


def test_credentials_that_are_set_after_a_failure_are_used_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever follows the advice, in a notebook for one, need not start anew."""
    settings = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{servers.free_port()}"}
    with pytest.raises(sw.StorageError, match="No AWS credentials"):
        sw.open("s3://lake/t", arbiter="object-store", storage_options=settings)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(sw.StorageError, match="Nobody answers"):
        sw.open("s3://lake/t", arbiter="object-store", storage_options=settings)


@pytest.mark.parametrize("operation", ["UpdateItem", "DeleteItem", "DeleteObject", "DescribeTable"])
def test_a_right_that_a_write_does_without_is_told_once(
    operation: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """T4-E2: claims stayed open for good, alarms counted them as stuck, and no line of a log said why."""
    monkeypatch.setattr(advice, "_told", set())
    refused = {
        "Error": {"Code": "AccessDeniedException", "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    for _ in range(3):
        aws.classify_error(botocore.exceptions.ClientError(refused, operation), write=True)
    aws.classify_error(
        botocore.exceptions.ClientError(refused, "GetItem"), write=False
    )  # which stops a write, and is raised
    (told,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f":{operation}. Writes land all the same" in told.getMessage()


def test_a_condition_that_does_not_hold_is_no_missing_right(caplog: pytest.LogCaptureFixture) -> None:
    lost = {
        "Error": {"Code": "ConditionalCheckFailedException", "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    aws.classify_error(botocore.exceptions.ClientError(lost, "UpdateItem"), write=True)
    assert caplog.records == []
