"""A receipt tells what became of a write: how many rows came and went, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

Make = Callable[[], sw.Table]


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sw.Table]:
    if request.param == "delta":
        yield sw.create(tmp_path / "t", rows().schema, partition_by=["day"])
        return
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    yield sw.create("db.t", rows().schema, catalog=catalog, partition_by=["day"])
    catalog.engine.dispose()


def test_a_receipt_counts_the_rows_that_went(table: sw.Table) -> None:
    assert table.append(rows(1, 2, 3)).removed_rows == 0
    assert table.append(rows(4, 5, day="b")).removed_rows == 0
    rewritten = table.delete("id = 2", key="one")
    assert (rewritten.rows, rewritten.removed_rows) == (0, 1)
    assert rewritten.copied_bytes is not None
    assert rewritten.copied_bytes > 0
    replaced = table.overwrite(rows(6), where="day = 'a'", key="partition")
    assert (replaced.rows, replaced.removed_rows, replaced.copied_bytes) == (1, 2, 0)
    assert table.delete("id > 100").removed_rows == 0
    assert table.overwrite(rows(7)).removed_rows == 3
    assert table.delete("true").removed_rows == 1


def test_nobody_counted_what_an_earlier_call_removed(table: sw.Table) -> None:
    table.append(rows(1, 2))
    assert table.delete("id = 1", key="event").removed_rows == 1
    again = table.delete("id = 1", key="event")
    assert (again.outcome, again.removed_rows) == ("already_committed", None)
    resolved = table.resolve("event")
    assert resolved is not None
    assert resolved.removed_rows is None


@pytest.mark.parametrize("stats", [None, "", "{", "[]", '{"numRecords": "many"}', '{"numRecords": null}'])
def test_nobody_counts_the_rows_of_a_file_without_statistics(tmp_path: Path, stats: str | None) -> None:
    """What other engines write there must not stop a write, nor unmake the ack of one that landed."""
    table = sw.create(tmp_path / "t", rows().schema, partition_by=["day"])
    table.append(rows(1, 2))
    commit = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = stats
    commit.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert sw.open(tmp_path / "t").delete("day = 'b'").removed_rows == 0
    assert str(sw.open(tmp_path / "t").delete("day = 'a'")).count("an unknown number of rows removed") == 1
    assert sw.open(tmp_path / "t").row_count() == 0


def test_a_receipt_reads_as_a_sentence_and_as_json(table: sw.Table) -> None:
    receipt = table.append(rows(1, 2), key="event")
    said = f"committed in version {receipt.version} of {table.uri}: 2 rows, 1 file, key 'event'"
    assert str(receipt) == said
    assert json.loads(receipt.to_json()) == receipt.to_dict() | {"txn": None}
    assert json.loads(receipt.to_json())["outcome"] == "committed"


def test_a_receipt_says_what_a_delete_and_changes_did(tmp_path: Path) -> None:
    table = sw.create(tmp_path / "t", rows().schema)
    table.append(rows(1, 2), key="event")
    gone = table.delete("id = 1", key="gone")
    assert str(gone).endswith(": 0 rows, 0 files, 1 row removed, key 'gone'")
    keyed = sw.create(tmp_path / "keyed", pa.schema([("id", pa.int64()), ("at", pa.int64())]))
    changes = pa.table({"id": [1, 2], "at": [1, 1]})
    receipt = keyed.apply_changes(changes, keys=["id"], sequence_by=["at"], key="batch")
    assert str(receipt).endswith(": 2 rows, 1 file, 2 applied, 2 inserted, key 'batch'")
