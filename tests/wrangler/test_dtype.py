"""Casts by ``dtype=``: every value comes through as it was, or the column is refused."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.wrangler.athena_types import arrow_type, glue_type
from safewrite.wrangler.columns import columns_of

NAN = float("nan")
ID = uuid.uuid4()
MIDNIGHT, TEN = dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 10)  # noqa: DTZ001 - wall-clock times
AWARE = pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Oslo")

# Values, the type of Athena, and what is written.
CAST: dict[str, tuple[Any, str, list[Any]]] = {
    "integers with a gap": ([1.0, NAN], "bigint", [1, None]),
    "nullable integers": (pd.array([1, None], dtype="Int64"), "int", [1, None]),
    "a column of NULL": ([None, None], "string", [None, None]),
    "NaN among objects": (np.array(["a", NAN], dtype=object), "string", ["a", None]),
    "prices": ([19.99, 0.1], "decimal(10,2)", [Decimal("19.99"), Decimal("0.10")]),
    "a negative price": ([-1.5], "decimal(3, 1)", [Decimal("-1.5")]),
    "decimals": ([Decimal("1.1")], "decimal(10,2)", [Decimal("1.10")]),
    "halves": ([0.5], "float", [0.5]),
    "dates as text": (["2020-01-01", None], "date", [dt.date(2020, 1, 1), None]),
    "midnights": (pd.to_datetime(["2020-01-01"]), "date", [dt.date(2020, 1, 1)]),
    "moments as text": (["2020-01-01 10:00:00"], "timestamp", [TEN]),
    "dates as moments": ([dt.date(2020, 1, 1)], "timestamp", [MIDNIGHT]),
    "numbers as text": ([1, 2], "string", ["1", "2"]),
    "text as numbers": (["1"], "int", [1]),
    "UUIDs": ([ID], "string", [str(ID)]),
    "a category": (pd.Categorical(["a", "b"]), "varchar(10)", ["a", "b"]),
    "lists": ([[1, 2], None], "array<bigint>", [[1, 2], None]),
    "arrays": (pd.Series([np.array([1, 2])]), "array<double>", [[1.0, 2.0]]),
    "maps": ([{"s": "d"}, {"i": "l"}, {}], "map<string, string>", [[("s", "d")], [("i", "l")], []]),
    "structs": (
        [{"a": "v", "b": {"c": "x"}}, {"a": "y", "b": None}, {}],
        "struct<a: string, b: struct<c: string>>",
        [{"a": "v", "b": {"c": "x"}}, {"a": "y", "b": None}, {"a": None, "b": None}],
    ),
    "bytes": ([b"a"], "binary", [b"a"]),
    "flags": ([1, 0], "boolean", [True, False]),
}
# Values that the type cannot hold as they are.
LOST: dict[str, tuple[Any, str]] = {
    "a fraction": ([3.7], "bigint"),
    "a fraction in a gap": ([NAN, 3.7], "int"),
    "infinity": ([np.inf], "bigint"),
    "a third digit": ([1.119], "decimal(10,2)"),
    "a third digit of a decimal": ([Decimal("1.105")], "decimal(10,2)"),
    "a tenth": ([0.1], "float"),
    "beyond the mantissa": ([2**53 + 1], "double"),
    "beyond a byte": ([300], "tinyint"),
    "a time of day": (pd.to_datetime(["2020-01-01 10:00"]), "date"),
    "a time of day among dates": ([dt.date(2020, 1, 1), TEN], "date"),
    "a month as a date": (["2020-01"], "date"),
    "a leading zero": (["01"], "bigint"),
    "nanoseconds in a list": ([[pd.Timestamp("2020-01-01 00:00:00.000000001")]], "array<timestamp>"),
    "instants in a list": ([[dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]], "array<timestamp>"),
    "two of a flag": ([2], "boolean"),
    "a flag among numbers": (np.array([1, True], dtype=object), "bigint"),
    "a field that the type lacks": ([{"a": "v", "z": 1}], "struct<a:string>"),
    "numbers and texts": ([1, "a"], "string"),
    "a text that is no number": (["a"], "int"),
    "an instant among wall-clock times": (
        np.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), MIDNIGHT], dtype=object),
        "timestamp",
    ),
}


def cast(values: Any, kind: str) -> Any:
    return columns_of(pd.DataFrame({"c": values}), index=False, dtype={"c": kind})["c"]


@pytest.mark.parametrize(("values", "kind", "written"), CAST.values(), ids=list(CAST))
def test_a_value_that_fits_is_cast(values: Any, kind: str, written: list[Any]) -> None:
    found = cast(values, kind)
    assert found.to_pylist() == written
    assert found.type == arrow_type(kind, "c")


@pytest.mark.parametrize(("values", "kind"), LOST.values(), ids=list(LOST))
def test_a_value_that_would_change_is_refused(values: Any, kind: str) -> None:
    with pytest.raises(sw.WouldAlterError, match=r"'c' cannot be cast to .*Nothing was written\. Convert"):
        cast(values, kind)


@pytest.mark.parametrize("values", [[1.5, NAN], np.array([1.5, NAN], dtype=object)], ids=["numpy", "objects"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_nan_stays_a_number_among_floats(values: Any, kind: str) -> None:
    found = cast(values, kind)
    assert found.null_count == 0
    assert np.isnan(found[1].as_py())


@pytest.mark.filterwarnings("error")
def test_a_time_with_a_zone_stays_an_instant() -> None:
    """Athena has one word for both; awswrangler drops the zone."""
    assert cast(AWARE, "timestamp").type.tz == "UTC"
    assert cast(AWARE.astype(object), "timestamp").type.tz == "Europe/Oslo"


def test_nanoseconds_are_left_to_the_table_which_refuses_them() -> None:
    assert cast(pd.to_datetime(["2020-01-01 00:00:00.000000001"]), "timestamp").type.unit == "ns"


@pytest.mark.parametrize(
    "text",
    ["", "long", "decimal", "decimal(10)", "decimal(50,2)", "array<", "array<int", "array<long>", "map<int>", "struct<a>", "int(3)", 5, None],
)  # fmt: skip
def test_what_athena_has_no_type_for_is_refused(text: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"no type of Athena.*Nothing was written"):
        cast([1], text)


@pytest.mark.parametrize(
    "text",
    [
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "boolean",
        "string",
        "timestamp",
        "date",
        "binary",
        "decimal(38,9)",
        "array<map<string,decimal(10,2)>>",
        "struct<a:int,b:array<struct<c:date,d:map<int,string>>>>",
    ],
)
def test_a_type_has_one_name_there_and_back(text: str) -> None:
    assert glue_type(arrow_type(text, "c")) == text


def test_an_instant_is_a_timestamp_in_glue() -> None:
    assert glue_type(pa.timestamp("us", tz="UTC")) == "timestamp"
