"""Decimals: unscaled numbers in two's complement, as bytes or base64."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from safewrite.cdc.connect.logical_types.column import UNREADABLE, LogicalColumn, ReadArray, RowFallback
from safewrite.cdc.connect.logical_types.plain import binary, whole
from safewrite.cdc.connect.misfits import plain_of
from safewrite.cdc.records.change import UndecodableError
from safewrite.values.decimals import bounded
from safewrite.values.limits import DECIMAL_DIGITS_MAX, EXPONENT_MAX


def unscaled(value: Any, scale: int) -> Decimal:
    """A decimal of the bytes of its unscaled number, in two's complement."""
    if abs(scale) > EXPONENT_MAX:
        raise UndecodableError(
            f"a decimal of scale {scale} is refused: {EXPONENT_MAX} digits behind the point are the most"
        )
    number = Decimal(int.from_bytes(binary(value), "big", signed=True))
    sign, digits, _ = number.as_tuple()
    return Decimal((sign, digits, -scale))  # exact, however many digits it has


def decimal(schema: Mapping[str, Any]) -> LogicalColumn:
    """Connect's Decimal; a text where it has more digits than a column of decimals holds."""
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", DECIMAL_DIGITS_MAX))
    if not 0 <= scale <= precision <= DECIMAL_DIGITS_MAX:
        return LogicalColumn(pa.string(), lambda value: format(_decimal_of(value, scale), "f"))

    def plain(value: Any) -> Any:
        try:
            return _decimal_of(value, scale)
        except UNREADABLE:
            return plain_of(value)

    kind = pa.decimal128(precision, scale)
    arrays = dict.fromkeys((pa.string(), pa.binary()), unscaled_array(kind))
    return LogicalColumn(kind, lambda value: _decimal_of(value, scale), plain=plain, arrays=arrays)


def _decimal_of(value: Any, scale: int) -> Decimal:
    # decimal.format=NUMERIC of Connect's JSON converter writes a number.
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return bounded(Decimal(value))
    return unscaled(value, scale)


def _variable_decimal(value: Any) -> str:
    return format(unscaled(value["value"], whole(value["scale"])), "f")


VARIABLE_SCALE = LogicalColumn(pa.string(), _variable_decimal)


def unscaled_array(type_: pa.DataType) -> ReadArray:
    """Makes the reader of a column: it reads unscaled numbers, in two's complement; Arrow's decimals have the lowest byte first."""
    limit = 10**type_.precision

    def read(values: pa.Array, fallback: RowFallback) -> pa.Array:
        found, unread = [], []
        for place, value in enumerate(values.to_pylist()):
            number = 0
            if value is not None:
                try:
                    number = int.from_bytes(binary(value), "big", signed=True)
                except UndecodableError:
                    unread.append(place)
                if abs(number) >= limit:
                    unread.append(place)
                    number = 0
            found.append(number.to_bytes(16, "little", signed=True))
        if unread:
            fallback.at(unread)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type_, len(values), [bits, pa.py_buffer(b"".join(found))])

    return read
