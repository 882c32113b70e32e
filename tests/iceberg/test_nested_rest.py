"""Rows that stay when others of their file go are not altered by what PyIceberg makes of nested NULLs (H5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.iceberg.table import IcebergTable
from tests.iceberg.tables import warehouse

STRUCT = pa.struct({"a": pa.int32()})
MISREAD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list of structs": (pa.list_(STRUCT), [[{"a": 1}], None, [], [None]]),
    "map of structs": (pa.map_(pa.string(), STRUCT), [[("k", {"a": 1})], None, [], [("k", None)]]),
    "list in a struct": (pa.struct({"l": pa.list_(STRUCT)}), [None, {"l": None}, {"l": []}, {"l": [None]}]),
    "list of lists of structs": (pa.list_(pa.list_(STRUCT)), [[[{"a": 1}]], None, [None], [[]]]),
}
READ_WELL: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list of lists": (pa.list_(pa.list_(pa.int32())), [[[1]], None, [None], [[]]]),
    "map of maps": (pa.map_(pa.string(), pa.map_(pa.string(), pa.int32())), [[("k", [("j", 1)])], None, [], [("k", None)]]),
    "struct of structs": (pa.struct({"s": STRUCT}), [None, {"s": None}, {"s": {"a": None}}, {"s": {"a": 1}}]),
}  # fmt: skip


def table_with(folder: Path, kind: pa.DataType, values: list[Any]) -> tuple[IcebergTable, pa.Table]:
    """A table with one file, and its rows."""
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "value": pa.array(values, kind)})
    with warehouse(folder) as home:
        table = sw.create("db.t", rows.schema, catalog=home.catalog)
        assert isinstance(table, IcebergTable)
        table.append(rows)
        return table, rows


@pytest.mark.parametrize("name", MISREAD)
def test_a_delete_that_would_alter_the_rows_that_stay_is_refused(tmp_path: Path, name: str) -> None:
    table, _ = table_with(tmp_path, *MISREAD[name])
    before = table.version
    with pytest.raises(sw.UnsupportedTableError, match="altered"):
        table.delete("id = 0")
    assert table.refresh().version == before
    table.delete("id < 10")  # no row stays
    assert table.refresh().iceberg.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("name", READ_WELL)
def test_other_nested_values_stay_as_they_are(tmp_path: Path, name: str) -> None:
    table, rows = table_with(tmp_path, *READ_WELL[name])
    table.delete("id = 0")
    found = table.refresh().iceberg.scan().to_arrow().sort_by("id")
    assert found["value"].to_pylist() == rows["value"].to_pylist()[1:]
