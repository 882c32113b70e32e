"""Spark's SQL of a table's rules: what is evaluated, and what is refused by name rather than guessed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from safewrite.frames.expressions import NotEvaluatedError, condition
from safewrite.frames.row_rules import held
from tests.each import each

MAX = 2**63 - 1
NIGHT = dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC)
SCHEMA = pa.schema([
    ("a", pa.int64()), ("b", pa.int32()), ("s", pa.string()), ("f", pa.float64()), ("g", pa.float32()), ("d", pa.date32()),
    ("ts", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")), ("m", pa.decimal128(10, 2)), ("t", pa.bool_()),
    ("l", pa.list_(pa.int64())),
])  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"a": 1, "b": 2, "s": "ab", "f": 1.5, "g": 0.1, "d": dt.date(2020, 1, 1), "ts": NIGHT, "n": NIGHT.replace(tzinfo=None), "m": Decimal("1.50"), "t": True},
    {},
    {"a": MAX, "b": 3, "s": "xé\n", "f": float("nan"), "g": 2.0, "d": dt.date(1, 1, 1), "ts": NIGHT, "n": NIGHT.replace(tzinfo=None), "m": Decimal(-3), "t": False},
]  # fmt: skip
TABLE = pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in ROWS], SCHEMA)


@each(
    ("text", "truth"),
    [
        ("a > 0", [1, 0, 1]),
        ("`A` >= 1L AND NOT b = 3", [1, 0, 0]),
        ("a IS NULL OR a IN (1, 2.5)", [1, 1, 0]),
        ("a <=> NULL IS NULL", None),
        ("b <=> a", [0, 1, 0]),
        ("a + 1 > 0", [1, 0, 0]),  # the last overflows
        ("b = 3 OR a + 1 > 0", [1, 0, 1]),  # and is not computed
        ("a + 1 > 0 OR b = 3", [1, 0, 0]),
        ("b % 2 = 0 AND -b < a * 2", [1, 0, 0]),
        ("b / 2 = 1.5", [0, 0, 1]),
        ("f > 1e3", None),
        ("f > 1000 AND f = f", [0, 0, 1]),  # NaN is the greatest, and itself
        ("g = 0.1", [0, 0, 0]),  # a float is not the double that is nearest to a text
        ("g = 2", [0, 0, 1]),
        ("m * 2 = 3 AND m < a + 1", [1, 0, 0]),
        ("m BETWEEN -3.0 AND 0", [0, 0, 1]),
        ("t", [1, 0, 0]),
        ("t IS NOT TRUE", [0, 1, 1]),
        ("s LIKE 'x_%'", [0, 0, 1]),
        ("s NOT LIKE 'a.'", [1, 0, 1]),
        ("length(s) = 3 AND substring(s, 2, 1) = 'é'", [0, 0, 1]),
        ("d >= '2020-01-01' AND d = DATE '2020-01-01'", [1, 0, 0]),
        ("CAST(ts AS DATE) < d AND to_date(n) = '1969-12-31'", [1, 0, 0]),
        ("year(ts) = 1969 AND hour(n) = 23 AND day(d) = 1", [1, 0, 1]),
        ("n < TIMESTAMP_NTZ '1970-01-01 00:00:00' AND ts < TIMESTAMP '1970-01-01 00:00:00'", [1, 0, 1]),
        ("TRUE", [1, 1, 1]),
    ],
)
def test_a_condition_is_true_where_it_is_in_spark(text: str, truth: list[int] | None) -> None:
    if truth is None:
        with pytest.raises(NotEvaluatedError):
            condition(text, SCHEMA)
        return
    found = held(condition(text, SCHEMA), TABLE).to_pylist()
    assert found == [bool(one) for one in truth]
    alone = [held(condition(text, SCHEMA), TABLE.slice(number, 1))[0].as_py() for number in range(3)]
    assert alone == found


@each(
    "text",
    [
        "s = 1", "a = 'x'", "g + g > 1", "b + g > 1", "m > f", "m * m * m * m > 1", "a / m > 1", "a % 0 = 1", "f / b > 1",
        "s RLIKE 'a'", "s LIKE 'a\\%'", "upper(s) = 'A'", "s || 'a' = 'b'", "a = 1 = t", "a BETWEEN 1 AND b = b", "NULL", "a = NULL",
        "a.b = 1", "nosuch > 1", "l IS NULL", 's = "x"', "a = 1; b = 2", "SELECT 1", "a > (SELECT 1)", "a", "(a > 1) = t", "a & 1 = 1",
        "CASE WHEN t THEN a > 1 END", "d > '2020-1-1'", "ts > '2020-01-01'", "n = ts", "a = 1 +", "current_date() > d", "1.5D > f",
        "CAST(s AS INT) = 1", "CAST(a AS INT) = 1", "date_format(ts, 'yyyy') = '2020'", "s LIKE ANY ('a', 'b')", "s ILIKE 'a'",
    ],
)  # fmt: skip
def test_what_sessions_of_spark_compute_differently_or_nobody_here_knows_is_refused(text: str) -> None:
    with pytest.raises(NotEvaluatedError):
        condition(text, SCHEMA)


def test_a_text_that_is_nested_very_deeply_is_refused() -> None:
    with pytest.raises(NotEvaluatedError):
        condition("(" * 5000 + "a = 1" + ")" * 5000, SCHEMA)
