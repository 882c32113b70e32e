"""A struct that is NULL lands also where its fields must not be NULL; it ended in an error of storage, for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.frames.required import has_required, without_gaps

pytestmark = pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")

POINT = pa.struct([pa.field("x", pa.int64(), False)])
SCHEMA = pa.schema(
    {"id": pa.int64(), "s": pa.int64(), "p": POINT, "q": pa.list_(pa.struct([pa.field("k", POINT)]))}
)
HOW: dict[str, Any] = {
    "keys": ["id"], "sequence_by": ["s"], "delete_when": [("op", "=", "d")], "unchanged": "lacks", "columns": SCHEMA.names,
}  # fmt: skip


def changes(*rows: dict[str, Any]) -> pa.Table:
    more = [pa.field("op", pa.string()), pa.field("lacks", pa.list_(pa.string()))]
    return pa.Table.from_pylist(list(rows), pa.schema([*SCHEMA, *more]))


@pytest.mark.sweep("merge-on-read", "iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg", "merge-on-read"])
def test_null_structs_with_required_fields_are_applied_carried_and_compared(
    form: str, tmp_path: Path
) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    if form == "delta":
        table: Any = sw.create(tmp_path / "t", SCHEMA)
    else:
        table = sw.create(
            "db.t", SCHEMA, catalog=catalog, properties={"write.merge.mode": form} if "-" in form else None
        )
    table.apply_changes(
        changes(
            {"id": 1, "s": 1, "p": None, "q": None},
            {"id": 2, "s": 1, "p": {"x": 1}, "q": [{"k": None}]},
            {"id": 3, "s": 1, "p": None, "q": [None, {"k": {"x": 2}}]},
        ),
        **HOW,
    )
    table.apply_changes(changes({"id": 1, "s": 2, "lacks": ["p", "q"]}, {"id": 2, "s": 2, "op": "d"}), **HOW)
    again = table.apply_changes(changes({"id": 1, "s": 2, "p": None, "q": None}), **HOW)
    assert again.changes["duplicate"] == 1
    members = [
        ("a", changes({"id": 4, "s": 1, "p": None, "q": []})),
        ("b", changes({"id": 4, "s": 2, "p": None, "q": [None]})),
    ]
    assert all(isinstance(one, sw.Receipt) for one in table.apply_changes_many(members, **HOW))
    table.append_many(
        [("c", changes({"id": 5, "s": 1}).select(SCHEMA.names)), ("d", [{"id": 6, "n": 1}])],
        schema_mode="merge",
    )
    path = str(tmp_path / "t")
    read = (
        pl.read_delta(path)
        if form == "delta"
        else pl.scan_iceberg(catalog.load_table("db.t"), reader_override="native").collect()
    )
    found = {row["id"]: (row["p"], row["q"], row["n"]) for row in read.to_dicts()}
    assert found == {
        1: (None, None, None),
        3: (None, [None, {"k": {"x": 2}}], None),
        4: (None, [None], None),
        5: (None, None, None),
        6: (None, None, 1),
    }


KINDS = [pa.int64(), pa.bool_(), pa.string(), pa.large_binary(), pa.binary(3), pa.decimal128(20, 2), pa.date32(),
         pa.timestamp("us", "UTC"), pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()), POINT]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_stands_below_a_null_changes_no_value(kind: pa.DataType) -> None:
    struct = pa.struct([pa.field("v", kind, False), pa.field("w", kind)])
    for rows in ([None, None], [None], []):
        values = pa.array(rows, struct)
        filled = without_gaps(values)
        assert filled.field(0).null_count == 0
        assert filled.to_pylist() == rows
        filled.validate(full=True)


def test_types_without_required_fields_are_left_alone() -> None:
    assert not has_required(pa.list_(pa.struct([pa.field("x", pa.int64())])))
    assert has_required(pa.map_(pa.string(), pa.list_(POINT)))
