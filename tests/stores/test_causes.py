"""T3-D5: an error names its cause and what helps; no advice sends its reader the wrong way."""

from __future__ import annotations

import errno
import http.server
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

import safewrite as sw
from safewrite.aws_lambda import mappings
from safewrite.iceberg.catalog.outcomes import classify_file_error
from safewrite.protocol.effects import Unknown
from safewrite.stores import advice, local, lock_table
from tests.stores.test_advice import Answering, _Body
from tests.test_cli import run

pytestmark = pytest.mark.usefixtures("no_aws_settings")

GENERATE = (
    'User: arn:aws:iam::1:user/u is not authorized to perform: kms:GenerateDataKey on resource: "arn:aws:kms:eu:1:key/k" '
    "because no identity-based policy allows the kms:GenerateDataKey action"
)
DENIED = (
    'User: arn:aws:iam::1:user/u is not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::lake/t" with an explicit '
    "deny in a resource-based policy"
)


class Saying(Answering):
    """Answers with a message of the service's own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code)
        self.message = message

    def _answer(self, request: Any, event_name: str = "", **_: Any) -> AWSResponse:
        self.asked.append(event_name)
        body = (
            f'{{"__type": "x#{self.code}", "message": "{self.message}"}}'
            if "dynamodb" in event_name
            else f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>"
        ).encode()
        return AWSResponse(request.url, self.status, {"content-length": str(len(body))}, _Body(body))


S3: dict[str, tuple[int, str, str, str]] = {
    "a key of KMS that may not be used": (403, "AccessDenied", GENERATE, r"allow kms:GenerateDataKey on arn:aws:kms:eu:1:key/k"),
    "an explicit deny": (403, "AccessDenied", DENIED, "allow s3:PutObject on .*take back the explicit deny"),
    "a key of KMS that is disabled": (400, "KMS.DisabledException", "k is disabled.", "enable it"),
    "a key of KMS that is to be deleted": (400, "KMS.KMSInvalidStateException", "pending deletion", "cancel its deletion"),
    "an archived object": (403, "InvalidObjectState", "not valid for the object's storage class", "Glacier.*restore it"),
    "an unknown request": (501, "NotImplemented", "A header you provided", "If-None-Match"),
    "http to a server of https": (400, "BadRequest", "The plain HTTP request was sent to HTTPS port", "write https://"),
}  # fmt: skip


@pytest.mark.sweep("a key of KMS that is")
@pytest.mark.parametrize("name", S3)
def test_t3_d5_what_s3_says_is_told_with_what_helps(name: str) -> None:
    status, code, message, wanted = S3[name]
    session = Saying(status, code, message.replace('"', "&quot;"))
    with pytest.raises(sw.SafewriteError, match=wanted) as caught:
        sw.open("s3://lake/t", arbiter="object-store", boto3_session=session, timeout_s=5)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "Nothing was" in text
    assert "often passes" not in text
    assert "Check permissions" not in text
    assert len(session.asked) <= 6


@pytest.mark.parametrize(
    "message",
    ["The provided key element does not match the schema", "One of the required keys was not given a value"],
)
def test_t3_d5_a_table_of_something_else_is_told_as_that(message: str) -> None:
    """It was "Check that DynamoDB answers"."""
    session = Saying(400, "ValidationException", message)
    with pytest.raises(sw.StorageError, match=r"other keys than a lock table.*locks create") as caught:
        sw.open("s3://lake/t", lock_table="orders", boto3_session=session)  # type: ignore[arg-type]
    assert "DynamoDB answers" not in str(caught.value)


ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/delta_log"


@pytest.mark.sweep("arn", "delta log", "delta/log")
@pytest.mark.parametrize("name", [ARN, "delta log", "delta/log", "s3://lake/locks", "x" * 256, "tabelle_ä"])
def test_t3_d5_a_lock_table_is_named_by_its_name(name: str, tmp_path: Path) -> None:
    """An ARN led to `safewrite locks create --lock-table arn:...`; in one fleet it would be a second arbiter."""
    session, wanted = Answering(400, "ResourceNotFoundException"), "Nothing was written"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path)}
    calls: tuple[Callable[[], Any], ...] = (
        lambda: sw.open("s3://lake/t", lock_table=name, boto3_session=session),  # type: ignore[arg-type]
        lambda: sw.open("s3://lake/t", lock_table=name, create=True, boto3_session=session),  # type: ignore[arg-type]
        lambda: sw.open("db.t", catalog=catalog, lock_table=name, boto3_session=session),  # type: ignore[arg-type]
        lambda: lock_table.check(session.client("dynamodb"), name),
        lambda: lock_table.ensure(session.client("dynamodb"), name),
    )
    for call in calls:
        with pytest.raises(sw.InvalidInputError, match=wanted) as caught:
            call()
        assert "locks create" not in str(caught.value)
        if name == ARN:
            assert "Give its name, 'delta_log', with AWS_REGION=eu-west-1" in str(caught.value)
    assert session.asked == []


def test_t3_d5_locks_check_without_credentials_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "Allow dynamodb:DescribeTable"."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    code, text = run("locks", "check", "--lock-table", "delta_log", "--region", "us-east-1")
    plain = " ".join(text.split())
    assert code == 1
    assert "No AWS credentials were found" in plain
    assert "Allow dynamodb" not in plain


def test_t3_d5_a_queue_that_cannot_be_asked_without_credentials_asks_for_them() -> None:
    from botocore.exceptions import NoCredentialsError

    def client(_: str) -> Any:
        raise NoCredentialsError

    mapping = {
        "UUID": "u",
        "EventSourceArn": "arn:aws:sqs:eu:1:q",
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    (found,) = mappings.judge(mapping, 60, client)
    assert "No AWS credentials" in found.mend


@pytest.fixture
def plain_server() -> Iterator[str]:
    """The address of a server that speaks http only."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_t3_d5_https_to_a_server_of_http_is_told_as_that(plain_server: str) -> None:
    """It was "Nobody answers at ..."."""
    options = {"AWS_ENDPOINT_URL": f"https://{plain_server}", "AWS_REGION": "us-east-1"}
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with pytest.raises(
        sw.StorageError, match=r"speaks http, and was asked by https: write http://"
    ) as caught:
        sw.open("s3://lake/t", arbiter="object-store", storage_options=options | keys, timeout_s=5)
    assert "Nobody answers" not in str(caught.value)


# --- disks --------------------------------------------------------------------------------------------
DISKS = {
    errno.ENOSPC: "disk is full: make room",
    errno.EDQUOT: "quota",
    errno.EROFS: "read-only",
    errno.EACCES: "Allow this user to read and write",
    errno.EMFILE: "ulimit -n",
}


@pytest.mark.parametrize("number", DISKS)
def test_t3_d5_a_disk_that_refuses_is_told_as_that(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk was "Check permissions and the address"."""
    table = sw.open(tmp_path / "t", create=True, timeout_s=5)
    table.append([{"id": 1}], key="first")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(local.os, "fsync", refuse)
        with pytest.raises(sw.SafewriteError, match=DISKS[number]) as caught:
            table.append([{"id": 2}], key="second")
    assert "address" not in str(caught.value)
    assert table.append([{"id": 2}], key="second").rows == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("database or disk is full", "make room"), ("attempt to write a readonly database", "read-only"), ("unable to open database file", "Allow this user")],
)  # fmt: skip
def test_t3_d5_a_ledger_that_cannot_be_written_says_why(
    text: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sw.open(tmp_path / "t", create=True, timeout_s=5)

    def refuse(_: Any) -> Any:
        raise sqlite3.OperationalError(text)

    monkeypatch.setattr(local.SqliteLedger, "_connected", refuse)
    with pytest.raises(sw.SafewriteError, match=wanted):
        table.append([{"id": 1}], key="first")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "make room"),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during GetObject: Unable to parse ExceptionName: InvalidObjectState"), "Glacier"),
        (OSError(f"AWS Error ACCESS_DENIED during PutObject operation: {GENERATE}"), "allow kms:GenerateDataKey"),
        (OSError("When initiating: AWS Error NOT_IMPLEMENTED during PutObject"), "If-None-Match"),
        (OSError("curlCode: 35, SSL connect error: wrong version number"), "write http://"),
    ],
    ids=range(5),
)  # fmt: skip
def test_t3_d5_files_of_iceberg_tables_have_the_same_causes(error: OSError, wanted: str) -> None:
    outcome = classify_file_error(error)
    assert wanted in getattr(outcome, "advice", "")


def test_an_error_of_a_file_that_names_no_cause_has_no_advice() -> None:
    assert classify_file_error(OSError("cut")) == Unknown("OSError: cut")
    assert advice.named_in("nothing known") == ""
