"""A writer whose last look is older than what the table still knows: the states in between are read back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import safewrite as sw
from safewrite.errors import ReplayMismatchError
from safewrite.iceberg.table import IcebergTable
from tests.iceberg.tables import Warehouse, warehouse


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Warehouse]:
    with warehouse(tmp_path) as lake:
        yield lake


def opened(lake: Warehouse) -> IcebergTable:
    table = sw.open("db.orders", catalog=lake.catalog, create=True)
    assert isinstance(table, IcebergTable)
    return table


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.mark.long
def test_a_writer_goes_on_after_rivals_have_expired_the_snapshot_it_knew(lake: Warehouse) -> None:
    late, rival = opened(lake), opened(lake)
    late.append(rows(1))
    late._format._cached.seen_s = float("inf")  # it is not to look again before it tries
    rival.append(rows(2))
    rival.append(rows(3))
    rival.refresh().iceberg.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    receipt = late.append(rows(4), key="four")
    assert receipt.attempts == 2
    assert sorted(late.iceberg.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


class CrashError(BaseException):
    """Stands for the end of a process."""


def crash_before(table: IcebergTable, step: str) -> None:
    perform = table.world.perform

    def crashing(effect: Any) -> Any:
        if effect.name == step:
            raise CrashError
        return perform(effect)

    table.world.perform = crashing  # type: ignore[method-assign]


def lost_and_expired(lake: Warehouse) -> IcebergTable:
    """A table with a write whose caller died before anyone noted that it landed, and whose snapshot is gone."""
    table = opened(lake)
    table.append(rows(0))
    dying = opened(lake)
    crash_before(dying, "ledger.commit")
    with pytest.raises(CrashError):
        dying.append(rows(1), key="one")
    table.refresh().append(rows(2))
    table.refresh().iceberg.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    return opened(lake)


def test_a_repeat_finds_its_commit_in_the_metadata_before_the_expiry(lake: Warehouse) -> None:  # E2
    table = lost_and_expired(lake)
    found = table.resolve("one")
    assert found is not None
    for _ in range(2):  # by the old metadata, then by the ledger
        receipt = table.append(rows(1), key="one")
        assert (receipt.outcome, receipt.version) == (sw.Outcome.ALREADY_COMMITTED, found.version)
    assert sorted(table.refresh().iceberg.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_other_rows_under_the_key_of_an_expired_commit_are_refused(lake: Warehouse) -> None:
    table = lost_and_expired(lake)
    with pytest.raises(ReplayMismatchError):
        table.append(rows(7), key="one")


@pytest.mark.parametrize("others", [0, 3])
def test_keys_of_snapshots_that_a_table_lost_are_written_again(lake: Warehouse, others: int) -> None:
    """Its catalog was restored, or older metadata registered: the ledger knew keys of snapshots that the table never had, and answered for them (E9)."""
    table = opened(lake)
    table.append(rows(0), key="kept")
    before = lake.catalog.load_table("db.orders").metadata_location
    table.append(rows(1), key="alone")
    table.append_many([("a", rows(2)), ("b", rows(3))])
    with lake.catalog.engine.begin() as connection:
        connection.execute(sa.text("UPDATE iceberg_tables SET metadata_location = :at"), {"at": before})
    for number in range(others):
        opened(lake).append(rows(10 + number))
    again = opened(lake)
    assert again.resolve("alone") is None
    assert again.append(rows(0), key="kept").outcome == "already_committed"
    assert again.append(rows(1), key="alone").outcome == "committed"
    receipts = again.append_many([("a", rows(2)), ("c", rows(4))])
    assert [one.outcome for one in receipts] == ["committed", "committed"]
    assert again.append(rows(1), key="alone").outcome == "already_committed"
    told = sorted(again.refresh().rows(where="id < 10")["id"].to_pylist())
    assert told == [0, 1, 2, 4]


def test_a_key_stays_used_whose_snapshot_expired(lake: Warehouse) -> None:
    table = opened(lake)
    table.append(rows(1), key="alone")
    for number in range(2, 4):
        table.append(rows(number))
    table.refresh().iceberg.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    assert opened(lake).append(rows(1), key="alone").outcome == "already_committed"
