"""Values in ``where=``: what numpy and pandas hold is compared as what it is, and nothing is rounded."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.frames.where import parse
from tests.each import each

SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "m": pa.decimal128(10, 2),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "z": pa.timestamp("us", tz="UTC"),
    }
)
MOMENT = dt.datetime.fromisoformat("2020-01-02T12:30:00.000001")
INSTANT = MOMENT.replace(tzinfo=dt.UTC)


@each(
    ("column", "value", "same"),
    [
        ("i", np.int64(7), 7),
        ("i", np.uint8(7), 7),
        ("i", np.float64(7), 7),
        ("f", np.float32(0.5), 0.5),
        ("f", np.int32(2), 2.0),
        ("s", np.str_("x"), "x"),
        ("b", np.bool_(True), True),
        ("m", np.int64(3), Decimal(3)),
        ("d", np.datetime64("2020-01-02"), dt.date(2020, 1, 2)),
        ("t", np.datetime64("2020-01-02T12:30:00.000001"), MOMENT),
        ("t", np.datetime64("2020-01-02T12:30:00.000001000", "ns"), MOMENT),
        ("t", pd.Timestamp(MOMENT), MOMENT),
        ("z", pd.Timestamp(INSTANT), INSTANT),
        ("z", pd.Timestamp(INSTANT).tz_convert("Asia/Tokyo"), INSTANT),
    ],
)
def test_a_scalar_of_numpy_or_pandas_is_its_value(column: str, value: Any, same: Any) -> None:
    assert parse([(column, "=", value)], SCHEMA) == parse([(column, "=", same)], SCHEMA)
    assert str(parse([(column, "=", value)], SCHEMA)) == str(parse([(column, "=", same)], SCHEMA))


@each("op", ["=", "!=", "<", "<=", ">", ">="])
@each(
    ("column", "value"),
    [
        ("t", pd.Timestamp(1500)),
        ("z", pd.Timestamp(1500, tz="UTC")),
        ("t", np.datetime64(1500, "ns")),
        ("t", pd.NaT),
        ("t", np.datetime64("NaT")),
        ("d", pd.Timestamp("2020-01-02")),
        ("d", np.datetime64("2020-01-02T12:30")),
        ("i", np.float64(1.5)),
        ("i", pd.NA),
        ("f", np.nan),
        ("f", 2**53 + 1),
        ("f", np.longdouble(1) / 3),
        ("f", Decimal("1E-400")),
        ("f", Decimal("-1E+400")),
        ("m", Decimal("1E-41")),
        ("s", np.array("x")),
    ],
)
def test_a_value_that_the_column_cannot_have_is_refused(column: str, value: Any, op: str) -> None:
    with pytest.raises(sw.InvalidInputError, match="where="):
        parse([(column, op, value)], SCHEMA)


@pytest.mark.parametrize(
    "values", [np.array([1, 2]), pd.Series([1, 2]), pd.Index([1, 2]), {1, 2}, (1, 2), pa.array([1, 2])]
)
def test_in_takes_every_kind_of_list(values: Any) -> None:
    assert str(parse([("i", "in", values)], SCHEMA)) == str(parse([("i", "in", [1, 2])], SCHEMA))


@pytest.mark.parametrize("values", [5, "12", b"12", None, np.array(5), [[1, 2]], {1: 2}, np.array([[1, 2]])])
def test_in_takes_nothing_else(values: Any) -> None:
    with pytest.raises(sw.InvalidInputError):
        parse([("i", "in", values)], SCHEMA)


@pytest.mark.parametrize("op", ["<", ">=", "="])
def test_a_time_between_two_microseconds_deletes_nothing(tmp_path: Path, op: str) -> None:
    """Cut off it would be the microsecond before, and the row of that would go, or stay, by mistake."""
    table = sw.open(tmp_path / "t", create=True)
    rows = pa.table({"ts": pa.array([0, 1, 2], pa.timestamp("us"))})
    table.append(rows)
    with pytest.raises(sw.InvalidInputError):
        table.delete([("ts", op, pd.Timestamp(1500))])
    with pytest.raises(sw.InvalidInputError):
        table.overwrite(rows.slice(0, 0), where=[("ts", op, pd.Timestamp(1500))])
    assert table.version == 0


class Odd:
    """A value whose every use is an error of its own."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "where", [[("i", "=", Odd())], [("i", "in", Odd())], Odd(), [Odd()], [("i", Odd(), 1)]]
)
def test_an_odd_value_is_refused_as_any_other(where: Any) -> None:
    with pytest.raises(sw.InvalidInputError):
        parse(where, SCHEMA)


def test_a_comparison_with_nan_is_refused_by_its_name() -> None:
    """NaN was called no double."""
    with pytest.raises(
        sw.InvalidInputError,
        match=r"with NaN, which engines order in different ways. Nothing was written. Name",
    ):
        parse([("f", "in", [1.0, np.nan])], SCHEMA)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.time64("us"), dt.time(1, 2)), (pa.list_(pa.int32()), [1]), (pa.struct({"a": pa.int32()}), {"a": 1})],
)
def test_a_column_whose_values_are_not_compared_is_told_so(kind: Any, value: Any) -> None:
    """A time of day was called no time64[us]."""
    with pytest.raises(
        sw.InvalidInputError,
        match=r"of type .*: such a column is compared with NULL only\. Nothing was written",
    ):
        parse([("c", "=", value)], pa.schema({"c": kind}))
