"""Reads which columns and keys the tables of a source have, as its catalog tells them, and the type of each here."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field

from safewrite.errors import InvalidInputError
from safewrite.values.limits import DECIMAL_DIGITS_MAX

NEEDED = ("table_schema", "table_name", "column_name", "data_type")
_MORE = ("numeric_precision", "numeric_scale", "key_position")
_PLAIN = {
    "tinyint": "int16", "smallint": "int16", "int2": "int16", "smallserial": "int16", "year": "int16", "mediumint": "int32", "int": "int32",
    "integer": "int32", "int4": "int32", "serial": "int32", "bigint": "int64", "int8": "int64", "bigserial": "int64",
    "tinyint unsigned": "int16", "smallint unsigned": "int32", "mediumint unsigned": "int32", "int unsigned": "int64",
    "bigint unsigned": "decimal(20,0)", "real": "float32", "float4": "float32", "binary_float": "float32", "double": "float64",
    "double precision": "float64", "float": "float64", "float8": "float64", "binary_double": "float64", "money": "decimal(19,4)",
    "smallmoney": "decimal(10,4)", "boolean": "bool", "bool": "bool", "date": "date", "datetime": "timestamp", "datetime2": "timestamp",
    "smalldatetime": "timestamp", "timestamp": "timestamp", "timestamp without time zone": "timestamp", "datetimeoffset": "timestamptz",
    "timestamptz": "timestamptz", "timestamp with time zone": "timestamptz", "timestamp with local time zone": "timestamptz",
    "time": "time", "time without time zone": "time", "bytea": "binary", "blob": "binary", "tinyblob": "binary", "mediumblob": "binary",
    "longblob": "binary", "binary": "binary", "varbinary": "binary", "image": "binary", "raw": "binary", "long raw": "binary",
}  # fmt: skip
_TEXTS = (
    "char", "text", "string", "clob", "json", "xml", "uuid", "uniqueidentifier", "enum", "set", "name", "inet", "cidr", "interval", "array",
)  # fmt: skip
_DECIMALS = ("decimal", "numeric", "number")


@dataclass
class ListedTable:
    """The columns of a table, in the order of the source, with types of ours; and its key."""

    columns: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    guessed: dict[str, str] = field(default_factory=dict)
    """Columns of types that say too little, and these types."""


def source_tables(text: str, *, has_time: bool) -> dict[str, ListedTable]:
    """The tables of a CSV with one line for each column; ``has_time``: whether tables have a type for times of a day.

    Raises:
        InvalidInputError: a column of the CSV is missing, or a line says too little.
    """
    reader = csv.DictReader(io.StringIO(text))
    names = {name.strip().lower(): name for name in reader.fieldnames or ()}
    if lacking := [name for name in NEEDED if name not in names]:
        raise InvalidInputError(
            f"The list of columns lacks {', '.join(lacking)} in its first line. Nothing was written. It is a CSV of {', '.join((*NEEDED, *_MORE))}."
        )
    found: dict[str, ListedTable] = {}
    keys: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(reader, 2):
        said = {name: (line.get(at) or "").strip() for name, at in names.items()}
        if not all(said[name] for name in NEEDED):
            raise InvalidInputError(
                f"Line {number} of the list of columns lacks one of {', '.join(NEEDED)}. Nothing was written. Correct it."
            )
        name, column = f"{said['table_schema']}.{said['table_name']}", said["column_name"]
        table = found.setdefault(name, ListedTable())
        kind, is_sure = _type(said, has_time=has_time)
        table.columns[column] = kind
        if not is_sure:
            table.guessed[column] = said["data_type"]
        if position := said.get("key_position", ""):
            keys.setdefault(name, []).append((_number(position, number), column))
    for name, places in keys.items():
        found[name].keys = [column for _, column in sorted(places)]
    return found


def _number(text: str, line: int) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidInputError(
            f"Line {line} of the list of columns has {text!r} where a whole number is needed. Nothing was written. Correct it."
        ) from error


def _type(said: Mapping[str, str], *, has_time: bool) -> tuple[str, bool]:
    """A type of ours, and whether the source's says all that it needs."""
    given = said["data_type"].lower()
    bare = given.partition("(")[0].strip()
    rest = given.partition(")")[2].strip()
    bare = f"{bare} {rest}".strip()  # timestamp(6) with time zone
    if bare in _DECIMALS:
        return _decimal(bare, given, said)
    if bare in _PLAIN:
        kind = _PLAIN[bare]
        return ("string" if kind == "time" and not has_time else kind), True
    return "string", any(one in bare for one in _TEXTS)


def _decimal(bare: str, given: str, said: Mapping[str, str]) -> tuple[str, bool]:
    inner = [part.strip() for part in given.partition("(")[2].partition(")")[0].split(",")]
    listed = [said.get("numeric_precision", ""), said.get("numeric_scale", "")]
    numbers = [one for one in (inner if inner != [""] else listed) if one.lstrip("-").isdigit()]
    if not numbers or int(numbers[0]) > DECIMAL_DIGITS_MAX:
        return "decimal(38,10)", False
    precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
    if scale < 0:
        precision, scale = min(precision - scale, DECIMAL_DIGITS_MAX), 0
    if bare == "number" and scale == 0 and precision < 19:
        return ("int32" if precision < 10 else "int64"), True
    return f"decimal({max(precision, scale)},{scale})", True
