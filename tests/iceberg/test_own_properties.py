"""Properties that tell of a table's rows count in that table alone: a clone's properties are copies, and its rows are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.errors import Kind
from safewrite.iceberg.own_properties import is_own
from safewrite.iceberg.retention import KEEP
from safewrite.iceberg.write.creation import DELETE_METADATA, PREVIOUS_MAX

SCHEMA = pa.schema({"id": pa.int64(), "lsn": pa.int64(), "name": pa.string()})
ROW = [{"id": 1, "lsn": 1, "name": "a"}]
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"], "delete_when": [("op", "=", "d")]}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """A catalog with a table that took rows in every way that leaves a property."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    table = sw.create("db.first", SCHEMA, catalog=catalog)
    table.append(ROW, txn=("stream", 7))
    table.append(ROW, positions={"orders/0": (None, 9)})
    table.apply_changes([{"op": "d", "id": 5, "lsn": 9, "name": None}], **HOW)
    return catalog


@pytest.fixture
def clone(catalog: SqlCatalog) -> Any:
    """A table of the same schema and properties, without a row."""
    first = catalog.load_table("db.first")
    catalog.create_table("db.clone", schema=first.schema(), properties=first.properties)
    return sw.open("db.clone", catalog=catalog)


def count(catalog: SqlCatalog) -> int:
    return int(catalog.load_table("db.clone").scan().to_arrow().num_rows)


def test_a_batch_that_another_table_has_is_written(catalog: SqlCatalog, clone: Any) -> None:
    """It was acknowledged as written before, and was nowhere."""
    assert clone.append(ROW, txn=("stream", 7)).outcome == "committed"
    assert clone.append(ROW, txn=("stream", 7)).outcome == "already_committed"
    assert count(catalog) == 1


def test_a_stream_may_begin_anew_in_a_clone(catalog: SqlCatalog, clone: Any) -> None:
    assert [clone.append(ROW, txn=("stream", batch)).outcome for batch in range(3)] == ["committed"] * 3
    assert clone.resolve("stream/7") is None
    assert count(catalog) == 3


def test_a_source_was_taken_nowhere_in_a_clone(catalog: SqlCatalog, clone: Any) -> None:
    assert clone.positions() == {}
    clone.append(ROW, positions={"orders/0": (None, 4)})
    assert (clone.positions(), count(catalog)) == ({"orders/0": 4}, 1)


def test_a_key_that_another_table_deleted_may_come(catalog: SqlCatalog, clone: Any) -> None:
    receipt = clone.apply_changes([{"op": "u", "id": 5, "lsn": 3, "name": "b"}], **HOW)
    assert receipt.changes["inserted"] == 1
    clone.apply_changes([{"op": "d", "id": 5, "lsn": 4, "name": None}], **HOW)
    again = clone.apply_changes([{"op": "u", "id": 5, "lsn": 3, "name": "b"}], **HOW, all_late="count")
    assert (again.changes["late"], count(catalog)) == (1, 0)


def test_a_clone_needs_no_file_of_the_first_table(catalog: SqlCatalog, clone: Any, tmp_path: Path) -> None:
    for file in tmp_path.rglob("*.puffin"):
        file.unlink()
    assert clone.apply_changes([{"op": "u", "id": 5, "lsn": 3, "name": "b"}], **HOW).changes["inserted"] == 1


@pytest.mark.sweep("12", "null", "{", '{"at": "x"}')
@pytest.mark.parametrize("text", ["12", "{", "[]", '{"at": "x"}', '{"at": 1}', "null"])
def test_a_property_that_somebody_edited_is_told_and_stops_that_source_alone(
    catalog: SqlCatalog, text: str
) -> None:
    with catalog.load_table("db.first").transaction() as edit:
        edit.set_properties({"safewrite.position.orders/0": text})
    table = sw.open("db.first", catalog=catalog)
    for call in (table.positions, lambda: table.append(ROW, positions={"orders/0": (9, 10)})):
        with pytest.raises(
            sw.StorageError, match=r"'safewrite\.position\.orders/0'.*Nothing was committed"
        ) as told:
            call()
        assert told.value.kind is Kind.CORRUPT_LOG
    table.append(ROW, positions={"orders/1": (None, 1)})
    table.append(ROW)


def test_commits_of_rows_change_no_setting_of_how_a_table_is_written(catalog: SqlCatalog) -> None:
    """A Spark session takes its known table for the same as long as the other properties are."""
    properties = catalog.load_table("db.first").properties
    assert {name for name in properties if not is_own(name)} == {KEEP, DELETE_METADATA, PREVIOUS_MAX}
