"""Infers the schemas of JSON records that come without one, from samples: which fields they have, and of which kinds.

What is inferred decides nothing: records that do not fit are read one by one, as all of them could be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import UnsuitedError, flags
from safewrite.cdc.connect.values import digits_pattern
from safewrite.cdc.records.prefixes import NUMBERS_AS_WRITTEN
from safewrite.cdc.records.records import KafkaRecords
from safewrite.values.objects import BINARY_DIGITS

Kinds = dict[str, Any]
"""The kinds of a struct's fields: the name of one of Connect's types, ``NULL``, that of a list, or the kinds of a struct."""
NULL = "null"
_BINARY = "double"
_BY_TYPE: Mapping[type, str] = {
    bool: "boolean",
    int: "int64",
    Decimal: _BINARY,
    str: "string",
    type(None): NULL,
}
_DEPTH = 1
"""An event has structs, which have plain values."""
_SAMPLES = 64
_FIELDS_MAX = 2000
_NAMES_MAX = 1000
_TABLES_MAX = 256
_LONG = rf"{digits_pattern(BINARY_DIGITS + 1)}|-0[,}}\s]"
"""Numbers with more digits than a binary one keeps, or a whole one that is -0."""
_WRAPPED = frozenset({"schema", "payload"})
"""The fields of what has its schema around it."""


# --- kinds ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ListKind:
    """The kind of a list, whose items are plain."""

    items: str


def kinds_of(value: Any, depth: int = _DEPTH) -> Any:
    """The kind of a value of JSON.

    Raises:
        UnsuitedError: it is nested too deeply, a list of numbers with points, or a number that JSON has not.
    """
    if isinstance(value, dict) and depth >= 0:
        return {name: kinds_of(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list):
        items = NULL
        for one in value:
            items = merged(items, _plain(one))
        if items == _BINARY:
            raise UnsuitedError("binary numbers, of which a text has to be made as they were written")
        return ListKind(items)
    return _plain(value)


def _plain(value: Any) -> str:
    kind = _BY_TYPE.get(type(value))
    if kind is None:
        raise UnsuitedError(f"a value of {type(value).__name__}")
    return kind


def merged(left: Any, right: Any) -> Any:
    """The kind that holds what both have.

    Raises:
        UnsuitedError: there is none.
    """
    if right in (left, NULL):
        return left
    if left == NULL:
        return right
    if isinstance(left, ListKind) and isinstance(right, ListKind):
        return ListKind(merged(left.items, right.items))
    if isinstance(left, dict) and isinstance(right, dict):
        return left | {name: merged(left.get(name, NULL), kind) for name, kind in right.items()}
    if isinstance(left, str) and isinstance(right, str) and {left, right} == {"int64", _BINARY}:
        return _BINARY
    raise UnsuitedError(f"values of {left} and {right}")


def schema_of(kind: Any) -> dict[str, Any]:
    """Connect's schema of a kind.  Where all samples were NULL it is a text, which holds NULL as well."""
    if isinstance(kind, ListKind):
        return {"type": "array", "items": schema_of(kind.items)}
    if isinstance(kind, dict) and kind:
        return {"type": "struct", "fields": [{**schema_of(one), "field": name} for name, one in kind.items()]}
    return {"type": "string" if kind in ({}, NULL) else kind}


def rows_alike(*names: str) -> Callable[[Kinds], Kinds]:
    """What makes the kinds of an envelope that has rows of the same columns in these fields.

    Raises:
        UnsuitedError: a sample has no rows there.
    """

    def of(kinds: Kinds) -> Kinds:
        rows: Any = NULL
        for name in names:
            rows = merged(rows, kinds.get(name, NULL))
        if not isinstance(rows, dict):
            raise UnsuitedError("no rows")
        return kinds | dict.fromkeys(names, rows)

    return of


def of_key(kinds: Kinds) -> Kinds:
    """The kinds of a key.

    Raises:
        UnsuitedError: one of its columns is always NULL, or nested.
    """
    if not kinds or any(isinstance(one, dict | ListKind) or one == NULL for one in kinds.values()):
        raise UnsuitedError("no key")
    return kinds


# --- schemas --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Inferred:
    """Records of which some were looked at, and the schema that those have."""

    name: Hashable
    schema: Mapping[str, Any]
    has_doubles: bool
    is_inferred = True

    def payloads(self, data: pa.Array) -> tuple[Any, Any]:
        """The payloads, and which of them are objects of JSON whose numbers binary ones keep, as far as their bytes tell."""
        fit = flags(pc.and_(pc.starts_with(data, b"{"), pc.ends_with(data, b"}")))
        if self.has_doubles:
            fit &= ~flags(pc.match_substring_regex(data, _LONG))
        return data, fit


class Tables:
    """Tells which records may be of one table, by their topic and by a text in their values; it decides nothing.

    Args:
        pattern: a regular expression with a group ``table``.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._shared: set[str] = set()
        """Topics with records of several tables; of the others no more than some records are looked at."""

    def of(self, records: KafkaRecords, places: Any, fewest: int) -> Iterator[tuple[Hashable, Any]]:
        """Topics, or tables of topics, and those of the places that have records of them, so many or more."""
        if len(places) < fewest:
            return
        topics = records.data.column("topic").combine_chunks().dictionary_encode()
        numbers = topics.indices.to_numpy()[places]
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            chosen = places[numbers == number]
            if len(chosen) < fewest:
                continue
            if topic not in self._shared and len(pc.unique(self._named(records, _some(chosen)))) > 1:
                self._shared.add(topic)
            if topic not in self._shared:
                yield topic, chosen
                continue
            tables = self._named(records, chosen).dictionary_encode()
            named = tables.indices.to_numpy(zero_copy_only=False)
            for at, table in enumerate(tables.dictionary.to_pylist()[:_TABLES_MAX]):
                of_table = chosen[named == at]
                if len(of_table) >= fewest:
                    yield (topic, table), of_table

    def _named(self, records: KafkaRecords, places: Any) -> Any:
        values = records.data.column("value").take(pa.array(places))
        return pc.struct_field(pc.extract_regex(values, self._pattern), "table").combine_chunks()


class Inference:
    """Infers the schemas of keys, or of values; what was met before is kept.

    Args:
        of: makes the kinds of samples those of a schema.
        is_whole: whether all of the samples must have the same fields.
    """

    def __init__(self, of: Callable[[Kinds], Kinds], tables: Tables, *, is_whole: bool) -> None:
        self._of, self._tables, self._is_whole = of, tables, is_whole
        self._met: dict[Hashable, Kinds] = {}

    def inferred(
        self, records: KafkaRecords, name: str, places: Any, fewest: int
    ) -> Iterator[tuple[Inferred, Any]]:
        """The schemas of ``key`` or ``value`` of the records at these places, and those places that have each."""
        for table, chosen in self._tables.of(records, places, fewest):
            made = self._made(table, records.data.column(name).take(pa.array(_some(chosen))).to_pylist())
            if made is not None:
                yield made, chosen

    def _made(self, table: Hashable, samples: Sequence[bytes]) -> Inferred | None:
        """The schema of samples; None if most of them have no common one."""
        known, values = self._met.pop(table, None), list(self._samples(samples))
        kinds = self._common(known, values) or self._common(None, values[::-1])
        if kinds is None or _count(kinds) > _FIELDS_MAX:
            return None
        if len(self._met) >= _NAMES_MAX:
            self._met.clear()
        self._met[table] = kinds
        try:
            schema = schema_of(self._of(kinds))
        except UnsuitedError:
            return None
        text = json.dumps(schema)
        return Inferred(text, schema, '"double"' in text)

    def _common(self, kinds: Kinds | None, values: Sequence[Any]) -> Kinds | None:
        """What these kinds are with those of values; None if most values do not fit, as where a column got another type."""
        strange = 0
        for value in values:
            try:
                kinds = self._with(kinds, value)
            except (UnsuitedError, RecursionError):
                strange += 1
        return None if 2 * strange > len(values) else kinds

    def _samples(self, data: Iterable[bytes]) -> Iterable[Any]:
        for one in data:
            try:
                yield NUMBERS_AS_WRITTEN.decode(one.decode())
            except (ValueError, RecursionError):
                yield None

    def _with(self, kinds: Kinds | None, value: Any) -> Kinds:
        """Kinds that hold one more value."""
        found = kinds_of(value)
        if not isinstance(found, dict) or set(found) >= _WRAPPED:
            raise UnsuitedError("no object, or one with its schema around it")
        if kinds is None:
            return found
        if self._is_whole and set(found) != set(kinds):
            raise UnsuitedError("other fields")
        return merged(kinds, found)  # type: ignore[no-any-return]


def _some(places: Any) -> Any:
    """Some of the places, evenly spread."""
    return places[np.unique(np.linspace(0, len(places) - 1, _SAMPLES).astype("int64"))]


def _count(kinds: Kinds) -> int:
    return sum(_count(one) if isinstance(one, dict) else 1 for one in kinds.values())
