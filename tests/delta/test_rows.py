"""Decoding the columns of a data file a few after another."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safewrite as sw
from safewrite.delta.data import rows
from safewrite.delta.data.rows import columns_of
from tests.delta.test_mapped_columns import mapped, row

ROWS = pa.table(
    {
        "id": [1, 2],
        "a": pa.array([{"b": 1}, None]),
        "a.b": ["x", None],
        "l": [[1], []],
        "a.": ["q", "w"],
        "": ["e", "f"],
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "at": pa.array([86_400, None], pa.timestamp("us")),
    }
)  # fmt: skip


def stored(**how: Any) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, **how)
    return pq.ParquetFile(sink, coerce_int96_timestamp_unit="us")


@pytest.mark.parametrize("group_bytes", [0, 100, 2**20])
@pytest.mark.parametrize("how", [{}, {"row_group_size": 1}, {"use_deprecated_int96_timestamps": True}])
def test_columns_that_are_decoded_by_groups_are_those_of_the_file(
    group_bytes: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "GROUP_BYTES", group_bytes)
    file = stored(**how)
    assert [
        name for some in rows._groups(file.metadata, ROWS.column_names, file.num_row_groups) for name in some
    ] == ROWS.column_names
    assert columns_of(file, ROWS.column_names).to_pylist() == ROWS.to_pylist()
    assert columns_of(file, ROWS.column_names).schema.field("at").type == pa.timestamp("us")
    some = ["late", "m", "a.b"]
    assert columns_of(file, some).to_pylist() == ROWS.select(some[1:]).to_pylist()


def test_a_file_without_any_of_the_columns_gives_none() -> None:
    assert columns_of(stored(), ["late"]).column_names == []


def test_a_file_without_rows_has_its_columns() -> None:
    sink = io.BytesIO()
    pq.write_table(ROWS.schema.empty_table(), sink)
    assert columns_of(pq.ParquetFile(sink), ["a.b", "id"]).schema.names == ["a.b", "id"]


def test_views_of_texts_become_plain_at_every_depth() -> None:
    view, both = pa.string_view(), pa.map_(pa.string_view(), pa.binary_view())
    kinds = [view, pa.binary_view(), pa.struct([("x", view)]), pa.list_(view), pa.large_list(view), both]
    values = ["a", b"a", {"x": "a"}, ["a", None], ["a"], [("k", b"v")]]
    asked = pa.table(
        {
            str(at): pa.array([value, None], kind)
            for at, (kind, value) in enumerate(zip(kinds, values, strict=True))
        }
    )
    sink = io.BytesIO()
    pq.write_table(asked, sink)
    found = columns_of(pq.ParquetFile(sink), asked.column_names)
    assert "view" not in str(found.schema)
    assert found.to_pylist() == asked.to_pylist()


def test_instants_in_int96_are_utc_at_every_depth(tmp_path: Path) -> None:
    """Spark writes them so by default, and Parquet keeps no zone there."""
    at, zone = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), pa.timestamp("us", "UTC")

    def kind(time: pa.DataType) -> pa.DataType:
        deep = pa.map_(pa.string(), time)
        return pa.struct([("at", time), ("many", pa.list_(pa.struct([("deep", deep)]))), ("n", pa.int64())])

    values = [{"at": at, "many": [{"deep": [("k", at)]}], "n": 1}, None]
    table = sw.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", kind(zone))]))
    table.append(pa.table({"id": [1, 2], "s": pa.array(values, kind(zone))}))
    table.append(pa.table({"id": [3], "s": pa.array(values[:1], kind(zone))}))
    for path in (tmp_path / "t").glob("*.parquet"):
        rows_there = pq.read_table(path)
        naive = pa.table({"id": rows_there["id"], "s": rows_there["s"].cast(kind(pa.timestamp("us")))})
        pq.write_table(naive, path, use_deprecated_int96_timestamps=True)
    (one,) = table.rows({"id": [1]})["s"].to_pylist()
    assert one == {"at": at, "many": [{"deep": [("k", at)]}], "n": 1}
    table.delete("id = 2")
    table.maintain()
    assert table.rows(where="true")["s"].to_pylist() == [one, one]


TEXTS = st.lists(st.sampled_from(["", "a", "ü", "long " * 40, None]), min_size=8, max_size=60)


@given(TEXTS, st.integers(1, 60), st.sampled_from([2**31 - 1, 300]))
def test_texts_that_come_again_and_again_are_read_as_they_are(
    values: list[str | None], group: int, together: int
) -> None:
    """Through their dictionary, in arrays of bounded bytes; a text beside them with a struct's name is left alone."""
    many = values * 20
    table = pa.table({"t": many, "n": range(len(many)), "a": [{"b": one} for one in many], "a.b": many})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_MANY", 1)
        patch.setattr(rows, "_FEW_BYTES", 2**20)
        patch.setattr(rows, "_TEXTS_BYTES", together)
        file = rows._opened(pa.BufferReader(sink.getvalue()))
        found = columns_of(file, table.column_names)
        some = columns_of(file, ["t"], [file.num_row_groups - 1])
        assert rows._few_texts(pq.ParquetFile(sink)) == ["t"]
    assert max(pc.sum(pc.binary_length(chunk)).as_py() or 0 for chunk in found.column("t").chunks) <= together
    assert found.schema.types == table.schema.types
    assert found.equals(table)
    assert some.equals(table.select(["t"]).slice(len(many) - some.num_rows))


def test_texts_are_read_through_their_dictionary_where_that_is_worth_it() -> None:
    few, own = ["a longer name", None, "b"] * 10_000, [f"name {number}" for number in range(30_000)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"few": few, "own": own, "n": range(30_000)}), sink)
    file = rows._opened(pa.BufferReader(sink.getvalue()))
    assert file.schema_arrow.types[:2] == [pa.dictionary(pa.int32(), pa.string()), pa.string()]
    assert columns_of(file, ["few"]).column(0).to_pylist() == few


@pytest.fixture
def all_by_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MANY", 1)
    monkeypatch.setattr(rows, "_FEW_BYTES", 2**20)


@pytest.mark.usefixtures("all_by_dictionary")
def test_a_table_of_few_texts_is_put_together_as_it_is(tmp_path: Path) -> None:
    """Also where some files lack the column."""
    table = sw.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append([{"id": 0}])
    for number in (1, 2, 3):
        added = [{"id": number * 100 + one, "t": ["a", None, "ü"][one % 3]} for one in range(90)]
        table.append(added, schema_mode="merge")
    table.delete("id = 101")
    assert table.maintain().files_after == 1
    wanted = ["a", None, "ü"] * 90
    del wanted[1]
    assert table.rows(where="true").sort_by("id")["t"].to_pylist() == [None, *wanted]


@pytest.mark.usefixtures("all_by_dictionary")
def test_few_texts_are_read_by_the_names_that_files_have(tmp_path: Path) -> None:
    mapped(tmp_path)
    table = sw.open(tmp_path)
    for first in (10, 20, 30):
        table.append([row(first + one, ["a", None][one % 2]) for one in range(6)])
    assert table.maintain().files_after == 1
    assert table.rows(where="true").sort_by("id")["v"].to_pylist() == ["a", None] * 9
