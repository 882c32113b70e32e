"""Applies Iceberg's partition transforms to whole Arrow arrays.

Source: Iceberg table specification, "Partition Transforms" and Appendix B.  PyIceberg has them by value,
and by array only where ``pyiceberg-core`` is installed.  So arrays are transformed by arithmetic where that
is plain, otherwise by value, each distinct value once.
"""

from __future__ import annotations

import decimal
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, DecimalType, IntegerType, LongType, PrimitiveType, StringType
from pyiceberg.utils.decimal import decimal_to_unscaled

from safewrite.errors import UnsupportedTableError, WouldAlterError

_PER_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}
_CALENDAR = {YearTransform: "Y", MonthTransform: "M"}


def physical(values: pa.Array) -> pa.Array:
    """Dates, times and timestamps as the integers that Iceberg counts them in; other values as they are."""
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.view(pa.int64())
    return values


def transformed(
    values: pa.Array, transform: Transform[Any, Any], kind: PrimitiveType, column: str
) -> pa.Array:
    """The partition values of ``values``, a column of Iceberg type ``kind``, in their physical form.

    Raises WouldAlterError, naming ``column``, where a truncated number leaves the range of its type: engines
    would wrap it around.
    """
    if isinstance(transform, IdentityTransform):
        return physical(values)
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(values), physical(values).type)
    if isinstance(transform, (YearTransform, MonthTransform, DayTransform, HourTransform)):
        return _time_units(values, transform)
    if isinstance(transform, TruncateTransform):
        if isinstance(kind, (IntegerType, LongType)):
            return _truncated(values, transform.width, column)
        if isinstance(kind, StringType):
            return pc.utf8_slice_codeunits(values, 0, transform.width)  # of code points, as Iceberg counts
        if isinstance(kind, BinaryType):
            return pc.binary_slice(values, 0, transform.width)
        return _by_value(physical(values), transform, kind, column)
    if isinstance(transform, BucketTransform):
        return _by_value(physical(values), transform, kind, column)
    raise UnsupportedTableError(
        f"Column {column!r} is partitioned or sorted by {transform}, which safewrite does not know. Nothing was "
        "written. Write this table with Spark."
    )


def _time_units(values: pa.Array, transform: Transform[Any, Any]) -> pa.Array:
    """Years, months, days or hours since 1970-01-01, rounded down (before 1970 too)."""
    is_date = pa.types.is_date32(values.type)
    numbers, mask = _numbers(physical(values))
    unit = "D" if is_date else values.type.unit
    if type(transform) in _CALENDAR:
        found = numbers.view(f"datetime64[{unit}]").astype(f"datetime64[{_CALENDAR[type(transform)]}]")
        units = found.astype(np.int64)
    elif is_date:
        units = numbers
    else:
        units = numbers // (_PER_DAY[unit] // (24 if isinstance(transform, HourTransform) else 1))
    return pa.array(units.astype(np.int32), mask=mask)


def _truncated(values: pa.Array, width: int, column: str) -> pa.Array:
    numbers, mask = _numbers(values)
    low = numbers - np.mod(numbers, width)
    least = -(2**31) if pa.types.is_int32(values.type) else -(2**63)
    if (low > numbers).any() or (low < least).any():
        raise _beyond(values, column, width)
    return pa.array(low, mask=mask).cast(values.type)


def _numbers(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The integers as numpy, 0 where NULL, and the NULLs' places."""
    mask: npt.NDArray[np.bool_] = pc.is_null(values).to_numpy(zero_copy_only=False)
    filled = pc.fill_null(values, 0) if values.null_count else values
    return filled.to_numpy(zero_copy_only=False).astype(np.int64), mask


def _by_value(
    values: pa.Array,
    transform: BucketTransform[Any] | TruncateTransform[Any],
    kind: PrimitiveType,
    column: str,
) -> pa.Array:
    encoded = pc.dictionary_encode(values)
    distinct = encoded.dictionary.to_pylist()
    if isinstance(transform, BucketTransform):
        if isinstance(kind, DecimalType):
            hashes = [mmh3.hash(decimal_bytes(value)) & IntegerType.max for value in distinct]
            return pa.array([n % transform.num_buckets for n in hashes], pa.int32()).take(encoded.indices)
        return pa.array(map(transform.transform(kind), distinct), pa.int32()).take(encoded.indices)
    try:
        return pa.array(map(transform.transform(kind), distinct), values.type).take(encoded.indices)
    except pa.ArrowInvalid:  # a decimal with one digit more than its type has
        raise _beyond(values, column, transform.width) from None


def decimal_bytes(value: decimal.Decimal) -> bytes:
    """The shortest two's complement of the unscaled value; PyIceberg 0.11 uses a byte too many for -1.28."""
    unscaled = decimal_to_unscaled(value)
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _beyond(values: pa.Array, column: str, width: int) -> WouldAlterError:
    least = pc.min(values).as_py()
    return WouldAlterError(
        f"Column {column!r}: {least} truncated by the table's transform truncate[{width}] is no {values.type} any "
        "more. Nothing was written. Leave the row out, or partition the table in another way."
    )
