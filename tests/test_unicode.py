"""T4-A10: a text that is no UTF-8 is refused by column and row at every entry of tables, before anything is uploaded.

Arrow takes the bytes that it is given for texts; polars, DuckDB and Python can read no table with such a text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

RAW = [b"ok", b"\xffA", b"fine"]


def texts(kind: pa.DataType, raw: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(RAW), pa.array(RAW, raw).buffers())


PLAIN = texts(pa.string(), pa.binary())
OFFSETS = pa.array([0, 1, 2, 3], pa.int32())
FORMS = {
    "string": PLAIN,
    "large_string": texts(pa.large_string(), pa.large_binary()),
    "string_view": texts(pa.string_view(), pa.binary_view()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), PLAIN),
    "list": pa.ListArray.from_arrays(OFFSETS, PLAIN),
    "struct": pa.StructArray.from_arrays([PLAIN], names=["t"]),
    "map_keys": pa.MapArray.from_arrays(OFFSETS, PLAIN, pa.array([1, 2, 3])),
    "map_values": pa.MapArray.from_arrays(OFFSETS, pa.array([1, 2, 3]), PLAIN),
}
FLAT = [form for form in FORMS if form in ("string", "large_string", "string_view", "dictionary")]


@pytest.fixture(params=["delta", "iceberg"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Opens the table of the test, which is made by the first write."""
    if request.param == "delta":
        return lambda **options: safewrite.open(str(tmp_path / "t"), create=True, **options)
    catalog = {
        "name": "default", "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": tmp_path.as_uri()
    }  # fmt: skip
    return lambda **options: safewrite.open(
        "db.t", catalog=catalog, create=True, create_namespace=True, **options
    )


def refused(folder: Path, write: Callable[[], Any], column: str = "s") -> None:
    before = sorted(folder.rglob("*.parquet"))
    with pytest.raises(safewrite.InvalidInputError, match=rf"Column '{column}.*, row 1: .*is no UTF-8"):
        write()
    assert sorted(folder.rglob("*.parquet")) == before


def rows(bad: str) -> pa.Table:
    """Rows with a column of each layout, in one of which the second text is bad."""
    columns = {
        form: array if form == bad else pa.concat_arrays([array.slice(0, 1)] * 3)
        for form, array in FORMS.items()
    }
    return pa.table({"id": [1, 2, 3], "n": [1, 1, 1], **columns})


def test_appends_overwrites_and_changes_refuse_it_in_each_layout(opened: Callable[..., Any], tmp_path: Path):
    refused(tmp_path, lambda: opened().append(rows("list"), key="first"), "list")
    table = opened()
    table.append(rows(""), key="good")
    for form in FORMS:
        refused(tmp_path, lambda form=form: table.append(rows(form)), form)
    for form in ("string", "list"):
        refused(tmp_path, lambda form=form: table.overwrite(rows(form), key="over"), form)
        refused(
            tmp_path,
            lambda form=form: table.apply_changes(rows(form), keys=["id"], sequence_by=["n"], key="c"),
            form,
        )
        new = rows("").append_column("w", FORMS[form])
        refused(tmp_path, lambda new=new: table.append(new, schema_mode="merge"), "w")
    one, other = table.append_many([("a", rows("").slice(0, 1)), ("b", rows("struct"))])
    assert one.outcome == "committed"
    assert "no UTF-8" in str(other)
    assert table.row_count() == 4


def test_keys_partitions_and_lookups_refuse_it(opened: Callable[..., Any], tmp_path: Path):
    given = pa.table({"id": [1, 2, 3], "s": PLAIN})
    refused(tmp_path, lambda: opened(partition_by=["s"]).append(given))
    table = opened()
    table.append([{"id": 1, "s": "ok"}])
    for form in FLAT:
        gone = pa.table({"id": [1, 2, 3], "s": FORMS[form], "gone": [True] * 3})
        spec = {"keys": ["s"], "sequence_by": ["id"], "delete_when": "gone"}
        refused(tmp_path, lambda gone=gone, spec=spec: table.apply_changes(gone, key="k", **spec))
        refused(tmp_path, lambda form=form: table.rows(pa.table({"s": FORMS[form]})))


def test_frames_of_pandas_and_polars_are_refused_alike(opened: Callable[..., Any], tmp_path: Path):
    arrow = pd.DataFrame({"s": pd.Series(FORMS["string"], dtype=pd.ArrowDtype(pa.string()))})
    strings = pd.arrays.ArrowStringArray(pa.chunked_array([FORMS["large_string"]]))
    for frame in (arrow, pd.DataFrame({"s": pd.Series(strings)}), pl.from_arrow(pa.table({"s": PLAIN}))):
        refused(tmp_path, lambda frame=frame: opened().append(frame))


def test_the_one_bad_text_of_many_is_found_and_a_null_over_such_bytes_is_none(
    opened: Callable[..., Any], tmp_path: Path
):
    """Texts of ASCII take a short way, which bytes beneath NULL must not end."""
    many = pa.concat_arrays([PLAIN.slice(0, 1)] * 1200)
    both = pa.concat_arrays([many, PLAIN.slice(1, 1)])
    with pytest.raises(safewrite.InvalidInputError, match=r"row 1200: the text b'.xffA'"):
        opened().append(pa.table({"s": both}))
    assert not list(tmp_path.rglob("*.parquet"))
    _, offsets, data = both.buffers()
    valid = pa.py_buffer((2**1200 - 1).to_bytes(151, "little"))
    opened().append(pa.table({"s": pa.Array.from_buffers(pa.string(), 1201, [valid, offsets, data])}))


def test_a_name_that_is_no_utf8_is_told(opened: Callable[..., Any]):
    schema = pa.schema([pa.field(b"id\xff", pa.int64())])
    for write in (
        lambda: opened(schema=schema),
        lambda: opened().append(pa.Table.from_arrays([pa.array([1])], schema=schema)),
    ):
        with pytest.raises(safewrite.InvalidInputError, match="a name or a text in it is no UTF-8"):
            write()


@pytest.mark.long
@pytest.mark.parametrize("nested", [False, True])
def test_rows_that_the_table_has_already_hinder_no_delete_and_no_change(tmp_path: Path, nested: bool):
    """Engines of Java write such texts: what stays of a rewritten file stays as it is."""
    at = tmp_path / "t"
    at.mkdir()
    pq.write_table(
        pa.table({"id": [1, 2, 3], "n": [1, 1, 1], "s": FORMS["list"] if nested else PLAIN}), at / "a.parquet"
    )
    deltalake.convert_to_deltalake(str(at))
    table = safewrite.open(str(at))
    table.delete("id = 3", key="delete")
    change = {"id": 1, "n": 2, "s": ["new"] if nested else "new"}
    table.apply_changes([change], keys=["id"], sequence_by=["n"], key="change")
    kept = table.rows([{"id": 2}]).column("s").combine_chunks()
    kept = kept.flatten() if nested else kept
    assert kept[0].as_buffer().to_pybytes() == b"\xffA"
    table.delete("id = 2", key="bad")
    assert pl.read_delta(str(at)).select("id", "s").rows() == [(1, change["s"])]
