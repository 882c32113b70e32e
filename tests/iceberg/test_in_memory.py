"""A catalog in SQLite's memory, which each thread has its own of, carries no ledger and no queue, and still writes once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.protocol.effects import Unknown
from safewrite.testing.steps import Answers


def test_a_catalog_in_memory_writes_once_by_its_snapshots_alone(tmp_path: Path) -> None:
    catalog = {"type": "in-memory", "warehouse": tmp_path.as_uri()}
    table = sw.open("db.orders", catalog=catalog, create=True)
    first = table.append([{"id": 1}], key="event-1")
    again = table.append([{"id": 1}], key="event-1")
    assert (first.outcome, again.outcome) == ("committed", "already_committed")
    assert again.version == first.version
    assert table.iceberg.scan().to_arrow().to_pylist() == [{"id": 1}]


def test_without_a_ledger_the_table_itself_remembers_what_is_in_doubt(tmp_path: Path) -> None:
    catalog = load_catalog("memory", type="in-memory", warehouse=tmp_path.as_uri())
    table = sw.open("db.orders", catalog=catalog, create=True)
    table.append([{"id": 0}])
    table.limits = replace(table.limits, asks=2)
    sound = table.world
    table.world = Answers(sound, "swap.commit", Unknown("cut"), perform=False)
    with pytest.raises(sw.CommitUnknownError):
        table.append([{"id": 1}], key="event-1")
    table.world = sound
    with pytest.raises(sw.CommitUnknownError, match="may still land"):
        table.resolve("event-1")
    sw.open("db.orders", catalog=catalog).append([{"id": 2}])
    assert table.resolve("event-1") is None, "what it waited for is gone, so it cannot land any more"
