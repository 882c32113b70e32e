"""Values that the configuration says how to read are read exactly, or refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.connect.logical_types.declared import declared_decimal, declared_time
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.objects import array_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, "0.1"),
        ("0.10", "0.10"),
        (7, "7"),
        (Decimal("-1.25"), "-1.25"),
        (1e3, "1000.0"),
        ("1E+2", "1E+2"),
    ],
    ids=str,
)
def test_a_decimal_is_what_was_written(value: Any, expected: str) -> None:
    """A binary number stands for the shortest text that reads back as it."""
    assert str(declared_decimal(10, 2, "string").read(value)) == expected


@pytest.mark.parametrize(
    "value", [True, None, "one", "", "NaN", float("inf"), "0.123", 0.123, 123456789], ids=str
)
def test_what_is_no_decimal_of_that_scale_is_refused(value: Any) -> None:
    with pytest.raises((UndecodableError, ValueError)):
        declared_decimal(10, 2, "string").read(value)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (1_714_000_000, "epoch_s"), ("1714000000000", "epoch_ms"), (1_714_000_000_000_000, "epoch_us"),
        ("2024-04-24T23:06:40Z", "iso8601"), ("2024-04-24 23:06:40", "iso8601"), ("2024-04-25T01:06:40+02:00", "iso8601"),
        ("24.04.2024 23:06:40", "%d.%m.%Y %H:%M:%S"), ("25.04.2024 01:06:40 +0200", "%d.%m.%Y %H:%M:%S %z"),
    ],
)  # fmt: skip
def test_a_time_is_a_moment_in_utc(value: Any, form: str) -> None:
    assert declared_time(form).read(value) == datetime(2024, 4, 24, 23, 6, 40, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (True, "epoch_s"),
        (1.5, "epoch_s"),
        (5, "iso8601"),
        ("soon", "iso8601"),
        ("2024-04-24T23:06:40.1234567Z", "iso8601"),
    ],
)
def test_what_is_no_time_of_a_form_is_refused(value: Any, form: str) -> None:
    with pytest.raises(UndecodableError):
        declared_time(form).read(value)


LIST, STRUCT, MAP = pa.list_(pa.string()), pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int64())
DEEP = pa.struct({"l": pa.list_(STRUCT), "m": pa.map_(pa.string(), LIST)})


@pytest.mark.parametrize(
    ("kind", "fitting", "strange"),
    [
        (LIST, [["x", None], [], None], ["ab", {"a": 1}, b"ab", 5, [5]]),
        (pa.list_(pa.int64()), [[1]], ["12", b"12", {"1": 1}]),
        (STRUCT, [{"a": 1}, {}, {"a": None, "b": None}, None], [[], [["a", 1]], [("a", 1)], {"a": 1, "b": 2}, {"a": "x"}, "a"]),
        (MAP, [[("a", 1)], {"b": None}, {}, [], None], [[None], ["ab"], [(None, 1)], [["a", 1]], [("a",)], "ab", {"a": "x"}, {None: 1}]),
        (DEEP, [{"l": [{"a": 1}], "m": {"k": ["x"]}}], [{"l": [[]]}, {"l": "x"}, {"l": [{"b": 1}]}, {"m": [None]}, {"m": {"k": "xy"}}]),
    ],
    ids=str,
)  # fmt: skip
def test_a_nested_value_fits_as_it_is_or_not_at_all(
    kind: pa.DataType, fitting: list[Any], strange: list[Any]
) -> None:
    """Arrow alone takes a text for a list of its letters, and passes over fields; of a map with NULL for a pair it ends the process."""
    expected = pa.array(fitting, kind)
    found, misfits = array_of([*fitting, *strange], kind)
    assert sorted(misfits) == list(range(len(fitting), len(fitting) + len(strange)))
    assert found.to_pylist() == [*expected.to_pylist(), *[None] * len(strange)]
