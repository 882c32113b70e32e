"""A writer whose last look is older than what the table still knows: the states in between are read back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import safewrite as sw
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


def test_a_writer_goes_on_after_rivals_have_expired_the_snapshot_it_knew(lake: Warehouse) -> None:
    late, rival = opened(lake), opened(lake)
    late.append(rows(1))
    late._known_s = float("inf")  # it is not to look again before it tries
    rival.append(rows(2))
    rival.append(rows(3))
    rival.refresh().iceberg.maintenance.expire_snapshots().older_than(dt.datetime.now(dt.UTC)).commit()
    receipt = late.append(rows(4), key="four")
    assert receipt.attempts == 2
    assert sorted(late.iceberg.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
