"""Values at the edges of their types, file by file, and what Spark's filters find among them."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")
LONG = "k" * 32
"""As long as the texts in statistics are."""
TOP = "\U0010ffff"
UTC = dt.UTC

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "number": pa.int64(),
        "double": pa.float64(),
        "single": pa.float32(),
        "price": pa.decimal128(38, 10),
        "text": pa.string(),
        "day": pa.date32(),
        "moment": pa.timestamp("us", tz="UTC"),
        "clock": pa.timestamp("us"),
        "flag": pa.bool_(),
        "raw": pa.binary(),
        "point": pa.struct({"x": pa.float64(), "name": pa.string()}),
    }
)
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123_456, UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)

# One file for each list; what a row leaves out is NULL.
FILES: list[list[dict[str, Any]]] = [
    [{"number": 2**53 + 1, "double": NAN, "single": NAN, "text": LONG + "z", "raw": b"\xff"}, {"double": 1.0}],
    [{"number": -(2**63), "double": -0.0, "single": -0.0, "text": LONG + "é", "flag": False}],
    [{"number": 2**63 - 1, "double": 0.0, "single": 0.0, "text": LONG + TOP, "flag": True}],
    [{"double": float("inf"), "single": 0.1, "text": LONG + TOP * 40, "price": Decimal("0.1234567891")}],
    [{"double": float("-inf"), "single": -0.1, "text": "", "price": Decimal("1234567890123456789012345678.0123456789")}],
    [{"double": 0.1 + 0.2, "text": LONG, "price": Decimal("-1234567890123456789.0000000001"), "raw": b""}],
    [{"moment": MOMENT, "clock": MOMENT.replace(tzinfo=None), "day": dt.date(1, 1, 1)}],
    [{"moment": dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC), "clock": dt.datetime(1, 1, 1, 0, 0, 0, 1)}],
    [{"moment": LAST.replace(tzinfo=UTC), "clock": LAST, "day": dt.date(9999, 12, 31)}],
    [{"moment": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "clock": dt.datetime(1969, 12, 31, 23, 59, 59, 1)}],
    [{"point": {"x": NAN, "name": LONG + TOP}}, {"point": {"x": 1.0, "name": None}}, {"point": None}],
    [{"point": {"x": -0.0, "name": ""}, "text": "Zürich \U0001f600"}],
    [{}],
]  # fmt: skip

# Spark's order: NaN is equal to itself and above everything, -0.0 = 0.0, texts by their UTF-8 bytes.
FILTERS: dict[str, list[int]] = {
    "double = double('NaN')": [0],
    "double > double('Infinity')": [0],
    "double >= 1.0D": [0, 1, 4],
    "double = 1.0D": [1],
    "double = 0.0D": [2, 3],
    "double <= -0.0D": [2, 3, 5],
    "double >= 0.0D AND double < 0.1D": [2, 3],
    "double = 0.30000000000000004D": [6],
    "double IS NULL AND number IS NULL AND text IS NULL AND moment IS NULL AND point IS NULL": [13, 15],
    "single = float('NaN')": [0],
    "single = float(0)": [2, 3],
    "single = float('0.1')": [4],
    "single < float(0)": [5],
    "number = 9007199254740993": [0],
    "number <= -9223372036854775808": [2],
    "number >= 9223372036854775807": [3],
    f"text > '{LONG}'": [0, 2, 3, 4],
    f"text = '{LONG}'": [6],
    f"text = '{LONG}z'": [0],
    f"text >= '{LONG}é'": [2, 3, 4],
    f"text >= '{LONG}{TOP}'": [3, 4],
    f"text > '{LONG}{TOP}'": [4],
    f"text > '{LONG}{TOP}{TOP}'": [4],
    "text = ''": [5],
    "text = 'Zürich \U0001f600'": [14],
    "text LIKE 'Z%'": [14],
    "price = 0.1234567891": [4],
    "price > 1234567890123456789012345678.0123456788": [5],
    "price < -1234567890123456789": [6],
    "day <= DATE'0001-01-01'": [7],
    "day >= DATE'9999-12-31'": [9],
    "moment > TIMESTAMP'2026-03-29T01:30:00.123455Z' AND moment < TIMESTAMP'2026-03-29T01:30:00.124Z'": [7],
    "moment = TIMESTAMP'2026-03-29T01:30:00.123456Z'": [7],
    "moment <= TIMESTAMP'0001-01-01T00:00:00.000001Z'": [8],
    "moment > TIMESTAMP'9999-12-31T23:59:59.999Z'": [9],
    "moment > TIMESTAMP'1969-12-31T23:59:59.999Z' AND moment < TIMESTAMP'1970-01-01T00:00:00Z'": [10],
    "clock = TIMESTAMP_NTZ'2026-03-29 01:30:00.123456'": [7],
    "clock > TIMESTAMP_NTZ'2026-03-29 01:30:00.123455' AND clock < TIMESTAMP_NTZ'2026-03-29 01:30:00.124'": [
        7
    ],
    "clock <= TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'": [8],
    "clock > TIMESTAMP_NTZ'9999-12-31 23:59:59.999'": [9],
    "clock = TIMESTAMP_NTZ'1969-12-31 23:59:59.000001'": [10],
    "flag": [3],
    "NOT flag": [2],
    "raw = X'FF'": [0],
    "raw = X''": [6],
    "point.x = double('NaN')": [11],
    "point.x > 0.5D": [11, 12],
    "point.x = 0.0D": [14],
    f"point.name >= '{LONG}{TOP}'": [11],
    "point IS NULL AND clock IS NULL AND text IS NULL": [1, 13, 15],
    "point.name IS NULL AND point IS NOT NULL": [12],
}


def frames() -> list[pa.Table]:
    """The rows of each file; ids count through all of them."""
    found, number = [], 0
    for file in FILES:
        full = [dict.fromkeys(SCHEMA.names) | {"id": number + i} | row for i, row in enumerate(file)]
        found.append(pa.Table.from_pylist(full, schema=SCHEMA))
        number += len(file)
    return found
