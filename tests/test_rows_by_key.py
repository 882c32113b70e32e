"""``Table.rows`` gives the live rows that have one of some keys, and no others, on both formats."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("share", pa.float64()),
    ]
)
MARKS = {
    "delta": {"delta.enableDeletionVectors": "true"},
    "iceberg": {"write.merge.mode": "merge-on-read", "write.delete.mode": "merge-on-read"},
}


def row(number: int, part: str | None = "a", price: str = "1.50") -> dict[str, Any]:
    return {
        "id": number,
        "part": part,
        "price": Decimal(price),
        "tags": [str(number)] if number % 2 else None,
        "share": 0.5,
    }


class Given:
    """A table of one format, partitioned or not, and rows that were written in several files."""

    def __init__(self, form: str, folder: Path, **settings: Any) -> None:
        self.folder, self.form = folder, form
        if form == "delta":
            self.table: Any = sw.create(folder / "t", SCHEMA, **settings)
        else:
            self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
            self.table = sw.create("db.t", SCHEMA, catalog=self.catalog, **settings)

    def open(self) -> Any:
        return sw.open(self.folder / "t") if self.form == "delta" else sw.open("db.t", catalog=self.catalog)

    def data_files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*.parquet") if "_safewrite" not in path.parts]


def found(table: Any, keys: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.rows(keys).to_pylist()
    return sorted(rows, key=lambda one: (one["id"], one["part"] or ""))


@pytest.fixture(params=["delta", "iceberg"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.sweep("iceberg-by1")
@pytest.mark.parametrize("by", [[], ["part"]])
def test_rows_are_found_by_all_key_columns_together(form: str, by: list[str], tmp_path: Path) -> None:
    """(1, b) and (2, a) have values of the keys in each column, and neither key; NULL is equal to none."""
    given = Given(form, tmp_path, partition_by=by)
    table = given.table
    assert table.rows({"id": [1]}).schema.names == SCHEMA.names  # before there is a row
    table.append([row(1), row(1, "b"), row(2), row(2, "b"), row(2, None)])
    table.append([row(number, "c") for number in range(3, 40)])
    keys = [{"id": 1, "part": "a"}, {"id": 2, "part": "b"}, {"id": 2, "part": None}, {"id": 7, "part": "x"}]
    assert found(table, keys) == [row(1), row(2, "b")]
    assert found(table, {"part": ["b"]}) == [row(1, "b"), row(2, "b")]
    assert found(table, pa.table({"id": pa.array([5, 1, 5], pa.int64())})) == [
        row(1),
        row(1, "b"),
        row(5, "c"),
    ]
    assert found(table, {"price": [Decimal("1.5")], "id": [39]}) == [row(39, "c")]
    assert found(table, pa.table({"id": pa.array([], pa.int64())})) == []


def test_rows_that_were_deleted_or_replaced_are_not_found(form: str, tmp_path: Path) -> None:
    """Rows go by deletion vectors and by position deletes here."""
    given = Given(form, tmp_path, properties=MARKS[form])
    table = given.table
    table.append([row(number) for number in range(20)])
    table.apply_changes([row(3, price="9.99")], keys=["id"], sequence_by=["price"])
    changed = [{**row(4, price="2.00"), "_gone": True}]
    table.apply_changes(changed, keys=["id"], sequence_by=["price"], delete_when="_gone")
    assert len(given.data_files()) > 1
    assert found(given.open(), {"id": [2, 3, 4, 5]}) == [row(2), row(3, price="9.99"), row(5)]


def test_rows_are_those_of_the_version_that_was_seen(form: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    given.table.append([row(1)])
    other = given.open()
    other.append([row(1, "b")])
    assert found(given.table, {"id": [1]}) == [row(1)]
    assert found(given.table.refresh(), {"id": [1]}) == [row(1), row(1, "b")]


def test_columns_that_came_later_are_null_in_older_rows(form: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    given.table.append([row(1)])
    given.table.append([{**row(2), "more": 5}], schema_mode="merge")
    assert found(given.table, {"id": [1, 2]}) == [{**row(1), "more": None}, {**row(2), "more": 5}]
    assert found(given.table, {"more": [5]}) == [{**row(2), "more": 5}]


def test_a_column_that_was_renamed_is_found_by_its_new_name(tmp_path: Path) -> None:
    given = Given("iceberg", tmp_path)
    given.table.append([row(1), row(2)])
    with given.table.iceberg.update_schema() as update:
        update.rename_column("id", "number")
    (one,) = given.table.refresh().rows({"number": [2]}).to_pylist()
    assert one["number"] == 2
    with pytest.raises(sw.WouldAlterError, match="id"):
        given.table.rows({"id": [2]})


def test_a_file_that_is_gone_is_an_error_and_no_empty_answer(form: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    given.table.append([row(1)])
    for path in given.data_files():
        path.unlink()
    with pytest.raises(sw.StorageError, match="gone"):
        given.table.rows({"id": [1]})
    assert given.table.rows({"id": [9]}).num_rows == 0  # by its statistics the file has no such row


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        (None, sw.InvalidInputError, "Nothing was"),
        ({}, sw.InvalidInputError, "columns"),
        ({"tags": [["1"]]}, sw.InvalidInputError, "tags"),
        ({"idd": [1]}, sw.WouldAlterError, "'idd', which the table does not have. Nothing was read"),
        ({"id": ["one"]}, sw.WouldAlterError, "id"),
        ({"id": [1.5]}, sw.WouldAlterError, "1.5 of type double is no int64, so no row can have it"),
        ({"share": [0.5]}, sw.InvalidInputError, "share"),
    ],
)
def test_what_is_no_key_is_refused(
    form: str, keys: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    given = Given(form, tmp_path)
    given.table.append([row(1)])
    with pytest.raises(error, match=text):
        given.table.rows(keys)


@pytest.mark.parametrize("declared", ["varchar(3)", "char(3)"])
def test_a_key_that_a_column_of_limited_texts_cannot_have_finds_nothing(
    declared: str, tmp_path: Path
) -> None:
    """A job that asks for keys of its source must not stop at one: the limit is for rows that are written."""
    text = Field("name", "string", metadata={"__CHAR_VARCHAR_TYPE_STRING": declared})
    DeltaTable.create(tmp_path / "t", schema=Schema([text]))
    table = sw.open(tmp_path / "t")
    table.append([{"name": "abc"}])
    assert table.rows({"name": ["abc", "abcdef", "a"]}).to_pylist() == [{"name": "abc"}]


def test_of_a_large_file_the_keys_are_looked_at_first(form: str, tmp_path: Path) -> None:
    given = Given(form, tmp_path)
    texts = Random(1)
    given.table.append(
        [{**row(number), "tags": [texts.randbytes(40_000).hex()]} for number in range(0, 60, 2)]
    )
    assert max(path.stat().st_size for path in given.data_files()) > 2**20
    assert [one["id"] for one in found(given.table, {"id": [3, 4, 58]})] == [4, 58]
    assert found(given.table, {"id": [3, 5]}) == []


def test_reads_speak_of_reads_and_take_no_position_for_another(form: str, tmp_path: Path) -> None:
    """T4-A7."""
    table = Given(form, tmp_path).table
    table.append([row(1)])
    with pytest.raises(sw.InvalidInputError, match="Nothing was read"):
        table.added_since(-5)
    with pytest.raises(sw.HistoryGapError, match=r"none 99|never was"):
        table.added_by(99)
    with pytest.raises(sw.InvalidInputError, match="groups= names the group of each member"):
        table.append_many([("a", [row(2)])], groups="x")
    assert len(table.added_since(-1)) == 1
