"""Nested values of an Iceberg bronze come to silver as its files have them, though PyIceberg reads some otherwise (T3-A3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.medallion.lineage.external_table import ForeignIceberg
from safewrite.medallion.lineage.lineage import Lineage

KIND = pa.list_(pa.struct({"n": pa.int64()}))
VALUES: list[Any] = [[{"n": 1}], None, [], [None]]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    made = sw.create(
        "db.t", pa.schema({"id": pa.int64(), "text": pa.string(), "items": KIND}), catalog=catalog
    )
    rows = {"id": [0, 1, 2, 3], "text": ["a"] * 4, "items": pa.array(VALUES, KIND)}
    made.append(pa.table(rows).slice(0, 2))
    made.append(pa.table(rows).slice(2))
    return made


def items(rows: pa.Table) -> list[Any]:
    return rows.sort_by("id")["items"].to_pylist()


def test_a_table_of_others_is_read_with_its_nested_nulls(table: Any) -> None:
    foreign = ForeignIceberg(table)
    foreign.look()
    assert items(foreign.read(["id", "items", "text"])) == VALUES
    assert foreign.read(["id", "text"]).column_names == ["id", "text"]


def test_the_commits_of_a_bronze_are_read_with_their_nested_nulls(table: Any) -> None:
    lineage = Lineage("bronze", table, None, "")
    lineage.look()
    assert items(lineage.read(lineage.whole())) == VALUES
    assert lineage.read(lineage.whole(), ["id"]).column_names == ["id"]
    assert lineage.read([], ["id", "items"]).num_rows == 0


def test_an_empty_table_of_others_has_its_columns(tmp_path: Path) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    foreign = ForeignIceberg(sw.create("db.t", pa.schema({"id": pa.int64(), "items": KIND}), catalog=catalog))
    foreign.look()
    assert foreign.read(["items", "id"]).num_rows == 0
