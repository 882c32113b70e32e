"""A catalog in SQLite's memory, which each thread has its own of, carries no ledger and no queue, and still writes once."""

from __future__ import annotations

from pathlib import Path

import safewrite as sw


def test_a_catalog_in_memory_writes_once_by_its_snapshots_alone(tmp_path: Path) -> None:
    catalog = {"type": "in-memory", "warehouse": tmp_path.as_uri()}
    table = sw.open("db.orders", catalog=catalog, create=True)
    first = table.append([{"id": 1}], key="event-1")
    again = table.append([{"id": 1}], key="event-1")
    assert (first.outcome, again.outcome) == ("committed", "already_committed")
    assert again.version == first.version
    assert table.iceberg.scan().to_arrow().to_pylist() == [{"id": 1}]
