"""Uploads of a Delta table ask for the encryption that its options name, or the options are refused."""

from __future__ import annotations

import logging
from typing import Any

import boto3
import pandas as pd
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.stores.addresses import StoreAddress
from safewrite.stores.s3 import S3Objects
from safewrite.stores.settings import encryption
from safewrite.wrangler import to_deltalake

KMS = {
    "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
    "AWS_SSE_KMS_KEY_ID": "alias/lake",
    "AWS_SSE_BUCKET_KEY_ENABLED": "true",
}
ASKED = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/lake", "BucketKeyEnabled": True}


def heads(server: Ministack, bucket: str) -> dict[str, tuple[Any, Any]]:
    """Algorithm and key of each object of a bucket, as the store has them."""
    s3 = server.boto3_client("s3")
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]
    found = {key: s3.head_object(Bucket=bucket, Key=key) for key in keys}
    return {key: (one.get("ServerSideEncryption"), one.get("SSEKMSKeyId")) for key, one in found.items()}


def test_every_object_of_a_table_is_under_the_key(
    ministack: Ministack, bucket: str, no_aws_settings: None
) -> None:
    """Data, log, checkpoint and ledger; by open, by a task's store, by awswrangler's call."""
    options = {**ministack.storage_options(), **KMS}
    table = sw.open(f"s3://{bucket}/t", create=True, arbiter="object-store", storage_options=options)
    table.append([{"id": 1}], key="k")
    assert table.append([{"id": 1}], key="k").outcome == "already_committed"
    table.overwrite([{"id": 1}], where="id = 1")
    table.checkpoint()
    address = StoreAddress(f"s3://{bucket}/t", bucket, "t", tuple(sorted(options.items())))
    address.world().objects.put("from-a-task", b"1")
    given = {name: value for name, value in options.items() if not name.startswith("DELTA")}
    to_deltalake(pd.DataFrame({"id": [3]}), f"s3://{bucket}/t", s3_additional_kwargs=given)
    assert table.refresh().row_count() == 2
    found = heads(ministack, bucket)
    assert len(found) > 8
    assert set(found.values()) == {("aws:kms", "alias/lake")}


def test_what_asks_for_no_encryption_that_is_sent_is_refused() -> None:
    assert encryption(None) == encryption({"AWS_REGION": "x"}) == {}
    assert encryption({"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}) == {"ServerSideEncryption": "AES256"}
    assert encryption(KMS) == encryption(KMS | {"AWS_SERVER_SIDE_ENCRYPTION": "sse-kms"}) == ASKED
    for wrong in (
        {"AWS_SSE_KMS_KEY_ID": "k"},
        {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c"},
        {"AWS_SERVER_SIDE_ENCRYPTION": "AES256", "AWS_SSE_KMS_KEY_ID": "k"},
        {**KMS, "AWS_SSE_BUCKET_KEY_ENABLED": "maybe"},
    ):
        with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
            encryption(wrong)


def test_the_client_of_boto3_is_asked_the_same(ministack: Ministack, bucket: str) -> None:
    """Buckets that our own requests do not reach go by boto3's client."""
    client: Any = boto3.client("s3", **_reach(ministack))
    S3Objects(client, bucket, "b", encryption=ASKED).put_if_absent("x", b"1")
    assert heads(ministack, bucket)["b/x"] == ("aws:kms", "alias/lake")


def _reach(server: Ministack) -> dict[str, Any]:
    options = server.storage_options()
    return {
        "endpoint_url": server.endpoint_url,
        "region_name": "us-east-1",
        "aws_access_key_id": options["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": options["AWS_SECRET_ACCESS_KEY"],
    }


def test_an_iceberg_table_says_that_it_does_not_follow(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    with caplog.at_level(logging.WARNING):
        sw.open("db.t", catalog=catalog, create=True, storage_options=KMS)
    assert "AWS_SSE_KMS_KEY_ID" in caplog.text
