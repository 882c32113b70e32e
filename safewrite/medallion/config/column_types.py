"""Names the types of columns in a configuration."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from safewrite.values.limits import DECIMAL_DIGITS_MAX

_PLAIN = {
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
    "binary": pa.binary(), "time": pa.time64("us"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")


def arrow_type(name: Any) -> pa.DataType:
    """The Arrow type of a declared one.

    Raises:
        ValueError: there is none of that name.
    """
    found = _PLAIN.get(name) if isinstance(name, str) else None
    decimal = _DECIMAL.fullmatch(name) if isinstance(name, str) else None
    if decimal and 1 <= int(decimal[1]) <= DECIMAL_DIGITS_MAX and int(decimal[2]) <= int(decimal[1]):
        found = pa.decimal128(int(decimal[1]), int(decimal[2]))
    if found is None:
        raise ValueError(f"{name!r} is not a type; there are {', '.join(_PLAIN)} and decimal(p,s)")
    return found
