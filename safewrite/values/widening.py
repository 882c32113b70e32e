"""Says to which wider type a column of a table may go, so that it takes values of another type as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.values.limits import DECIMAL_DIGITS_MAX
from safewrite.values.types import canonical_leaf, list_of, map_of, mapped_type

Way: TypeAlias = Literal["delta", "iceberg", "fields"]
"""Which changes there may be: those of a format, or only new fields of structs, which every reader of both takes."""


def merged(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type that holds all values of both; None if there is none.  Fields of a struct stay as the left one has them."""
    if left == right:
        return left
    for one, other in ((left, right), (right, left)):
        if pa.types.is_integer(one) and pa.types.is_decimal(other):
            return _decimal(DECIMAL_DIGITS_MAX, other.scale) if other.precision < 19 + other.scale else other
        if pa.types.is_integer(one) and pa.types.is_floating(other):
            return pa.float64()
        if pa.types.is_date(one) and pa.types.is_timestamp(other) and other.tz is None:
            return other
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        return _decimal(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)
    for is_kind in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_kind(left) and is_kind(right):
            return max(left, right, key=lambda kind: int(kind.bit_width))
    return _nested(left, right)


def _nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        theirs = {field.name: field for field in right}
        both = [_field(field, theirs.pop(field.name, field)) for field in left]
        return None if any(one is None for one in both) else pa.struct([*both, *theirs.values()])
    if pa.types.is_list(left) and pa.types.is_list(right):
        element = _field(left.value_field, right.value_field)
        return None if element is None else list_of(element)
    if pa.types.is_map(left) and pa.types.is_map(right):
        value = _field(left.item_field, right.item_field)
        return None if value is None or left.key_type != right.key_type else map_of(left.key_type, value)
    return None


def _field(left: pa.Field, right: pa.Field) -> pa.Field | None:
    kind = merged(left.type, right.type)
    return None if kind is None else left.with_type(kind)


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def wider(have: pa.DataType, want: pa.DataType, way: Way) -> pa.DataType | None:
    """The type of a column that takes more values of ``want``; None if it takes all that it ever may."""
    found = _wider(have, want, _LEAVES[way])
    return None if found == have else found


def _wider(have: pa.DataType, want: pa.DataType, leaf: Leaf) -> pa.DataType:
    """A type made wider by all that may be."""
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        theirs = {field.name: field for field in want}
        fields = [
            field.with_type(_wider(field.type, theirs.pop(field.name, field).type, leaf)) for field in have
        ]
        return pa.struct([*fields, *(field.with_nullable(True) for field in theirs.values())])
    inside = (
        _never if leaf is _delta else leaf
    )  # Delta names types that changed inside of lists and maps by paths
    if pa.types.is_list(have) and pa.types.is_list(want):
        return list_of(have.value_field.with_type(_wider(have.value_type, want.value_type, inside)))
    if pa.types.is_map(have) and pa.types.is_map(want):
        value = have.item_field.with_type(_wider(have.item_type, want.item_type, inside))
        return map_of(have.key_type, value)
    both = merged(have, want)
    return both if both is not None and leaf(have, both) else have


def wider_fields(have: pa.Schema, want: pa.Schema, way: Way) -> list[pa.Field]:
    """The columns of a table that have to be wider for data of another schema, as they then are."""
    found = []
    for field in want:
        at = have.get_field_index(field.name)
        if at < 0:
            continue
        try:
            kind = wider(have.field(at).type, mapped_type(field.type, field.name, _storable), way)
            if kind is not None:
                mapped_type(kind, field.name, _storable)
        except (
            InvalidInputError
        ):  # no column has such a type or such names: values fit as they are, or not at all
            continue
        if kind is not None:
            found.append(have.field(at).with_type(kind))
    return found


def _storable(kind: pa.DataType) -> pa.DataType | None:
    return kind if pa.types.is_time64(kind) or pa.types.is_fixed_size_binary(kind) else canonical_leaf(kind)


def with_fields(schema: pa.Schema, changed: Sequence[pa.Field]) -> pa.Schema:
    """A schema with other fields in place of those of their names."""
    if not changed:
        return schema
    by_name = {field.name: field for field in changed}
    return pa.schema([by_name.get(field.name, field) for field in schema], metadata=schema.metadata)


def _iceberg(have: pa.DataType, want: pa.DataType) -> bool:
    """Iceberg table specification, "Schema Evolution", of format version 2."""
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(want.scale == have.scale and want.precision >= have.precision)
    return (have, want) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def _delta(have: pa.DataType, want: pa.DataType) -> bool:
    """Delta PROTOCOL.md, "Type Widening"; from dates to times is left out, which change their meaning."""
    if pa.types.is_decimal(want):
        if pa.types.is_decimal(have):
            return bool(want.precision - have.precision >= want.scale - have.scale >= 0)
        digits = 20 if have == pa.int64() else 10
        return bool(pa.types.is_signed_integer(have) and want.precision - digits >= want.scale)
    if pa.types.is_signed_integer(have):
        small = pa.types.is_signed_integer(want) or (want == pa.float64() and have != pa.int64())
        return bool(small and want.bit_width > have.bit_width)
    return (have, want) == (pa.float32(), pa.float64())


def _never(have: pa.DataType, want: pa.DataType) -> bool:
    return False


Leaf: TypeAlias = Callable[[pa.DataType, pa.DataType], bool]
_LEAVES: dict[Way, Leaf] = {"delta": _delta, "iceberg": _iceberg, "fields": _never}
