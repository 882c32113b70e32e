"""Maps a frame's types to the Arrow types that Delta and Iceberg tables share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa

from safewrite.errors import InvalidInputError
from safewrite.text.rendering import shown
from safewrite.text.strings import is_storable
from safewrite.values.limits import DECIMAL_DIGITS_MAX

Leaf = Callable[[pa.DataType], pa.DataType | None]
"""The type of a new table column for a frame's type without others in it; None where a format has none."""

DEPTH_MAX = 32
"""deltalake reads no schema of 128 levels of JSON; a struct takes three."""

UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")
NAIVE_TIMESTAMP = pa.timestamp("us")

_SAME = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32())
_PLAIN_LAYOUT = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_UNSIGNED_TO_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings, in any of Arrow's layouts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are byte strings, in any of Arrow's layouts."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def is_uuid(kind: pa.DataType) -> bool:
    """Whether values are UUIDs in Arrow's own extension type (which pyarrow 17 does not have)."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


def without_uuids(kind: pa.DataType) -> pa.DataType:
    """``kind`` with UUIDs replaced by what is stored for them: byte strings of 16."""
    return _replaced(kind, lambda leaf: leaf.storage_type if is_uuid(leaf) else leaf)


def without_views(kind: pa.DataType) -> pa.DataType:
    """``kind`` with views of texts and bytes replaced by the plain layout, which pyarrow (25) can filter and take of."""
    return (
        _replaced(kind, lambda leaf: _PLAIN_LAYOUT.get(leaf, leaf))
        if kind.num_fields
        else _PLAIN_LAYOUT.get(kind, kind)
    )


def _replaced(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """``kind`` with ``leaf`` applied to what is in its structs, lists and maps."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([f.with_type(_replaced(f.type, leaf)) for f in fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_replaced(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_replaced(kind.item_type, leaf))
        return pa.map_(kind.key_field.with_type(_replaced(kind.key_type, leaf)), item)
    return leaf(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists in a layout that pyarrow converts without loss.

    List views are left out: pyarrow 26 drops the elements that follow a NULL when it casts a
    ``list_view`` to a ``list``.
    """
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def list_of(element: pa.Field) -> pa.DataType:
    """A list type whose element is named as Delta and Iceberg name it."""
    return pa.list_(pa.field("element", element.type, nullable=element.nullable))


def map_of(key: pa.DataType, value: pa.Field) -> pa.DataType:
    """A map type with fields named ``key`` and ``value``; keys are never NULL."""
    return pa.map_(
        pa.field("key", key, nullable=False), pa.field("value", value.type, nullable=value.nullable)
    )


_LISTED, _NAMED = re.compile(r"list<(?:item|element|array): "), re.compile(r" \('\w+'\)")


def written(kind: pa.DataType) -> str:
    """A type as messages have it: whoever made it, without the names that formats and libraries give what is in a list or a map."""
    return _NAMED.sub("", _LISTED.sub("list<", str(kind))).replace("decimal128", "decimal")


def canonical_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type a Delta column gets when it is created from a frame's column of type ``kind``.

    Raises InvalidInputError, naming ``column``, where no table type holds every value of ``kind``.
    """
    return mapped_type(kind, column, canonical_leaf)


def canonical_leaf(kind: pa.DataType) -> pa.DataType | None:
    """The type that Delta holds the values of ``kind`` in, if there is one and nothing is nested."""
    if kind in _SAME:
        return kind
    if kind in _UNSIGNED_TO_SIGNED:
        return _UNSIGNED_TO_SIGNED[kind]
    if is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_timestamp(kind):
        return UTC_TIMESTAMP if kind.tz is not None else NAIVE_TIMESTAMP
    if (
        pa.types.is_decimal(kind)
        and kind.precision <= DECIMAL_DIGITS_MAX
        and 0 <= kind.scale <= kind.precision
    ):
        return pa.decimal128(kind.precision, kind.scale)
    return None


def mapped_type(kind: pa.DataType, column: str, leaf: Leaf, *, depth: int = 0) -> pa.DataType:
    """``kind`` with ``leaf`` applied to all that is in it; raises InvalidInputError where it gives None."""
    if depth > DEPTH_MAX:
        raise InvalidInputError(
            f"Column {column.partition('.')[0]!r} is nested more than {DEPTH_MAX} levels deep, and other engines could not "
            "read the table at all. Nothing was written. Make it flatter, or write it as a text (JSON)."
        )
    inside = partial(mapped_type, leaf=leaf, depth=depth + 1)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return inside(kind.value_type, column)
    if is_list(kind):
        inner = kind.value_field
        return list_of(inner.with_type(inside(inner.type, f"{column}.element")))
    if pa.types.is_map(kind):
        value = kind.item_field
        key = inside(kind.key_type, f"{column}.key")
        return map_of(key, value.with_type(inside(value.type, f"{column}.value")))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if not fields:
            raise InvalidInputError(
                f"Column {column!r} is a struct without fields. Nothing was written. Drop it or give it fields."
            )
        check_names([f.name for f in fields], where=f"column {column!r}")
        return pa.struct([f.with_type(inside(f.type, f"{column}.{f.name}")) for f in fields])
    found = leaf(kind)
    if found is None:
        raise InvalidInputError(_refusal(kind, column))
    return found


def _refusal(kind: pa.DataType, column: str) -> str:
    advice = "Cast it to a type that tables have."
    if pa.types.is_null(kind):
        advice = (
            "It holds only NULL, so no type can be inferred: make the table with safewrite.create(uri, schema=...), or cast "
            "the column to the type you mean."
        )
    elif pa.types.is_uint64(kind):
        advice = "Cast it to int64 (if every value is below 2^63) or to decimal128(20, 0)."
    elif pa.types.is_float16(kind):
        advice = "Cast it to float32, which holds every half float exactly."
    elif pa.types.is_duration(kind) or pa.types.is_time(kind) or pa.types.is_interval(kind):
        advice = "Tables have no such type: write a number of microseconds (int64), or a string."
    elif str(kind).startswith("extension<arrow.uuid>"):
        advice = "Tables have no such type here: write str(uuid), or uuid.bytes for a binary column."
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        advice = "Cast it to a list type."
    return f"Column {column!r} has type {kind}, which cannot be a table column. Nothing was written. {advice}"


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """The table schema inferred from a frame's Arrow schema; raises InvalidInputError per column."""
    check_names(schema.names, where="the data")
    return pa.schema([f.with_type(canonical_type(f.type, f.name)) for f in schema])


def is_column_name(name: str) -> bool:
    """Whether a table may have a column of this name: other engines could not read one with NUL, or half of a pair."""
    return bool(name) and is_storable(name)


def check_names(names: Iterable[object], *, where: str) -> None:
    """Refuse names that are not strings, empty, repeated, or equal but for case (H2)."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(
                f"A column name in {where} is {shown(name)}; names must be non-empty strings. "
                "Nothing was written. Rename the columns."
            )
        if not is_storable(name):
            raise InvalidInputError(
                f"The column name {name!r} in {where} has a character (NUL, or half of a pair) with which other engines "
                "could not read the table at all. Nothing was written. Rename the column."
            )
        folded = name.casefold()
        if folded in seen:
            raise InvalidInputError(_collision(seen[folded], name, where))
        seen[folded] = name


def _collision(one: str, other: str, where: str) -> str:
    how = "twice" if one == other else f"next to {one!r}, which differs only in case"
    return (
        f"Column {other!r} occurs {how} in {where}; tables match names without regard to case. "
        "Nothing was written. Rename or drop one of them."
    )
