"""What opening a table finds out: spellings of its path in the lock table, remembered states."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.servers import Ministack

ROWS = [{"id": 1}]


def put_entry(dynamodb: Any, lock_table: str, table_path: str, version: int) -> None:
    """An entry as deltalake before 1.6 leaves it: the path is spelled as its user spelled it."""
    item = {
        "tablePath": {"S": table_path},
        "fileName": {"S": f"{version:020d}.json"},
        "tempPath": {"S": "_commit_x.json.tmp"},
        "complete": {"S": "true"},
    }
    dynamodb.put_item(TableName=lock_table, Item=item)


def paths_of(dynamodb: Any, lock_table: str) -> set[str]:
    """Under which paths versions are claimed."""
    items = dynamodb.scan(TableName=lock_table)["Items"]
    return {path for item in items if not (path := item["tablePath"]["S"]).startswith("safewrite:")}


@pytest.fixture
def options(ministack: Ministack) -> dict[str, str]:
    return ministack.storage_options()


def test_a_new_table_is_claimed_under_the_spelling_of_spark(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    table = sw.open(f"s3://{bucket}//t/", create=True, lock_table=dynamodb_table, storage_options=options)
    table.append(ROWS)
    assert paths_of(ministack.boto3_client("dynamodb"), dynamodb_table) == {f"s3a://{bucket}/t"}


def test_versions_are_claimed_where_an_old_deltalake_claims_them(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    """A15: entries of ``s3://`` are another lock domain, and its writers overwrite commits of ours."""
    import deltalake
    import pyarrow as pa

    uri, dynamodb = f"s3://{bucket}/t", ministack.boto3_client("dynamodb")
    deltalake.write_deltalake(uri, pa.table({"id": [0]}), storage_options=options)
    put_entry(dynamodb, dynamodb_table, uri, 0)
    for _ in range(2):  # found by looking first, by the table's own record afterwards
        sw.open(uri, lock_table=dynamodb_table, storage_options=options).append(ROWS)
        assert paths_of(dynamodb, dynamodb_table) == {uri}
    assert sw.open(uri, lock_table=dynamodb_table, storage_options=options).version == 2


def test_two_spellings_in_use_are_refused(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    uri = f"s3://{bucket}/t"
    sw.open(uri, create=True, lock_table=dynamodb_table, storage_options=options).append(ROWS)
    put_entry(ministack.boto3_client("dynamodb"), dynamodb_table, uri, 1)
    with pytest.raises(sw.UnsafeConfigError, match="two spellings") as caught:
        sw.open(uri, lock_table=dynamodb_table, storage_options=options)
    assert caught.value.kind is sw.Kind.MIXED_WRITERS


def test_a_remembered_state_is_void_when_another_table_lives_at_the_address(tmp_path: Path) -> None:
    import deltalake
    import pyarrow as pa

    place = tmp_path / "t"
    for _ in range(3):
        sw.open(place, create=True).append(ROWS)
    shutil.rmtree(place)
    for _ in range(5):  # by a writer that this process learns nothing from
        deltalake.write_deltalake(place, pa.table({"name": ["other schema"]}), mode="append")
    reopened = sw.open(place)
    assert reopened.schema.names == ["name"]
    assert reopened.version == 4


def test_a_remembered_state_is_void_when_the_address_holds_nothing_any_more(tmp_path: Path) -> None:
    place = tmp_path / "t"
    sw.open(place, create=True).append(ROWS)
    shutil.rmtree(place)
    with pytest.raises(sw.TableNotFoundError):
        sw.open(place)
