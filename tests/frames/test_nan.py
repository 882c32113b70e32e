"""NaN is a number: floats keep it, every other column refuses it, whatever its neighbours are (H3, T3-A5)."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.frames.prepare import prepare
from tests.each import each

NAN = float("nan")
DAY = dt.date(2020, 1, 1)
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
NEIGHBOURS: dict[pa.DataType, Any] = {
    pa.int64(): 1,
    pa.int8(): 1,
    pa.decimal128(9, 2): Decimal("1.50"),
    pa.date32(): DAY,
    pa.timestamp("us", tz="UTC"): NOON,
    pa.timestamp("us"): NOON.replace(tzinfo=None),
    pa.bool_(): True,
    pa.string(): "x",
    pa.binary(): b"x",
}
"""The types that have no NaN, and a value of each."""
NUMBERS = {kind for kind in NEIGHBOURS if pa.types.is_integer(kind) or pa.types.is_decimal(kind)}
PLACES: dict[str, Any] = {
    "the column itself": (lambda kind: kind, lambda value: value),
    "a field of a struct": (lambda kind: pa.struct({"f": kind}), lambda value: {"f": value}),
    "an item of a list": (pa.list_, lambda value: [value]),
    "a value of a map": (lambda kind: pa.map_(pa.string(), kind), lambda value: {"k": value}),
    "a field in a list": (lambda kind: pa.list_(pa.struct({"f": kind})), lambda value: [{"f": value}]),
}
HOLDERS: dict[str, Any] = {
    "rows": lambda values: [{"c": value} for value in values],
    "lists": lambda values: {"c": values},
    "numpy's objects": lambda values: {"c": _objects(values)},
    "pandas' objects": lambda values: pd.DataFrame({"c": pd.Series(values, dtype=object)}),
}
TYPED: dict[str, Any] = {
    "pandas' floats": lambda: pd.DataFrame({"c": [NAN, NAN]}),
    "numpy's floats": lambda: {"c": np.array([NAN, NAN])},
    "Arrow": lambda: pa.table({"c": [NAN, NAN]}),
    "Arrow, with NULL": lambda: pa.table({"c": [None, NAN, NAN]}),
    "Arrow's small floats": lambda: pa.table({"c": pa.array([NAN], pa.float32())}),
    "polars": lambda: pl.DataFrame({"c": [NAN, NAN]}),
    "a dictionary": lambda: pa.table({"c": pa.array([NAN]).dictionary_encode()}),
}


def _objects(values: list[Any]) -> Any:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def stored(data: Any, kind: pa.DataType | None) -> list[Any]:
    """The values of a frame's column ``c`` as a table would hold them."""
    prepared = prepare(data, None if kind is None else pa.schema({"c": kind}))
    return pa.concat_tables(prepared.tables()).column("c").to_pylist()


@each("holder", HOLDERS)
@each("place", PLACES)
@each("kind", NEIGHBOURS, ids=str)
@each("known", [True, False], ids=["the table's type", "a new table"])
def test_one_nan_is_refused_whatever_its_neighbours_are(
    kind: pa.DataType, place: str, holder: str, known: bool
) -> None:
    """NaN alone, with NULL, and among values of the column's type: one answer for all of them."""
    within, wrapped = PLACES[place]
    rows = [wrapped(value) for value in (NEIGHBOURS[kind], NAN, None)]
    mixes = [rows[1:2], rows[1:], rows[1::-1], rows[:2], rows] if known else [rows[1::-1], rows[:2]]
    if not known and (place == "a value of a map" or pa.types.is_integer(kind)):
        return  # without a table's type such a dict is a struct, and whole numbers beside NaN are floats
    if holder == "pandas' objects" and place == "the column itself" and kind not in NUMBERS:
        for values in mixes:  # pandas' own mark of a missing value
            wanted = [None if value is None or value is NAN else value for value in values]
            assert stored(HOLDERS[holder](values), kind if known else None) == wanted
        return
    for values in mixes:
        at = next(row for row, value in enumerate(values) if value is rows[1])
        with pytest.raises(sw.WouldAlterError, match=rf"'c[.a-z]*', row {at}: .*(NaN|nan)") as told:
            stored(HOLDERS[holder](values), within(kind) if known else None)
        assert "Nothing was written" in str(told.value)
        assert "None" in str(told.value)


@each("frame", TYPED)
@each("kind", NEIGHBOURS, ids=str)
def test_a_column_of_floats_that_holds_only_nan_is_refused_by_row(kind: pa.DataType, frame: str) -> None:
    with pytest.raises(sw.WouldAlterError, match=r"'c', row [01]: .*(NaN|nan)") as told:
        stored(TYPED[frame](), kind)
    assert "None" in str(told.value)


@pytest.mark.parametrize("holder", HOLDERS)
def test_floats_keep_nan(holder: str) -> None:
    for values in ([NAN], [NAN, None], [1.5, NAN], [np.float32(1.5), NAN], [1, NAN]):
        for kind in (pa.float64(), None):
            found = stored(HOLDERS[holder](values), kind)
            assert [str(value) for value in found] == [
                "None" if value is None else str(float(value)) for value in values
            ]
    inner = stored(HOLDERS[holder]([{"f": NAN}]), pa.struct({"f": pa.float32()}))
    assert math.isnan(inner[0]["f"])


def test_what_pandas_masks_is_null() -> None:
    """Its own dtypes say what is missing: nothing is guessed."""
    frame = pd.DataFrame(
        {
            "n": pd.Series([1, None], dtype="Int64"),
            "s": pd.Series(["x", NAN], dtype="string"),
            "b": pd.Series([True, None], dtype="boolean"),
            "t": pd.Series([pd.Timestamp(0), pd.NaT]),
            "c": pd.Categorical(["x", NAN]),
        }
    )
    schema = pa.schema(
        {"n": pa.int64(), "s": pa.string(), "b": pa.bool_(), "t": pa.timestamp("us"), "c": pa.string()}
    )
    assert pa.concat_tables(prepare(frame, schema).tables()).slice(1).to_pylist() == [
        dict.fromkeys(schema.names)
    ]
