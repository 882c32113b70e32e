"""The servers that tests and benches stand on: honest, on loopback only, and gone when we are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bench.servers import servers
from bench.servers.jvm import DynamoDBLocal
from bench.servers.servers import (
    Cloud,
    Ministack,
    SeaweedFS,
    ServerError,
)
from tests.bench.processes import is_alive, listening_addresses, until_gone

REPOSITORY = Path(__file__).resolve().parents[2]
WRITERS = 8


def _race(calls: list[Any]) -> list[str]:
    """Run all calls at once; each one's error code, or ``"ok"``."""
    barrier = threading.Barrier(len(calls))
    results = [""] * len(calls)

    def run(index: int) -> None:
        barrier.wait()
        try:
            calls[index]()
        except ClientError as error:
            results[index] = error.response["Error"]["Code"]
        else:
            results[index] = "ok"

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _creations(server: Any, bucket: str, key: str) -> list[Any]:
    client = server.boto3_client("s3")
    return [partial(client.put_object, Bucket=bucket, Key=key, IfNoneMatch="*") for _ in range(WRITERS)]


def _claims(server: Any, table: str, version: int) -> list[Any]:
    client = server.boto3_client("dynamodb")
    item = {"tablePath": {"S": "s3a://b/t"}, "fileName": {"S": f"{version:020}.json"}}
    condition = "attribute_not_exists(fileName)"
    claim = partial(client.put_item, TableName=table, Item=item, ConditionExpression=condition)
    return [claim] * WRITERS


def test_ministack_lets_one_of_many_racing_creations_win(ministack: Ministack, bucket: str) -> None:
    for round_ in range(5):
        assert _race(_creations(ministack, bucket, f"k{round_}")).count("ok") == 1


def test_ministack_lets_one_of_many_racing_claims_win(ministack: Ministack, dynamodb_table: str) -> None:
    for version in range(5):
        assert _race(_claims(ministack, dynamodb_table, version)).count("ok") == 1


def test_seaweedfs_lets_one_of_many_racing_creations_win(seaweed: SeaweedFS) -> None:
    assert _race(_creations(seaweed, seaweed.bucket, "race/k")).count("ok") == 1


def test_seaweedfs_refuses_a_wrong_signature(seaweed: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then does it prove anything that a request through the proxy is accepted."""
    monkeypatch.setattr(servers, "SECRET_ACCESS_KEY", "not-the-secret")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        seaweed.boto3_client("s3").list_objects_v2(Bucket=seaweed.bucket)


@pytest.mark.sweep("SeaweedFS")
@pytest.mark.parametrize("server_class", [Ministack, SeaweedFS])
def test_a_server_listens_on_loopback_only_and_ends_when_told(server_class: Any, tmp_path: Path) -> None:
    with server_class(tmp_path) as server:
        pid = server.pid
        assert listening_addresses(pid) == {"0100007F"}
    assert not is_alive(pid)
    server.stop()
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from bench.servers.servers import Ministack\n"
        "print(Ministack(sys.argv[1]).start().pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as parent:
        assert parent.stdout is not None
        server_pid = int(parent.stdout.readline())
        assert is_alive(server_pid)
        parent.send_signal(signal.SIGKILL)
    gone = until_gone(server_pid)
    if not gone:
        os.kill(server_pid, signal.SIGKILL)
    assert gone


def test_a_server_that_cannot_start_names_its_log(tmp_path: Path) -> None:
    class Broken(Ministack):
        def _command(self) -> tuple[list[str], dict[str, str]]:
            return [sys.executable, "-c", "raise SystemExit('out of order')"], {}

    with pytest.raises(ServerError, match=r"ministack\.log"):
        Broken(tmp_path).start()
    assert "out of order" in (tmp_path / "ministack.log").read_text()


def test_a_cloud_sends_each_service_to_its_own_server(
    seaweed: SeaweedFS, ministack: Ministack, dynamodb_table: str
) -> None:
    cloud = Cloud(s3=seaweed, dynamodb=ministack)
    options = cloud.storage_options()
    assert options["AWS_ENDPOINT_URL"] == cloud.endpoint_url == seaweed.endpoint_url
    assert options["AWS_ENDPOINT_URL_DYNAMODB"] == ministack.endpoint_url
    assert dynamodb_table in cloud.boto3_client("dynamodb").list_tables()["TableNames"]
    names = [found["Name"] for found in cloud.boto3_client("s3").list_buckets()["Buckets"]]
    assert seaweed.bucket in names


def test_a_server_without_dynamodb_offers_no_dynamodb_endpoint(seaweed: SeaweedFS) -> None:
    assert "AWS_ENDPOINT_URL_DYNAMODB" not in seaweed.storage_options()


def test_dynamodb_local_without_java_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ServerError, match=r"Java 17.*openjdk-17"):
        DynamoDBLocal(tmp_path).start()


def test_dynamodb_local_without_maven_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match=r"Maven.*install maven"):
        DynamoDBLocal(tmp_path, jars_dir=tmp_path / "jars").start()
