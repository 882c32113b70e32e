"""Connect's own types: numbers, texts, bytes, true and false."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types.column import LogicalColumn, RowFallback
from safewrite.cdc.records.change import UndecodableError


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UndecodableError(f"{value!r} is no whole number")
    if not -(2**63) <= value < 2**63:
        raise UndecodableError(f"{value} does not fit into 64 bits")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        # Connect's JSON has no way to write these but as texts.
        if value in {"NaN", "Infinity", "-Infinity"}:
            return float(value)
        raise UndecodableError(f"{value!r} is no number")
    found = float(value)
    if math.isinf(found) and not isinstance(value, float):
        raise UndecodableError(f"{value} does not fit into 64 bits")
    return found


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UndecodableError(f"{value!r} is neither true nor false")
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise UndecodableError(f"{value!r} is no text")
    return value


def binary(value: Any) -> bytes:
    """Bytes as they are, or of base64."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(text(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableError(f"{value!r} is not base64") from error


def _as_they_are(values: pa.Array, fallback: RowFallback) -> pa.Array:
    if pa.types.is_floating(values.type):
        fallback.where(pc.is_inf(values))  # what has too many digits is that, too
    return values


_NUMBER = LogicalColumn(pa.int64(), whole, arrays={pa.int64(): _as_they_are})
_REAL = LogicalColumn(pa.float64(), _number, arrays={pa.float64(): _as_they_are})
PLAIN: Mapping[str, LogicalColumn] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _NUMBER),
    **dict.fromkeys(("float", "float32", "double", "float64"), _REAL),
    "boolean": LogicalColumn(pa.bool_(), _flag, arrays={pa.bool_(): _as_they_are}),
    "string": LogicalColumn(pa.string(), text, arrays={pa.string(): _as_they_are}),
    "bytes": LogicalColumn(pa.binary(), binary, arrays={pa.binary(): _as_they_are}),
}
"""Connect's own types."""
Carried = Mapping[Any, pa.DataType]
"""How a form of records carries the values of Connect's own types."""
IN_AVRO: Carried = {name: column.type for name, column in PLAIN.items()}
IN_JSON: Carried = {**IN_AVRO, "bytes": pa.string()}
