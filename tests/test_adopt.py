"""A table that was copied elsewhere: refused until it is adopted, and then guarded by one arbiter alone (A12)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.servers import Ministack, create_lock_table
from safewrite.delta.connect import connect
from safewrite.delta.maintenance import adopt as adopting
from safewrite.delta.maintenance.adopt import adopt
from safewrite.protocol.effects import Unknown
from safewrite.stores import mounts
from tests.delta.spark import Neighbourhood, neighbourhood
from tests.test_cli import run_json

MANY = 700
"""Members enough for a list in a file of its own."""


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": numbers})


@pytest.fixture
def s3(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Neighbourhood:
    """An empty place on S3, reached by the settings of the environment."""
    for name, value in ministack.storage_options().items():
        monkeypatch.setenv(name, value)
    return neighbourhood(ministack)


def upload(folder: Path, place: Neighbourhood) -> None:
    """Copy a folder to S3 as `aws s3 sync` does."""
    for path in folder.rglob("*"):
        if path.is_file():
            place.put(str(path.relative_to(folder)), path.read_bytes())


def download(place: Neighbourhood, folder: Path) -> Path:
    start = f"{place.uri.removeprefix(f's3://{place.bucket}/')}/"
    for item in place.s3.list_objects_v2(Bucket=place.bucket, Prefix=start)["Contents"]:
        path = folder / item["Key"].removeprefix(start)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(place.s3.get_object(Bucket=place.bucket, Key=item["Key"])["Body"].read())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A local table with rows under a key, under a batch and of a long group."""
    table = sw.open(tmp_path / "orders", create=True)
    table.append(ids(1), key="event-1")
    table.append(ids(2), txn=("stream", 7))
    table.append(ids(3))
    table.append_many([(f"member-{number}", ids(number)) for number in range(10, 10 + MANY)])
    return tmp_path / "orders"


ARBITERS: dict[str, Callable[[Neighbourhood], list[str]]] = {
    "dynamodb": lambda place: ["--lock-table", place.lock_table],
    "object-store": lambda place: ["--arbiter", "object-store"],
}


# --- from a folder to S3 ----------------------------------------------------------------------------------
@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", ARBITERS)
def test_a_local_table_on_s3_is_refused_until_the_cure_that_the_error_names(
    folder: Path, s3: Neighbourhood, arbiter: str
) -> None:
    upload(folder, s3)
    options = ARBITERS[arbiter](s3)
    settings = {"lock_table": s3.lock_table} if arbiter == "dynamodb" else {"arbiter": "object-store"}
    for given in ({}, settings):
        with pytest.raises(sw.UnsafeConfigError, match="safewrite adopt s3://") as caught:
            sw.open(s3.uri, **given)
        assert caught.value.kind is sw.Kind.ARBITER_MISMATCH
    code, answer = run_json("adopt", s3.uri, *options)
    assert (code, [step["status"] for step in answer["steps"]]) == (0, ["done", "done"])
    table = sw.open(s3.uri)
    assert (table.arbiter, table.properties["safewrite.arbiter"]) == (arbiter, arbiter)
    assert run_json("adopt", s3.uri, *options)[1]["steps"] == []
    assert sw.open(folder).append(ids(4)).version == 4, "the original goes on by itself"


@pytest.mark.long
def test_keys_that_the_copy_has_are_still_known(folder: Path, s3: Neighbourhood) -> None:
    upload(folder, s3)
    run_json("adopt", s3.uri, "--lock-table", s3.lock_table)
    table = sw.open(s3.uri)
    receipts = [
        table.append(ids(1), key="event-1"),
        table.append(ids(2), txn=("stream", 7)),
        table.append(ids(10), key="member-10"),
        *table.append_many([(f"member-{number}", ids(number)) for number in (11, 12)]),
    ]
    assert {str(receipt.outcome) for receipt in receipts} == {"already_committed"}
    assert len(s3.ids()) == 3 + MANY
    with pytest.raises(sw.ReplayMismatchError):
        table.append(ids(99), key="event-1")


def test_without_the_keys_the_first_write_puts_them_there(
    folder: Path, s3: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger does not come along with the folder: it has no mark, so the log decides (T4-A3)."""

    def forget(state: Any, limits: Any) -> Any:
        yield from ()
        return 0

    monkeypatch.setattr(adopting, "_record_keys", forget)
    upload(folder, s3)
    run_json("adopt", s3.uri, "--lock-table", s3.lock_table)
    assert str(sw.open(s3.uri).append(ids(1), key="event-1").outcome) == "already_committed"


def test_a_dry_run_changes_nothing(folder: Path, s3: Neighbourhood) -> None:
    upload(folder, s3)
    code, answer = run_json("adopt", s3.uri, "--lock-table", s3.lock_table, "--dry-run")
    assert (code, [step["status"] for step in answer["steps"]]) == (0, ["would", "would"])
    with pytest.raises(sw.UnsafeConfigError):
        sw.open(s3.uri)


@pytest.mark.long
def test_of_two_arbiters_that_adopt_at_once_one_gets_the_table(folder: Path, s3: Neighbourhood) -> None:
    """The second one records the other arbiter in the middle of the first one's adoption."""
    upload(folder, s3)
    first = adopt(connected(s3, lock_table=s3.lock_table), engine_version="1")
    next(first)  # the keys are recorded, and the state was read
    second = list(adopt(connected(s3, arbiter="object-store"), engine_version="1"))
    assert [step.status for step in second] == ["done", "done"]
    with pytest.raises(sw.UnsafeConfigError, match="Two arbiters") as caught:
        list(first)
    assert caught.value.kind is sw.Kind.ARBITER_MISMATCH
    assert sw.open(s3.uri).arbiter == "object-store"
    for given in ({"lock_table": s3.lock_table}, {"lock_table": create_other(s3)}):
        with pytest.raises(sw.UnsafeConfigError):
            list(adopt(connected(s3, **given), engine_version="1"))


def test_a_lock_table_that_guards_a_table_is_not_exchanged_for_another(s3: Neighbourhood) -> None:
    s3.create().append(ids(1))
    code, answer = run_json("adopt", s3.uri, "--lock-table", create_other(s3))
    assert (code, answer["error"]["kind"]) == (2, "arbiter_mismatch")
    code, answer = run_json("adopt", s3.uri, "--arbiter", "object-store")
    assert (code, answer["error"]["kind"]) == (2, "arbiter_mismatch")


def test_a_table_with_the_traces_of_a_lock_table_is_not_adopted_without_one(
    folder: Path, s3: Neighbourhood
) -> None:
    upload(folder, s3)
    s3.spark_temp(9)
    code, answer = run_json("adopt", s3.uri, "--arbiter", "object-store")
    assert (code, answer["error"]["kind"]) == (2, "arbiter_mismatch")


@pytest.mark.long
def test_an_adoption_that_could_not_record_a_key_does_not_record_the_arbiter(
    folder: Path, s3: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(folder, s3)
    connection = connected(s3, lock_table=s3.lock_table)
    lost = Unknown("no answer")
    monkeypatch.setattr(connection.world.ledger, "commit", lambda *_: lost)
    monkeypatch.setattr(connection.world.ledger, "commit_many", lambda records, _: (lost,) * len(records))
    monkeypatch.setattr(connection.world, "sleep", lambda _: None)
    with pytest.raises(sw.StorageError):
        list(adopt(connection, engine_version="1"))
    with pytest.raises(sw.UnsafeConfigError):
        sw.open(s3.uri)
    assert run_json("adopt", s3.uri, "--lock-table", s3.lock_table)[0] == 0


@pytest.mark.parametrize("words", [(), ("--arbiter", "local"), ("--catalog", "prod")])
def test_an_adoption_that_names_no_arbiter_is_wrong_usage(s3: Neighbourhood, words: tuple[str, ...]) -> None:
    code, answer = run_json("adopt", s3.uri, *words)
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")


def test_a_table_that_is_not_there_cannot_be_adopted(s3: Neighbourhood, tmp_path: Path) -> None:
    assert run_json("adopt", s3.uri, "--arbiter", "object-store")[1]["error"]["kind"] == "table_not_found"
    assert run_json("adopt", tmp_path / "nothing")[1]["error"]["kind"] == "table_not_found"


# --- from S3 to a folder ----------------------------------------------------------------------------------
@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", ARBITERS)
def test_a_copy_on_a_local_disk_is_refused_until_it_is_adopted(
    s3: Neighbourhood, tmp_path: Path, arbiter: str
) -> None:
    table = s3.create() if arbiter == "dynamodb" else sw.create(s3.uri, ids(1).schema, arbiter="object-store")
    table.append(ids(1), key="event-1")
    copy = download(s3, tmp_path / "copy")
    with pytest.raises(sw.UnsafeConfigError, match=f"safewrite adopt {copy}"):
        sw.open(copy)
    assert run_json("adopt", copy)[0] == 0
    adopted = sw.open(copy)
    assert {name: value for name, value in adopted.properties.items() if name.startswith("safewrite.")} == {
        "safewrite.arbiter": "local"
    }
    assert str(adopted.append(ids(1), key="event-1").outcome) == "already_committed"
    adopted.append(ids(2), key="event-2")
    assert s3.ids() == [1]
    assert table.append(ids(3)).version == 2, "the original goes on by itself"


@pytest.mark.sweep("lustre", "nfs4")
@pytest.mark.parametrize("kind", ["fuse.mount-s3", "nfs4", "lustre", None])
def test_a_folder_that_may_be_the_bucket_itself_is_not_adopted(
    s3: Neighbourhood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    s3.create().append(ids(1))
    copy = download(s3, tmp_path / "copy")
    monkeypatch.setattr(adopting, "file_system", lambda folder: kind)
    code, answer = run_json("adopt", copy)
    assert (code, answer["error"]["kind"]) == (2, "arbiter_mismatch")
    assert "Copy the table to a local disk" in answer["error"]["message"]
    assert len(list((copy / "_delta_log").glob("*.json"))) == 2


def test_a_local_table_that_moves_with_its_folder_needs_no_adoption(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "moved")
    assert str(sw.open(tmp_path / "moved").append(ids(1), key="event-1").outcome) == "already_committed"
    assert run_json("adopt", tmp_path / "moved")[1]["steps"] == []


# --- file systems -----------------------------------------------------------------------------------------
MOUNTS = """\
22 27 0:21 / / rw - ext4 /dev/sda1 rw
23 22 0:30 / /mnt/my\\040bucket rw,relatime shared:1 - fuse.mount-s3 mountpoint-s3 rw
24 22 0:31 / /mnt rw - tmpfs none rw
25 22 0:32 / /home/share rw - nfs4 server:/x rw
26 25 0:33 / /home/share/disk rw - fuseblk /dev/sdb1 rw
garbage
"""


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    kinds = {
        "/data": ("ext4", False),
        "/mnt/my bucket/orders": ("fuse.mount-s3", True),
        "/mnt/my": ("tmpfs", False),
        "/home/share/t": ("nfs4", True),
        "/home/share/disk/t": ("fuseblk", False),
        "/home/shared": ("ext4", False),
    }
    for folder, (kind, shared) in kinds.items():
        assert mounts.file_system(Path(folder), table) == kind, folder
        assert mounts.is_shared(kind) is shared
    assert mounts.file_system(tmp_path, tmp_path / "nothing") is None


def connected(place: Neighbourhood, **given: Any) -> Any:
    settings = {"lock_table": None, "arbiter": None, **given}
    return connect(place.uri, storage_options=place.options, boto3_session=None, **settings)


def create_other(place: Neighbourhood) -> str:
    """Another lock table."""
    name = f"{place.lock_table}-other"
    if name not in place.dynamodb.list_tables()["TableNames"]:
        create_lock_table(place.dynamodb, name)
    return name
