"""A column of times without a zone may come to a table that has none: the feature that it needs comes with it."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw

AT = datetime(2026, 11, 27, 12, 0, 1)  # noqa: DTZ001
TIME = pa.timestamp("us")
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "plain": (TIME, AT),
    "in a struct": (pa.struct([("at", TIME)]), {"at": AT}),
    "in a list": (pa.list_(TIME), [AT]),
    "in a map": (pa.map_(pa.string(), TIME), [("a", AT)]),
}


def append(table: sw.Table, rows: pa.Table) -> None:
    table.append(rows, schema_mode="merge", key="times")


def widen(table: sw.Table, rows: pa.Table) -> None:
    table.append(rows, schema_mode="widen", key="times")


def append_many(table: sw.Table, rows: pa.Table) -> None:
    table.append_many([("times", rows)], schema_mode="merge")


def overwrite(table: sw.Table, rows: pa.Table) -> None:
    table.overwrite(rows, schema_mode="merge", where="id > 1", key="times")


def features_of(folder: Path) -> tuple[set[str], set[str]]:
    protocol = deltalake.DeltaTable(str(folder)).protocol()
    return {*(protocol.reader_features or ())}, {*(protocol.writer_features or ())}


@pytest.mark.sweep(
    "in a map", "in a struct", "overwrite-in a list", "widen-in a list", "append_many-in a list", "overwrite"
)
@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("write", [append, widen, append_many, overwrite])
def test_t4_b3_a_column_of_times_brings_its_feature(
    tmp_path: Path, write: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the column, and the feature comes once."""
    caplog.set_level(logging.INFO, "safewrite")
    type_, value = COLUMNS[kind]
    table = sw.open(tmp_path / "t", create=True)
    table.append([{"id": 1}], key="first")
    rows = pa.table({"id": [2], "x": pa.array([value], type_)})
    write(table, rows)
    readers, writers = features_of(tmp_path / "t")
    assert "timestampNtz" in readers
    assert {"timestampNtz", "appendOnly", "invariants"} <= writers
    told = [record.getMessage() for record in caplog.records if "timestampNtz" in record.getMessage()]
    assert [one.count("(x)") for one in told] == [1]
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["x"] for row in found] == [None, value]
    version = table.version
    table.append(pa.table({"id": [3], "x": pa.array([value], type_)}), key="second")
    commit = (tmp_path / "t/_delta_log" / f"{version + 1:020d}.json").read_text()
    assert '"protocol"' not in commit


def test_t4_b3_a_field_of_a_struct_brings_it_too_and_with_another_feature(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "t", create=True)
    table.append(pa.table({"s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))}), key="first")
    both = pa.struct([("a", pa.int64()), ("at", TIME)])
    table.append(pa.table({"s": pa.array([{"a": 2**40, "at": AT}], both)}), schema_mode="widen", key="times")
    readers, writers = features_of(tmp_path / "t")
    assert {"timestampNtz", "typeWidening"} <= readers & writers
    assert table.rows(where="s IS NOT NULL").num_rows == 2
