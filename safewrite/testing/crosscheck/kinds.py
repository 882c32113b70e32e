"""Parses column types from texts such as ``map<string,list<date>>``, and draws values of them."""

# ruff: noqa: DTZ001 - times without a zone are among what is drawn
from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from safewrite.testing.crosscheck.program import Column
from safewrite.values.types import is_bytes, is_list, is_text

_NAIVE = [
    dt.datetime(1, 1, 1),
    dt.datetime(1500, 1, 1),
    dt.datetime(1582, 10, 10, 1, 2, 3),
    dt.datetime(1899, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1, 0, 0, 0, 1),
    dt.datetime(2020, 1, 2, 3, 4, 5, 123456),
    dt.datetime(2263, 1, 1, 0, 0, 0, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_TEXTS = [
    "",
    "a",
    "it's",
    "a\\b",
    "a/b=c",
    "%41",
    "größe",
    "💥",
    " x ",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    'say "a"',
    "a/../b",
    "東京都千代田区丸の内一丁目九番一号",
    "Ханты-Мансийский автономный округ",
    "x" * 200,
]

_LEAVES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "naive": pa.timestamp("us"),
    "time": pa.time64("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed4": pa.binary(4),
    "decimal9": pa.decimal128(9, 2),
    "decimal38": pa.decimal128(38, 18),
}
_ICEBERG_ONLY = ("time", "fixed4")
_DELTA_ONLY = ("int8", "int16")
ORDERED = ("int8", "int16", "int32", "int64", "date", "instant", "naive", "string", "decimal9", "decimal38")
"""Kinds of columns by which rows are filtered: engines differ on the order of NaN, and of little else."""


def leaves(format_: str) -> list[str]:
    """The kinds of a format that contain no others."""
    without = _DELTA_ONLY if format_ == "iceberg" else _ICEBERG_ONLY
    return [kind for kind in _LEAVES if kind not in without]


@functools.cache
def arrow(kind: str) -> pa.DataType:
    """The Arrow type of a kind."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    outer, _, rest = kind.partition("<")
    parts = list(_split(rest[:-1]))
    match outer:
        case "list":
            return pa.list_(pa.field("element", arrow(parts[0])))
        case "map":
            return pa.map_(
                pa.field("key", arrow(parts[0]), nullable=False), pa.field("value", arrow(parts[1]))
            )
        case "struct":
            pairs = (part.partition(":") for part in parts)
            return pa.struct([pa.field(name, arrow(inner)) for name, _, inner in pairs])
    raise ValueError(f"{kind!r} is no kind of column")


def _split(text: str) -> Iterator[str]:
    """Parts between the commas that are in no brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of columns."""
    return pa.schema([pa.field(column.name, arrow(column.kind)) for column in columns])


def kind_of(type_: pa.DataType) -> str:
    """The spelling here of a type in a user's own schema; raises ValueError for one that cannot be drawn."""
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        for field in fields:
            if set(field.name) & set("<>,:"):
                raise ValueError(
                    f"a field {field.name!r} of a struct is not drawn: its name has one of < > , :"
                )
        return f"struct<{','.join(f'{field.name}:{kind_of(field.type)}' for field in fields)}>"
    if pa.types.is_map(type_):
        return f"map<{kind_of(type_.key_type)},{kind_of(type_.item_type)}>"
    if is_list(type_):
        return f"list<{kind_of(type_.value_type)}>"
    if is_text(type_):
        return "string"
    if is_bytes(type_) and not pa.types.is_fixed_size_binary(type_):
        return "binary"
    for kind, known in _LEAVES.items():
        if known == type_:
            return kind
    drawn = ", ".join(str(known) for known in _LEAVES.values())
    raise ValueError(
        f"values of type {type_} are not drawn; those of {drawn} are, and lists, maps and structs of them"
    )


def kinds(format_: str, without: str = "") -> st.SearchStrategy[str]:
    """Kinds of columns, one of four of them nested; ``without`` is one that some engine does not know."""
    leaf = st.sampled_from([kind for kind in [*leaves(format_), "naive", "instant"] if kind != without])
    nested = st.one_of(
        leaf.map(lambda kind: f"list<{kind}>"),
        leaf.map(lambda kind: f"map<string,{kind}>"),
        st.tuples(leaf, leaf).map(lambda pair: f"struct<a:{pair[0]},b:{pair[1]}>"),
        leaf.map(lambda kind: f"list<struct<a:{kind},b:int32>>"),
    )
    return st.integers(0, 3).flatmap(lambda number: nested if number == 3 else leaf)


def values(kind: str) -> st.SearchStrategy[Any]:
    """Values of a kind; one of ten is None."""
    return st.integers(0, 9).flatmap(lambda number: st.none() if number == 9 else present(kind))


@functools.cache
def present(kind: str) -> st.SearchStrategy[Any]:
    """Values of a kind but None."""
    if "<" in kind:
        return _nested(kind)
    if (whole := re.fullmatch(r"int(\d+)", kind)) is not None:
        bits = int(whole[1]) - 1
        edges = [0, 1, -1, 7, 2**bits - 1, -(2**bits)]
        return st.one_of(st.sampled_from(edges), st.integers(-(2**bits), 2**bits - 1))
    return _PRESENT[kind]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    whole = st.one_of(st.integers(-200, 200), st.integers(-(10**precision) + 1, 10**precision - 1))
    return whole.map(lambda number: Decimal(number).scaleb(-scale, Context(prec=60)))


_MOMENTS = st.one_of(st.sampled_from(_NAIVE), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)))
_PRESENT: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float32": st.floats(width=32, allow_subnormal=False),
    "float64": st.floats(allow_subnormal=False),
    "date": _MOMENTS.map(lambda moment: moment.date()),
    "instant": _MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    "naive": _MOMENTS,
    "time": st.times(),
    "string": st.one_of(
        st.sampled_from(_TEXTS), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
    ),
    "binary": st.one_of(st.just(b""), st.just(b"\x00"), st.binary(max_size=6)),
    "fixed4": st.one_of(
        st.sampled_from([b"\x06xyz", b"abcd", b"\0\0\0\0"]), st.binary(min_size=4, max_size=4)
    ),
    "decimal9": _decimals(9, 2),
    "decimal38": _decimals(38, 18),
}


def _nested(kind: str) -> st.SearchStrategy[Any]:
    outer, _, rest = kind.partition("<")
    parts = list(_split(rest[:-1]))
    match outer:
        case "list":
            return st.lists(values(parts[0]), max_size=3)
        case "map":
            pairs = st.dictionaries(present(parts[0]), values(parts[1]), max_size=3)
            return pairs.map(lambda found: list(found.items()))
    fields = {name: values(inner) for name, _, inner in (part.partition(":") for part in parts)}
    return st.fixed_dictionaries(fields)


NAN = float("nan")
STRANGERS: dict[str, list[Any]] = {
    "date": [dt.datetime(2020, 1, 2, 12, 30), dt.datetime(2020, 1, 2, tzinfo=dt.UTC), "2020-01-02"],
    "instant": [dt.datetime(2020, 1, 2, 12, 30), dt.date(2020, 1, 2), 5],
    "naive": [dt.datetime(2020, 1, 2, 12, 30, tzinfo=dt.UTC), dt.date(2020, 1, 2), 5],
    "int64": [NAN, 2.5, Decimal("1.5"), 2**63, True, "7"],
    "int32": [2**31, 1.5, True],
    "float64": [2**53 + 1, Decimal("0.1"), "1.5", True],
    "float32": [2**24 + 1, 0.1],
    "string": [b"a", 5, dt.date(2020, 1, 2)],
    "binary": ["a", 5],
    "decimal9": [NAN, Decimal("1.234"), 0.1, 10**9],
    "bool": [1, "true"],
}
"""Values that stray into a column of a kind: each is written as it is, or refused."""
