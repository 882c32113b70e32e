"""Values that a change of a key leaves out are those of the row's file, nested ones too (T3-A3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.cdc.rows.rows_by_key import rows_with

KIND = pa.list_(pa.struct({"n": pa.int64()}))
SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "items": KIND})
VALUES: list[Any] = [[{"n": 1}], None, [], [None]]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_null_list_of_structs_is_found_as_null(form: str, tmp_path: Path) -> None:
    """PyIceberg reads it as an empty one, which the row would have had under its new key."""
    if form == "delta":
        table: Any = sw.create(tmp_path / "t", SCHEMA)
    else:
        catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
        table = sw.create("db.t", SCHEMA, catalog=catalog)
    assert rows_with(table, ["id", "part"], [(1, "a")]) == []
    for at, value in enumerate(VALUES):
        table.append([{"id": at, "part": "a", "items": value}])
    found = rows_with(table.refresh(), ["id", "part"], [(at, "a") for at in range(3)])
    assert {row["id"]: row["items"] for row in found} == {0: [{"n": 1}], 1: None, 2: []}
