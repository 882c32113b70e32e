"""Nested values that stay, are carried on or tie come out as the file has them, though PyIceberg reads some otherwise (H5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

import safewrite as sw
from tests.iceberg.tables import warehouse

pytestmark = pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")

STRUCT = pa.struct({"a": pa.int32()})
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list of structs": (pa.list_(STRUCT), [[{"a": 1}], None, [], [None]]),
    "map of structs": (pa.map_(pa.string(), STRUCT), [[("k", {"a": 1})], None, [], [("k", None)]]),
    "list in a struct": (pa.struct({"l": pa.list_(STRUCT)}), [None, {"l": None}, {"l": []}, {"l": [None]}]),
    "list of lists of structs": (pa.list_(pa.list_(STRUCT)), [[[{"a": 1}]], None, [None], [[]]]),
    "map of lists of structs": (
        pa.map_(pa.string(), pa.list_(STRUCT)),
        [[("k", [{"a": 1}])], None, [("k", None)], [("k", [])]],
    ),
    "list of structs of maps of structs": (
        pa.list_(pa.struct({"m": pa.map_(pa.string(), STRUCT)})),
        [None, [{"m": None}, None], [{"m": []}], [{"m": [("k", None)]}]],
    ),
    "list of lists": (pa.list_(pa.list_(pa.int32())), [[[1]], None, [None], [[]]]),
    "map of maps": (
        pa.map_(pa.string(), pa.map_(pa.string(), pa.int32())),
        [[("k", [("j", 1)])], None, [], [("k", None)]],
    ),
    "struct of structs": (pa.struct({"s": STRUCT}), [None, {"s": None}, {"s": {"a": None}}, {"s": {"a": 1}}]),
}
MODES = {"copy-on-write": {}, "merge-on-read": {"write.merge.mode": "merge-on-read"}}
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"]}


Row = dict[str, Any]


class Nested:
    """A table with one file of four rows, with a column of each nested kind, as polars reads it."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        self.schema = pa.schema(
            {"id": pa.int64(), "lsn": pa.int64()} | {n: k for n, (k, _) in NESTED.items()}
        )
        with warehouse(folder) as home:
            self.catalog = home.catalog
        self.rows = [
            {"id": at, "lsn": 0} | {name: values[at] for name, (_, values) in NESTED.items()}
            for at in range(4)
        ]
        sw.create("db.t", self.schema, catalog=self.catalog, properties=properties).append(
            self.frame(self.rows)
        )

    def open(self) -> Any:
        return sw.open("db.t", catalog=self.catalog)

    def frame(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)

    def changed(self, *changes: Callable[[Any], None]) -> None:
        for change in changes:
            with self.catalog.load_table("db.t").update_schema(allow_incompatible_changes=True) as update:
                change(update)

    def found(self) -> list[Row]:
        read = pl.scan_iceberg(self.catalog.load_table("db.t"), reader_override="native").collect()
        return read.sort("id").to_arrow().to_pylist()

    def wanted(self, rows: list[Row]) -> list[Row]:
        """These rows as polars tells them: it reads a map as a list of structs."""
        return pl.DataFrame(self.frame(rows)).to_arrow().to_pylist()


CALLS: dict[str, Callable[[Nested], Any]] = {
    "delete": lambda nested: nested.open().delete("id = 0"),
    "overwrite": lambda nested: nested.open().overwrite(nested.schema.empty_table(), where="id = 0"),
    "apply_changes": lambda nested: nested.open().apply_changes(
        [{"id": 0, "lsn": 9, "op": "d"}], **HOW, delete_when="op = 'd'"
    ),
}


@pytest.mark.sweep("merge-on-read", "apply_changes-copy-on-write", "overwrite-copy-on-write")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_rows_that_stay_keep_their_nested_values(tmp_path: Path, call: str, mode: str) -> None:
    """T3-A4: a table with a list or map of structs refused each change that shared a file with a row that stays."""
    nested = Nested(tmp_path, MODES[mode])
    CALLS[call](nested)
    assert nested.found() == nested.wanted(nested.rows[1:])


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("mode", MODES)
def test_values_that_are_carried_on_are_those_of_the_file(tmp_path: Path, mode: str) -> None:
    """T3-A3: a NULL list or map of structs that a change did not bring was written as an empty one."""
    nested = Nested(tmp_path, MODES[mode])
    changes = nested.frame([{"id": at, "lsn": 1} for at in range(4)])
    lacks = pa.array([[*NESTED]] * 4, pa.list_(pa.string()))
    how = HOW | {"unchanged": "lacks", "columns": nested.schema.names}
    nested.open().apply_changes(changes.append_column("lacks", lacks), **how)
    assert nested.found() == nested.wanted([row | {"lsn": 1} for row in nested.rows])


def test_a_tie_with_equal_nested_values_is_a_duplicate_and_no_other(tmp_path: Path) -> None:
    """T3-A3: an equal change was refused as unequal, and an unequal one dropped as a duplicate."""
    nested = Nested(tmp_path)
    again = nested.open().apply_changes(nested.frame(nested.rows), **HOW)
    assert again.changes["duplicate"] == 4
    for name in NESTED:
        for at, other in itertools.product(range(4), range(4)):
            change = nested.frame([nested.rows[at] | {name: nested.rows[other][name]}])
            if nested.rows[at][name] != nested.rows[other][name]:
                with pytest.raises(sw.InvalidInputError, match="unequal changes"):
                    nested.open().apply_changes(change, **HOW)
                break


def test_rows_that_were_marked_as_gone_stay_gone_when_their_file_is_rewritten(tmp_path: Path) -> None:
    nested = Nested(tmp_path, MODES["merge-on-read"])
    nested.open().apply_changes([{"id": 1, "lsn": 9, "op": "d"}], **HOW, delete_when="op = 'd'")
    with nested.catalog.load_table("db.t").transaction() as change:
        change.set_properties(MODES["copy-on-write"] or {"write.merge.mode": "copy-on-write"})
    nested.open().delete("id = 0")
    assert nested.found() == nested.wanted(nested.rows[2:])


# --- columns that changed since a file was written -----------------------------------------------------------
PLACES = {
    "list of structs": "element",
    "map of structs": "value",
    "list in a struct": "l.element",
    "list of lists of structs": "element.element",
    "map of lists of structs": "value.element",
    "list of structs of maps of structs": "element.m.value",
    "struct of structs": "s",
}
"""Where the struct of each kind is."""


@pytest.mark.sweep("delete")
@pytest.mark.parametrize("call", ["delete", "apply_changes"])
def test_fields_that_were_renamed_widened_or_added_at_any_depth_are_found(tmp_path: Path, call: str) -> None:
    """PyIceberg reads NULL for a renamed field of a struct in a list of lists or in a map of lists."""
    nested = Nested(tmp_path)

    def rename(update: Any) -> None:
        for name, place in PLACES.items():
            update.update_column(f"{name}.{place}.a", LongType())
            update.rename_column(f"{name}.{place}.a", "b")

    def add(update: Any) -> None:
        for name, place in PLACES.items():
            update.add_column((name, *place.split("."), "a"), StringType())

    nested.changed(rename, add)
    now = sw.open("db.t", catalog=nested.catalog).iceberg.schema().as_arrow()
    CALLS[call](nested)
    wanted = pa.Table.from_pylist([_renamed(row) for row in nested.rows[1:]], now)
    assert nested.found() == pl.DataFrame(wanted).to_arrow().to_pylist()


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {"b" if name == "a" else name: _renamed(one) for name, one in value.items()}
    return type(value)(map(_renamed, value)) if isinstance(value, list | tuple) else value


def test_a_struct_of_which_no_field_is_left_is_not_null(tmp_path: Path) -> None:
    """PyIceberg reads a struct as NULL where its file has none of the fields that it has now."""
    nested = Nested(tmp_path)
    nested.changed(
        lambda update: update.add_column(("struct of structs", "s", "new"), IntegerType()),
        lambda update: update.delete_column("struct of structs.s.a"),
    )
    nested.open().delete("id = 0")
    wanted = [{"s": None}, {"s": {"new": None}}, {"s": {"new": None}}]
    assert [row["struct of structs"] for row in nested.found()] == wanted


def test_a_file_from_before_a_nested_column_came_has_null_there(tmp_path: Path) -> None:
    nested = Nested(tmp_path)
    nested.changed(
        lambda update: update.add_column("late", ListType(99, StructType(NestedField(98, "x", LongType()))))
    )
    nested.open().delete("id = 0")
    assert [row["late"] for row in nested.found()] == [None] * 3


def test_a_type_that_no_schema_change_makes_is_refused_by_name(tmp_path: Path) -> None:
    """A file whose column is of another type than the table's: another engine wrote it under this id by mistake."""
    nested = Nested(tmp_path)
    task = next(iter(nested.catalog.load_table("db.t").scan().plan_files()))
    path = Path(task.file.file_path.removeprefix("file://"))
    odd = pq.read_table(path)
    at = nested.schema.get_field_index("list of lists")
    outer, inner = odd.schema.field(at), odd.schema.field(at).type.value_field
    kind = pa.list_(inner.with_type(pa.list_(inner.type.value_field.with_type(pa.string()))))
    pq.write_table(odd.set_column(at, outer.with_type(kind), pa.nulls(4, kind)), path)
    with pytest.raises(sw.UnsupportedTableError, match=r"'list of lists.*Nothing was committed"):
        nested.open().delete("id = 0")
