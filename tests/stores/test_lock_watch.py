"""A look at a lock table shows unfinished claims and waiting turns, with owner and age where something tells them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.protocol.values import Entry
from safewrite.stores import lock_watch
from safewrite.stores.dynamodb import DynamoDBLocks, DynamoDBQueue
from safewrite.stores.lock_watch import Watcher
from tests.delta.spark import Neighbourhood, neighbourhood, rows


@pytest.fixture
def here(ministack: Ministack) -> Neighbourhood:
    return neighbourhood(ministack)


def test_a_look_at_very_many_claims_reads_a_bounded_number_of_files(
    here: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_watch, "TEMPS_MAX", 2)
    for version in range(4):
        here.spark_entry(version, here.spark_temp(version), complete=False)
    assert [one.age_s is None for one in watcher(here, here.uri).look().claims] == [False, False, True, True]


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def watcher(here: Neighbourhood, *tables: str, older_than_s: float = 60.0, **more: Any) -> Watcher:
    settings = {"s3": here.s3} | more
    return Watcher(here.dynamodb, here.lock_table, tables=tables, older_than_s=older_than_s, **settings)


def path(here: Neighbourhood) -> str:
    return f"s3a://{here.bucket}/lake/orders"


@pytest.mark.parametrize("named", [True, False])
def test_unfinished_claims_are_shown_and_finished_ones_are_not(here: Neighbourhood, named: bool) -> None:
    locks = DynamoDBLocks(here.dynamodb, here.lock_table, path(here))
    here.spark_entry(1, here.spark_temp(1), expireTime="1")
    here.spark_entry(2, here.spark_temp(2))  # of an engine that gives completed entries no expiry
    locks.put_entry_if_absent(Entry(f"{3:020d}.json", here.spark_temp(3), complete=True, expire_time_s=2))
    locks.put_entry_if_absent(
        Entry(f"{4:020d}.json", here.spark_temp(4), complete=True, digest="d")
    )  # sealed
    info = {"engineInfo": "safewrite/1", "safewrite": {"writes": [{"key": "event-5"}]}}
    here.spark_entry(5, here.spark_temp(5, info=info), complete=False)
    look = watcher(here, *([here.uri] if named else ())).look()
    assert [(claim.version, claim.owner, claim.keys) for claim in look.claims] == [
        (4, "Apache-Spark/4.1.4 Delta-Lake/4.4.0", ()),
        (5, "safewrite/1", ("event-5",)),
    ]
    assert {claim.table for claim in look.claims} == {path(here)}
    assert look.whole
    assert look.stuck_entries == 0
    assert all(claim.age_s is not None and claim.age_s < 60 for claim in look.claims)


def test_a_claim_is_stuck_from_the_age_on_that_was_asked_for(here: Neighbourhood) -> None:
    here.spark_entry(1, here.spark_temp(1), complete=False)
    assert watcher(here, older_than_s=3600).look().stuck_entries == 0
    clock = Clock()
    seen = watcher(here, older_than_s=3600, monotonic=clock)
    seen.look()
    clock.now_s += 3599
    assert seen.look().stuck_entries == 0
    clock.now_s += 1
    (claim,) = seen.look().claims
    assert (claim.age_s, claim.stuck) == (3600.0, True)


def test_a_claim_whose_temp_file_is_gone_is_stuck_unless_it_was_finished_meanwhile(
    here: Neighbourhood,
) -> None:
    here.spark_entry(1, ".tmp/gone", complete=False)
    look = watcher(here).look()
    assert [(claim.age_s, claim.stuck) for claim in look.claims] == [(None, True)]

    class Finishing:
        """An S3 whose temp file goes at the moment of the look, after its claim was finished."""

        def get_object(self, **_: Any) -> Any:
            here.spark_entry(1, ".tmp/gone")
            return here.s3.get_object(Bucket=here.bucket, Key="none")

    assert watcher(here, s3=Finishing()).look().claims == ()


def test_without_rights_on_the_bucket_only_watching_tells_the_age(here: Neighbourhood) -> None:
    class Denied:
        def get_object(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetObject")

    here.spark_entry(1, ".tmp/x", complete=False)
    clock = Clock()
    seen = watcher(here, s3=Denied(), monotonic=clock)
    assert [(one.age_s, one.owner, one.stuck) for one in seen.look().claims] == [(None, None, False)]
    clock.now_s += 60
    assert [(one.age_s, one.stuck) for one in seen.look().claims] == [(60.0, True)]
    here.spark_entry(1, ".tmp/y", complete=False)  # another claim of the same version is a new one
    assert [(one.age_s, one.stuck) for one in seen.look().claims] == [(None, False)]


@pytest.mark.parametrize("iceberg", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_turn_that_does_not_move_is_stuck_at_a_later_look(
    here: Neighbourhood, iceberg: bool, named: bool
) -> None:
    table = "iceberg:6c5f" if iceberg else here.uri
    queue = DynamoDBQueue(here.dynamodb, here.lock_table, table if iceberg else path(here))
    for _ in range(3):
        queue.take()
    clock = Clock()
    seen = watcher(here, *([table] if named else ()), monotonic=clock)
    assert [(one.serving, one.waiting, one.unmoved_s, one.stuck) for one in seen.look().turns] == [
        (0, 3, None, False)
    ]
    clock.now_s += 60
    assert [(one.unmoved_s, one.stuck) for one in seen.look().turns] == [(60.0, True)]
    queue.pass_turn(0)
    assert [(one.serving, one.waiting, one.stuck) for one in seen.look().turns] == [(1, 2, False)]
    queue.pass_turn(1)
    queue.pass_turn(2)
    assert seen.look().turns == ()


def test_a_look_writes_nothing_and_other_tables_are_not_shown(here: Neighbourhood) -> None:
    here.create().append(rows(1), key="event-1")
    here.spark_entry(9, ".tmp/x", complete=False, path=f"s3a://{here.bucket}/lake/another")
    before = here.dynamodb.scan(TableName=here.lock_table)["Items"]
    assert watcher(here, here.uri).look().claims == ()
    assert len(watcher(here).look().claims) == 1
    assert here.dynamodb.scan(TableName=here.lock_table)["Items"] == before


def test_scratch_entries_of_a_probe_and_odd_items_are_no_claims(here: Neighbourhood) -> None:
    here.spark_entry(1, ".tmp/x", complete=False, path="safewrite:probe:1")
    item = {"tablePath": path(here), "fileName": "_note", "tempPath": "x"}
    here.dynamodb.put_item(TableName=here.lock_table, Item={name: {"S": one} for name, one in item.items()})
    assert watcher(here).look().claims == ()


def test_a_lock_table_that_is_not_there_and_a_local_table_are_errors(
    here: Neighbourhood, tmp_path: Any
) -> None:
    here.lock_table = "nowhere"
    with pytest.raises(sw.StorageError, match="'nowhere' cannot be read"):
        watcher(here).look()
    with pytest.raises(sw.InvalidInputError, match="local path"):
        watcher(here, str(tmp_path))


def test_a_temp_file_whose_answer_was_cut_is_not_taken_for_gone() -> None:
    assert not lock_watch._is_gone(ConnectionClosedError(endpoint_url="http://127.0.0.1:1"))


def test_writes_that_wait_to_share_a_commit_are_shown_of_tables_that_are_named(here: Neighbourhood) -> None:
    queue = "lake/orders/_safewrite/queue"
    for member in ("00000000000000000000-00000000000000000016-key-a", "other"):
        here.s3.put_object(Bucket=here.bucket, Key=f"{queue}/{member}", Body=b"{}")
    (seen,) = watcher(here, here.uri).look().shared
    assert (seen.table, seen.waiting, seen.stuck, 0 <= seen.age_s < 60) == (here.uri, 1, False, True)
    assert watcher(here, here.uri, older_than_s=0.0).look().stuck_shared == 1
    assert watcher(here).look().shared == ()
