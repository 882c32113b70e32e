"""What opening a table finds out: spellings of its path in the lock table, remembered states."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.protocol.effects import Effect, Outcome, PutEntryIfAbsent
from safewrite.protocol.values import Entry

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


def test_what_a_table_records_is_told_before_a_lock_table_elsewhere_is_proposed_or_made(
    bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    """T4-D4: in another region, or under another name, a lock table that is not there would be a stray one if it were made."""
    uri, elsewhere = f"s3://{bucket}/t", {**options, "AWS_REGION": "ap-south-1"}
    sw.open(uri, create=True, lock_table=dynamodb_table, storage_options=options).append(ROWS, key="a")
    slips: tuple[dict[str, Any], ...] = (
        {"storage_options": elsewhere},
        {"storage_options": elsewhere, "create": True},
        {"storage_options": elsewhere, "lock_table": dynamodb_table, "create": True},
        {"storage_options": options, "lock_table": "safewrite-slip", "create": True},
    )
    for how in slips:
        with pytest.raises(
            sw.StorageError, match=f"^The table at {uri} records that the lock table"
        ) as caught:
            sw.open(uri, **how)
        assert caught.value.kind == "lock_table_unusable"
        assert "locks create" not in str(caught.value)
        assert "object-store" not in str(caught.value)
    assert sw.open(uri, storage_options=options).append(ROWS, key="a").outcome == "already_committed"


@pytest.mark.long
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


class Claims:
    """Performs on another world and keeps the claims that were asked for."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.seen: list[Entry] = []

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, PutEntryIfAbsent):
            self.seen.append(effect.entry)
        return self.world.perform(effect)


def test_claims_are_sealed_once_a_writer_was_met_that_knows_no_lock_table(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    """A12: else Spark's repair of our claim could double our rows over the other's commit."""
    import deltalake
    import pyarrow as pa

    uri = f"s3://{bucket}/t"
    table = sw.open(uri, create=True, lock_table=dynamodb_table, storage_options=options)
    claims = Claims(table.world)
    table.world = claims
    table.append(ROWS)
    table.append(ROWS)
    assert not any(entry.complete for entry in claims.seen)
    deltalake.write_deltalake(uri, pa.table({"id": [2]}), mode="append", storage_options=options)
    table.append(ROWS)
    table.append(ROWS)
    assert [entry.complete for entry in claims.seen][-1]
    again = sw.open(uri, lock_table=dynamodb_table, storage_options=options)
    assert all(entry.settled for entry in again._format.connection.world.locks.entries())


@pytest.mark.long
def test_a_sealed_claim_that_its_writer_left_is_finished_by_the_next(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    uri = f"s3://{bucket}/t"
    table = sw.open(uri, create=True, lock_table=dynamodb_table, storage_options=options)
    table.append(ROWS)
    table._format._mixed = True

    class Left(BaseException):
        pass

    class Leaving(Claims):
        def perform(self, effect: Effect) -> Outcome:
            outcome = super().perform(effect)
            if isinstance(effect, PutEntryIfAbsent):
                raise Left
            return outcome

    table.world = Leaving(table.world)
    with pytest.raises(Left):
        table.append(ROWS, key="left")
    other = sw.open(uri, lock_table=dynamodb_table, storage_options=options)
    with pytest.raises(sw.CommitUnknownError):
        other.resolve("left")
    assert other.append(ROWS).version == 2
    found = other.resolve("left")
    assert found is not None
    assert found.version == 1


def test_an_entry_left_open_after_its_copy_is_closed_by_who_opens_next(
    ministack: Ministack, bucket: str, dynamodb_table: str, options: dict[str, str]
) -> None:
    """A6: it would never expire."""
    uri = f"s3://{bucket}/t"
    table = sw.open(uri, create=True, lock_table=dynamodb_table, storage_options=options)
    table.append(ROWS)
    ministack.boto3_client("dynamodb").update_item(
        TableName=dynamodb_table,
        Key={"tablePath": {"S": f"s3a://{bucket}/t"}, "fileName": {"S": f"{0:020d}.json"}},
        UpdateExpression="SET complete = :false REMOVE expireTime",
        ExpressionAttributeValues={":false": {"S": "false"}},
    )
    again = sw.open(uri, lock_table=dynamodb_table, storage_options=options)
    assert again._format.connection.world.locks.entries()[0].settled
