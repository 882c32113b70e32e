"""The fault proxy on real servers: unnoticed without a plan, and each fault does what it says."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from deltalake import DeltaTable, write_deltalake

from bench.servers.servers import ServerError
from bench.stress.proxies.proxy import FaultProxy
from safewrite.testing.faults import FaultKind, FaultPlan, RequestStep, Rule

if TYPE_CHECKING:
    from pathlib import Path

    from bench.servers.servers import Ministack, SeaweedFS
    from tests.servers import PlannedProxy

COMMIT = "t/_delta_log/00000000000000000000.json"
ENTRY = {"tablePath": {"S": "s3a://b/t"}, "fileName": {"S": "00000000000000000000.json"}}
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def read(s3: Any, bucket: str, key: str = COMMIT) -> bytes | None:
    """What an object holds, or None where there is none."""
    try:
        return bytes(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    except s3.exceptions.NoSuchKey:
        return None


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


def create(proxy: FaultProxy, bucket: str, body: bytes = b"mine", key: str = COMMIT) -> None:
    proxy.boto3_client("s3").put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")


# --- without faults ---------------------------------------------------------------------------
def test_without_a_plan_s3_answers_as_if_there_were_no_proxy(
    fault_proxy: PlannedProxy, bucket: str, s3: Any
) -> None:
    """Goal: bodies of all sizes, HEAD, ranges, 304, 412, 416, 404, 204, listings and multipart."""
    through = fault_proxy.boto3_client("s3")
    large = bytes(range(256)) * 40_000
    for key, body in {"empty": b"", "small": b"x" * 1000, "large": large, "a b/ü+%/=": b"name"}.items():
        through.put_object(Bucket=bucket, Key=key, Body=body)
        assert read(s3, bucket, key) == body == read(through, bucket, key)
    for client in (s3, through):
        assert client.head_object(Bucket=bucket, Key="large")["ContentLength"] == len(large)
        part = client.get_object(Bucket=bucket, Key="large", Range="bytes=255-256")["Body"].read()
        assert part == b"\xff\x00"
        etag = client.head_object(Bucket=bucket, Key="small")["ETag"]
        for arguments, status in (
            ({"Key": "small", "IfNoneMatch": etag}, 304),
            ({"Key": "small", "Range": "bytes=5000-"}, 416),
            ({"Key": "absent"}, 404),
        ):
            with pytest.raises(ClientError) as refused:
                client.get_object(Bucket=bucket, **arguments)
            assert code_of(refused)[0] == status
        with pytest.raises(ClientError) as refused:
            client.put_object(Bucket=bucket, Key="small", Body=b"other", IfNoneMatch="*")
        assert code_of(refused) == (412, "PreconditionFailed")
        listed = client.list_objects_v2(Bucket=bucket)["Contents"]
        assert sorted(found["Key"] for found in listed) == ["a b/ü+%/=", "empty", "large", "small"]
    upload = through.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    where = {"Bucket": bucket, "Key": "parts", "UploadId": upload}
    etag = through.upload_part(**where, PartNumber=1, Body=large)["ETag"]
    parts = {"Parts": [{"ETag": etag, "PartNumber": 1}]}
    through.complete_multipart_upload(**where, MultipartUpload=parts)
    assert read(s3, bucket, "parts") == large
    through.delete_object(Bucket=bucket, Key="parts")
    assert read(s3, bucket, "parts") is None
    assert fault_proxy.fired() == 0
    assert fault_proxy.upstream_failures() == 0


def test_many_requests_share_one_client_connection(fault_proxy: PlannedProxy, bucket: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fault_proxy.port)
    sockets = set()
    for number in range(5):
        connection.request("PUT", f"/{bucket}/k{number}", body=b"x", headers={"Host": "lake.example"})
        assert connection.getresponse().read() == b""
        sockets.add(id(connection.sock))
    connection.close()
    assert sockets != {id(None)}
    assert len(sockets) == 1


def test_a_body_of_unannounced_length_is_stored_whole(
    fault_proxy: PlannedProxy, bucket: str, s3: Any
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fault_proxy.port)
    pieces = iter([b"one,", b"two,", b"three"])
    connection.request("PUT", f"/{bucket}/chunked", body=pieces, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert read(s3, bucket, "chunked") == b"one,two,three"


def test_signatures_hold_through_the_proxy_and_replies_without_a_body_end(
    seaweed: SeaweedFS, tmp_path: Path
) -> None:
    """SeaweedFS checks them (see test_servers); they cover the Host header and the body's hash."""
    with FaultProxy(seaweed.endpoint_url, tmp_path) as proxy:
        client = proxy.boto3_client("s3")
        client.put_object(Bucket=seaweed.bucket, Key="signed/ä b.txt", Body=b"mine", IfNoneMatch="*")
        assert read(seaweed.boto3_client("s3"), seaweed.bucket, "signed/ä b.txt") == b"mine"
        with pytest.raises(ClientError) as refused:
            client.put_object(Bucket=seaweed.bucket, Key="signed/ä b.txt", Body=b"x", IfNoneMatch="*")
        assert code_of(refused)[0] == 412
        etag = client.head_object(Bucket=seaweed.bucket, Key="signed/ä b.txt")["ETag"]
        with pytest.raises(ClientError) as refused:  # 304 and 204 announce no length there
            client.get_object(Bucket=seaweed.bucket, Key="signed/ä b.txt", IfNoneMatch=etag)
        assert code_of(refused)[0] == 304
        client.delete_object(Bucket=seaweed.bucket, Key="signed/ä b.txt")
        assert read(client, seaweed.bucket, "signed/ä b.txt") is None


def test_one_proxy_serves_s3_of_one_server_and_dynamodb_of_another(
    seaweed: SeaweedFS, ministack: Ministack, dynamodb_table: str, dynamodb: Any, tmp_path: Path
) -> None:
    with FaultProxy(seaweed.endpoint_url, tmp_path, dynamodb_upstream=ministack.endpoint_url) as proxy:
        proxy.boto3_client("dynamodb").put_item(TableName=dynamodb_table, Item=ENTRY)
        names = [found["Name"] for found in proxy.boto3_client("s3").list_buckets()["Buckets"]]
    assert dynamodb.get_item(TableName=dynamodb_table, Key=ENTRY)["Item"] == ENTRY
    assert seaweed.bucket in names


def test_deltalake_writes_and_reads_through_the_proxy(fault_proxy: PlannedProxy, bucket: str) -> None:
    uri = f"s3://{bucket}/t"
    for _ in range(3):
        write_deltalake(uri, ROWS, mode="append", storage_options=fault_proxy.storage_options())
    table = DeltaTable(uri, storage_options=fault_proxy.storage_options())
    assert table.version() == 2
    assert table.to_pyarrow_table().num_rows == 30
    seen = fault_proxy.requests()
    assert seen[RequestStep.PUT_COMMIT] == 3
    assert seen[RequestStep.PUT_DATA] == 3
    assert seen[RequestStep.LIST_LOG] > 0
    assert seen[RequestStep.GET_COMMIT] > 0


# --- each fault -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultKind.LOST_ANSWER_500, (True, 500, "InternalError")),
        (FaultKind.PRECONDITION_412, (True, 412, "PreconditionFailed")),
        (FaultKind.ERROR_500, (False, 500, "InternalError")),
        (FaultKind.ERROR_503, (False, 503, "ServiceUnavailable")),
        (FaultKind.CONFLICT_409, (False, 409, "ConditionalRequestConflict")),
        (FaultKind.THROTTLE, (False, 503, "SlowDown")),
        (FaultKind.FORBIDDEN_403, (False, 403, "AccessDenied")),
    ],
)
def test_an_s3_put_gets_the_error_and_is_stored_or_not(
    fault_proxy: PlannedProxy, bucket: str, s3: Any, kind: FaultKind, expected: tuple[bool, int, str]
) -> None:
    stored, *answer = expected
    fault_proxy.plan(Rule(kind=kind, steps=(RequestStep.PUT_COMMIT,)))
    with pytest.raises(ClientError) as refused:
        create(fault_proxy, bucket)
    assert code_of(refused) == tuple(answer)
    assert read(s3, bucket) == (b"mine" if stored else None)
    assert fault_proxy.counts() == {(RequestStep.PUT_COMMIT, kind): 1}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultKind.LOST_ANSWER_500, (True, 500, "InternalServerError")),
        (FaultKind.PRECONDITION_412, (True, 400, "ConditionalCheckFailedException")),
        (FaultKind.ERROR_500, (False, 500, "InternalServerError")),
        (FaultKind.ERROR_503, (False, 503, "ServiceUnavailable")),
        (FaultKind.CONFLICT_409, (False, 400, "TransactionConflictException")),
        (FaultKind.THROTTLE, (False, 400, "ProvisionedThroughputExceededException")),
        (FaultKind.FORBIDDEN_403, (False, 400, "AccessDeniedException")),
    ],
)
def test_a_dynamodb_put_gets_the_error_and_is_stored_or_not(
    fault_proxy: PlannedProxy, dynamodb_table: str, kind: FaultKind, expected: tuple[bool, int, str]
) -> None:
    stored, *answer = expected
    client = fault_proxy.boto3_client("dynamodb")
    fault_proxy.plan(Rule(kind=kind, steps=(RequestStep.DDB_PUT_ENTRY,)))
    with pytest.raises(ClientError) as refused:
        client.put_item(TableName=dynamodb_table, Item=ENTRY)
    assert code_of(refused) == tuple(answer)
    assert ("Item" in client.get_item(TableName=dynamodb_table, Key=ENTRY)) == stored
    assert fault_proxy.counts() == {(RequestStep.DDB_PUT_ENTRY, kind): 1}


@pytest.mark.parametrize(("kind", "stored"), [(FaultKind.LOST_ANSWER, True), (FaultKind.CUT, False)])
def test_a_cut_s3_put_is_a_connection_error_and_stored_only_if_the_answer_was_lost(
    fault_proxy: PlannedProxy, bucket: str, s3: Any, kind: FaultKind, stored: bool
) -> None:
    fault_proxy.plan(Rule(kind=kind, steps=(RequestStep.PUT_COMMIT,)))
    with pytest.raises(ConnectionClosedError):
        create(fault_proxy, bucket)
    assert read(s3, bucket) == (b"mine" if stored else None)
    assert fault_proxy.counts() == {(RequestStep.PUT_COMMIT, kind): 1}


@pytest.mark.parametrize(("kind", "stored"), [(FaultKind.LOST_ANSWER, True), (FaultKind.CUT, False)])
def test_a_cut_dynamodb_put_is_a_connection_error_and_stored_only_if_the_answer_was_lost(
    fault_proxy: PlannedProxy, dynamodb_table: str, kind: FaultKind, stored: bool
) -> None:
    client = fault_proxy.boto3_client("dynamodb")
    fault_proxy.plan(Rule(kind=kind, steps=(RequestStep.DDB_PUT_ENTRY,)))
    with pytest.raises(ConnectionClosedError):
        client.put_item(TableName=dynamodb_table, Item=ENTRY)
    assert ("Item" in client.get_item(TableName=dynamodb_table, Key=ENTRY)) == stored
    assert fault_proxy.counts() == {(RequestStep.DDB_PUT_ENTRY, kind): 1}


def test_a_late_put_lands_after_its_client_was_cut_off(
    fault_proxy: PlannedProxy, bucket: str, s3: Any
) -> None:
    fault_proxy.plan(Rule(kind=FaultKind.LATE, delay_s=2.0))
    with pytest.raises(ConnectionClosedError):
        create(fault_proxy, bucket)
    assert read(s3, bucket) is None
    for _ in range(300):
        if read(s3, bucket) is not None:
            break
        time.sleep(0.1)
    assert read(s3, bucket) == b"mine"


def test_a_delayed_put_is_overtaken_by_one_that_came_later(
    fault_proxy: PlannedProxy, bucket: str, s3: Any
) -> None:
    """Goal: the delay is before the store, not after; the overtaken creation is refused there."""
    fault_proxy.plan(Rule(kind=FaultKind.DELAY, delay_s=1.0, nth=1))
    connection = http.client.HTTPConnection("127.0.0.1", fault_proxy.port)
    connection.request("PUT", f"/{bucket}/{COMMIT}", body=b"slow", headers={"If-None-Match": "*"})
    while fault_proxy.requests()[RequestStep.PUT_COMMIT] == 0:
        time.sleep(0.01)
    create(fault_proxy, bucket, b"fast")
    assert connection.getresponse().status == 412
    connection.close()
    assert read(s3, bucket) == b"fast"


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT])
def test_a_corrupted_read_leaves_the_object_whole(
    fault_proxy: PlannedProxy, bucket: str, s3: Any, kind: FaultKind
) -> None:
    s3.put_object(Bucket=bucket, Key=COMMIT, Body=b"0123456789")
    fault_proxy.plan(Rule(kind=kind, method="GET", steps=(RequestStep.GET_COMMIT,)))
    got = http_get(fault_proxy, f"/{bucket}/{COMMIT}")
    assert got == (b"01234" if kind is FaultKind.TRUNCATE_BODY else b"0123446789")
    assert read(s3, bucket) == b"0123456789"


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT])
def test_a_corrupted_upload_is_stored_corrupted_unless_a_checksum_guards_it(
    fault_proxy: PlannedProxy, bucket: str, s3: Any, kind: FaultKind
) -> None:
    fault_proxy.plan(Rule(kind=kind, steps=(RequestStep.PUT_DATA,)))
    connection = http.client.HTTPConnection("127.0.0.1", fault_proxy.port)
    connection.request("PUT", f"/{bucket}/t/part-0.parquet", body=b"0123456789")
    assert connection.getresponse().status == 200
    connection.close()
    stored = read(s3, bucket, "t/part-0.parquet")
    assert stored == (b"01234" if kind is FaultKind.TRUNCATE_BODY else b"0123446789")


def test_a_corrupted_upload_is_refused_by_a_store_that_checks_the_signed_hash(
    seaweed: SeaweedFS, tmp_path: Path
) -> None:
    plan = FaultPlan(0, (Rule(kind=FaultKind.FLIP_BIT, steps=(RequestStep.PUT_DATA,)),))
    with FaultProxy(seaweed.endpoint_url, tmp_path, plan=plan) as proxy:
        with pytest.raises(ClientError):
            proxy.boto3_client("s3").put_object(
                Bucket=seaweed.bucket, Key="flipped/part-0.parquet", Body=b"0123456789"
            )
        assert proxy.counts() == {(RequestStep.PUT_DATA, FaultKind.FLIP_BIT): 1}
    assert read(seaweed.boto3_client("s3"), seaweed.bucket, "flipped/part-0.parquet") is None


def http_get(proxy: FaultProxy, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


# --- the plan and the books -------------------------------------------------------------------
def test_a_plan_hits_the_requests_that_its_seed_says(fault_proxy: PlannedProxy, bucket: str) -> None:
    """Goal: one seed, one outcome, over HTTP too; another seed, another."""

    def outcomes(seed: int) -> list[bool]:
        fault_proxy.plan(Rule(kind=FaultKind.ERROR_500, probability=0.5), seed=seed)
        client = fault_proxy.boto3_client("s3")
        results = []
        for _ in range(30):
            try:
                client.put_object(Bucket=bucket, Key="k", Body=b"x")
                results.append(True)
            except ClientError:
                results.append(False)
        return results

    first = outcomes(1)
    assert {True, False} == set(first)
    assert outcomes(1) == first
    assert outcomes(2) != first


def test_clearing_the_plan_lets_everything_through_and_keeps_the_counts(
    fault_proxy: PlannedProxy, bucket: str
) -> None:
    fault_proxy.plan(Rule(kind=FaultKind.ERROR_503))
    with pytest.raises(ClientError):
        create(fault_proxy, bucket)
    fault_proxy.clear()
    create(fault_proxy, bucket)
    assert fault_proxy.counts() == {(RequestStep.PUT_COMMIT, FaultKind.ERROR_503): 1}
    assert fault_proxy.requests() == {RequestStep.PUT_COMMIT: 2}


def test_every_fault_is_written_down(fault_proxy: PlannedProxy, bucket: str) -> None:
    before_ms = time.time() * 1000
    fault_proxy.plan(Rule(kind=FaultKind.LOST_ANSWER, every=2))
    create(fault_proxy, bucket, key="t/part-0.parquet")
    with pytest.raises(ConnectionClosedError):
        create(fault_proxy, bucket)
    (event,) = fault_proxy.events()
    assert before_ms - 1 <= event.pop("t") <= time.time() * 1000 + 1
    assert event == {
        "step": "put_commit",
        "kind": "lost_answer",
        "method": "PUT",
        "path": f"/{bucket}/{COMMIT}",
        "target": "",
        "rule": 0,
        "seq": 2,
        "status": 200,
    }


def test_extra_latency_is_added_to_every_request(fault_proxy: PlannedProxy, bucket: str) -> None:
    fault_proxy.set_extra_latency(0.2)
    began = time.monotonic()
    create(fault_proxy, bucket)
    assert time.monotonic() - began >= 0.2  # a lower bound: no load can break it


def test_a_server_that_is_gone_is_a_cut_and_counted_as_nobodys_plan(tmp_path: Path) -> None:
    with FaultProxy("http://127.0.0.1:9", tmp_path) as proxy:
        with pytest.raises(ConnectionClosedError):
            proxy.boto3_client("s3").list_buckets()
        assert proxy.upstream_failures() == 1
        assert proxy.counts() == {}


def test_a_proxy_that_cannot_start_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"proxy\.log"):
        FaultProxy("ftp://nowhere", tmp_path).start()


# --- the proxy bites --------------------------------------------------------------------------
def test_deltalake_commits_an_append_twice_when_the_answer_to_its_commit_is_lost(
    fault_proxy: PlannedProxy, ministack: Ministack, bucket: str
) -> None:
    """The naive behaviour that safewrite must not have (A2): its own retry takes its commit for another's."""
    uri = f"s3://{bucket}/t"
    write_deltalake(uri, ROWS, mode="append", storage_options=fault_proxy.storage_options())
    fault_proxy.plan(Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_COMMIT,), nth=1))
    write_deltalake(uri, ROWS, mode="append", storage_options=fault_proxy.storage_options())
    table = DeltaTable(uri, storage_options=ministack.storage_options())
    assert table.version() == 2
    adds = [commit_adds(ministack, bucket, version) for version in (1, 2)]
    assert adds[0] == adds[1] != []
    assert fault_proxy.counts() == {(RequestStep.PUT_COMMIT, FaultKind.LOST_ANSWER): 1}


def commit_adds(server: Ministack, bucket: str, version: int) -> list[str]:
    """The paths that a log entry adds."""
    body = read(server.boto3_client("s3"), bucket, f"t/_delta_log/{version:020}.json")
    assert body is not None
    actions = [json.loads(line) for line in body.splitlines()]
    return [action["add"]["path"] for action in actions if "add" in action]
