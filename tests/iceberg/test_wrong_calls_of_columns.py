"""Wrong calls about renamed columns, nested values and locations of Iceberg tables: each error says what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.int64(),
        "note": pa.string(),
        "items": pa.list_(pa.struct([("n", pa.int64())])),
    }
)
HOW: dict[str, Any] = {"keys": ["order_id"], "sequence_by": ["at"]}
ROW: dict[str, Any] = {"order_id": 3, "at": 9, "note": "n", "items": []}


class Given:
    """A catalog with a table whose key and sequence were renamed after changes had been applied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
        table = sw.create("db.t", SCHEMA, catalog=self.catalog)
        table.apply_changes(
            [{"id": 2, "s": 5, "op": "d"}], keys=["id"], sequence_by=["s"], delete_when="op = 'd'"
        )
        table.append([{"id": 1, "s": 1, "note": "a", "items": None}])
        for old, new in (("id", "order_id"), ("s", "at")):
            with self.catalog.load_table("db.t").update_schema() as update:
                update.rename_column(old, new)
        self.table = sw.open("db.t", catalog=self.catalog)

    def new(self) -> Any:
        return sw.open("db.new", catalog=self.catalog, create=True)

    def create(self, **settings: Any) -> Any:
        return sw.create("db.new", SCHEMA, catalog=self.catalog, **settings)

    def apply(self, *rows: Any, **how: Any) -> Any:
        return self.table.apply_changes(list(rows) or [ROW], **HOW | how)

    def read(self, columns: Any) -> Any:
        return list(self.table.read_files(self.table.iceberg.scan().plan_files(), columns))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("wrong"))


WRONG: dict[str, tuple[Callable[[Given], Any], type[sw.SafewriteError], str]] = {
    "a key as it was called": (
        lambda g: g.apply(keys=["id"]), sw.InvalidInputError, "called 'order_id' now.*in the data too"),
    "an order as it was called": (
        lambda g: g.apply(sequence_by=["s"]), sw.InvalidInputError, "called 'at' now"),
    "columns= as they were called": (
        lambda g: g.apply(columns=["order_id", "at", "id"]), sw.InvalidInputError, "called 'order_id' now"),
    "a member's key as it was called": (
        lambda g: g.table.apply_changes_many([("k", [ROW])], keys=["id"], sequence_by=["at"])[0],
        sw.InvalidInputError, "called 'order_id' now"),
    "a key that never was": (
        lambda g: g.apply(keys=["nope"]), sw.InvalidInputError, "'nope'.*A row is found by its key.*name another"),
    "key and order exchanged": (
        lambda g: g.apply(keys=["at"], sequence_by=["order_id"]), sw.InvalidInputError,
        r"Give keys=\['order_id'\] and sequence_by=\['at'\] again"),
    "another key besides": (
        lambda g: g.apply(keys=["order_id", "note"]), sw.InvalidInputError, r"Give keys=\['order_id'\].*full_refresh=True"),
    "a nested key": (lambda g: g.apply(keys=["items"]), sw.InvalidInputError, "Name columns of whole numbers, texts"),
    "data as its columns were called": (
        lambda g: g.apply({"id": 3, "at": 9, "note": "n", "items": []}), sw.WouldAlterError, "'order_id': missing"),
    "unchanged= as it was called": (
        lambda g: g.apply(ROW | {"lacks": ["id"]}, unchanged="lacks"), sw.InvalidInputError, "names 'id'.*no column"),
    "a field that the structs do not have": (
        lambda g: g.apply(ROW | {"items": [{"m": 1}]}), sw.WouldAlterError, "'m' is not in the struct 'items.element'"),
    "a text in a number of a struct": (
        lambda g: g.apply(ROW | {"items": [{"n": "x"}]}), sw.WouldAlterError, "items.element.n.*convert the column"),
    "a number for a list": (lambda g: g.apply(ROW | {"items": 5}), sw.WouldAlterError, "'items' has type int64"),
    "where= on a name of before": (
        lambda g: g.table.delete("id = 5"), sw.InvalidInputError, "'id', and the columns are .*'order_id'"),
    "where= on a list": (lambda g: g.table.delete([("items", "=", [])]), sw.InvalidInputError, "'items'"),
    "no files to read": (lambda g: list(g.table.read_files(None)), sw.InvalidInputError, r"plan_files\(\)"),
    "a path to read": (lambda g: list(g.table.read_files("a.parquet")), sw.InvalidInputError, r"plan_files\(\)"),
    "a column to read that is none": (lambda g: g.read(["id"]), sw.InvalidInputError, "It has: 'order_id', 'at'"),
    "no columns to read": (lambda g: g.read([]), sw.InvalidInputError, "It has: 'order_id'"),
    "a location below the process": (lambda g: g.create(location="lake/x"), sw.InvalidInputError, "Write 's3://bucket/path'"),
    "a location without a bucket": (lambda g: g.create(location="s3:///x"), sw.InvalidInputError, "names no bucket"),
    "a location with one slash": (lambda g: g.create(location="s3:/b/x"), sw.InvalidInputError, "names no bucket"),
    "a location with a fragment": (lambda g: g.create(location="s3://b/x#1"), sw.InvalidInputError, "cuts a location there"),
    "a data path below the process": (
        lambda g: g.create(properties={"write.data.path": "data"}), sw.InvalidInputError, r"write\.data\.path is 'data'"),
    "a name with a question mark": (
        lambda g: sw.create(("db", "a?"), SCHEMA, catalog=g.catalog), sw.InvalidInputError, "The table's name has"),
    "a first write of nothing": (lambda g: g.new().append(None), sw.InvalidInputError, "Pass a pandas"),
    "a first write without columns": (lambda g: g.new().append(pd.DataFrame()), sw.InvalidInputError, "no columns"),
    "a first write of NULL alone": (lambda g: g.new().append([{"a": None}]), sw.InvalidInputError, "safewrite.create"),
    "changes before there is a table": (
        lambda g: g.new().apply_changes([ROW], **HOW), sw.TableNotFoundError, r"safewrite\.create\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_ends_in_advice(given: Given, name: str) -> None:
    call, kind, advice = WRONG[name]
    try:
        told = call(given)
    except sw.SafewriteError as error:
        told = error
    assert type(told) is kind
    assert re.search(advice, str(told), re.DOTALL)
    assert re.search(r"Nothing was (written|read)", str(told))
    assert given.catalog.list_tables("db") == [("db", "t")]
