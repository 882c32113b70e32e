"""Translates Athena's names of types to Arrow's types and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

import safewrite as sw

_PLAIN: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "uuid": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
    "binary": pa.binary(),
    "varbinary": pa.binary(),
}
_GLUE: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "string"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
    (pa.types.is_binary, "binary"),
)


def arrow_type(text: str, column: str) -> pa.DataType:
    """The type that Athena calls ``text``, such as ``decimal(10,2)`` or ``array<struct<a:int>>``.

    Raises:
        InvalidInputError: Athena has no type of this name; ``column`` is for the message.
    """
    try:
        return _parsed(text)
    except (ValueError, AttributeError, TypeError) as error:  # pa.ArrowInvalid is a ValueError
        raise sw.InvalidInputError(
            f"dtype= has {text!r} for column {column!r}, which is no type of Athena. Nothing was written. Use names "
            "such as bigint, double, string, date, timestamp, decimal(10,2), array<string>, struct<a:int>."
        ) from error


def _parsed(text: str) -> pa.DataType:
    name, inside = _split(text.strip())
    match name:
        case "decimal":
            precision, scale = inside.split(",")
            return pa.decimal128(int(precision), int(scale))
        case "array":
            return pa.list_(_parsed(inside))
        case "map":
            key, value = _parts(inside)
            return pa.map_(_parsed(key), _parsed(value))
        case "struct":
            fields = [part.split(":", 1) for part in _parts(inside)]
            return pa.struct([(field.strip(), _parsed(kind)) for field, kind in fields])
        case "char" | "varchar":
            return pa.string()
    if inside or name not in _PLAIN:
        raise ValueError(text)
    return _PLAIN[name]


def _split(text: str) -> tuple[str, str]:
    """``decimal(10,2)`` as its name and what is in its brackets."""
    for opening, closing in ("<>", "()"):
        name, found, rest = text.partition(opening)
        if found and "(" not in name:
            if not rest.endswith(closing):
                raise ValueError(text)
            return name.strip().lower(), rest[:-1]
    return text.lower(), ""


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that stand in no inner brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def glue_type(kind: pa.DataType) -> str:
    """What Glue calls the type of a Delta table's column."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{glue_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{glue_type(kind.key_type)},{glue_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{glue_type(field.type)}' for field in kind)}>"
    return next(name for is_kind, name in _GLUE if is_kind(kind))
