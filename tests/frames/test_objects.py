"""Python objects inside pandas, polars and numpy: each keeps its value, or the frame is refused (H1, H3, H4)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.frames.prepare import prepare
from safewrite.frames.source import as_frame

DAY, NOON = dt.date(2020, 1, 1), dt.datetime.fromisoformat("2020-01-02T12:30")
AWARE = NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
MIXED: dict[str, list[Any]] = {
    "a date and a time": [DAY, NOON],
    "with a zone and without": [NOON, AWARE],
    "bytes and text": [b"a", "b"],
    "an integer of 54 bits and a float": [2**53 + 1, 2.5],
    "a decimal and a float": [Decimal("1.5"), 2.5],
    "a flag and a number": [True, 2],
}


def categorical(values: list[Any]) -> pd.Series:
    return pd.Series(pd.Categorical.from_codes([*range(len(values))], pd.Index(values, dtype=object)))


def sparse(values: list[Any]) -> pd.Series:
    return pd.Series(pd.arrays.SparseArray(np.array(values, dtype=object), fill_value=None))


HOLDERS = {"objects": lambda v: pd.Series(v, dtype=object), "categorical": categorical, "sparse": sparse}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("values", MIXED.values(), ids=MIXED.keys())
def test_values_that_no_one_type_holds_are_refused_in_every_kind_of_column(
    values: list[Any], holder: str
) -> None:
    """pyarrow's own inference would cut the time off, read a naive time as UTC, or make text of bytes."""
    with pytest.raises(sw.InvalidInputError):
        prepare(pd.DataFrame({"c": HOLDERS[holder](values)}), None)


@pytest.mark.parametrize("holder", HOLDERS)
def test_nanoseconds_beside_other_times_are_not_cut_off(holder: str) -> None:
    frame = pd.DataFrame({"c": HOLDERS[holder]([pd.Timestamp(1), NOON])})
    with pytest.raises(sw.WouldAlterError, match="lose data"):
        prepare(frame, None)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b", "a", None],
        [DAY, None, DAY],
        [NOON, NOON],
        [AWARE],
        [1, 2**62, 1],
        [Decimal("1.50"), Decimal(2)],
        [b"x", b""],
        [True, False, None],
        [0.5, float("inf")],
    ],
)
@pytest.mark.parametrize("holder", ["categorical", "sparse"])
def test_categories_are_the_values_that_an_object_column_would_hold(holder: str, values: list[Any]) -> None:
    if holder == "categorical":
        kinds = pd.Index(dict.fromkeys(v for v in values if v is not None), dtype=object)
        series = pd.Series(pd.Categorical(values, categories=kinds))
    else:
        if AWARE in values:
            return  # pandas itself makes other values of these
        series = sparse(values)
    plain = prepare(pd.DataFrame({"c": pd.Series(values, dtype=object)}), None)
    found = prepare(pd.DataFrame({"c": series}), None)
    assert (found.schema, found.fingerprint) == (plain.schema, plain.fingerprint)
    assert (
        pa.concat_tables(found.tables()).column("c").to_pylist()
        == pa.concat_tables(plain.tables()).column("c").to_pylist()
    )


def test_categories_that_no_row_has_do_not_count() -> None:
    series = pd.Series(pd.Categorical([DAY], categories=pd.Index([DAY, NOON, "x"], dtype=object)))
    assert prepare(pd.DataFrame({"c": series}), None).schema.field("c").type == pa.date32()


@pytest.mark.parametrize("wide", [np.longdouble(2) ** 60 + 1, np.longdouble("0.1") * 3])
def test_a_float_of_more_bits_than_a_column_has_is_not_rounded(wide: Any) -> None:
    for data in ({"c": [wide]}, {"c": [[wide]]}, [{"c": {"x": wide}}], {"c": np.array([wide], dtype=object)}):
        with pytest.raises(sw.InvalidInputError, match="64 bits"):
            prepare(data, None)
    with pytest.raises(sw.InvalidInputError):
        prepare({"c": np.array([wide])}, None)


def test_a_wide_float_without_further_bits_is_its_value() -> None:
    prepared = prepare({"c": [np.longdouble(0.5), np.float32(0.25), np.float16(2)]}, None)
    assert pa.concat_tables(prepared.tables()).column("c").to_pylist() == [0.5, 0.25, 2.0]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"c": [{"a": 1, "b": 2}, {"a": 3}]}),
        pd.DataFrame({"c": [[{"a": 1}, {"b": 2}]]}),
        {"c": pd.Series([{"a": 1, "b": 2}, {"a": 3}])},
        [{"c": {"a": 1, "b": 2}}, {"c": {"a": 3}}],
    ],
)
def test_keys_that_some_dicts_lack_do_not_become_null(frame: Any) -> None:
    with pytest.raises(sw.WouldAlterError, match="lack it"):
        prepare(frame, None)
    assert prepare(frame, None, schema_mode="merge").rows > 0


def test_objects_of_numpy_are_the_values_that_they_stand_for() -> None:
    found = as_frame(
        {
            "u": np.array([np.uint64(2**64 - 1), 1], dtype=object),
            "t": [np.datetime64("2020-01-02T12:30:00.000001"), NOON],
            "d": [np.datetime64("2020-01-01", "D"), DAY],
            "n": [np.datetime64("NaT"), NOON],
        }
    )
    table = found.piece(0, 2)
    assert table.column("u").to_pylist() == [2**64 - 1, 1]
    assert table.column("t").to_pylist() == [NOON + dt.timedelta(microseconds=1), NOON]
    assert table.column("d").to_pylist() == [DAY, DAY]
    assert table.column("n").to_pylist() == [None, NOON]
    with pytest.raises(sw.InvalidInputError, match="microseconds"):
        as_frame({"t": [np.datetime64(1, "ns"), NOON]})
    with pytest.raises(sw.InvalidInputError, match="mixes"):
        as_frame({"t": [np.datetime64("2020-01-01", "D"), NOON]})


@pytest.mark.parametrize("item", [np.array(5), np.array("x"), np.array(None, dtype=object)])
def test_an_array_without_dimensions_is_refused(item: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="dimension"):
        as_frame({"c": pd.Series([item, item], dtype=object)})


def test_names_that_look_like_a_type_are_names() -> None:
    struct = pl.DataFrame({"c": [{"ObjectId": 1}]})
    named = pl.DataFrame({"c": pl.Series(["Object A"], dtype=pl.Enum(["Object A"]))})
    assert prepare(struct, None).schema.field("c").type == pa.struct({"ObjectId": pa.int64()})
    assert prepare(named, None).schema.field("c").type == pa.string()
    objects = pl.DataFrame({"c": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(sw.InvalidInputError, match="Python objects"):
        prepare(objects, None)


@pytest.mark.parametrize("schema_mode", [None, "merge"])
@pytest.mark.parametrize(
    "data", [[{}, {}], pd.DataFrame(index=range(2)), pa.table({"id": [1, 2]}).select([])]
)
def test_rows_without_columns_are_refused(data: Any, schema_mode: Any) -> None:
    for target in (None, pa.schema({"id": pa.int64()})):
        with pytest.raises(sw.InvalidInputError, match="no columns"):
            prepare(data, target, schema_mode=schema_mode)


@pytest.mark.parametrize(
    "data", [pd.Series([1]), pl.Series("c", [1]), pa.array([1]), pa.chunked_array([[1]]), 5, "text", None]
)
def test_what_is_no_table_is_refused(data: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        as_frame(data)


@pytest.mark.parametrize("name", ["a\0b", "\0", "a\ud800"])
def test_a_name_that_some_reader_cannot_hold_is_refused(name: str) -> None:
    """One such column makes the whole table unreadable to deltalake and to all who read Arrow schemas."""
    for data in ({name: [1]}, [{name: 1}], [{"c": {name: 1}}], {"c": [[{name: 1}]]}):
        with pytest.raises(sw.InvalidInputError, match="character"):
            prepare(data, None)
