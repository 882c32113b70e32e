"""Translates Delta's schema JSON to Arrow schemas and back.

Source: Delta PROTOCOL.md, "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from safewrite.errors import InvalidInputError, UnsupportedTableError
from safewrite.text.rendering import said
from safewrite.values.types import (
    NAIVE_TIMESTAMP,
    UTC_TIMESTAMP,
    canonical_schema,
    check_names,
    list_of,
    map_of,
)
from safewrite.values.unsupported import unsupported

_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC_TIMESTAMP,
    "timestamp_ntz": NAIVE_TIMESTAMP,
    "void": pa.null(),  # a column that never had a value; its only one is NULL, and no file has it
}
_NAMES = {kind: name for name, kind in _PRIMITIVES.items()}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FORBIDDEN = set(" ,;{}()\n\t=")
_FOREIGN_METADATA = ("PARQUET:", "ARROW:", "delta.columnMapping.")
"""What a column of a frame says of the files that it was read from."""


def to_arrow(schema_string: str) -> pa.Schema:
    """The Arrow schema of a Delta ``schemaString``.

    Field metadata is kept: texts as they are, other values as JSON.  Raises UnsupportedTableError
    naming the column of a type that is not known (variant, interval, collated strings, ...).
    """
    return pa.schema([_field_to_arrow(f, "") for f in _parsed(schema_string)])


def readable(schema_string: str) -> tuple[pa.Schema, dict[str, str]]:
    """As :func:`to_arrow`, of the columns whose types are known, and why each other is not.  Raises if it is no Delta schema."""
    fields: list[pa.Field] = []
    unread: dict[str, str] = {}
    for field in _parsed(schema_string):
        try:
            fields.append(_field_to_arrow(field, ""))
        except UnsupportedTableError as error:
            unread[field["name"]] = error.message.partition(". ")[0]
    return pa.schema(fields), unread


def _parsed(schema_string: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(schema_string)["fields"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnsupportedTableError(
            f"The table's schema is no Delta schema ({said(error)}). Nothing was written. Check metaData.schemaString."
        ) from error
    return found


def _field_to_arrow(field: dict[str, Any], parent: str) -> pa.Field:
    path = f"{parent}{field['name']}"
    metadata = field.get("metadata") or {}
    if "__COLLATIONS" in metadata:
        raise unsupported(path, "collated string", "Delta")
    kind = _type_to_arrow(field["type"], path)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    return pa.field(field["name"], kind, nullable=field.get("nullable", True), metadata=texts or None)


def _type_to_arrow(kind: Any, path: str) -> pa.DataType:
    if isinstance(kind, str):
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        decimal = _DECIMAL.fullmatch(kind)
        if kind == "decimal" or decimal is not None:
            return pa.decimal128(*(int(g) for g in decimal.groups())) if decimal else pa.decimal128(10, 0)
        raise unsupported(path, kind, "Delta")
    match kind.get("type") if isinstance(kind, dict) else None:
        case "struct":
            return pa.struct([_field_to_arrow(f, f"{path}.") for f in kind["fields"]])
        case "array":
            element = _type_to_arrow(kind["elementType"], f"{path}.element")
            return list_of(pa.field("element", element, nullable=kind.get("containsNull", True)))
        case "map":
            key = _type_to_arrow(kind["keyType"], f"{path}.key")
            value = _type_to_arrow(kind["valueType"], f"{path}.value")
            return map_of(key, pa.field("value", value, nullable=kind.get("valueContainsNull", True)))
    raise unsupported(path, json.dumps(kind), "Delta")


def from_arrow(schema: pa.Schema) -> str:
    """The Delta ``schemaString`` of an Arrow schema.

    Types that Delta lacks but that hold the same values become canonical first (large strings,
    dictionaries, unsigned integers, other time units).  Field metadata is kept, except what says how
    files of another table name the column.  Raises InvalidInputError naming the column of any other type, or
    of a name that Delta tables without column mapping cannot have.
    """
    fields = [_field_to_json(f, "") for f in canonical_schema(schema)]
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":"))


def _field_to_json(field: pa.Field, parent: str, *, any_name: bool = False) -> dict[str, Any]:
    path = f"{parent}{field.name}"
    bad = sorted(_FORBIDDEN & set(field.name)) if not any_name else []
    if bad:
        raise InvalidInputError(
            f"Column {path!r} has {''.join(bad)!r} in its name, which Spark refuses in Delta tables. Nothing was "
            "written. Rename the column."
        )
    return {
        "name": field.name,
        "type": _type_to_json(field.type, path, any_name=any_name),
        "nullable": field.nullable,
        "metadata": _metadata_to_json(field.metadata or {}),
    }


def _metadata_to_json(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    texts = {key.decode(): value.decode() for key, value in metadata.items()}
    return {
        key: _metadata_value(key, text)
        for key, text in texts.items()
        if not key.startswith((*_FOREIGN_METADATA, "_PL_"))
    }


def _metadata_value(key: str, text: str) -> Any:
    """Delta's own keys hold numbers and objects as well (``delta.identity.start``); others are texts."""
    if not key.startswith("delta."):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (int, dict, list)) else text


def _type_to_json(kind: pa.DataType, path: str, *, any_name: bool = False) -> Any:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [
            _field_to_json(kind.field(i), f"{path}.", any_name=any_name) for i in range(kind.num_fields)
        ]
        return {"type": "struct", "fields": fields}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type_to_json(kind.key_type, f"{path}.key", any_name=any_name),
            "valueType": _type_to_json(kind.item_type, f"{path}.value", any_name=any_name),
            "valueContainsNull": kind.item_field.nullable,
        }
    return {
        "type": "array",
        "elementType": _type_to_json(kind.value_type, f"{path}.element", any_name=any_name),
        "containsNull": kind.value_field.nullable,
    }


def features_needed(schema: pa.Schema) -> tuple[str, ...]:
    """The table features that columns of ``schema`` need: ``timestampNtz`` for times without a zone."""
    return ("timestampNtz",) if any(_has_naive_time(f.type) for f in schema) else ()


def _has_naive_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    if pa.types.is_map(kind):
        return _has_naive_time(kind.key_type) or _has_naive_time(kind.item_type)
    return any(_has_naive_time(kind.field(i).type) for i in range(kind.num_fields))


def add_fields(schema_string: str, added: Iterable[pa.Field], *, any_name: bool = False) -> str:
    """``schema_string`` with new columns at its end, nullable; its own JSON stays as it is.

    With ``any_name`` files call the columns otherwise, and these may have names that Parquet does not take.

    Raises InvalidInputError for names that exist (but for case) and types that Delta lacks.
    """
    schema = json.loads(schema_string)
    new = canonical_schema(pa.schema([f.with_nullable(True) for f in added]))
    check_names([*(f["name"] for f in schema["fields"]), *new.names], where="the table with the new columns")
    schema["fields"].extend(_field_to_json(f, "", any_name=any_name) for f in new)
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def widen_fields(schema_string: str, wider: Iterable[pa.Field]) -> tuple[str, bool]:
    """``schema_string`` with wider types for some columns, and whether one is wider than by new fields of structs.

    The rest of its JSON stays as it is.  What a type was is noted as ``delta.typeChanges`` of the field (PROTOCOL.md, "Type Widening").
    """
    schema, changed = json.loads(schema_string), False
    by_name = {field["name"]: field for field in schema["fields"]}
    for one in wider:
        changed |= _widen(by_name[one.name], "type", one.type, one.name)
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":")), changed


def _widen(holder: dict[str, Any], at: str, want: pa.DataType, path: str) -> bool:
    """Let what a field, list or map holds be of a wider type; whether that of a value changed."""
    have = holder[at]
    if _type_to_arrow(have, path) == want:
        return False
    if pa.types.is_struct(want):
        known, changed = {field["name"]: field for field in have["fields"]}, False
        for field in want:
            inner = f"{path}.{field.name}"
            if field.name in known:
                changed |= _widen(known[field.name], "type", field.type, inner)
            else:
                have["fields"].append(_field_to_json(field, f"{path}."))
        return changed
    if pa.types.is_list(want):
        return _widen(have, "elementType", want.value_type, f"{path}.element")
    if pa.types.is_map(want):
        return _widen(have, "valueType", want.item_type, f"{path}.value")
    holder[at] = _type_to_json(want, path)
    metadata = holder.setdefault("metadata", {})
    change = {"fromType": have, "toType": holder[at]}
    metadata["delta.typeChanges"] = [*metadata.get("delta.typeChanges", ()), change]
    return True
