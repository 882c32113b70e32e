"""Single protections of the commit, each tested where it is: what the mutants are killed by."""

from __future__ import annotations

import copy
import hashlib
import io
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

import safewrite as sw
from safewrite.errors import (
    ForeignWriterError,
    Kind,
    ReplayMismatchError,
    RetriesExhaustedError,
    StorageError,
    UnsafeConfigError,
)
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.claim import LOG, commit_path
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import (
    PROVED,
    Busy,
    Effect,
    Exists,
    LedgerCommit,
    Missing,
    Ok,
    Outcome,
    Put,
    PutIfAbsent,
    Unknown,
)
from safewrite.protocol.values import Entry
from safewrite.stores.aws import ServerClock, classify_error
from safewrite.stores.dynamodb import DynamoDBLocks
from safewrite.stores.probe import probe_locks
from safewrite.stores.s3 import S3Objects
from safewrite.stores.world import Performer, run
from safewrite.testing.explorer.immutable import Store
from safewrite.testing.explorer.rows import FIRST, body_of, safewrite

OTHER = body_of("other", "other")
TABLE = Store(((commit_path(0), FIRST),))


def _refused(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Put")


# --- the stores' own conditions ---------------------------------------------------------------------
class LateDynamoDB:
    """A DynamoDB whose plain reads show the table as it was at the beginning."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], dict[str, Any]] = {}
        self.stale = copy.deepcopy(self.items)

    def put_item(self, *, Item: dict[str, Any], ConditionExpression: str = "", **_: Any) -> None:  # noqa: N803
        key = (Item["tablePath"]["S"], Item["fileName"]["S"])
        if key in self.items and ConditionExpression == "attribute_not_exists(fileName)":
            raise _refused("ConditionalCheckFailedException", 400)
        self.items[key] = Item

    def get_item(self, *, Key: dict[str, Any], ConsistentRead: bool = False, **_: Any) -> dict[str, Any]:  # noqa: N803
        items = self.items if ConsistentRead else self.stale
        found = items.get((Key["tablePath"]["S"], Key["fileName"]["S"]))
        return {"Item": found} if found else {}

    def query(self, *, ConsistentRead: bool = False, **_: Any) -> dict[str, Any]:  # noqa: N803
        items = self.items if ConsistentRead else self.stale
        return {"Items": [items[max(items)]]} if items else {}


def _entry(version: int, temp: str) -> Entry:
    return Entry(f"{version:020d}.json", temp)


@pytest.fixture
def locks() -> DynamoDBLocks:
    return DynamoDBLocks(LateDynamoDB(), "locks", "s3a://lake/orders")


def test_a_second_claim_of_a_version_is_refused(locks: DynamoDBLocks) -> None:  # A13
    assert locks.put_entry_if_absent(_entry(1, "mine")) == Ok()
    assert locks.put_entry_if_absent(_entry(1, "other")) == Exists()
    held = locks.get_entry("00000000000000000001.json")
    assert isinstance(held, Ok)
    assert held.value == _entry(1, "mine")


def test_the_newest_entry_is_never_a_stale_one(locks: DynamoDBLocks) -> None:  # A3
    locks.put_entry_if_absent(_entry(1, "mine"))
    assert locks.newest() == Ok(_entry(1, "mine"))


def test_who_holds_a_version_is_never_a_stale_answer(locks: DynamoDBLocks) -> None:  # A3
    locks.put_entry_if_absent(_entry(1, "mine"))
    assert locks.get_entry("00000000000000000001.json") == Ok(_entry(1, "mine"))


class HonestS3:
    """A bucket that keeps the condition of a put, if there is one."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put_object(self, *, Key: str, Body: bytes, IfNoneMatch: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        if IfNoneMatch == "*" and Key in self.blobs:
            raise _refused("PreconditionFailed", 412)
        self.blobs[Key] = Body
        return {"ResponseMetadata": {"HTTPHeaders": {}}}

    def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        return {"Body": io.BytesIO(self.blobs[Key])}


def test_a_second_create_of_a_commit_file_is_refused() -> None:  # A1
    objects = S3Objects(HonestS3(), "lake", "orders")
    assert objects.put_if_absent(commit_path(1), b"mine") == Ok()
    assert objects.put_if_absent(commit_path(1), b"other") == Exists()
    assert objects.get(commit_path(1)) == Ok(b"mine")


class DamagingS3(HonestS3):
    """A bucket that loses the end of a body on its way, and tells by its ETag what it holds."""

    def __init__(self, *, damaged: str) -> None:
        super().__init__()
        self.damaged = damaged

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.blobs[Key] = Body[:-1] if self.damaged == "upload" else Body
        return {"ResponseMetadata": {"HTTPHeaders": {}}, "ETag": f'"{_md5(self.blobs[Key])}"'}

    def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        body = self.blobs[Key]
        sent = body[:-1] if self.damaged == "download" else body
        return {"Body": io.BytesIO(sent), "ETag": f'"{_md5(body)}"'}


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def test_a_damaged_upload_is_not_believed() -> None:  # G5
    objects = S3Objects(DamagingS3(damaged="upload"), "lake", "orders")
    assert objects.put("data.parquet", b"rows") == Busy("data.parquet was damaged")
    assert objects.put_if_absent(commit_path(1), b"mine") == Unknown(
        f"{commit_path(1)} was damaged on its way"
    )


def test_a_damaged_download_is_not_believed() -> None:  # A19, G5
    objects = S3Objects(DamagingS3(damaged="download"), "lake", "orders")
    assert objects.put(commit_path(1), b"mine") == Ok(PROVED)
    assert isinstance(objects.get(commit_path(1)), Unknown)


@pytest.mark.parametrize(
    "shown",
    [{}, {"ETag": '"0-2"'}, {"ETag": f'"{_md5(b"rows")}"', "ServerSideEncryption": "aws:kms"}],
    ids=["no tag", "of parts", "encrypted"],
)
def test_an_upload_proves_its_bytes_by_their_md5_only(shown: dict[str, str]) -> None:  # G5
    class Showing(HonestS3):
        def put_object(self, **given: Any) -> dict[str, Any]:
            return {**super().put_object(**given), **shown}

    assert S3Objects(Showing(), "lake", "orders").put("data.parquet", b"rows") == Ok()
    assert S3Objects(DamagingS3(damaged=""), "lake", "orders").put("data.parquet", b"rows") == Ok(PROVED)


class Paged:
    """Answers a query or a listing in pages of one item each."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def query(self, *, ExclusiveStartKey: int = 0, **_: Any) -> dict[str, Any]:  # noqa: N803
        at = ExclusiveStartKey
        item = {"fileName": {"S": self.names[at]}, "tempPath": {"S": "temp"}}
        return {"Items": [item], **({"LastEvaluatedKey": at + 1} if at + 1 < len(self.names) else {})}

    def list_objects_v2(self, *, ContinuationToken: str = "0", **_: Any) -> dict[str, Any]:  # noqa: N803
        at = int(ContinuationToken)
        item = {"Key": f"orders/{self.names[at]}", "Size": 1, "LastModified": datetime.now(UTC), "ETag": "x"}
        return {
            "Contents": [item],
            "IsTruncated": at + 1 < len(self.names),
            "NextContinuationToken": str(at + 1),
        }


def test_every_page_of_the_lock_tables_query_is_read() -> None:
    names = [f"{version:020d}.json" for version in range(3)]
    locks = DynamoDBLocks(Paged(*names), "locks", "s3a://lake/orders")
    assert [entry.file_name for entry in locks.entries()] == names


def test_every_page_of_a_listing_is_read() -> None:
    names = [commit_path(version) for version in range(3)]
    listed = S3Objects(Paged(*names), "lake", "orders").list(LOG, "", 0)
    assert isinstance(listed, Ok)
    assert isinstance(listed.value, tuple)
    assert [one.path for one in listed.value] == names


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_409_means_ask_again(code: str) -> None:  # A18
    assert isinstance(classify_error(_refused(code, 409), write=True), Busy)
    assert classify_error(_refused("PreconditionFailed", 412), write=True) == Exists()


def test_a_refused_read_does_not_mean_that_nothing_is_there() -> None:  # G10
    assert isinstance(classify_error(_refused("AccessDenied", 403), write=False), Unknown)
    assert classify_error(_refused("NoSuchKey", 404), write=False) == Missing()


def test_a_wrong_clock_is_put_right_by_the_server() -> None:  # A10
    clock = ServerClock(lambda: 0)
    clock.observe({"date": "Fri, 02 Jan 1970 00:00:00 GMT"})
    assert clock() == 86_400_000


def test_a_lock_table_that_ignores_conditions_is_refused() -> None:  # A14
    class Careless(LateDynamoDB):
        def put_item(self, *, ConditionExpression: str, **given: Any) -> None:  # noqa: N803
            super().put_item(**given)

    world, _ = TABLE.world()
    for client, liar in ((LateDynamoDB(), False), (Careless(), True)):
        with pytest.raises(UnsafeConfigError) if liar else nullcontext():
            probe_locks(DynamoDBLocks(client, "locks", "s3a://lake/probe"), world, Limits())


# --- the steps of a commit --------------------------------------------------------------------------
class Meddler:
    """A world in which something happens around every effect."""

    def __init__(self, world: Performer, meddle: Callable[[Effect, Performer], Outcome | None]) -> None:
        self.world = world
        self.meddle = meddle

    def perform(self, effect: Effect) -> Outcome:
        parts = getattr(effect, "effects", None)
        if parts is not None:
            return Ok(tuple(self.perform(part) for part in parts))
        return self.meddle(effect, self.world) or self.world.perform(effect)


def _append(world: Performer, arbiter: Arbiter) -> int:
    return run(safewrite("mine", "mine", arbiter, exists=True, again=False), world)


@pytest.mark.parametrize("replacement", [OTHER, body_of("mine", "mine")[:9]])
def test_a_commit_that_was_replaced_before_its_ack_is_not_acked(replacement: bytes) -> None:  # A1, A19
    def replace(effect: Effect, world: Performer) -> Outcome | None:
        if not isinstance(effect, PutIfAbsent):
            return None
        world.perform(effect)
        return world.perform(Put(effect.path, replacement))

    world, _ = TABLE.world()
    with pytest.raises(ForeignWriterError):
        _append(Meddler(world, replace), Arbiter(lock_table=False))


def test_an_entry_without_temp_file_and_commit_is_reported() -> None:  # A7
    world, _ = TABLE._replace(entries=(_entry(1, ".tmp/gone"),)).world()
    with pytest.raises(StorageError) as told:
        _append(world, Arbiter(lock_table=True))
    assert told.value.kind is Kind.CORRUPT_LOG


def test_an_entry_without_temp_file_is_closed_if_its_commit_stands() -> None:  # A7
    moved = Store(((commit_path(0), FIRST), (commit_path(1), OTHER)), entries=(_entry(1, ".tmp/moved"),))
    world, taken = moved.world()
    assert _append(world, Arbiter(lock_table=True)) == 2
    assert all(entry.complete for entry in taken().entries)


def test_giving_up_is_an_error() -> None:  # C8
    def take_every_version(effect: Effect, world: Performer) -> Outcome | None:
        if isinstance(effect, PutIfAbsent):
            world.perform(Put(effect.path, OTHER))
        return None

    world, taken = TABLE.world()
    with pytest.raises(RetriesExhaustedError):
        _append(Meddler(world, take_every_version), Arbiter(lock_table=False))
    assert body_of("mine", "mine") not in taken().log().values()


# --- a whole append on a local table ----------------------------------------------------------------
ROWS = pa.table({"x": pa.array([1, 2, 3], pa.int64())})


def _local(tmp_path: Path, meddle: Callable[[Effect, Performer], Outcome | None]) -> sw.Table:
    table = sw.open(str(tmp_path / "orders"), create=True)
    table.append(ROWS.slice(0, 1), key="first")
    table.world = Meddler(table.world, meddle)
    return table


def test_a_retry_finds_its_rows_although_the_ledger_never_heard_of_the_commit(tmp_path: Path) -> None:  # E2
    def forget(effect: Effect, world: Performer) -> Outcome | None:
        return Unknown("cut") if isinstance(effect, LedgerCommit) else None

    first = _local(tmp_path, forget).append(ROWS, key="event")
    again = sw.open(str(tmp_path / "orders")).append(ROWS, key="event")
    assert (again.outcome.value, again.version) == ("already_committed", first.version)
    assert len(list((tmp_path / "orders" / LOG).glob("*.json"))) == 2


@pytest.mark.sweep("append_many")
@pytest.mark.parametrize("way", ["append", "append_many"])
def test_a_retry_finds_its_rows_while_another_writer_fills_the_ledger_with_older_keys(
    tmp_path: Path, way: str
) -> None:  # E2
    """The mark says that the keys of later commits are in the ledger; this one's writer died before it put its key there."""

    def forget(effect: Effect, world: Performer) -> Outcome | None:
        return Unknown("cut") if isinstance(effect, LedgerCommit) else None

    table = _local(tmp_path, forget)
    first = table.append(ROWS, key="event")
    filling = LedgerCommit(keys.mark(table.table_id, 0))
    assert isinstance(sw.open(str(tmp_path / "orders")).world.perform(filling), Ok)
    opened = sw.open(str(tmp_path / "orders"))
    if way == "append":
        again = opened.append(ROWS, key="event")
    else:
        [again] = opened.append_many([("event", ROWS)])
    assert (again.outcome.value, again.version) == ("already_committed", first.version)
    assert len(list((tmp_path / "orders" / LOG).glob("*.json"))) == 2


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_data_file_that_was_removed_before_the_commit_is_noticed(
    tmp_path: Path, damage: str
) -> None:  # B1, G5
    def vacuum(effect: Effect, world: Performer) -> Outcome | None:
        if not isinstance(effect, Put) or not effect.path.endswith(".parquet"):
            return None
        done = world.perform(effect)
        path = tmp_path / "orders" / effect.path
        path.unlink() if damage == "removed" else path.write_bytes(effect.body[: len(effect.body) // 2])
        return done

    table = _local(tmp_path, vacuum)
    with pytest.raises(StorageError) as told:
        table.append(ROWS, key="event")
    assert told.value.kind is Kind.DATA_FILE_DAMAGED
    assert sw.open(str(tmp_path / "orders")).version == 0


def test_two_writers_of_one_app_id_are_told(tmp_path: Path) -> None:  # E3, E7
    def rival(effect: Effect, world: Performer) -> Outcome | None:
        if isinstance(effect, PutIfAbsent) and effect.path == commit_path(1):
            sw.open(str(tmp_path / "orders")).append(ROWS, txn=("stream", 8))
        return None

    table = _local(tmp_path, rival)
    with pytest.raises(ReplayMismatchError, match="two writers use one app id"):
        table.append(ROWS.slice(1), txn=("stream", 7))
    assert sw.open(str(tmp_path / "orders")).version == 1


def test_fingerprints_of_two_kinds_are_told_apart() -> None:  # E2
    """They are never equal as texts either: what would be lost is the advice that fits."""
    rows, digest = "v1:1:" + "0" * 32, "spark1:1:" + "0" * 32
    with pytest.raises(ReplayMismatchError, match="another kind of fingerprint"):
        keys.must_match("event", rows, digest, 1)
    keys.must_match("event", rows, rows, 1)
